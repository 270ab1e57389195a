"""What drains: it is kept until its time is over, or until it is wanted again.

One rule for endpoints that are set by hand, for endpoints that follow services, and for the instances of a source.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from typing import Generic, TypeVar

DRAINING_LIMIT = 10_000  # beyond it, those that began to drain first are removed at once

A = TypeVar("A", bound=Hashable)
D = TypeVar("D")


class Drains(Generic[A, D]):
    """Draining endpoints or instances by address, each with the time at which it is removed (epoch seconds).

    ``drains`` begin in their order.
    """

    __slots__ = ("_by_address",)

    def __init__(self, drains: Iterable[tuple[A, D, float]] = ()) -> None:
        self._by_address: dict[A, tuple[D, float]] = {}
        for drain in drains:
            self.begin(*drain)

    def __iter__(self) -> Iterator[tuple[A, D, float]]:
        """Address, what drains, and its end."""
        return ((address, one, until) for address, (one, until) in self._by_address.items())

    def __len__(self) -> int:
        return len(self._by_address)

    def __contains__(self, address: object) -> bool:
        return address in self._by_address

    def begin(self, address: A, drained: D, until: float) -> None:
        """Let one drain, in place of the one with this address. At most ``DRAINING_LIMIT`` drain."""
        self._by_address.pop(address, None)
        self._by_address[address] = drained, until
        if len(self._by_address) > DRAINING_LIMIT:
            del self._by_address[next(iter(self._by_address))]

    def stop(self, addresses: Iterable[A]) -> None:
        """Remove those that are wanted again. Reads the addresses only if anything drains."""
        if self._by_address:
            for address in self._by_address.keys() & set(addresses):
                del self._by_address[address]

    def end(self, now: float) -> bool:
        """Remove those whose time is over. True if there were any."""
        ended = [address for address, (_, until) in self._by_address.items() if until <= now]
        for address in ended:
            del self._by_address[address]
        return bool(ended)

    @property
    def next_end(self) -> float | None:
        """When the next one is to be removed; None if none drains."""
        return min((until for _, until in self._by_address.values()), default=None)
