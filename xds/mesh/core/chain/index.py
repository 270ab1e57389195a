"""The chains of all services, updated with the config entries.

A change is first proposed: the chains that depend on the changed entries are compiled with the change, and nothing else
happens. A change that would break a chain is refused. The chains of an accepted change replace the old ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from xds.mesh.core.chain.chain import ChainError, DiscoveryChain, path_text
from xds.mesh.core.chain.compile import Compiled, compile_recorded
from xds.mesh.core.chain.compiled_chains import CompiledChains
from xds.mesh.core.chain.request import CompileRequest, Overrides
from xds.mesh.core.entries.defaults import ProxyDefaults
from xds.mesh.core.entries.entry import KINDS, Key
from xds.mesh.core.entries.entry_set import Changes, ConfigEntries
from xds.model.compared_name import ComparedName, compared
from xds.model.errors import LocalProtocolError, ValidationError, Violation

# One refusal lists at most this many broken chains.
REFUSALS_LIMIT = 100
_OWNING = tuple(kind for kind in KINDS if kind != ProxyDefaults.kind)


@dataclass(frozen=True, slots=True)
class ChainContext:
    """The datacenter and trust domain of the callers: the same for all chains."""

    datacenter: str
    trust_domain: str
    has_partitions: bool = True

    def request(self, service: str, entries: ConfigEntries, overrides: Overrides | None = None) -> CompileRequest:
        """The request for the chain of a service."""
        return CompileRequest(
            service,
            entries,
            self.datacenter,
            self.trust_domain,
            overrides=overrides or Overrides(),
            has_partitions=self.has_partitions,
        )


@dataclass(frozen=True, slots=True)
class Proposal:
    """The outcome of a change: the entries, and the compiled chain of every service that depends on the change.

    ``broken`` has the errors of chains that compile without the change; if there are any, the change is refused. After
    `REFUSALS_LIMIT` of them, no more chains are compiled. ``changed`` has the services whose chain differs,
    ``dropped`` those whose chain is no longer kept, with the name that it had.
    """

    before: ConfigEntries
    entries: ConfigEntries
    compiled: Mapping[ComparedName, Compiled]
    dropped: Mapping[ComparedName, str]
    changed: frozenset[ComparedName]
    broken: tuple[ChainError, ...]

    def changed_services(self) -> tuple[str, ...]:
        """The services whose chain differs, by name, as entries write them."""
        return tuple(sorted(self.dropped.get(name) or self.compiled[name].service for name in self.changed))

    def refusal(self) -> ValidationError | None:
        """The error with every broken chain and its path; None if the change breaks no chain."""
        if not self.broken:
            return None
        return ValidationError([chain_finding(error) for error in self.broken])


def chain_finding(error: ChainError, verb: str = "would break") -> Violation:
    """A broken chain as a finding."""
    detail = f'the chain of "{error.chain}" {verb}: {error.detail}'
    return Violation(error.flaw.value, detail, f"chain/{error.chain}", hint=f"path: {path_text(error.path)}")


class ChainIndex:
    """Keeps the chain of every service that owns an entry. Not safe for two threads at once.

    One chain of a service is kept, under the name that its entries have (`written_name`). Its chain under a name in
    another case differs in the names of nodes and targets, as in Consul, and is compiled when it is asked for. It
    compiles if the kept one does.
    """

    def __init__(self, context: ChainContext, entries: ConfigEntries | None = None) -> None:
        self.context = context
        self.entries = entries or ConfigEntries()
        self._chains = CompiledChains[ComparedName]()
        for service in owners(self.entries):
            self._chains.put(service, self._compile(service, self.entries))

    @property
    def services(self) -> Iterable[str]:
        """The services with an entry of their own, whose chains are kept."""
        return [one.service for name in self._chains if (one := self._chains.find(name)) is not None]

    def chain(self, service: str, overrides: Overrides | None = None) -> DiscoveryChain:
        """The chain of any service. Raises ``ChainError`` where its entries contradict each other."""
        compiled = self._kept(service) if overrides is None else None
        if compiled is None:
            compiled = compile_recorded(self.context.request(service, self.entries, overrides))
        if compiled.chain is None:
            assert compiled.error is not None
            raise compiled.error
        return compiled.chain

    def consulted(self, service: str) -> frozenset[Key]:
        """The entries, present or not, that the chain of any service depends on. Raises ``CompileRequestError``."""
        compiled = self._kept(service)
        if compiled is None:
            compiled = compile_recorded(self.context.request(service, self.entries))
        return compiled.consulted

    def is_kept(self, service: str) -> bool:
        """Whether the chain of the service is kept under exactly this name."""
        return self._kept(service) is not None

    def _kept(self, service: str) -> Compiled | None:
        """The chain that is kept, if it has exactly this name."""
        kept = self._chains.find(compared(service))
        return kept if kept is not None and kept.service == service else None

    def broken(self) -> tuple[ChainError, ...]:
        """The errors of kept chains that do not compile, because entries were stored under other rules."""
        kept = map(self._chains.find, sorted(self._chains))
        return tuple(one.error for one in kept if one is not None and one.error is not None)

    def depending_on(self, keys: Iterable[Key]) -> frozenset[ComparedName]:
        """The services whose kept chain depends on any of these entries, present or not."""
        return self._chains.depending_on(keys)

    def propose(self, changes: Changes) -> Proposal:
        """Compile the chains that depend on the changes. The index does not change."""
        entries = self.entries.with_changes(changes)
        named = {name for kind, name in changes if kind in _OWNING}
        dropped = {
            name: kept.service
            for name in named
            if (kept := self._chains.find(name)) is not None and not is_owner(entries, name)
        }
        owned = {name for name in named if is_owner(entries, name)}
        services = (self.depending_on(changes) | owned) - dropped.keys()
        compiled: dict[ComparedName, Compiled] = {}
        broken: list[ChainError] = []
        for service in sorted(services):
            one = compiled[service] = self._chains.unchanged_or(service, self._compile(service, entries))
            if one.error is not None and not self._is_broken(service):
                broken.append(one.error)
                if len(broken) == REFUSALS_LIMIT:
                    break
        changed = frozenset(service for service, one in compiled.items() if self._differs(service, one))
        changed |= dropped.keys()
        return Proposal(self.entries, entries, compiled, dropped, changed, tuple(broken))

    def accept(self, proposal: Proposal) -> frozenset[ComparedName]:
        """Replace entries and chains by those of the proposal. Returns the services whose chain changed.

        Raises ``LocalProtocolError`` for a refused proposal, or one that was made with other entries.
        """
        if proposal.broken or proposal.before is not self.entries:
            raise LocalProtocolError("a proposal that was refused, or is of other entries")
        self.entries = proposal.entries
        for service in proposal.dropped:
            self._chains.drop(service)
        for service, compiled in proposal.compiled.items():
            self._chains.put(service, compiled)
        return proposal.changed

    def _is_broken(self, service: ComparedName) -> bool:
        previous = self._chains.find(service)
        return previous is not None and previous.error is not None

    def _differs(self, service: ComparedName, compiled: Compiled) -> bool:
        previous = self._chains.find(service)
        return previous is not compiled and (previous is None or previous.chain != compiled.chain)

    def _compile(self, service: ComparedName, entries: ConfigEntries) -> Compiled:
        return compile_recorded(self.context.request(written_name(entries, service), entries))


def owners(entries: ConfigEntries) -> list[ComparedName]:
    """The services that have an entry of their own."""
    return sorted({name for kind in _OWNING for name in entries.names(kind)})


def is_owner(entries: ConfigEntries, service: ComparedName) -> bool:
    """True for a service with an entry of its own."""
    return any(entries.get((kind, service)) is not None for kind in _OWNING)


def written_name(entries: ConfigEntries, service: ComparedName) -> str:
    """The name of a service as its entries write it: the first of router, splitter, resolver and defaults."""
    owning = (entries.get((kind, service)) for kind in _OWNING)
    return next((one.name for one in owning if one is not None), service)
