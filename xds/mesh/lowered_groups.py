"""Groups with upstreams: their documents, the chains that they use, and their lowered resources.

One idea: whoever writes or follows any of them finds here what follows from it for the groups.

An upstreams document belongs to a group, so all nodes of the group share one view. The lowered resources are part of
the group's snapshot. They change with the document and with the config entries, in the same transaction. The caller
that plans a change holds the lock of config entries, and then the lock of the group.
"""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial

import structlog

from xds.access.caller import UNKNOWN_CALLER, Caller
from xds.codec.resources import ResourceDecoder
from xds.live.owners import OwnedError
from xds.mesh.config_entries import EntryTable, MissingWrites, PlannedWrite
from xds.mesh.core.chain.compile import Compiled
from xds.mesh.core.chain.index import ChainContext
from xds.mesh.core.chain.uses import ChainUse, ChainUses
from xds.mesh.core.entries.entry_set import ConfigEntries
from xds.mesh.core.lower.upstreams import UpstreamsDocument, read_upstreams
from xds.mesh.group_lowering import (
    NOTHING_LOWERED,
    Compile,
    GroupLowering,
    LoweredContent,
    LoweredGroup,
    LoweredRecords,
    own_entry,
    stored_content,
)
from xds.mesh.lowered_endpoints import LoweredEndpoints
from xds.mesh.stored_assignments import stored_assignments
from xds.model.errors import NotFoundError, ValidationError, Violation, XdsError
from xds.model.resource_type import CLUSTER
from xds.push.content import Key as ResourceKey
from xds.push.derived import ORDER_ID, OWNED_NAME, DerivedChange, DerivedResource, DerivedWrite
from xds.store.base import Commit, DocumentWrite, Meta, Store, StoreError
from xds.store.etags import NO_ETAG, check_etag, document_etag
from xds.store.known_documents import KnownDocuments, reviewed
from xds.tasks.threads import run_sized

KIND = "upstreams"
ORDER = "upstreams.order"  # of the document with `ORDER_ID`
GROUPS_LIMIT = 1_000
_ORDER_BYTES = 8
# Compiling a chain, and lowering an upstream, take as long as this many resources.
_SIZE_OF_CHAIN, _SIZE_OF_UPSTREAM = 10, 60

_log = structlog.get_logger(logger_name="xds.mesh.lowered_groups")


@dataclass(frozen=True, slots=True)
class TouchedGroups:
    """The changed ``entries``, the chains ``compiled`` again with them, and the ``groups`` that use these."""

    entries: ConfigEntries
    compiled: Mapping[ChainUse, Compiled] = field(default_factory=dict)
    groups: frozenset[str] = frozenset()


