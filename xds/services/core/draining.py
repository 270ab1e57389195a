"""Removed instances drain for a set time, so that their last load reports count and their connections end well."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from xds.services.core.instance import Health, Instance

DRAINING_LIMIT = 10_000  # instances of one source and service; beyond it the oldest are removed at once

SocketAddress = tuple[str, int]  # IP address and port


def socket_address(instance: Instance) -> SocketAddress:
    """Address and port. Instances with the same ones are one endpoint."""
    return instance.address, instance.port


@dataclass(frozen=True, slots=True)
class ObservedInstance:
    """An instance as its source showed it last.

    Times are epoch seconds. The source has observed the instance since ``since``, and unchanged since ``changed_at``.
    """

    instance: Instance
    since: float
    changed_at: float


@dataclass(frozen=True, slots=True)
class DrainingInstance:
    """An instance that drains until ``until`` (epoch seconds), and is then removed."""

    observed: ObservedInstance
    until: float


class Draining:
    """The draining instances of one source and service, by address and port. At most ``DRAINING_LIMIT``."""

    __slots__ = ("_by_address",)

    def __init__(self) -> None:
        self._by_address: dict[SocketAddress, DrainingInstance] = {}

    def __iter__(self) -> Iterator[DrainingInstance]:
        return iter(self._by_address.values())

    def __len__(self) -> int:
        return len(self._by_address)

    def begin(self, observed: ObservedInstance, now: float, drain_s: float) -> None:
        """Let an instance drain. If its source showed it as draining already, that time counts."""
        began = observed.changed_at if observed.instance.health is Health.DRAINING else now
        if began + drain_s > now:
            self.restore(DrainingInstance(observed, began + drain_s))

    def restore(self, draining: DrainingInstance) -> None:
        """Add an instance with its deadline."""
        address = socket_address(draining.observed.instance)
        self._by_address.pop(address, None)
        self._by_address[address] = draining
        if len(self._by_address) > DRAINING_LIMIT:
            del self._by_address[next(iter(self._by_address))]

    def stop(self, addresses: Iterable[SocketAddress]) -> None:
        """Remove the instances with these addresses, which are present again. Reads them only if anything drains."""
        if self._by_address:
            for address in self._by_address.keys() & set(addresses):
                del self._by_address[address]

    def end(self, now: float) -> bool:
        """Remove the instances whose time has ended. True if there were any."""
        ended = [address for address, draining in self._by_address.items() if draining.until <= now]
        for address in ended:
            del self._by_address[address]
        return bool(ended)

    @property
    def next_end(self) -> float | None:
        """When the next instance is to be removed; None if none drains."""
        return min((draining.until for draining in self._by_address.values()), default=None)
