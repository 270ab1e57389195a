"""Lowers the upstreams of one group, and shares with what it was lowered to before all that stays. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from xds.catalog.defaults import ServiceDefaults
from xds.catalog.entry import Key
from xds.catalog.entry_set import ConfigEntries
from xds.chain.compile import Compiled
from xds.chain.index import refused
from xds.chain.request import CompileRequestError
from xds.chain.uses import ChainUse
from xds.control.lowered_content import NOTHING_LOWERED, LoweredContent, LoweredPart, LoweredRecord, LoweredRecords
from xds.lower.lowered import UPSTREAM, Lowered, unite
from xds.lower.lowering import LoweringSettings, UpstreamChain, lower_upstream
from xds.lower.upstreams import Upstream, UpstreamsDocument, with_upstream_config
from xds.model.errors import ValidationError, Violation

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
        return self._united(unite(part.lowered for part in parts.values()), parts)

    def _part(
        self, document: UpstreamsDocument, upstream: Upstream, compiled: Compiled, before: LoweredContent
    ) -> LoweredPart:
        if compiled.chain is None:
            assert compiled.error is not None
            finding = refused(compiled.error, "does not compile")
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
        lowered = lower_upstream(upstream, chain, document.proxies, self._settings)
        return LoweredPart(upstream, chain, document.proxies, lowered)

    def _united(self, lowered: Lowered, parts: Mapping[str, LoweredPart]) -> LoweredContent:
        found: list[Violation] = []
        records: dict[Key, LoweredRecord] = {}
        for one in lowered.resources:
            try:
                records[one.type_url, one.name] = self._records.of(one)
            except ValidationError as error:
                found += error.violations
        if found:
            raise ValidationError(found)
        origins = {(one.type_url, one.name): one for one in lowered.resources}
        return LoweredContent(records, origins, lowered.assignments, parts, lowered.warnings)


def _of_group(finding: Violation, group: str) -> Violation:
    where = f"group {group!r}"
    return replace(finding, hint=f"{finding.hint}; {where}" if finding.hint else where)
