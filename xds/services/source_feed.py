"""The sink of one source: its changes that the catalog has not taken over yet, and its status.

`WantedServices` are the services that users of the catalog use, so that sources need not observe all others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from xds.model.compared_name import ComparedName, compared
from xds.model.errors import Violation
from xds.services.core.index import SourceHoldings
from xds.services.core.source import Instances, Sink

CONSUL = "consul"  # the kind of sources that read only the services that users of the catalog use
FINDINGS_LIMIT = 100  # of `Sink.rejected`
FAILURES_EVERY_S = 10.0  # the shortest time between reports of a source that fails and recovers again and again


# A service as its source shows it: instances by name as the source writes it; None: it has been removed.
Changes = dict[str, Instances | None]
Make = Callable[[], Instances | None]


@dataclass(slots=True)
class SourceStatus:
    """The status of a source. Times are epoch seconds, 0 for never.

    ``read_at`` is when the source was last read, ``failing_since`` when it began to fail; ``message`` is the reason.
    """

    name: str
    kind: str
    read_at: float = 0.0
    failing_since: float = 0.0
    message: str = ""
    failures_n: int = 0
    changes_n: int = 0
    rejected: tuple[Violation, ...] = ()

    @property
    def is_failing(self) -> bool:
        """Whether the source cannot be read."""
        return self.failing_since > 0


class SourceFeed(Sink):
    """A `Sink`. Only the latest state of each service is kept until ``take``, so a flood of changes costs little.

    ``source`` is the state that the catalog has taken over. ``notify`` is called after a change; ``report_state`` when
    the source fails (True) or recovers (False); ``completed`` when it was read as a whole for the first time.
    """

    def __init__(
        self,
        status: SourceStatus,
        source: SourceHoldings,
        wanted: WantedServices,
        clock: Callable[[], float],
        notify: Callable[[], None],
        report_state: Callable[[SourceStatus, bool], None],
        completed: Callable[[], None],
        services_limit: int,
    ) -> None:
        self.status = status
        self._wanted = wanted
        self._clock = clock
        self.source = source
        self._notify = notify
        self._report_state = report_state
        self._completed = completed
        self._is_whole = False  # it was read as a whole: it lacks all other services
        self._is_selective = False  # it reads only the services that are wanted, and puts each of them
        self.offers = False  # each reader sees all that it has offered
        self._limit = services_limit
        self._pending: dict[ComparedName, dict[str, Instances | Make | None]] = {}
        self._pending_names_n = 0  # names as the source writes them
        self._reported_at = 0.0
        self._is_failure_reported = False

    def put(self, service: str, instances: Instances) -> None:
        self._add(service, tuple(instances))
        self._set_read()

    def remove(self, service: str) -> None:
        self._add(service, None)
        self._set_read()

    def offer(self, service: str, make: Make) -> None:
        """Set the instances of a service that ``make`` returns when they are taken over; None removes the service.

        So a service that changes a thousand times until then is made once.
        """
        self.offers = True
        self._add(service, make)
        self._set_read()

    def replace(self, services: Mapping[str, Instances]) -> None:
        known = dict.fromkeys((*self.source.by_service, *self.source.findings))
        # Known services come first, so that a flood of new names does not crowd them out.
        self._pending = {}
        for service in known:
            changes = self._pending.setdefault(compared(service), {})
            changes[service] = tuple(services[service]) if service in services else None
        self._pending_names_n = len(known)
        self.status.changes_n += len(services.keys() & known)
        for service, instances in services.items():
            if service not in known:
                self._add(service, tuple(instances))
        self._notify()
        self.alive()

    def alive(self) -> None:
        self._set_read()
        if not (self._is_whole or self._is_selective):
            self._is_whole = True
            self._completed()

    def _set_read(self) -> None:
        status = self.status
        status.read_at = self._clock()
        if status.is_failing:
            status.failing_since, status.message = 0.0, ""
            if self._is_failure_reported:
                self._is_failure_reported = False
                self._report_state(status, False)

    def failed(self, message: str) -> None:
        now, status = self._clock(), self.status
        status.failures_n += 1
        status.message = encodable(str(message))
        status.failing_since = status.failing_since or now
        if not self._is_failure_reported and now - self._reported_at >= FAILURES_EVERY_S:
            self._is_failure_reported, self._reported_at = True, now
            self._report_state(status, True)

    def rejected(self, findings: Sequence[Violation]) -> None:
        self.status.rejected = tuple(map(_with_encodable_texts, findings[:FINDINGS_LIMIT]))

    def wanted(self) -> frozenset[str]:
        self._is_selective = True
        return self._wanted.names

    async def wait_for_wanted(self, seen: frozenset[str]) -> frozenset[str]:
        self._is_selective = True
        return await self._wanted.wait(seen)

    # For the catalog

    @property
    def is_whole(self) -> bool:
        """Whether the source was read as a whole, so that it lacks a service that it has not shown."""
        return self._is_whole and not self._is_selective

    def begin(self) -> None:
        """Forget what the source has read: it runs anew, perhaps with other settings."""
        self._is_whole = self._is_selective = False

    @property
    def findings_n(self) -> int:
        """The number of findings: items that cannot be used. May be read in another thread."""
        return len(self.status.rejected) + sum(map(len, list(self.source.findings.values())))

    @property
    def pending_n(self) -> int:
        """The number of services with a state that the catalog has not taken over yet."""
        return len(self._pending)

    def take(self, service: str) -> Changes:
        """Remove the pending state of a service, under all its names; empty: there is none."""
        pending = self._pending.pop(compared(service), {})
        self._pending_names_n -= len(pending)
        return {name: change() if callable(change) else change for name, change in pending.items()}

    def take_next(self) -> Changes:
        """Remove the pending state of the service that has waited longest, as ``take``."""
        return self.take(next(iter(self._pending), ""))

    def _add(self, service: str, change: Instances | Make | None) -> None:
        changes = self._pending.setdefault(compared(service), {})
        if service not in changes:
            if self._pending_names_n >= self._limit:  # the catalog would leave it out, too
                if not changes:
                    del self._pending[compared(service)]
                return
            self._pending_names_n += 1
        changes[service] = change
        self.status.changes_n += 1
        self._notify()


def _with_encodable_texts(finding: Violation) -> Violation:
    """The finding with texts that can be encoded: names of files may be any bytes."""
    texts = (finding.detail, finding.source, finding.pointer)
    detail, source, pointer = (encodable(text) for text in texts)
    return (
        finding
        if (detail, source, pointer) == texts
        else replace(finding, detail=detail, source=source, pointer=pointer)
    )


def encodable(text: str) -> str:
    """The text with lone surrogates escaped."""
    return text if text.isascii() else text.encode(errors="backslashreplace").decode()


class WantedServices:
    """The union of the services that each user wants. ``changed`` is called with the new union."""

    def __init__(self, changed: Callable[[frozenset[str]], None]) -> None:
        self.names: frozenset[str] = frozenset()
        self._changed = changed
        self._users: dict[str, frozenset[str]] = {}
        self._event = asyncio.Event()

    def assign(self, user: str, services: Iterable[str]) -> None:
        """Replace the services that one user wants. ``user`` is a unique name."""
        wanted = frozenset(services)
        if self._users.get(user, frozenset()) == wanted:
            return
        if wanted:
            self._users[user] = wanted
        else:
            del self._users[user]
        names = frozenset[str]().union(*self._users.values())
        if names != self.names:
            self.names = names
            self._event.set()
            self._event = asyncio.Event()
            self._changed(names)

    async def wait(self, seen: frozenset[str]) -> frozenset[str]:
        """The wanted names, as soon as they differ from ``seen``."""
        while self.names == seen:
            await self._event.wait()
        return self.names
