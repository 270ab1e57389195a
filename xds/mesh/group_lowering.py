"""Lowers the upstreams of one group. Unchanged resources are shared with the previous result. Pure."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from weakref import WeakValueDictionary

from xds.codec.record import blob_id, dump_record
from xds.codec.resources import ResourceDecoder
from xds.mesh.core.chain.compile import Compiled
from xds.mesh.core.chain.index import chain_finding
from xds.mesh.core.chain.request import CompileRequestError
from xds.mesh.core.chain.uses import ChainUse
from xds.mesh.core.entries.defaults import ServiceDefaults
from xds.mesh.core.entries.entry import Key, WrittenKey, entry_key
from xds.mesh.core.entries.entry_set import ConfigEntries
from xds.mesh.core.lower.lowered import (
    UPSTREAM,
    Json,
    Lowered,
    LoweredAssignment,
    LoweredResource,
    decode_lowered,
    merge_lowered,
)
from xds.mesh.core.lower.lowering import (
    ListenerBackend,
    add_listener,
    lower_backend,
    lower_upstream,
    without_address,
)
from xds.mesh.core.lower.upstream_context import UpstreamChain
from xds.mesh.core.lower.upstreams import ProxySettings, Upstream, UpstreamsDocument, with_upstream_config
from xds.model.errors import ValidationError, Violation
from xds.model.resource_type import ENDPOINT
from xds.push.content import Key as ResourceKey
from xds.push.derived import DerivedContent, DerivedOrigin, DerivedResource

_DIGEST_BYTES = 20
ENTRIES_NAMED = 5  # in a text


class LoweredRecords:
    """Makes records of lowered resources. Equal ones are decoded and checked once while a group has them."""

    def __init__(self, decoder: ResourceDecoder) -> None:
        self._decoder = decoder
        self._records: WeakValueDictionary[bytes, DerivedResource] = WeakValueDictionary()

    def of(self, lowered: LoweredResource) -> DerivedResource:
        """The record of a resource. Raises ``ValidationError`` with the places in the entries."""
        text = json.dumps([lowered.type_url, lowered.content], sort_keys=True).encode()
        key = blake2b(text, digest_size=_DIGEST_BYTES).digest()
        record = self._records.get(key)
        if record is None:
            resource = replace(decode_lowered(lowered, self._decoder), is_lowered=True)
            record = self._records[key] = DerivedResource(resource, blob_id(dump_record(resource)))
        return record


@dataclass(frozen=True, slots=True)
class LoweredPart:
    """The ``lowered`` resources of one upstream, and the values that they depend on."""

    upstream: Upstream
    chain: UpstreamChain
    proxies: ProxySettings
    lowered: Lowered


@dataclass(frozen=True, slots=True, eq=False)
class LoweredContent(DerivedContent):
    """The lowered resources of a group.

    ``origins`` says where each resource comes from. ``assignments`` are those of the clusters. ``parts`` are by the
    name of the upstream.
    """

    assignments: Mapping[str, LoweredAssignment] = field(default_factory=dict)
    origins: Mapping[ResourceKey, LoweredResource] = field(default_factory=dict)
    parts: Mapping[str, LoweredPart] = field(default_factory=dict)
    warnings: tuple[Violation, ...] = ()

    def origin(self, key: ResourceKey) -> DerivedOrigin:
        """The upstreams and the config entries that a resource or an assignment is lowered from."""
        lowered = self.origins.get(key) or (self.assignments.get(key[1]) if key[0] == ENDPOINT else None)
        upstreams = tuple(lowered.upstreams) if lowered is not None else ()
        entries = tuple(lowered.entries) if lowered is not None else ()
        hint = "change the config entries or the upstreams, or push under another name"
        return DerivedOrigin(_origin_text(upstreams, entries), hint, upstreams, entries)


def _origin_text(upstreams: Sequence[str], entries: Sequence[tuple[str, str]]) -> str:
    """Such as ``lowered from upstream 'web' by service-splitter/web``."""
    if not upstreams:
        return "lowered from the upstreams"
    named = ", ".join("/".join(each) for each in entries[:ENTRIES_NAMED])
    more = f" and {len(entries) - ENTRIES_NAMED} more" if len(entries) > ENTRIES_NAMED else ""
    by = f" by {named}{more}" if named else ""
    return f"lowered from upstream{'s' if len(upstreams) > 1 else ''} {' and '.join(map(repr, upstreams))}{by}"


NOTHING_LOWERED = LoweredContent()


def stored_content(stored: Mapping[ResourceKey, DerivedResource], lowered: LoweredContent) -> LoweredContent:
    """The ``stored`` resources of a group as its lowered ones; ``lowered`` itself if they are the same."""
    if {key: one.blob_id for key, one in stored.items()} == {key: one.blob_id for key, one in lowered.records.items()}:
        return lowered
    return replace(lowered, records=stored, parts={})  # without parts, so that all upstreams are lowered again


PartKey = tuple[Upstream, ProxySettings, int, frozenset[WrittenKey]]
Compile = Callable[[ChainUse], Compiled]


@dataclass(frozen=True, slots=True, eq=False)
class LoweredGroup:
    """A group with upstreams.

    ``content`` are the lowered resources in its snapshot, ``chains`` the chains that they were made of. ``error`` says
    why the upstreams cannot be lowered now; ``content`` are then the last ones.
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
    """The document with the settings of upstreams that the service-defaults of its own service have."""
    return (
        with_upstream_config(document, entries.find(ServiceDefaults, document.service))
        if document.service
        else document
    )


