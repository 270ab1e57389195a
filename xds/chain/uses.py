"""The chains that upstreams use, each as its downstream sees it, kept in step with the config entries. Pure.

A chain with overrides, or seen from another datacenter, is another one than that of the service, and depends on other
entries. Users of the same chain share one compilation.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from xds.catalog.entry import Key
from xds.catalog.entry_set import ConfigEntries
from xds.chain.compile import Compiled, compile_recorded
from xds.chain.index import Seen
from xds.chain.request import Overrides


@dataclass(frozen=True, slots=True)
class ChainUse:
    """A chain as a downstream sees it. An empty ``datacenter`` is that of the settings."""

    service: str
    datacenter: str = ""
    overrides: Overrides = field(default_factory=Overrides)

    def compile(self, seen: Seen, entries: ConfigEntries) -> Compiled:
        """The chain that these entries make. Raises ``CompileRequestError``."""
        datacenter = self.datacenter or seen.datacenter
        return compile_recorded(replace(seen, datacenter=datacenter).request(self.service, entries, self.overrides))


class ChainUses:
    """Compiled chains with their users, by name. Not safe for two threads at once."""

    def __init__(self) -> None:
        self._compiled: dict[ChainUse, Compiled] = {}
        self._users: dict[ChainUse, set[str]] = {}
        self._used: dict[str, frozenset[ChainUse]] = {}
        self._dependents: dict[Key, set[ChainUse]] = {}

    def __len__(self) -> int:
        return len(self._compiled)

    def find(self, use: ChainUse) -> Compiled | None:
        """The chain that somebody uses."""
        return self._compiled.get(use)

    def touched(self, keys: Iterable[Key]) -> frozenset[ChainUse]:
        """The chains that depend on any of these entries, present or not."""
        return frozenset().union(*(self._dependents.get(key, ()) for key in keys))

    def users(self, uses: Iterable[ChainUse]) -> frozenset[str]:
        """Who uses any of these chains."""
        return frozenset().union(*(self._users.get(use, ()) for use in uses))

    def assign(self, user: str, compiled: Mapping[ChainUse, Compiled]) -> None:
        """Set all chains that a user uses. Those of other users that are among them are replaced for these, too."""
        gone = self._used.get(user, frozenset()) - compiled.keys()
        for use, one in compiled.items():
            self._users.setdefault(use, set()).add(user)
            self._keep(use, one)
        for use in gone:
            self._leave(user, use)
        self._used[user] = frozenset(compiled)
        if not compiled:
            del self._used[user]

    def _keep(self, use: ChainUse, compiled: Compiled) -> None:
        before = self._compiled.get(use)
        if before is compiled:
            return
        self._forget(use, before)
        self._compiled[use] = compiled
        for key in compiled.consulted:
            self._dependents.setdefault(key, set()).add(use)

    def _leave(self, user: str, use: ChainUse) -> None:
        users = self._users[use]
        users.discard(user)
        if not users:
            del self._users[use]
            self._forget(use, self._compiled.pop(use))

    def _forget(self, use: ChainUse, compiled: Compiled | None) -> None:
        for key in compiled.consulted if compiled is not None else ():
            dependents = self._dependents[key]
            dependents.discard(use)
            if not dependents:
                del self._dependents[key]
