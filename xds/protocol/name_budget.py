"""How much a connection may take for names that no resource has.

A subscription to an unknown name is legitimate: the resource may come. But a client can invent names without end. So
their cost is counted over all types of all streams of a connection. Names that exist in the client's snapshot, or in a
retained revision of it, when they are requested are not counted.

One request may take a quarter of the budget: a longer one is refused before its names are sorted and answered, because
this holds the event loop as long as decoding them.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

from xds.model.errors import LimitError

NAME_OVERHEAD = 64  # bytes of a string and of its place in a set
REQUEST_SHARE = 4  # one request may take one part of so many


class NameHolder(Protocol):
    """A stream, as its budget uses it."""

    def unknown_names_cost(self) -> int:
        """The cost of the names that the stream holds and that no resource has."""


class NameBudget:
    """The budget of one connection, in bytes.

    Requests only add to ``_spent``. When it exceeds the limit, what the streams still hold is counted. It must then be
    half of the limit at most, so that a client near the limit cannot make each request count all names.
    """

    __slots__ = ("_holders", "_limit", "_spent")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._holders: tuple[NameHolder, ...] = ()
        self._spent = 0

    def spend(self, holder: NameHolder, names: Collection[str]) -> None:
        """Count names that a stream requests and that no resource has. Raises ``LimitError``."""
        cost = cost_of(names)
        check_at_once(cost, self._limit)
        if holder not in self._holders:
            self._holders += (holder,)
        self._spent += cost
        if self._spent <= self._limit:
            return
        self._spent = cost + sum(each.unknown_names_cost() for each in self._holders)
        if self._spent * 2 > self._limit:
            message = f"too many names that no resource has on this connection; at most {self._limit} bytes are kept"
            raise LimitError("unknown_name_bytes", message)

    def leave(self, holder: NameHolder) -> bool:
        """A stream has ended. True if no other one has spent anything. Harmless when repeated."""
        self._holders = tuple(each for each in self._holders if each is not holder)
        return not self._holders


class NameBudgets:
    """The budgets of the connections that have spent something. ``limit`` is that of each connection."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._by_peer: dict[str, NameBudget] = {}

    def spend(self, peer: str, holder: NameHolder, names: Collection[str]) -> None:
        """As `NameBudget.spend`, for a stream of the connection ``peer``."""
        if names:
            if peer not in self._by_peer:
                self._by_peer[peer] = NameBudget(self._limit)
            self._by_peer[peer].spend(holder, names)

    def leave(self, peer: str, holder: NameHolder) -> None:
        """As `NameBudget.leave`. The budget of a connection goes with the last stream that has spent something."""
        budget = self._by_peer.get(peer)
        if budget is not None and budget.leave(holder):
            del self._by_peer[peer]


def check_at_once(cost: int, limit: int) -> None:
    """Raises ``LimitError`` if names of this cost are too much for one request; ``limit`` is the whole budget."""
    most = limit // REQUEST_SHARE
    if cost > most:
        message = f"{cost} bytes of names that no resource has in one request; at most {most} are accepted"
        raise LimitError("unknown_name_bytes", message)


def cost_of(names: Collection[str]) -> int:
    """What names cost, in bytes of ASCII."""
    return sum(map(len, names)) + NAME_OVERHEAD * len(names)
