"""Events of sources: failures, recoveries, findings, and losses that are held."""

from __future__ import annotations

from collections.abc import Callable, Collection

import structlog

from xds.control.source_feed import SourceFeed, SourceStatus
from xds.fleet.event_log import EventKind, EventLog

HELD_EVERY_S = 1.0  # held losses of a source are told of no more often
FINDINGS_EVERY_S = 60.0  # as well, of findings
NAMES_SHOWN = 10

_log = structlog.get_logger(logger_name="xds.control.sources")


class SourceEvents:
    """Records events of sources, at most so many that a source which flaps does not fill the log."""

    def __init__(self, events: EventLog | None, clock: Callable[[], float]) -> None:
        self._events = events
        self._clock = clock
        self._told: dict[str, frozenset[str]] = {}  # the services with held losses that were told of, by source
        self._told_at: dict[str, float] = {}
        self._rejecting: set[str] = set()  # the sources whose findings were told of
        self._findings_at: dict[str, float] = {}

    def tell_state(self, status: SourceStatus, is_failing: bool) -> None:
        """A source fails, or is read again."""
        if is_failing:
            _log.warning("source.failed", source=status.name, kind=status.kind, error_message=status.message)
            self._record("failed", status, status.message)
        else:
            _log.info("source.recovered", source=status.name, kind=status.kind)
            self._record("recovered", status, "it is read again")

    def tell_held(self, feed: SourceFeed) -> float:
        """Tell of losses that are held since the last call, and of those that ended.

        Returns after how many seconds to call again; 0 if there is nothing to tell.
        """
        name, now = feed.status.name, self._clock()
        held, told = feed.source.held_services, self._told.get(name, frozenset())
        if held == told:
            return 0.0
        left_s = self._told_at.get(name, 0.0) + HELD_EVERY_S - now
        if left_s > 0:
            return left_s
        self._told[name], self._told_at[name] = frozenset(held), now
        new, ended = held - told, told - held
        if new:
            lost = sum(len(feed.source.by_service[service].lost) for service in new)
            text = f"lost {lost} instances of {_names(new)} at once: the last good set is kept until it is accepted"
            _log.warning("source.held", source=name, services=sorted(new)[:NAMES_SHOWN], services_n=len(new))
            self._record("held", feed.status, text, services=len(new), instances=lost)
        if ended:
            _log.info("source.held_ended", source=name, services=sorted(ended)[:NAMES_SHOWN], services_n=len(ended))
            self._record("held_ended", feed.status, f"nothing is held of {_names(ended)} any more", services=len(ended))
        return 0.0

    def tell_findings(self, feed: SourceFeed) -> None:
        """Report items of a source that cannot be used, unless they were reported a short time ago."""
        status, now = feed.status, self._clock()
        found = status.rejected or next(iter(feed.source.findings.values()), ())
        if not found:
            self._rejecting.discard(status.name)
        elif status.name not in self._rejecting and now - self._findings_at.get(status.name, 0.0) >= FINDINGS_EVERY_S:
            self._rejecting.add(status.name)
            self._findings_at[status.name] = now
            text = f"left out, since it cannot be used: {found[0]}"
            _log.warning("source.rejected", source=status.name, kind=status.kind, error_message=text)
            self._record("rejected", status, text)

    def tell_accepted(
        self, status: SourceStatus, services: Collection[str], instances: int, who: dict[str, str]
    ) -> None:
        """Somebody accepted losses."""
        _log.info("source.accepted", source=status.name, services_n=len(services), instances_n=instances, **who)
        text = f"the loss of {instances} instances of {_names(services)} is accepted"
        self._record("accepted", status, text, services=len(services), instances=instances, **who)

    def forget(self, name: str) -> None:
        """The source was taken out of the settings."""
        self._told.pop(name, None)
        self._told_at.pop(name, None)
        self._rejecting.discard(name)
        self._findings_at.pop(name, None)

    def _record(self, action: str, status: SourceStatus, message: str, **details: str | int) -> None:
        if self._events is not None:
            about = {"source": status.name, "source_kind": status.kind, **details}
            self._events.record(EventKind.SOURCE, action, self._clock(), message=message, details=about)


def _names(services: Collection[str]) -> str:
    shown = ", ".join(sorted(services)[:NAMES_SHOWN])
    return f"{shown} and {len(services) - NAMES_SHOWN} more" if len(services) > NAMES_SHOWN else shown
