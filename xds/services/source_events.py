"""Events of sources: failures, recoveries, findings, and losses that are held."""

from __future__ import annotations

from collections.abc import Callable, Collection

import structlog

from xds.fleet.event_log import EventKind, EventLog
from xds.services.source_feed import SourceFeed, SourceStatus

HELD_EVERY_S = 1.0  # the shortest time between events of held losses of a source
FINDINGS_EVERY_S = 60.0  # the shortest time between events of findings of a source
NAMES_SHOWN = 10

_log = structlog.get_logger(logger_name="xds.services.sources")


class SourceEvents:
    """Records events of sources. Their rate is bounded, so that a flapping source does not fill the log."""

    def __init__(self, events: EventLog | None, clock: Callable[[], float]) -> None:
        self._events = events
        self._clock = clock
        self._reported_held: dict[str, frozenset[str]] = {}  # the services with reported held losses, by source
        self._held_reported_at: dict[str, float] = {}
        self._rejecting: set[str] = set()  # the sources with reported findings
        self._findings_reported_at: dict[str, float] = {}

    def record_state(self, status: SourceStatus, is_failing: bool) -> None:
        """A source fails, or is read again."""
        if is_failing:
            _log.warning("source.failed", source=status.name, kind=status.kind, error_message=status.message)
            self._record("failed", status, status.message)
        else:
            _log.info("source.recovered", source=status.name, kind=status.kind)
            self._record("recovered", status, "it is read again")

    def record_held(self, feed: SourceFeed) -> float:
        """Record the losses that are held since the last call, and those that ended.

        Returns after how many seconds to call again; 0 if nothing is left to record.
        """
        name, now = feed.status.name, self._clock()
        held, reported = feed.source.held_services, self._reported_held.get(name, frozenset())
        if held == reported:
            return 0.0
        wait_s = self._held_reported_at.get(name, 0.0) + HELD_EVERY_S - now
        if wait_s > 0:
            return wait_s
        self._reported_held[name], self._held_reported_at[name] = frozenset(held), now
        new, ended = held - reported, reported - held
        if new:
            lost = sum(len(feed.source.by_service[service].lost) for service in new)
            text = f"lost {lost} instances of {_names(new)} at once: the last good set is kept until it is accepted"
            _log.warning("source.held", source=name, services=sorted(new)[:NAMES_SHOWN], services_n=len(new))
            self._record("held", feed.status, text, services=len(new), instances=lost)
        if ended:
            _log.info("source.held_ended", source=name, services=sorted(ended)[:NAMES_SHOWN], services_n=len(ended))
            text = f"no loss of {_names(ended)} is held any more"
            self._record("held_ended", feed.status, text, services=len(ended))
        return 0.0

    def record_findings(self, feed: SourceFeed) -> None:
        """Record that items of a source cannot be used, unless that was recorded a short time ago."""
        status, now = feed.status, self._clock()
        findings = status.rejected or next(iter(feed.source.findings.values()), ())
        if not findings:
            self._rejecting.discard(status.name)
            return
        since_s = now - self._findings_reported_at.get(status.name, 0.0)
        if status.name not in self._rejecting and since_s >= FINDINGS_EVERY_S:
            self._rejecting.add(status.name)
            self._findings_reported_at[status.name] = now
            text = f"left out, since it cannot be used: {findings[0]}"
            _log.warning("source.rejected", source=status.name, kind=status.kind, error_message=text)
            self._record("rejected", status, text)

    def record_accepted(
        self, status: SourceStatus, services: Collection[str], instances: int, who: dict[str, str]
    ) -> None:
        """An operator accepted held losses. ``who`` are the names of `Caller`."""
        _log.info("source.accepted", source=status.name, services_n=len(services), instances_n=instances, **who)
        text = f"the loss of {instances} instances of {_names(services)} is accepted"
        self._record("accepted", status, text, services=len(services), instances=instances, **who)

    def forget(self, name: str) -> None:
        """The source was removed from the settings."""
        self._reported_held.pop(name, None)
        self._held_reported_at.pop(name, None)
        self._rejecting.discard(name)
        self._findings_reported_at.pop(name, None)

    def _record(self, action: str, status: SourceStatus, message: str, **details: str | int) -> None:
        if self._events is not None:
            about = {"source": status.name, "source_kind": status.kind, **details}
            self._events.record(EventKind.SOURCE, action, self._clock(), message=message, details=about)


def _names(services: Collection[str]) -> str:
    shown = ", ".join(sorted(services)[:NAMES_SHOWN])
    return f"{shown} and {len(services) - NAMES_SHOWN} more" if len(services) > NAMES_SHOWN else shown
