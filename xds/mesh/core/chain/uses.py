"""The chains that upstreams use, compiled for their downstreams and updated with the config entries. Pure.

A chain with overrides, or of another datacenter, differs from the chain of the service, and depends on other entries.
Users of equal chains share one compilation.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from xds.mesh.core.chain.compile import Compiled, compile_recorded
from xds.mesh.core.chain.compiled_chains import CompiledChains
from xds.mesh.core.chain.index import ChainContext
from xds.mesh.core.chain.request import Overrides
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
    """The chains in use, compiled, with their users by name. Not safe for two threads at once."""

    def __init__(self) -> None:
        self.chains = CompiledChains[ChainUse]()
        self._users: dict[ChainUse, set[str]] = {}
        self._uses_of: dict[str, frozenset[ChainUse]] = {}

    def users(self, uses: Iterable[ChainUse]) -> frozenset[str]:
        """The users of any of these chains."""
        return frozenset().union(*(self._users.get(use, ()) for use in uses))

    def assign(self, user: str, compiled: Mapping[ChainUse, Compiled]) -> None:
        """Set all chains that a user uses. Chains that other users share are replaced for them as well."""
        dropped = self._uses_of.get(user, frozenset()) - compiled.keys()
        for use, one in compiled.items():
            self._users.setdefault(use, set()).add(user)
            self.chains.put(use, one)
        for use in dropped:
            self._remove_user(user, use)
        self._uses_of[user] = frozenset(compiled)
        if not compiled:
            del self._uses_of[user]

    def _remove_user(self, user: str, use: ChainUse) -> None:
        users = self._users[use]
        users.discard(user)
        if not users:
            del self._users[use]
            self.chains.drop(use)