class LoweredGroups:
    """The groups with upstreams: what resources of groups are derived from (`Derived`).

    ``endpoints`` serves the assignments of lowered clusters; None: they are not served. At most ``limit`` groups can
    have upstreams.
    """

    kinds = (KIND, ORDER)
    is_within = False

    def __init__(self, store: Store, entries: EntryTable, decoder: ResourceDecoder, limit: int = GROUPS_LIMIT) -> None:
        self.lock = asyncio.Lock()
        self.endpoints: LoweredEndpoints | None = None
        self.known = KnownDocuments(store, self)
        self._entries = entries
        self.limit = limit
        self._records = LoweredRecords(decoder)
        self._groups: dict[str, LoweredGroup] = {}
        self._unsettled: set[str] = set()  # groups that show what the store has, until they are lowered again
        self._uses = ChainUses()

    # Reading

    def __len__(self) -> int:
        return len(self._groups)

    def __iter__(self) -> Iterator[str]:
        """The groups with upstreams, ordered."""
        return iter(sorted(self._groups))

    def find(self, group: str) -> LoweredGroup | None:
        """A group with upstreams; None for a group without upstreams."""
        return self._groups.get(group)

    def get(self, group: str) -> LoweredGroup:
        """Raises ``NotFoundError``."""
        lowered = self._groups.get(group)
        if lowered is None:
            raise NotFoundError(f"group {group!r} has no upstreams")
        return lowered

    def content(self, group: str) -> LoweredContent:
        """The lowered resources of a group."""
        lowered = self._groups.get(group)
        return lowered.content if lowered is not None else NOTHING_LOWERED

    def groups(self) -> list[str]:
        """The groups with upstreams, ordered."""
        return sorted(self._groups)

    def change(self, group: str, after: LoweredGroup | None, *, is_next: bool = False) -> DerivedChange:
        """The change of the lowered resources of a group; None: it loses its upstreams.

        Its label shows the revision of the config entries; ``is_next``: the revision that is about to be made.
        """
        content = after.content if after is not None else NOTHING_LOWERED
        return DerivedChange(self.content(group), content, f"e{self._entries.revision + is_next}")

    def etag(self, group: str) -> str:
        """The etag of the upstreams of a group; `NO_ETAG` if it has none."""
        lowered = self._groups.get(group)
        return etag_of(lowered.document) if lowered is not None else NO_ETAG

    def context(self) -> ChainContext:
        """The context of all chains: datacenter, trust domain and peers."""
        return self._entries.index.context

    # As `Derived`

    async def load(self) -> None:
        """Read the config entries and the stored documents, and lower these. Raises ``StoreError``.

        A document that this release cannot read is logged, not used, and kept in the store. A document that cannot be
        lowered is logged; its group keeps its lowered resources.
        """
        await self.known.read(ORDER)  # first: of what is written meanwhile, too much is known and not too little
        await self._entries.load()
        loaded: dict[str, LoweredGroup] = {}
        entries, compiled = self._entries.index.entries, dict[ChainUse, Compiled]()
        lowering = self._lowering(entries, partial(self._compile_once, entries, compiled))
        for doc in await self.known.read(KIND):
            if (document := await _read_stored(doc.id, doc.body)) is not None:
                loaded[doc.id] = await self._lower_loaded(doc.id, document, lowering)
        for group in [group for group in self._groups if group not in loaded]:
            self._remove(group)
        for lowered in loaded.values():
            self._set(lowered)
        if self.endpoints is not None:
            await self.endpoints.assign_all({group: one.content.assignments for group, one in loaded.items()})
            for group in loaded:
                self._report_clash(group)

    async def catch_up(self) -> Collection[str]:
        """Take over what the store has, and lower only what differs by that. Raises ``StoreError``."""
        await self.known.catch_up_all(ORDER)  # first, as above
        missing = await self._entries.missing()
        if missing is None:
            await self.load()
            return self.groups()
        touched = await self.find_touched(missing)
        try:
            lowered = await self.plan_entries(touched)
        except (ValidationError, OwnedError):  # of another release, or with another owner: the load reports it
            await self.load()
            return self.groups()
        self._entries.follow(missing)
        self.begin(lowered)
        return {*touched.groups, *await self.known.catch_up_all(KIND)}

    async def apply(self, kind: str, id: str, body: bytes | None) -> None:
        """Lower upstreams that another server has stored; None: they were deleted.

        The caller holds the locks of config entries and of the group, whose snapshot is published next; then it calls
        ``end``.
        """
        if kind == ORDER:
            return
        document, present = await _read_stored(id, body) if body is not None else None, self._groups.get(id)
        if document is not None and (present is None or present.document != document):
            entries = self._entries.index.entries
            lowering = self._lowering(entries, partial(self._compiled, entries, {}))
            self.begin({id: await self._lower_loaded(id, document, lowering)})
        elif document is None and present is not None:
            self.begin({id: None})

    async def forget(self, group: str, by: Caller = UNKNOWN_CALLER) -> None:
        """Delete the document of a group that has settings and no resources. Raises ``StoreError``."""
        await reviewed(lambda: self._delete(group, by))

    async def _delete(self, group: str, by: Caller) -> None:
        async with self.lock:
            if group not in self._groups:
                return
            with suppress(NotFoundError):  # it is deleted already
                await self.known.put(KIND, group, None, note=self.write(group, None, by).note)
            self.dropped(group)

    def dropped(self, group: str) -> None:
        """Forget the document of a group; the store has deleted it with the group."""
        if group in self._groups:
            self._remove(group)
            if self.endpoints is not None:
                self.endpoints.retain(group, {})

    async def _lower_loaded(self, group: str, document: UpstreamsDocument, lowering: GroupLowering) -> LoweredGroup:
        before = self.content(group)
        try:
            return await run_sized(lowering.lower, group, document, before, resources=_size(document))
        except ValidationError as error:
            _log.error("upstreams.not_lowered", group=group, error_message=str(error))
        kept = LoweredGroup(group, document, before, error="the stored upstreams cannot be lowered")
        return await run_sized(lowering.keep, kept, resources=_size(document))

    def has(self, revision: int) -> bool:
        """Whether the config entries are those of this revision, or later ones."""
        return self._entries.revision >= revision

    def adopt(self, group: str, stored: Mapping[ResourceKey, DerivedResource]) -> bool:
        """Take over the ``stored`` lowered resources of a group.

        False if they differ from those that this server makes, as after an upgrade to a release that lowers otherwise,
        or if the store has not taken these.
        The stored resources are served until the group is lowered again.
        """
        lowered = self._groups.get(group)
        if lowered is None:
            return True
        content = stored_content(stored, lowered.content)
        self._groups[group] = replace(lowered, content=content)
        return content is lowered.content and group not in self._unsettled

    async def settle(self, group: str, apply: Callable[[DerivedWrite], Awaitable[None]]) -> Collection[str]:
        """Lower a group again, whose stored resources are others.

        On an error it keeps these, and the error is shown. Raises ``StoreError``.
        """
        try:
            lowered = await self.plan_document(group, self.get(group).document)
            try:
                await apply(LoweringPart(self, {group: lowered}))
            except ValidationError as clash:
                await apply(LoweringPart(self, {group: await self.plan_rest(lowered, clash)}))
        except XdsError as error:
            with_new_endpoints = await self.keep_stored(group, str(error))
            if isinstance(error, StoreError):
                self._unsettled.add(group)
                raise
            return with_new_endpoints
        return ()

    # Planning

    def check(self, group: str, document: UpstreamsDocument | None, etag: str) -> None:
        """Raises ``ConflictError`` for another etag, ``ValidationError`` when too many groups have upstreams.

        Raises ``NotFoundError`` for the deletion (None) of upstreams that do not exist.
        """
        if document is None:
            self.get(group)
        check_etag(etag, self.etag(group), f"group {group!r} upstreams", group)
        if document is not None and group not in self._groups and len(self) >= self.limit:
            detail = f"at most {self.limit} groups can have upstreams"
            hint = "let one group with a selector serve all proxies that call the same services"
            raise ValidationError([Violation("too_many", detail, hint=hint)])

    async def plan_document(self, group: str, document: UpstreamsDocument) -> LoweredGroup:
        """Lower a document. Raises ``ValidationError``, ``OwnedError``."""
        entries = self._entries.index.entries
        lowering = self._lowering(entries, partial(self._compiled, entries, {}))
        # In a thread, whatever the size: regular expressions take long to compile.
        lowered = await asyncio.to_thread(lowering.lower, group, document, self.content(group))
        self._check_owners(lowered)
        return lowered

    async def plan_rest(self, lowered: LoweredGroup, clash: ValidationError) -> LoweredGroup:
        """Lower a group without the upstreams whose resources have names of pushed ones, as ``clash`` reports.

        For a start of the server, which cannot refuse the upstreams. Raises ``clash`` if it names no upstream.
        """
        labels = {one.resource for one in clash.violations if one.code == OWNED_NAME}
        content = lowered.content
        origins = [one.upstreams for one in content.origins.values() if one.label in labels]
        origins += [one.upstreams for one in content.assignments.values() if f"endpoints/{one.name}" in labels]
        clashing = {name for upstreams in origins for name in upstreams}
        if not clashing:
            raise clash
        remaining = tuple(one for one in lowered.document.upstreams if one.name not in clashing)
        rest = await self.plan_document(lowered.group, replace(lowered.document, upstreams=remaining))
        _log.error("upstreams.not_lowered", group=lowered.group, error_message=str(clash))
        return replace(lowered, content=rest.content, error=str(clash))

    async def keep_stored(self, group: str, error: str) -> list[str]:
        """Serve the stored resources of a group with the endpoints of its clusters, and show ``error`` as the reason.

        Returns the groups that are served other endpoints. The caller wakes their streams.
        """
        lowered = self._groups[group]
        clusters = {name for type_url, name in lowered.content.records if type_url == CLUSTER}
        inputs = (clusters, lowered.document, self._entries.index.entries, self.context())
        assignments = await run_sized(stored_assignments, *inputs, resources=_size(lowered.document))
        stored = replace(lowered, content=replace(lowered.content, assignments=assignments))
        with_new_endpoints = self.begin({group: stored})
        self.end((group,))
        clash = self.endpoints.clash(group) if self.endpoints is not None else ""
        self._report(group, f"{error}; {clash}" if clash else error)
        return with_new_endpoints

    def _report(self, group: str, error: str) -> None:
        """Log and show why the resources of a group are not, or not all, those of its upstreams."""
        self._groups[group] = replace(self._groups[group], error=error)
        _log.error("upstreams.not_lowered", group=group, error_message=error)

    async def find_touched(self, planned: PlannedWrite | MissingWrites) -> TouchedGroups:
        """The chains and groups that a planned write of config entries touches."""
        keys = {*planned.edit.put, *planned.edit.removed}
        uses, entries = self._uses.chains.depending_on(keys), planned.proposal.entries
        own = {group for group, one in self._groups.items() if own_entry(one.document) in keys}
        compiled = await run_sized(self._compile_again, uses, entries, resources=_SIZE_OF_CHAIN * len(uses))
        return TouchedGroups(entries, compiled, self._uses.users(uses) | own)

    async def plan_entries(self, touched: TouchedGroups) -> dict[str, LoweredGroup]:
        """Lower the touched groups that still exist. Groups whose resources stay the same are left out.

        Raises ``ValidationError`` with the findings of all groups, ``OwnedError``.
        """
        present = [self._groups[group] for group in sorted(touched.groups) if group in self._groups]
        if not present:
            return {}
        lowered, findings = await asyncio.to_thread(self._lower_all, touched, present)  # as above
        if findings:
            raise ValidationError(findings)
        for one in lowered.values():
            self._check_owners(one)
        return lowered

    def _lower_all(
        self, touched: TouchedGroups, present: Iterable[LoweredGroup]
    ) -> tuple[dict[str, LoweredGroup], list[Violation]]:
        lowering = self._lowering(touched.entries, partial(self._compiled, touched.entries, touched.compiled))
        findings: list[Violation] = []
        lowered: dict[str, LoweredGroup] = {}
        for before in present:
            try:
                after = lowering.lower(before.group, before.document, before.content)
            except ValidationError as error:
                if not before.error:
                    findings += error.violations
                    continue
                # A group that could not be lowered before may stay so, as a broken chain may stay broken.
                after = lowering.keep(replace(before, error=str(error)))
            is_same = (after.content, after.error) == (before.content, before.error)
            if not is_same or not _is_same(after.chains, before.chains):
                lowered[before.group] = after
        return lowered, list(dict.fromkeys(findings))

    def write(self, group: str, document: UpstreamsDocument | None, by: Caller, message: str = "") -> DocumentWrite:
        """The document for the store; None deletes it."""
        present = self._groups.get(group)
        old = present.document.document() if present is not None else None
        new = document.document() if document is not None else None
        action = "upstreams.put" if document is not None else "upstreams.deleted"
        note = by.note(action, group=group, message=message, old=old, new=new)
        return self.known.write(KIND, group, json.dumps(new).encode() if new is not None else None, note)

    def order(self) -> DocumentWrite:
        """A part of each write of config entries or upstreams (`ORDER_ID`)."""
        return self.known.write(ORDER, ORDER_ID, secrets.token_bytes(_ORDER_BYTES))

    # Publishing: nothing is awaited

    def begin(self, committed: Mapping[str, LoweredGroup | None]) -> list[str]:
        """Take over committed groups, before their snapshots are published. None: a group has no upstreams any more.

        Returns the groups that are served other endpoints, whether their resources changed or not. The caller wakes
        their streams.
        """
        with_new_endpoints: list[str] = []
        for group, lowered in committed.items():
            if lowered is None:
                self._remove(group)
                continue
            self._set(lowered)
            if self.endpoints is not None and self.endpoints.add(group, lowered.content.assignments):
                with_new_endpoints.append(group)
            self._report_clash(group)
        return with_new_endpoints

    def end(self, groups: Collection[str]) -> None:
        """Remove the assignments of removed clusters, after the snapshots of these groups are published."""
        if self.endpoints is not None:
            for group in groups:
                self.endpoints.retain(group, self.content(group).assignments)

    def _report_clash(self, group: str) -> None:
        """Report an assignment with another owner: it got one while the server was behind the store."""
        clash = self.endpoints.clash(group) if self.endpoints is not None else ""
        if clash and group in self._groups:
            self._report(group, clash)

    def _set(self, lowered: LoweredGroup) -> None:
        self._groups[lowered.group] = lowered
        self._unsettled.discard(lowered.group)
        self._uses.assign(lowered.group, lowered.chains)

    def _remove(self, group: str) -> None:
        self._unsettled.discard(group)
        del self._groups[group]
        self._uses.assign(group, {})

    def _check_owners(self, lowered: LoweredGroup) -> None:
        if self.endpoints is not None:
            present = self.content(lowered.group).assignments  # a present clash is reported, and refuses no change
            new = {name: one for name, one in lowered.content.assignments.items() if name not in present}
            self.endpoints.check(lowered.group, new)

    # Chains

    def _lowering(self, entries: ConfigEntries, compile_use: Compile) -> GroupLowering:
        return GroupLowering(entries, compile_use, self._records, self.context().datacenter)

    def _compiled(self, entries: ConfigEntries, compiled: Mapping[ChainUse, Compiled], use: ChainUse) -> Compiled:
        """The chain of a use with ``entries``. ``compiled`` has the touched chains; others in use stay the same."""
        return compiled.get(use) or self._uses.chains.find(use) or use.compile(self.context(), entries)

    def _compile_once(self, entries: ConfigEntries, compiled: dict[ChainUse, Compiled], use: ChainUse) -> Compiled:
        """The chain of a use, compiled for the first group that uses it."""
        if use not in compiled:
            compiled[use] = use.compile(self.context(), entries)
        return compiled[use]

    def _compile_again(self, uses: Iterable[ChainUse], entries: ConfigEntries) -> dict[ChainUse, Compiled]:
        """The chains of these uses with ``entries``. An unchanged chain stays the same object."""
        chains = self._uses.chains
        return {use: chains.unchanged_or(use, use.compile(self.context(), entries)) for use in uses}


