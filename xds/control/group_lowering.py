"""Lowers the upstreams of one group; resources that stay the same are shared with the previous result. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace

from xds.catalog.defaults import ServiceDefaults
from xds.catalog.entry import Key
from xds.catalog.entry_set import ConfigEntries
from xds.chain.compile import Compiled
from xds.chain.index import chain_finding
from xds.chain.request import CompileRequestError
from xds.chain.uses import ChainUse
from xds.control.group_content import Key as ResourceKey
from xds.control.lowered_content import NOTHING_LOWERED, LoweredContent, LoweredPart, LoweredRecord, LoweredRecords
from xds.lower.lowered import UPSTREAM, Json, Lowered, LoweredResource, merge_lowered
from xds.lower.lowering import (
    ListenerBackend,
    LoweringSettings,
    UpstreamChain,
    add_listener,
    lower_backend,
    lower_upstream,
    without_address,
)
from xds.lower.upstreams import ProxySettings, Upstream, UpstreamsDocument, with_upstream_config
from xds.model.errors import ValidationError, Violation
from xds.model.resource_type import ENDPOINT

Compile = Callable[[ChainUse], Compiled]


@dataclass(frozen=True, slots=True, eq=False)
class LoweredGroup:
    """A group with upstreams.

    ``content`` is what is lowered in its snapshot, ``chains`` are what it was made of. ``error`` says why the upstreams
    cannot be lowered now; the content is then the last one.
    """

    group: str
    document: UpstreamsDocument
    content: LoweredContent = NOTHING_LOWERED
    chains: Mapping[ChainUse, Compiled] = field(default_factory=dict)
    error: str = ""


def use_of(upstream: Upstream) -> ChainUse:
    """The chain of an upstream."""
    return ChainUse(upstream.service, upstream.datacenter, upstream.overrides)


def effective(document: UpstreamsDocument, entries: ConfigEntries) -> UpstreamsDocument:
    """The document with what the service-defaults of its own service say of its upstreams."""
    return with_upstream_config(document, entries.defaults(document.service)) if document.service else document


def own_entry(document: UpstreamsDocument) -> Key | None:
    """The service-defaults that a document depends on, present or not."""
    return (ServiceDefaults.kind, document.service) if document.service else None


class GroupLowering:
    """Lowers groups with one set of config entries. ``compile_use`` has the chain of a use with these entries."""

    def __init__(
        self, entries: ConfigEntries, compile_use: Compile, records: LoweredRecords, settings: LoweringSettings
    ) -> None:
        self._entries = entries
        self._compile_use = compile_use
        self._records = records
        self._settings = settings
        self._made: dict[tuple[Upstream, ProxySettings], list[LoweredPart]] = {}
        self._behind: dict[tuple[Upstream, ProxySettings], list[tuple[UpstreamChain, ListenerBackend]]] = {}
        self._recorded: dict[int, tuple[Json, LoweredRecord]] = {}  # by the identity of the content, which is kept

    def compile(self, group: str, document: UpstreamsDocument) -> dict[ChainUse, Compiled]:
        """The chains of a group's upstreams. Raises ``ValidationError`` for one that cannot be compiled here at all."""
        found: dict[ChainUse, Compiled] = {}
        for upstream in effective(document, self._entries).upstreams:
            use = use_of(upstream)
            try:
                found[use] = found.get(use) or self._compile_use(use)
            except CompileRequestError as error:
                place = f"{UPSTREAM}/{upstream.name}"
                raise ValidationError([_of_group(Violation("invalid_upstream", str(error), place), group)]) from None
        return found

    def lower(self, group: str, document: UpstreamsDocument, before: LoweredContent) -> LoweredGroup:
        """Lower the upstreams of a group. ``before`` is shared as far as nothing differs; as a whole, if it is equal.

        Raises ``ValidationError`` with every finding, and its place in the config entries or the document.
        """
        chains = self.compile(group, document)
        try:
            content = self._content(effective(document, self._entries), chains, before)
        except ValidationError as error:
            raise ValidationError([_of_group(one, group) for one in error.violations]) from None
        return LoweredGroup(group, document, content, chains)

    def _content(
        self, document: UpstreamsDocument, chains: Mapping[ChainUse, Compiled], before: LoweredContent
    ) -> LoweredContent:
        found: list[Violation] = []
        parts: dict[str, LoweredPart] = {}
        for upstream in document.upstreams:
            try:
                parts[upstream.name] = self._part(document, upstream, chains[use_of(upstream)], before)
            except ValidationError as error:
                found += error.violations
        if found:
            raise ValidationError(list(dict.fromkeys(found)))
        held = before.parts
        if list(parts) == list(held) and all(parts[name] is held[name] for name in parts):
            return before
        return self._united(parts, before if held else NOTHING_LOWERED)

    def _part(
        self, document: UpstreamsDocument, upstream: Upstream, compiled: Compiled, before: LoweredContent
    ) -> LoweredPart:
        if compiled.chain is None:
            assert compiled.error is not None
            finding = chain_finding(compiled.error, "does not compile")
            raise ValidationError([replace(finding, hint=f"{finding.hint}; upstream {upstream.name!r}")])
        present = frozenset(key for key in compiled.consulted if self._entries.get(key) is not None)
        held = before.parts.get(upstream.name)
        if (
            held is not None
            and (held.chain.chain is compiled.chain and held.chain.entries == present)
            and (held.upstream, held.proxies) == (upstream, document.proxies)
        ):
            return held
        chain = UpstreamChain(compiled.chain, present)
        return self._lowered_once(upstream, chain, document.proxies)

    def _lowered_once(self, upstream: Upstream, chain: UpstreamChain, proxies: ProxySettings) -> LoweredPart:
        """What groups with equal upstreams share. An upstream with an escape hatch has no hash: it is lowered again."""
        if upstream.envoy_listener_json is not None or upstream.envoy_cluster_json is not None:
            return LoweredPart(upstream, chain, proxies, lower_upstream(upstream, chain, proxies, self._settings))
        made = self._made.setdefault((upstream, proxies), [])
        for part in made:
            if part.chain.chain is chain.chain and part.chain.entries == chain.entries:
                return part
        behind = self._behind_once(without_address(upstream), chain, proxies)
        lowered = add_listener(upstream, chain, proxies, self._settings, behind)
        made.append(LoweredPart(upstream, chain, proxies, lowered))
        return made[-1]

    def _behind_once(self, upstream: Upstream, chain: UpstreamChain, proxies: ProxySettings) -> ListenerBackend:
        """What upstreams share that differ in the address or port of the listener only."""
        made = self._behind.setdefault((upstream, proxies), [])
        for held, behind in made:
            if held.chain is chain.chain and held.entries == chain.entries:
                return behind
        made.append((chain, lower_backend(upstream, chain, proxies, self._settings)))
        return made[-1][1]

    def _record(self, one: LoweredResource) -> LoweredRecord:
        """The record of a resource; that of content which several groups share is found once."""
        held = self._recorded.get(id(one.content))
        if held is None:
            held = self._recorded[id(one.content)] = (one.content, self._records.of(one))
        return held[1]

    def _united(self, parts: Mapping[str, LoweredPart], before: LoweredContent) -> LoweredContent:
        """All parts as one. What only parts of ``before`` make that stay is taken from there."""
        touched = _touched(parts, before.parts)
        lowered = merge_lowered(_only(part.lowered, touched) for part in parts.values())
        found: list[Violation] = []
        records = {key: one for key, one in before.records.items() if key not in touched}
        for one in lowered.resources:
            try:
                records[one.type_url, one.name] = self._record(one)
            except ValidationError as error:
                found += error.violations
        if found:
            raise ValidationError(found)
        kept = {key: one for key, one in before.origins.items() if key not in touched}
        origins = {**kept, **{(one.type_url, one.name): one for one in lowered.resources}}
        stayed = {name: one for name, one in before.assignments.items() if (ENDPOINT, name) not in touched}
        return LoweredContent(
            {key: records[key] for key in sorted(origins)},
            {key: origins[key] for key in sorted(origins)},
            dict(sorted({**stayed, **lowered.assignments}.items())),
            parts,
            lowered.warnings,
        )


def _touched(parts: Mapping[str, LoweredPart], before: Mapping[str, LoweredPart]) -> set[ResourceKey]:
    """Type and name of all that the parts make which differ."""
    changed = [name for name in {**before, **parts} if parts.get(name) is not before.get(name)]
    made = [one.lowered for each in (parts, before) for name in changed if (one := each.get(name)) is not None]
    return {key for lowered in made for key in _keys(lowered)}


def _keys(lowered: Lowered) -> Iterator[ResourceKey]:
    yield from ((one.type_url, one.name) for one in lowered.resources)
    yield from ((ENDPOINT, name) for name in lowered.assignments)


def _only(lowered: Lowered, keys: Collection[ResourceKey]) -> Lowered:
    """The part with these keys, and all warnings."""
    resources = tuple(one for one in lowered.resources if (one.type_url, one.name) in keys)
    assignments = {name: one for name, one in lowered.assignments.items() if (ENDPOINT, name) in keys}
    return Lowered(resources, assignments, lowered.warnings)


def _of_group(finding: Violation, group: str) -> Violation:
    where = f"group {group!r}"
    return replace(finding, hint=f"{finding.hint}; {where}" if finding.hint else where)
