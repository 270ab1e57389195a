"""Groups with upstreams: their documents, the chains that they use, and what they are lowered to.

An upstreams document belongs to a group, so all nodes of the group are one class and share one view. What it is lowered
to is part of the group's snapshot: it changes with the document and with the config entries, in the transaction that
changes these. Who plans a change holds the lock of config entries, and then that of the group.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial

import structlog

from xds.catalog.entry import Key
from xds.catalog.entry_set import ConfigEntries
from xds.chain.compile import Compiled
from xds.chain.index import ChainContext
from xds.chain.uses import ChainUse, ChainUses
from xds.codec.resources import ResourceDecoder
from xds.control.audit_log import UNKNOWN_CALLER, Caller
from xds.control.config_entries import EntryPublisher, PlannedWrite
from xds.control.etags import NO_ETAG, check_etag, document_etag
from xds.control.group_content import GroupContent
from xds.control.group_lowering import Compile, GroupLowering, LoweredGroup, own_entry
from xds.control.lowered_content import (
    NO_LOWERING,
    NOTHING_LOWERED,
    OWNED_NAME,
    LoweredContent,
    LoweredRecords,
    LoweringChange,
    stored_content,
)
from xds.control.lowered_endpoints import LoweredEndpoints
from xds.control.stored_assignments import stored_assignments
from xds.control.threads import run_sized
from xds.lower.lowering import LoweringSettings
from xds.lower.upstreams import UpstreamsDocument, read_upstreams
from xds.model.errors import NotFoundError, ValidationError, Violation
from xds.model.resource_type import CLUSTER
from xds.store.base import DocumentWrite, Store

KIND = "upstreams"
GROUPS_LIMIT = 1_000
# Compiling a chain and lowering an upstream take as long as this many resources.
_SIZE_OF_CHAIN, _SIZE_OF_UPSTREAM = 10, 60

_log = structlog.get_logger(logger_name="xds.control.lowered_groups")


@dataclass(frozen=True, slots=True)
class TouchedGroups:
    """What a change of config entries touches: ``compiled`` chains, and the ``groups`` that use them."""

    entries: ConfigEntries
    compiled: Mapping[ChainUse, Compiled] = field(default_factory=dict)
    groups: frozenset[str] = frozenset()


class LoweredGroups:
    """The groups with upstreams. Use as one of the publisher's documents (`GroupDocuments`).

    ``endpoints`` serves the assignments of lowered clusters; without it they are not served. At most ``limit`` groups.
    """

    def __init__(
        self, store: Store, entries: EntryPublisher, decoder: ResourceDecoder, limit: int = GROUPS_LIMIT
    ) -> None:
        self.lock = asyncio.Lock()
        self.endpoints: LoweredEndpoints | None = None
        self._store = store
        self._entries = entries
        self.limit = limit
        self._records = LoweredRecords(decoder)
        self._groups: dict[str, LoweredGroup] = {}
        self._uses = ChainUses()
        self._of_entry: dict[Key, set[str]] = {}  # the groups that are configured by service-defaults

    # Reading

    def __len__(self) -> int:
        return len(self._groups)

    def __iter__(self) -> Iterator[str]:
        """The groups with upstreams, ordered."""
        return iter(sorted(self._groups))

    def find(self, group: str) -> LoweredGroup | None:
        """A group with upstreams; None for a group without."""
        return self._groups.get(group)

    def get(self, group: str) -> LoweredGroup:
        """Raises ``NotFoundError``."""
        found = self._groups.get(group)
        if found is None:
            raise NotFoundError(f"group {group!r} has no upstreams")
        return found

    def content(self, group: str) -> LoweredContent:
        """What is lowered in a group."""
        found = self._groups.get(group)
        return found.content if found is not None else NOTHING_LOWERED

    def lowering(self, group: str) -> LoweringChange:
        """The change that leaves what is lowered in a group as it is."""
        content = self.content(group)
        return LoweringChange(content, content) if content.records or content.assignments else NO_LOWERING

    def etag(self, group: str) -> str:
        """The etag of the upstreams of a group; `NO_ETAG` where it has none."""
        found = self._groups.get(group)
        return etag_of(found.document) if found is not None else NO_ETAG

    def context(self) -> ChainContext:
        """The context of all chains: datacenter, trust domain and peers."""
        return self._entries.index.context

    # As `GroupDocuments`

    async def load(self) -> None:
        """Read the stored documents and lower them with the present config entries. Raises ``StoreError``.

        A document that this release cannot read is logged, not used, and kept in the store. What cannot be lowered is
        logged.
        """
        found: dict[str, LoweredGroup] = {}
        entries, compiled = self._entries.index.entries, dict[ChainUse, Compiled]()
        lowering = self._lowering(entries, partial(self._compiled_once, entries, compiled))
        for doc in await self._store.docs(KIND):
            try:
                document = await asyncio.to_thread(read_upstreams, json.loads(doc.body))
                found[doc.id] = await self._loaded(doc.id, document, lowering)
            except (ValueError, ValidationError) as error:
                _log.error("upstreams.unreadable", group=doc.id, error_message=str(error))
        for group in [group for group in self._groups if group not in found]:
            self._drop(group)
        for made in found.values():
            self._keep(made)
        if self.endpoints is not None:
            await self.endpoints.assign_all({group: one.content.assignments for group, one in found.items()})
            for group in found:
                self._tell_clash(group)

    def documents(self, group: str) -> tuple[tuple[str, str], ...]:
        """Kind and id of the document of a group."""
        return ((KIND, group),) if group in self._groups else ()

    async def forget(self, group: str, by: Caller = UNKNOWN_CALLER) -> None:
        """Delete the document of a group that has settings and no resources. Raises ``StoreError``."""
        async with self.lock:
            if group not in self._groups:
                return
            with suppress(NotFoundError):  # it is deleted already
                await self._store.put_doc(KIND, group, None, note=self.write(group, None, by).note)
            self.dropped(group)

    def dropped(self, group: str) -> None:
        """Forget the document of a group; the store has deleted it with the group."""
        if group in self._groups:
            self._drop(group)
            if self.endpoints is not None:
                self.endpoints.retain(group, {})

    async def _loaded(self, group: str, document: UpstreamsDocument, lowering: GroupLowering) -> LoweredGroup:
        before = self.content(group)
        try:
            return await run_sized(lowering.lower, group, document, before, resources=_size(document))
        except ValidationError as error:
            _log.error("upstreams.not_lowered", group=group, error_message=str(error))
        try:
            chains = await run_sized(lowering.compile, group, document, resources=_size(document))
        except ValidationError:
            chains = {}
        return LoweredGroup(group, document, before, chains, error="the stored upstreams cannot be lowered")

    def held(self, group: str, content: GroupContent | None) -> bool:
        """Take over what the store holds of a group. False where it is other than what is lowered now.

        That may be after a release that lowers otherwise: the stored content is served until it is lowered again.
        """
        made = self._groups.get(group)
        if made is None:
            return True
        stored = stored_content(content, made.content)
        self._groups[group] = replace(made, content=stored)
        return stored is made.content

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
        made = await run_sized(lowering.lower, group, document, self.content(group), resources=_size(document))
        self._check_owners(made)
        return made

    async def plan_rest(self, made: LoweredGroup, clash: ValidationError) -> LoweredGroup:
        """Lower a group at the start without the upstreams that make names which are pushed. Raises ``clash``."""
        labels = {one.resource for one in clash.violations if one.code == OWNED_NAME}
        found = [one.upstreams for one in made.content.origins.values() if one.label in labels]
        found += [one.upstreams for one in made.content.assignments.values() if f"endpoints/{one.name}" in labels]
        taken = {name for upstreams in found for name in upstreams}
        if not taken:
            raise clash
        left = tuple(one for one in made.document.upstreams if one.name not in taken)
        rest = await self.plan_document(made.group, replace(made.document, upstreams=left))
        _log.error("upstreams.not_lowered", group=made.group, error_message=str(clash))
        return replace(made, content=rest.content, error=str(clash))

    async def keep_stored(self, group: str, error: str) -> list[str]:
        """Serve what the store holds of a group, with the endpoints of its clusters, and show why it stays.

        Returns the groups that are served other endpoints. Wake their streams.
        """
        held = self._groups[group]
        names = {name for type_url, name in held.content.records if type_url == CLUSTER}
        asked = (names, held.document, self._entries.index.entries, self.context())
        assignments = await run_sized(stored_assignments, *asked, resources=_size(held.document))
        moved = self.begin({group: replace(held, content=replace(held.content, assignments=assignments))})
        self.end((group,))
        clash = self.endpoints.clash(group) if self.endpoints is not None else ""
        self.tell(group, f"{error}; {clash}" if clash else error)
        return moved

    def tell(self, group: str, error: str) -> None:
        """Show why a group is not lowered as its upstreams say, or not wholly."""
        self._groups[group] = replace(self._groups[group], error=error)
        _log.error("upstreams.not_lowered", group=group, error_message=error)

    async def touched(self, planned: PlannedWrite) -> TouchedGroups:
        """The chains and groups that a planned write of config entries touches."""
        keys = {*planned.edit.put, *planned.edit.removed}
        uses, entries = self._uses.depending_on(keys), planned.proposal.entries
        own = frozenset().union(*(self._of_entry.get(key, ()) for key in keys))
        compiled = await run_sized(self._compile_again, uses, entries, resources=_SIZE_OF_CHAIN * len(uses))
        return TouchedGroups(entries, compiled, self._uses.users(uses) | own)

    async def plan_entries(self, touched: TouchedGroups) -> dict[str, LoweredGroup]:
        """Lower the touched groups that still exist; those that come out as before are left out.

        Raises ``ValidationError`` with the findings of all groups, ``OwnedError``.
        """
        held = [self._groups[group] for group in sorted(touched.groups) if group in self._groups]
        size = sum(_SIZE_OF_UPSTREAM * len(one.chains.keys() & touched.compiled.keys()) for one in held)
        made, found = await run_sized(self._lower_all, touched, held, resources=size)
        if found:
            raise ValidationError(found)
        for one in made.values():
            self._check_owners(one)
        return made

    def _lower_all(
        self, touched: TouchedGroups, held: Iterable[LoweredGroup]
    ) -> tuple[dict[str, LoweredGroup], list[Violation]]:
        lowering = self._lowering(touched.entries, partial(self._compiled, touched.entries, touched.compiled))
        found: list[Violation] = []
        made: dict[str, LoweredGroup] = {}
        for before in held:
            try:
                one = lowering.lower(before.group, before.document, before.content)
            except ValidationError as error:
                # What could not be lowered before may stay so, as chains that are broken may.
                found += error.violations if not before.error else []
                continue
            if one.content is not before.content or not _is_same(one.chains, before.chains):
                made[before.group] = one
        return made, list(dict.fromkeys(found))

    def write(self, group: str, document: UpstreamsDocument | None, by: Caller, message: str = "") -> DocumentWrite:
        """The document for the store; None deletes it."""
        held = self._groups.get(group)
        old = held.document.document() if held is not None else None
        new = document.document() if document is not None else None
        action = "upstreams.put" if document is not None else "upstreams.deleted"
        note = by.note(action, group=group, message=message, old=old, new=new)
        return DocumentWrite(KIND, group, json.dumps(new).encode() if new is not None else None, note)

    # Publishing: nothing is awaited

    def begin(self, made: Mapping[str, LoweredGroup | None]) -> list[str]:
        """Put what was committed in place: before the snapshots are published. None: a group has no upstreams now.

        Returns the groups that are served other endpoints, with the same resources or not. Wake their streams.
        """
        moved: list[str] = []
        for group, one in made.items():
            if one is None:
                self._drop(group)
                continue
            self._keep(one)
            if self.endpoints is not None and self.endpoints.add(group, one.content.assignments):
                moved.append(group)
            self._tell_clash(group)
        return moved

    def end(self, groups: Collection[str]) -> None:
        """Take away the assignments of clusters that are gone: after the snapshots are published."""
        if self.endpoints is not None:
            for group in groups:
                self.endpoints.retain(group, self.content(group).assignments)

    def _tell_clash(self, group: str) -> None:
        """An assignment got another owner while the store's answer was lost, or it was changed by other means."""
        clash = self.endpoints.clash(group) if self.endpoints is not None else ""
        if clash and group in self._groups:
            self.tell(group, clash)

    def _keep(self, made: LoweredGroup) -> None:
        self._drop_entry(made.group)
        self._groups[made.group] = made
        self._uses.assign(made.group, made.chains)
        key = own_entry(made.document)
        if key is not None:
            self._of_entry.setdefault(key, set()).add(made.group)

    def _drop(self, group: str) -> None:
        self._drop_entry(group)
        del self._groups[group]
        self._uses.assign(group, {})

    def _drop_entry(self, group: str) -> None:
        held = self._groups.get(group)
        key = own_entry(held.document) if held is not None else None
        if key is not None:
            users = self._of_entry[key]
            users.discard(group)
            if not users:
                del self._of_entry[key]

    def _check_owners(self, made: LoweredGroup) -> None:
        if self.endpoints is not None:
            held = self.content(made.group).assignments  # a clash that is there already is told, and refuses nothing
            new = {name: one for name, one in made.content.assignments.items() if name not in held}
            self.endpoints.check(made.group, new)

    # Chains

    def _lowering(self, entries: ConfigEntries, compile_use: Compile) -> GroupLowering:
        return GroupLowering(entries, compile_use, self._records, LoweringSettings(self.context().datacenter))

    def _compiled(self, entries: ConfigEntries, compiled: Mapping[ChainUse, Compiled], use: ChainUse) -> Compiled:
        """The chain of a use: what is in use and not touched is the same with other entries."""
        return compiled.get(use) or self._uses.find(use) or use.compile(self.context(), entries)

    def _compiled_once(self, entries: ConfigEntries, made: dict[ChainUse, Compiled], use: ChainUse) -> Compiled:
        """The chain of a use, compiled for the first group that uses it."""
        if use not in made:
            made[use] = use.compile(self.context(), entries)
        return made[use]

    def _compile_again(self, uses: Iterable[ChainUse], entries: ConfigEntries) -> dict[ChainUse, Compiled]:
        """What comes out as before is the same object."""
        found: dict[ChainUse, Compiled] = {}
        for use in uses:
            one, before = use.compile(self.context(), entries), self._uses.find(use)
            held = before if before is not None and before.chain is not None else one
            found[use] = held if (held.chain, held.consulted) == (one.chain, one.consulted) else one
        return found


def etag_of(document: UpstreamsDocument) -> str:
    """The etag of an upstreams document."""
    return document_etag("u", document.document())


def _is_same(chains: Mapping[ChainUse, Compiled], other: Mapping[ChainUse, Compiled]) -> bool:
    return chains.keys() == other.keys() and all(one is other[use] for use, one in chains.items())


def _size(document: UpstreamsDocument) -> int:
    return _SIZE_OF_UPSTREAM * len(document.upstreams)