def own_entry(document: UpstreamsDocument) -> Key | None:
    """The key of the service-defaults that a document depends on, present or not; None for no service."""
    return entry_key(ServiceDefaults.kind, document.service) if document.service else None


class GroupLowering:
    """Lowers groups with one set of config entries. ``compile_use`` returns the chain of a use with these entries."""

    def __init__(self, entries: ConfigEntries, compile_use: Compile, records: LoweredRecords, datacenter: str) -> None:
        self._entries = entries
        self._compile_use = compile_use
        self._records = records
        self._datacenter = datacenter
        # By the ``id`` of the chain, which the part keeps alive.
        self._lowered_parts: dict[PartKey, LoweredPart] = {}
        self._behind: dict[PartKey, ListenerBackend] = {}
        # By the ``id`` of the content, which is kept alive here.
        self._records_by_content: dict[int, tuple[Json, DerivedResource]] = {}

    def compile(self, group: str, document: UpstreamsDocument) -> dict[ChainUse, Compiled]:
        """The chains of a group's upstreams. Raises ``ValidationError`` for one that cannot be compiled here at all."""
        chains: dict[ChainUse, Compiled] = {}
        for upstream in effective(document, self._entries).upstreams:
            use = use_of(upstream)
            try:
                chains[use] = chains.get(use) or self._compile_use(use)
            except CompileRequestError as error:
                place = f"{UPSTREAM}/{upstream.name}"
                raise ValidationError([_of_group(Violation("invalid_upstream", str(error), place), group)]) from None
        return chains

    def lower(self, group: str, document: UpstreamsDocument, before: LoweredContent) -> LoweredGroup:
        """Lower the upstreams of a group. Unchanged parts of ``before`` are shared; ``before`` itself, if all are.

        Raises ``ValidationError`` with all findings, each with its place in the config entries or the document.
        """
        chains = self.compile(group, document)
        try:
            content = self._content(effective(document, self._entries), chains, before)
        except ValidationError as error:
            raise ValidationError([_of_group(one, group) for one in error.violations]) from None
        return LoweredGroup(group, document, content, chains)

    def keep(self, before: LoweredGroup) -> LoweredGroup:
        """A group that cannot be lowered: its content stays, its chains are those of these entries."""
        try:
            return replace(before, chains=self.compile(before.group, before.document))
        except ValidationError:
            return replace(before, chains={})

    def _content(
        self, document: UpstreamsDocument, chains: Mapping[ChainUse, Compiled], before: LoweredContent
    ) -> LoweredContent:
        findings: list[Violation] = []
        parts: dict[str, LoweredPart] = {}
        for upstream in document.upstreams:
            try:
                parts[upstream.name] = self._part(document, upstream, chains[use_of(upstream)], before)
            except ValidationError as error:
                findings += error.violations
        if findings:
            raise ValidationError(list(dict.fromkeys(findings)))
        former = before.parts
        if list(parts) == list(former) and all(parts[name] is former[name] for name in parts):
            return before
        return self._united(parts, before if former else NOTHING_LOWERED)

    def _part(
        self, document: UpstreamsDocument, upstream: Upstream, compiled: Compiled, before: LoweredContent
    ) -> LoweredPart:
        if compiled.chain is None:
            assert compiled.error is not None
            finding = chain_finding(compiled.error, "does not compile")
            raise ValidationError([replace(finding, hint=f"{finding.hint}; upstream {upstream.name!r}")])
        present = self._entries.written(compiled.consulted)
        former = before.parts.get(upstream.name)
        if (
            former is not None
            and (former.chain.chain is compiled.chain and former.chain.entries == present)
            and (former.upstream, former.proxies) == (upstream, document.proxies)
        ):
            return former
        chain = UpstreamChain(compiled.chain, present)
        return self._lowered_once(upstream, chain, document.proxies)

    def _lowered_once(self, upstream: Upstream, chain: UpstreamChain, proxies: ProxySettings) -> LoweredPart:
        """The part of an upstream, shared by groups with an equal one.

        An upstream with an escape hatch has no hash, so it is lowered for each group.
        """
        inputs = (upstream, chain, proxies, self._datacenter)
        if upstream.envoy_listener_json is not None or upstream.envoy_cluster_json is not None:
            return LoweredPart(upstream, chain, proxies, lower_upstream(*inputs))
        key = (upstream, proxies, id(chain.chain), chain.entries)
        part = self._lowered_parts.get(key)
        if part is None:
            lowered = add_listener(*inputs, self._behind_once(without_address(upstream), chain, proxies))
            part = self._lowered_parts[key] = LoweredPart(upstream, chain, proxies, lowered)
        return part

    def _behind_once(self, upstream: Upstream, chain: UpstreamChain, proxies: ProxySettings) -> ListenerBackend:
        """The resources behind the listener, shared by upstreams that differ in the listener's address or port only."""
        key = (upstream, proxies, id(chain.chain), chain.entries)
        behind = self._behind.get(key)
        if behind is None:
            behind = self._behind[key] = lower_backend(upstream, chain, proxies, self._datacenter)
        return behind

    def _record(self, one: LoweredResource) -> DerivedResource:
        """The record of a resource. Groups that share the content share the look-up too."""
        known = self._records_by_content.get(id(one.content))
        if known is None:
            known = self._records_by_content[id(one.content)] = (one.content, self._records.of(one))
        return known[1]

    def _united(self, parts: Mapping[str, LoweredPart], before: LoweredContent) -> LoweredContent:
        """All parts as one content. Resources that no changed part makes are taken from ``before``."""
        touched = _touched(parts, before.parts)
        lowered = merge_lowered(_only(part.lowered, touched) for part in parts.values())
        findings: list[Violation] = []
        records = {key: one for key, one in before.records.items() if key not in touched}
        for one in lowered.resources:
            try:
                records[one.type_url, one.name] = self._record(one)
            except ValidationError as error:
                findings += error.violations
        if findings:
            raise ValidationError(findings)
        unchanged_origins = {key: one for key, one in before.origins.items() if key not in touched}
        origins = {**unchanged_origins, **{(one.type_url, one.name): one for one in lowered.resources}}
        unchanged = {name: one for name, one in before.assignments.items() if (ENDPOINT, name) not in touched}
        return LoweredContent(
            {key: records[key] for key in sorted(origins)},
            dict(sorted({**unchanged, **lowered.assignments}.items())),
            {key: origins[key] for key in sorted(origins)},
            parts,
            lowered.warnings,
        )


def _touched(parts: Mapping[str, LoweredPart], before: Mapping[str, LoweredPart]) -> set[ResourceKey]:
    """Type URL and name of all resources and assignments that changed parts make, before or now."""
    changed = [name for name in {**before, **parts} if parts.get(name) is not before.get(name)]
    affected = [one.lowered for each in (parts, before) for name in changed if (one := each.get(name)) is not None]
    return {key for lowered in affected for key in _keys(lowered)}


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
