"""Compiled chains, found by the entries that they depend on. Pure."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from typing import Generic, TypeVar

from xds.mesh.core.chain.compile import Compiled
from xds.mesh.core.entries.entry import Key

K = TypeVar("K", bound=Hashable)


class CompiledChains(Generic[K]):
    """Compiled chains by a key. Not safe for two threads at once."""

    def __init__(self) -> None:
        self._compiled: dict[K, Compiled] = {}
        self._dependents: dict[Key, set[K]] = {}

    def __len__(self) -> int:
        return len(self._compiled)

    def __iter__(self) -> Iterator[K]:
        return iter(self._compiled)

    def find(self, key: K) -> Compiled | None:
        """The chain of a key; None if there is none."""
        return self._compiled.get(key)

    def depending_on(self, keys: Iterable[Key]) -> frozenset[K]:
        """The keys of the chains that depend on any of these entries, present or not."""
        return frozenset().union(*(self._dependents.get(key, ()) for key in keys))

    def unchanged_or(self, key: K, compiled: Compiled) -> Compiled:
        """The present chain of a key if ``compiled``, which was made again, is equal to it; else ``compiled``."""
        present = self._compiled.get(key)
        if present is None or present.chain is None:
            return compiled
        is_unchanged = (present.chain, present.consulted) == (compiled.chain, compiled.consulted)
        return present if is_unchanged else compiled

    def put(self, key: K, compiled: Compiled) -> None:
        """Set the chain of a key."""
        previous = self._compiled.get(key)
        if previous is None or previous.consulted != compiled.consulted:  # seldom: equal ones take a tenth of the time
            self.drop(key)
            for entry in compiled.consulted:
                self._dependents.setdefault(entry, set()).add(key)
        self._compiled[key] = compiled

    def drop(self, key: K) -> None:
        """Forget the chain of a key, if there is one."""
        compiled = self._compiled.pop(key, None)
        for entry in compiled.consulted if compiled is not None else ():
            dependents = self._dependents[entry]
            dependents.discard(key)
            if not dependents:
                del self._dependents[entry]
