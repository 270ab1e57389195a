"""Bounded memos. They drop the least recently used entries first, where use is counted in ages."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any, Generic, TypeVar, TypeVarTuple

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")
A = TypeVarTuple("A")

# All that a decision depends on: shared objects, without identity and time. Clients in one situation share decisions.
# Empty if no other client is likely to be in it.
Situation = tuple[Hashable, ...]


class Memo(Generic[K, V]):
    """Values that are computed once per key, bounded by the number of entries and by total cost.

    ``cost`` returns the cost of a key and its value, in bytes for instance. A value that costs more than ``budget`` is
    not kept.
    """

    def __init__(self, entries: int, budget: int = 0, cost: Callable[[K, V], int] | None = None) -> None:
        self._entries = entries
        self._budget = budget
        self._cost = cost
        self._total = 0
        self._age = 0
        self._values: OrderedDict[K, tuple[V, int]] = OrderedDict()  # with the age of their last use

    def get(self, key: K, make: Callable[[*A], V], *arguments: *A) -> V:
        """The value of ``key``. If it is not kept, ``make`` computes it from the arguments."""
        entry = self._values.get(key)
        if entry is None:
            value = make(*arguments)
            self._keep(key, value)
            return value
        if entry[1] != self._age:
            # An entry is moved once per age. Hashing a key of eleven fields again costs 0.3 us for each stream and
            # push.
            entry = self._values[key] = (entry[0], self._age)
            self._values.move_to_end(key)
        return entry[0]

    def find(self, key: K) -> V | None:
        """The value of ``key`` if it is kept, else None. This does not count as a use."""
        entry = self._values.get(key)
        return entry[0] if entry is not None else None

    def put(self, key: K, value: V) -> None:
        """Keep a value that was computed elsewhere."""
        if key not in self._values:
            self._keep(key, value)

    def begin_age(self) -> None:
        """Begin an age: drop the entries that were not used in the last one. They may keep old sets in memory."""
        while self._values and next(iter(self._values.values()))[1] < self._age:
            self._drop_oldest()
        self._age += 1

    def __len__(self) -> int:
        return len(self._values)

    @property
    def total(self) -> int:
        """The cost of all values that are kept."""
        return self._total

    def _keep(self, key: K, value: V) -> None:
        weight = self._weight(key, value)
        if self._cost is not None and weight > self._budget:
            return
        self._values[key] = (value, self._age)
        self._total += weight
        while len(self._values) > self._entries or (self._cost is not None and self._total > self._budget):
            self._drop_oldest()

    def _drop_oldest(self) -> None:
        key, (value, _) = self._values.popitem(last=False)
        self._total -= self._weight(key, value)

    def _weight(self, key: K, value: V) -> int:
        return self._cost(key, value) if self._cost is not None else 0


class Results:
    """What functions of shared values return, computed once for all clients."""

    def __init__(self, entries: int) -> None:
        self._memo: Memo[tuple[object, ...], Any] = Memo(entries)

    def of(self, make: Callable[[*A], V], *arguments: *A) -> V:
        """What the function returns for these arguments: shared objects, or values."""
        result: V = self._memo.get((make, *arguments), make, *arguments)
        return result

    def by(self, key: tuple[object, ...], make: Callable[[*A], V], *arguments: *A) -> V:
        """The same, where the result depends on no more of the arguments than on ``key``."""
        result: V = self._memo.get((make, *key), make, *arguments)
        return result

    def begin_age(self) -> None:
        """As `Memo.begin_age`."""
        self._memo.begin_age()
