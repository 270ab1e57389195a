"""The chains that upstreams use, compiled for their downstreams and updated with the config entries. Pure.

A chain with overrides, or of another datacenter, differs from the chain of the service, and depends on other entries.
Users of equal chains share one compilation.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from xds.mesh.core.chain.compile import Compiled, compile_recorded
from xds.mesh.core.chain.index import ChainContext
from xds.mesh.core.chain.request import Overrides
from xds.mesh.core.entries.entry import Key
from xds.mesh.core.entries.entry_set import ConfigEntries


@dataclass(frozen=True, slots=True)
class ChainUse:
    """The chain of a service for one downstream. An empty ``datacenter`` is that of the settings."""

    service: str
    datacenter: str = ""
    overrides: Overrides = field(default_factory=Overrides)

    def compile(self, context: ChainContext, entries: ConfigEntries) -> Compiled:
        """Compile the chain from these entries. Raises ``CompileRequestError``."""
        datacenter = self.datacenter or context.datacenter
        return compile_recorded(replace(context, datacenter=datacenter).request(self.service, entries, self.overrides))


class ChainUses:
    """Compiled chains with their users, by name. Not safe for two threads at once."""

    def __init__(self) -> None:
        self._compiled: dict[ChainUse, Compiled] = {}
        self._users: dict[ChainUse, set[str]] = {}
        self._uses_of: dict[str, frozenset[ChainUse]] = {}
        self._dependents: dict[Key, set[ChainUse]] = {}

    def __len__(self) -> int:
        return len(self._compiled)

    def find(self, use: ChainUse) -> Compiled | None:
        """The compiled chain; None if nobody uses it."""
        return self._compiled.get(use)

    def depending_on(self, keys: Iterable[Key]) -> frozenset[ChainUse]:
        """The chains that depend on any of these entries, present or not."""
        return frozenset().union(*(self._dependents.get(key, ()) for key in keys))

    def users(self, uses: Iterable[ChainUse]) -> frozenset[str]:
        """The users of any of these chains."""
        return frozenset().union(*(self._users.get(use, ()) for use in uses))

    def assign(self, user: str, compiled: Mapping[ChainUse, Compiled]) -> None:
        """Set all chains that a user uses. Chains that other users share are replaced for them as well."""
        dropped = self._uses_of.get(user, frozenset()) - compiled.keys()
        for use, one in compiled.items():
            self._users.setdefault(use, set()).add(user)
            self._store(use, one)
        for use in dropped:
            self._remove_user(user, use)
        self._uses_of[user] = frozenset(compiled)
        if not compiled:
            del self._uses_of[user]

    def _store(self, use: ChainUse, compiled: Compiled) -> None:
        previous = self._compiled.get(use)
        if previous is compiled:
            return
        self._forget(use, previous)
        self._compiled[use] = compiled
        for key in compiled.consulted:
            self._dependents.setdefault(key, set()).add(use)

    def _remove_user(self, user: str, use: ChainUse) -> None:
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
