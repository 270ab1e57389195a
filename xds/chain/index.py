"""The chains of all services, kept in step with the config entries.

A change is first proposed: the chains that it touches are compiled with the change laid over the entries, and nothing
else happens. What would break a chain is refused; what is accepted takes the place of the old chains.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from xds.catalog.defaults import ProxyDefaults
from xds.catalog.entry import KINDS, Key
from xds.catalog.entry_set import Changes, ConfigEntries
from xds.chain.chain import ChainError, DiscoveryChain, path_text
from xds.chain.compile import Compiled, compile_recorded
from xds.chain.request import CompileRequest, Overrides, PeerLocality
from xds.model.errors import LocalProtocolError, ValidationError, Violation

# Broken chains that one refusal tells of.
REFUSALS_LIMIT = 100
_OWNING = tuple(kind for kind in KINDS if kind != ProxyDefaults.kind)


@dataclass(frozen=True, slots=True)
class Seen:
    """Where chains are seen from: the same for all of them."""

    datacenter: str
    trust_domain: str
    has_partitions: bool = True
    peers: Mapping[str, PeerLocality] = field(default_factory=dict)

    def request(self, service: str, entries: ConfigEntries, overrides: Overrides | None = None) -> CompileRequest:
        """The request for the chain of a service."""
        return CompileRequest(
            service,
            entries,
            self.datacenter,
            self.trust_domain,
            overrides=overrides or Overrides(),
            has_partitions=self.has_partitions,
            peers=self.peers,
        )


@dataclass(frozen=True, slots=True)
class Proposal:
    """What a change would make: the entries, and the outcome for every service that it touches.

    ``broken`` are the errors of chains that are sound until now; where there are any, the change is refused. After
    `REFUSALS_LIMIT` of them, no more chains are compiled.
    ``changed`` are the services whose chain comes out otherwise, ``gone`` those that are followed no more.
    """

    before: ConfigEntries
    entries: ConfigEntries
    compiled: Mapping[str, Compiled]
    gone: frozenset[str]
    changed: frozenset[str]
    broken: tuple[ChainError, ...]

    def refusal(self) -> ValidationError | None:
        """The error for whoever proposed it: every broken chain and its path. None for a sound proposal."""
        if not self.broken:
            return None
        return ValidationError([refused(error) for error in self.broken])


def refused(error: ChainError, what: str = "would break") -> Violation:
    """A broken chain as a finding."""
    told = f'the chain of "{error.chain}" {what}: {error.detail}'
    return Violation(error.flaw.value, told, f"chain/{error.chain}", hint=f"path: {path_text(error.path)}")


class ChainIndex:
    """Follows every service that owns an entry, and those that it is told to. Not safe for two threads at once."""

    def __init__(self, seen: Seen, entries: ConfigEntries | None = None) -> None:
        self.seen = seen
        self.entries = entries or ConfigEntries()
        self._asked: set[str] = set()
        self._compiled: dict[str, Compiled] = {}
        self._dependents: dict[Key, set[str]] = {}
        for service in owners(self.entries):
            self._keep(service, self._compile(service, self.entries))

    @property
    def services(self) -> Iterable[str]:
        """The services that are followed."""
        return self._compiled.keys()

    def chain(self, service: str, overrides: Overrides | None = None) -> DiscoveryChain:
        """The chain of any service. Raises ``ChainError`` where its entries contradict each other."""
        compiled = self._compiled.get(service) if overrides is None else None
        if compiled is None:
            compiled = compile_recorded(self.seen.request(service, self.entries, overrides))
        if compiled.chain is None:
            assert compiled.error is not None
            raise compiled.error
        return compiled.chain

    def consulted(self, service: str) -> frozenset[Key]:
        """The entries, present or not, that the chain of any service depends on. Raises ``CompileRequestError``."""
        compiled = self._compiled.get(service)
        if compiled is None:
            compiled = compile_recorded(self.seen.request(service, self.entries))
        return compiled.consulted

    def broken(self) -> tuple[ChainError, ...]:
        """The followed chains that do not compile: entries that were stored under other rules."""
        return tuple(one.error for _, one in sorted(self._compiled.items()) if one.error is not None)

    def follow(self, services: Iterable[str]) -> None:
        """Keep the chains of these too, though they own no entry."""
        for service in services:
            self._asked.add(service)
            if service not in self._compiled:
                self._keep(service, self._compile(service, self.entries))

    def unfollow(self, services: Iterable[str]) -> None:
        """Keep them only as long as they own an entry."""
        for service in services:
            self._asked.discard(service)
            if service in self._compiled and not is_owner(self.entries, service):
                self._drop(service)

    def touched(self, keys: Iterable[Key]) -> frozenset[str]:
        """The followed services whose chain depends on any of these entries, present or not."""
        return frozenset().union(*(self._dependents.get(key, ()) for key in keys))

    def propose(self, changes: Changes) -> Proposal:
        """What the changes would make. Nothing happens yet."""
        entries = self.entries.with_changes(changes)
        named = {name for kind, name in changes if kind in _OWNING}
        gone = frozenset(
            name for name in named if name in self._compiled and name not in self._asked and not is_owner(entries, name)
        )
        services = (self.touched(changes) | {name for name in named if is_owner(entries, name)}) - gone
        compiled: dict[str, Compiled] = {}
        broken: list[ChainError] = []
        for service in sorted(services):
            one = compiled[service] = self._compile_again(service, entries)
            if one.error is not None and not self._is_broken(service):
                broken.append(one.error)
                if len(broken) == REFUSALS_LIMIT:
                    break
        changed = frozenset(service for service, one in compiled.items() if self._is_other(service, one)) | gone
        return Proposal(self.entries, entries, compiled, gone, changed, tuple(broken))

    def accept(self, proposal: Proposal) -> frozenset[str]:
        """Put the proposal in place, and return the services whose chain changed.

        It must be sound, and of the entries as they are now.
        """
        if proposal.broken or proposal.before is not self.entries:
            raise LocalProtocolError("a proposal that was refused, or is of other entries")
        self.entries = proposal.entries
        for service in proposal.gone:
            self._drop(service)
        for service, compiled in proposal.compiled.items():
            before = self._compiled.get(service)
            if before is compiled:
                continue
            if before is not None and before.consulted == compiled.consulted:
                self._compiled[service] = compiled  # the usual case, in a tenth of the time
                continue
            self._drop(service)
            self._keep(service, compiled)
        return proposal.changed

    def _is_broken(self, service: str) -> bool:
        before = self._compiled.get(service)
        return before is not None and before.error is not None

    def _is_other(self, service: str, compiled: Compiled) -> bool:
        before = self._compiled.get(service)
        return before is not compiled and (before is None or before.chain != compiled.chain)

    def _compile_again(self, service: str, entries: ConfigEntries) -> Compiled:
        """What comes out as before is the same object."""
        one, before = self._compile(service, entries), self._compiled.get(service)
        if before is None or before.chain is None or (before.chain, before.consulted) != (one.chain, one.consulted):
            return one
        return before

    def _compile(self, service: str, entries: ConfigEntries) -> Compiled:
        return compile_recorded(self.seen.request(service, entries))

    def _keep(self, service: str, compiled: Compiled) -> None:
        self._compiled[service] = compiled
        for key in compiled.consulted:
            self._dependents.setdefault(key, set()).add(service)

    def _drop(self, service: str) -> None:
        compiled = self._compiled.pop(service, None)
        for key in compiled.consulted if compiled is not None else ():
            dependents = self._dependents[key]
            dependents.discard(service)
            if not dependents:
                del self._dependents[key]


def owners(entries: ConfigEntries) -> list[str]:
    """The services that have an entry of their own."""
    return sorted({name for kind in _OWNING for name in entries.names(kind)})


def is_owner(entries: ConfigEntries, service: str) -> bool:
    """True for a service with an entry of its own."""
    return any(entries.get((kind, service)) is not None for kind in _OWNING)
