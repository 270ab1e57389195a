"""The sink of a running source: it knows how the source is, bounds its rate, and hands on to the catalog."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from time import monotonic, time
from typing import Protocol

from xds.catalog.instance import Instance
from xds.catalog.source import Instances, Sink
from xds.control.change_bound import ChangeBound
from xds.model.errors import Violation

MESSAGE_CHARACTERS = 1_000
FINDINGS_KEPT = 100
WAITING_LIMIT = 100_000  # services whose latest state waits for the bound
_SOONEST_S = 0.01  # changes that wait are handed on together

Given = tuple[Instance, ...] | None  # None: the service is gone


@dataclass(slots=True)
class SourceCondition:
    """How a source is. Times are epoch seconds, None where it has not happened.

    ``read_s``: it was read last, ``changed_s``: it gave something last. ``failing_since_s`` and ``failure`` tell of a
    source that cannot be read now. ``findings`` are the first of ``findings_n`` things in it that cannot be used.
    """

    read_s: float | None = None
    changed_s: float | None = None
    failing_since_s: float | None = None
    failure: str = ""
    failures_n: int = 0
    restarts_n: int = 0
    changes_n: int = 0
    findings: tuple[Violation, ...] = ()
    findings_n: int = 0
    waiting_since_s: float | None = None

    @property
    def state(self) -> str:
        """``starting`` until it is read for the first time, ``failing`` while it cannot be read, else ``reading``."""
        if self.failing_since_s is not None:
            return "failing"
        return "starting" if self.read_s is None else "reading"


class SourceTold(Protocol):
    """Who is told when a source begins and ends to fail, and of what in it cannot be used."""

    def failing(self, message: str) -> None:
        """The source cannot be read."""

    def recovered(self, failed_s: float) -> None:
        """The source can be read again, after so many seconds."""

    def rejected(self, findings: tuple[Violation, ...], findings_n: int) -> None:
        """The first of ``findings_n`` things that cannot be used; none: all can be used now."""


class SourceSink:
    """A `Sink` in front of the sink of the catalog, for one source. It may only be used on the server's event loop.

    Changes beyond ``changes_per_s`` wait; a later change of the same service takes the place of the one that waits.
    ``told`` is called whenever the source begins or ends to fail, or its findings change.
    """

    def __init__(self, inner: Sink, changes_per_s: float, told: SourceTold) -> None:
        self.condition = SourceCondition()
        self._inner = inner
        self._told = told
        self._bound = ChangeBound(changes_per_s, changes_per_s, monotonic())
        self._waiting: dict[str, Given] = {}
        self._waiting_all: dict[str, Instances] | None = None
        self._timer: asyncio.TimerHandle | None = None

    # As in `Sink`

    def put(self, service: str, instances: Instances) -> None:
        """As in `Sink`. Raises ``TypeError`` for what are no instances."""
        given = _instances(service, instances)
        self._read()
        self._put_or_wait(service, given)

    def remove(self, service: str) -> None:
        """As in `Sink`."""
        self._read()
        self._put_or_wait(service, None)

    def replace(self, services: Mapping[str, Instances]) -> None:
        """As in `Sink`. Raises ``TypeError`` for what are no instances."""
        given: dict[str, Instances] = {name: _instances(name, instances) for name, instances in services.items()}
        self._read()
        self._waiting.clear()
        self._waiting_all = given
        self._hand_on()

    def alive(self) -> None:
        """As in `Sink`."""
        self._recover()
        self.condition.read_s = time()
        self._inner.alive()

    def failed(self, message: str) -> None:
        """As in `Sink`."""
        short = message[:MESSAGE_CHARACTERS]
        condition = self.condition
        began = condition.failing_since_s is None
        condition.failures_n += 1
        condition.failure = short
        if began:
            condition.failing_since_s = time()
            self._told.failing(short)
        self._inner.failed(short)

    def rejected(self, findings: Sequence[Violation]) -> None:
        """As in `Sink`: all that cannot be used at present, in place of what was rejected before."""
        kept, condition = tuple(findings[:FINDINGS_KEPT]), self.condition
        changed = (kept, len(findings)) != (condition.findings, condition.findings_n)
        condition.findings, condition.findings_n = kept, len(findings)
        if changed:
            self._told.rejected(kept, len(findings))
            self._inner.rejected(kept)

    def wanted(self) -> frozenset[str]:
        """As in `Sink`."""
        return self._inner.wanted()

    async def wait_for_wanted(self, seen: frozenset[str]) -> frozenset[str]:
        """As in `Sink`."""
        return await self._inner.wait_for_wanted(seen)

    # For the one that runs the source

    @property
    def waiting_n(self) -> int:
        """The number of services whose latest state waits for the bound on changes."""
        return len(self._waiting) + len(self._waiting_all or ())

    def close(self) -> None:
        """The source no longer runs: what waits is dropped."""
        if self._timer is not None:
            self._timer.cancel()

    # Inside

    def _read(self) -> None:
        self._recover()
        self.condition.read_s = self.condition.changed_s = time()
        self.condition.changes_n += 1

    def _recover(self) -> None:
        since_s, self.condition.failing_since_s = self.condition.failing_since_s, None
        if since_s is not None:
            self.condition.failure = ""
            self._told.recovered(time() - since_s)

    def _put_or_wait(self, service: str, given: Given) -> None:
        """Nothing overtakes what waits."""
        if not self._waiting and self._waiting_all is None and self._bound.admits(monotonic()):
            self._pass(service, given)
        else:
            self._wait_for(service, given)

    def _wait_for(self, service: str, given: Given) -> None:
        if self._waiting_all is not None:
            if given is None:
                self._waiting_all.pop(service, None)
            else:
                self._waiting_all[service] = given
        elif service in self._waiting or len(self._waiting) < WAITING_LIMIT:
            self._waiting[service] = given
        else:
            self.failed(f"more than {WAITING_LIMIT} changed services wait: {service!r} is left out")
        self._hand_on_later()

    def _hand_on(self) -> None:
        """Hand on what waits, as far as the bound admits."""
        self._timer = None
        try:
            if self._waiting_all is not None and self._bound.admits(monotonic()):
                services, self._waiting_all = self._waiting_all, None
                self._bound.spend(len(services))
                self._inner.replace(services)
            while self._waiting and self._waiting_all is None and self._bound.admits(monotonic()):
                service = next(iter(self._waiting))
                self._pass(service, self._waiting.pop(service))
        finally:
            self._hand_on_later()

    def _pass(self, service: str, given: Given) -> None:
        self._bound.spend(1)
        if given is None:
            self._inner.remove(service)
        else:
            self._inner.put(service, given)

    def _hand_on_later(self) -> None:
        if not self._waiting and self._waiting_all is None:
            self.condition.waiting_since_s = None
            return
        if self.condition.waiting_since_s is None:
            self.condition.waiting_since_s = time()
        if self._timer is None:
            delay_s = max(self._bound.wait_s(), _SOONEST_S)
            self._timer = asyncio.get_running_loop().call_later(delay_s, self._hand_on)


def _instances(service: str, instances: Instances) -> tuple[Instance, ...]:
    given = tuple(instances)
    for one in given:
        if not isinstance(one, Instance):
            raise TypeError(f"service {service!r}: {type(one).__name__} is no Instance")
    return given