class LoweringPart(DerivedWrite):
    """Newly lowered resources of groups, by group; None for a group that loses its upstreams."""

    @property
    def source(self) -> LoweredGroups:
        return self._groups

    def __init__(self, groups: LoweredGroups, lowered: Mapping[str, LoweredGroup | None] | None = None) -> None:
        self._groups = groups
        self._lowered = dict(lowered or {})

    async def plan(self) -> Collection[str]:
        """The groups are known."""
        return self._lowered

    async def derive(self, deleted: Collection[str]) -> Mapping[str, DerivedChange]:
        """The changes of the groups that are not ``deleted``. Their label shows the revision of the config entries."""
        self._lowered = {group: one for group, one in self._lowered.items() if group not in deleted}
        return {group: self._groups.change(group, one) for group, one in self._lowered.items()}

    def begin(self, commits: Sequence[Commit], meta: Meta) -> Collection[str]:
        return self._groups.begin(self._lowered)

    def end(self) -> None:
        self._groups.end(self._lowered)


def etag_of(document: UpstreamsDocument) -> str:
    """The etag of an upstreams document."""
    return document_etag("u", document.document())


async def _read_stored(group: str, body: bytes) -> UpstreamsDocument | None:
    """A stored document; None, and a line in the log, if this release cannot read it."""
    try:
        return await asyncio.to_thread(read_upstreams, json.loads(body))
    except (ValueError, ValidationError) as error:
        _log.error("upstreams.unreadable", group=group, error_message=str(error))
        return None


def _is_same(chains: Mapping[ChainUse, Compiled], other: Mapping[ChainUse, Compiled]) -> bool:
    return chains.keys() == other.keys() and all(one is other[use] for use, one in chains.items())


def _size(document: UpstreamsDocument) -> int:
    return _SIZE_OF_UPSTREAM * len(document.upstreams)
