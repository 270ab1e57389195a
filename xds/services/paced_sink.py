"""The sink that a running source gets. It bounds the rate of changes that reach the sink of the catalog."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from time import monotonic, time

from xds.model.errors import Violation
from xds.services.core.instance import Instance
from xds.services.core.source import Instances, Sink

WAITING_LIMIT = 100_000  # services whose latest state waits because of the rate limit
INSTANCES_A_CHANGE = 1_000  # a state counts as one change more for each this many instances
_SHORTEST_WAIT_S = 0.01  # so that several waiting changes are passed on together

ServiceUpdate = tuple[Instance, ...] | None  # the instances of a service; None: the service was removed


class ChangeBound:
    """A token bucket: ``per_s`` changes a second on average, and ``burst`` at once.

    A change is admitted while the bucket has any tokens, and may make it negative, down to ``-burst``. So a change that
    is larger than ``burst`` is admitted too, and delays the next changes by a bounded time. Times are seconds of any
    monotonic clock.
    """

    __slots__ = ("_at", "_burst", "_per_s", "_tokens")

    def __init__(self, per_s: float, burst: float, now: float) -> None:
        self._per_s = per_s
        self._burst = max(burst, 1.0)
        self._tokens = self._burst
        self._at = now

    def admits(self, now: float) -> bool:
        """Whether a change may be made now."""
        self._tokens = min(self._tokens + (now - self._at) * self._per_s, self._burst)
        self._at = now
        return self._tokens > 0

    def spend(self, changes_n: int) -> None:
        """Count ``changes_n`` changes that were made, at least 1."""
        self._tokens = max(self._tokens - max(changes_n, 1), -self._burst)

    def wait_s(self) -> float:
        """How long after the last ``admits`` the next change is admitted."""
        return max(0.0, 1 - self._tokens) / self._per_s


class PacedSink(Sink):
    """A `Sink` for one source. It may be used on the server's event loop only.

    Beyond ``changes_per_s``, the latest state of each service waits. Later changes wait too, so the order stays the
    same. A large service counts as several changes.
    """

    def __init__(self, inner: Sink, changes_per_s: float) -> None:
        self._inner = inner
        self._bound = ChangeBound(changes_per_s, changes_per_s, monotonic())
        self._waiting: dict[str, ServiceUpdate] = {}
        self._waiting_all: dict[str, Instances] | None = None
        self._waiting_since: float | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._is_closed = self._is_alive_waiting = False

    # As in `Sink`

    def put(self, service: str, instances: Instances) -> None:
        """As in `Sink`. Raises ``TypeError`` for values that are not instances."""
        self._put_or_wait(service, _instances(service, instances))

    def remove(self, service: str) -> None:
        self._put_or_wait(service, None)

    def replace(self, services: Mapping[str, Instances]) -> None:
        """As in `Sink`. Raises ``TypeError`` for values that are not instances."""
        checked: dict[str, Instances] = {name: _instances(name, instances) for name, instances in services.items()}
        if not self._is_closed:
            self._waiting_all = checked
            self._waiting.clear()
            self._pass_waiting()

    def alive(self) -> None:
        if self._is_closed:
            return
        if self._waiting or self._waiting_all is not None:
            self._is_alive_waiting = True  # it says that the source was read as a whole
        else:
            self._inner.alive()

    def failed(self, message: str) -> None:
        if not self._is_closed:
            self._inner.failed(message)

    def rejected(self, findings: Sequence[Violation]) -> None:
        if not self._is_closed:
            self._inner.rejected(findings)

    def wanted(self) -> frozenset[str]:
        return self._inner.wanted()

    async def wait_for_wanted(self, seen: frozenset[str]) -> frozenset[str]:
        return await self._inner.wait_for_wanted(seen)

    # For `Sources`, which runs the source

    @property
    def waiting_n(self) -> int:
        """The number of services with a state that waits because of the rate limit."""
        return len(self._waiting) + len(self._waiting_all or ())

    @property
    def waiting_since(self) -> float | None:
        """Since when changes wait (epoch seconds); None if none wait."""
        return self._waiting_since

    def close(self) -> None:
        """Drop the waiting changes, and all later calls of a source that has not ended yet."""
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()

    # Inside

    def _put_or_wait(self, service: str, update: ServiceUpdate) -> None:
        if self._is_closed:
            return
        if not self._waiting and self._waiting_all is None and self._bound.admits(monotonic()):
            self._pass(service, update)
            return
        self._wait_for(service, update)
        self._pass_waiting_later()

    def _wait_for(self, service: str, update: ServiceUpdate) -> None:
        if self._waiting_all is not None:
            if update is None:
                self._waiting_all.pop(service, None)
            else:
                self._waiting_all[service] = update
        elif service in self._waiting or len(self._waiting) < WAITING_LIMIT:
            self._waiting[service] = update
        else:
            self._inner.failed(f"more than {WAITING_LIMIT} changed services wait: {service!r} is left out")

    def _pass_waiting(self) -> None:
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
            self._pass_waiting_later()

    def _pass(self, service: str, update: ServiceUpdate) -> None:
        self._bound.spend(_changes_n(update))
        if update is None:
            self._inner.remove(service)
        else:
            self._inner.put(service, update)

    def _pass_waiting_later(self) -> None:
        if not self._waiting and self._waiting_all is None:
            self._waiting_since = None
            if self._is_alive_waiting:
                self._is_alive_waiting = False
                self.alive()
            return
        if self._waiting_since is None:
            self._waiting_since = time()
        if self._timer is None:
            delay_s = max(self._bound.wait_s(), _SHORTEST_WAIT_S)
            self._timer = asyncio.get_running_loop().call_later(delay_s, self._pass_waiting)


def _changes_n(update: Instances | None) -> int:
    """How many changes a state of a service counts for: the catalog looks at each instance."""
    return 1 + len(update or ()) // INSTANCES_A_CHANGE


def _instances(service: str, instances: Instances) -> tuple[Instance, ...]:
    if not isinstance(service, str):
        raise TypeError(f"{service!r} is not a service name: it is a {type(service).__name__}")
    update = tuple(instances)
    for one in update:
        if not isinstance(one, Instance):
            raise TypeError(f"service {service!r}: {type(one).__name__} is not an Instance")
    return update
