"""The sink that a running source gets: in front of the catalog's, with a bound on the rate of changes and events."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from time import monotonic, time

from xds.catalog.instance import Instance
from xds.catalog.source import Instances, Sink
from xds.model.errors import Violation

WAITING_LIMIT = 100_000  # services whose latest state waits for the bound
INSTANCES_A_CHANGE = 1_000  # a service with this many more instances counts as another change
_SOONEST_S = 0.01  # changes that wait are handed on together

Given = tuple[Instance, ...] | None  # None: the service is gone


class ChangeBound:
    """``per_s`` changes a second on average, and ``burst`` at once.

    A change is admitted while anything is left. What it takes beyond that is owed, up to ``burst``, so that one large
    change is admitted as well, and delays those that follow it by a bounded time. Times are in seconds, of any clock
    that only goes forward.
    """

    __slots__ = ("_at", "_burst", "_left", "_per_s")

    def __init__(self, per_s: float, burst: float, now: float) -> None:
        self._per_s = per_s
        self._burst = max(burst, 1.0)
        self._left = self._burst
        self._at = now

    def admits(self, now: float) -> bool:
        """Whether a change may be made now."""
        self._left = min(self._left + (now - self._at) * self._per_s, self._burst)
        self._at = now
        return self._left > 0

    def spend(self, changes_n: int) -> None:
        """So many changes were made."""
        self._left = max(self._left - max(changes_n, 1), -self._burst)

    def wait_s(self) -> float:
        """How long after the last ``admits`` the next change is admitted."""
        return max(0.0, 1 - self._left) / self._per_s


class PacedSink:
    """A `Sink` for one source. It may be used on the server's event loop only.

    Beyond ``changes_per_s``, the latest state of each service waits; nothing overtakes it. A large service counts as
    several changes.
    """

    def __init__(self, inner: Sink, changes_per_s: float) -> None:
        self._inner = inner
        self._bound = ChangeBound(changes_per_s, changes_per_s, monotonic())
        self._waiting: dict[str, Given] = {}
        self._waiting_all: dict[str, Instances] | None = None
        self._waiting_since: float | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._is_closed = False

    # As in `Sink`

    def put(self, service: str, instances: Instances) -> None:
        """As in `Sink`. Raises ``TypeError`` for what are no instances."""
        self._put_or_wait(service, _instances(service, instances))

    def remove(self, service: str) -> None:
        """As in `Sink`."""
        self._put_or_wait(service, None)

    def replace(self, services: Mapping[str, Instances]) -> None:
        """As in `Sink`. Raises ``TypeError`` for what are no instances."""
        given: dict[str, Instances] = {name: _instances(name, instances) for name, instances in services.items()}
        if not self._is_closed:
            self._waiting_all = given
            self._waiting.clear()
            self._hand_on()

    def alive(self) -> None:
        """As in `Sink`."""
        if not self._is_closed:
            self._inner.alive()

    def failed(self, message: str) -> None:
        """As in `Sink`."""
        if not self._is_closed:
            self._inner.failed(message)

    def rejected(self, findings: Sequence[Violation]) -> None:
        """As in `Sink`."""
        if not self._is_closed:
            self._inner.rejected(findings)

    def wanted(self) -> frozenset[str]:
        """As in `Sink`."""
        return self._inner.wanted()

    async def wait_for_wanted(self, seen: frozenset[str]) -> frozenset[str]:
        """As in `Sink`."""
        return await self._inner.wait_for_wanted(seen)

    # For the one that runs the source

    @property
    def waiting_n(self) -> int:
        """The number of services with a state that waits because of the rate limit."""
        return len(self._waiting) + len(self._waiting_all or ())

    @property
    def waiting_since(self) -> float | None:
        """Since when something waits (epoch seconds); None if nothing does."""
        return self._waiting_since

    def close(self) -> None:
        """The source no longer runs: what waits is dropped, and so is what it puts if it has not ended."""
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()

    # Inside

    def _put_or_wait(self, service: str, given: Given) -> None:
        if self._is_closed:
            return
        if not self._waiting and self._waiting_all is None and self._bound.admits(monotonic()):
            self._pass(service, given)
            return
        self._inner.alive()
        self._wait_for(service, given)
        self._hand_on_later()

    def _wait_for(self, service: str, given: Given) -> None:
        if self._waiting_all is not None:
            if given is None:
                self._waiting_all.pop(service, None)
            else:
                self._waiting_all[service] = given
        elif service in self._waiting or len(self._waiting) < WAITING_LIMIT:
            self._waiting[service] = given
        else:
            self._inner.failed(f"more than {WAITING_LIMIT} changed services wait: {service!r} is left out")

    def _hand_on(self) -> None:
        """Pass on the waiting changes that the rate limit admits."""
        self._timer = None
        try:
            if self._waiting_all is not None and self._bound.admits(monotonic()):
                services, self._waiting_all = self._waiting_all, None
                self._bound.spend(sum(map(_changes_n, services.values())))
                self._inner.replace(services)
            while self._waiting and self._waiting_all is None and self._bound.admits(monotonic()):
                service = next(iter(self._waiting))
                self._pass(service, self._waiting.pop(service))
        finally:
            self._hand_on_later()

    def _pass(self, service: str, given: Given) -> None:
        self._bound.spend(_changes_n(given))
        if given is None:
            self._inner.remove(service)
        else:
            self._inner.put(service, given)

    def _hand_on_later(self) -> None:
        if not self._waiting and self._waiting_all is None:
            self._waiting_since = None
            return
        if self._waiting_since is None:
            self._waiting_since = time()
        if self._timer is None:
            delay_s = max(self._bound.wait_s(), _SOONEST_S)
            self._timer = asyncio.get_running_loop().call_later(delay_s, self._hand_on)


def _changes_n(given: Instances | None) -> int:
    """What a state of a service costs the catalog, which looks at each instance."""
    return 1 + len(given or ()) // INSTANCES_A_CHANGE


def _instances(service: str, instances: Instances) -> tuple[Instance, ...]:
    if not isinstance(service, str):
        raise TypeError(f"{service!r} is no name of a service: it is a {type(service).__name__}")
    given = tuple(instances)
    for one in given:
        if not isinstance(one, Instance):
            raise TypeError(f"service {service!r}: {type(one).__name__} is no Instance")
    return given
