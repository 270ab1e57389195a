"""Config entries read from the store: the present ones with their chains, earlier revisions, and the undo plan."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from xds.mesh.core.chain.compile import compile_recorded
from xds.mesh.core.chain.index import ChainContext, ChainIndex, Proposal
from xds.mesh.core.chain.request import Overrides
from xds.mesh.core.entries.entry import Key, WrittenKey, entry_key
from xds.mesh.core.entries.entry_set import ConfigEntries
from xds.mesh.entry_records import (
    LINE,
    EntryChange,
    EntryEdit,
    EntryRecord,
    UnreadableEntryError,
    counting,
    read_record,
)
from xds.model.compared_name import ComparedName, compared
from xds.model.errors import NotFoundError
from xds.store.base import GoneError, RevisionInfo, Store
from xds.store.line import Line
from xds.tasks.threads import run_rarely_collected, run_sized


@dataclass(frozen=True, slots=True)
class LoadedEntries:
    """All entries of a store, and their chains.

    ``unreadable`` has the error for each entry that cannot be read, ``replaced`` the entry that counts instead of one
    whose name differs in case only (`counting`).
    """

    revision: int
    records: dict[Key, EntryRecord]
    unreadable: dict[WrittenKey, str]
    replaced: dict[WrittenKey, EntryRecord]
    index: ChainIndex

    def unused(self) -> dict[Key, tuple[WrittenKey, ...]]:
        """The stored entries that are not used, by key."""
        unused_keys: dict[Key, tuple[WrittenKey, ...]] = {}
        for kind, name in (*self.unreadable, *self.replaced):
            key = entry_key(kind, name)
            unused_keys[key] = (*unused_keys.get(key, ()), (kind, name))
        return unused_keys


async def load_entries(store: Store, context: ChainContext) -> LoadedEntries:
    """Read all entries and compile all chains, in a thread. Raises ``StoreError``."""
    head = await store.head(LINE)
    if head is None or not head.live:
        return LoadedEntries(0, {}, {}, {}, ChainIndex(context))
    manifest = await store.manifest(LINE)
    blobs = await store.blobs({entry.blob_id for entry in manifest.entries})
    bodies = {(entry.type_url, entry.name): blobs[entry.blob_id] for entry in manifest.entries}
    return await run_rarely_collected(_load, manifest.revision, bodies, context)


def _load(revision: int, bodies: Mapping[WrittenKey, bytes], context: ChainContext) -> LoadedEntries:
    stored: list[EntryRecord] = []
    unreadable: dict[WrittenKey, str] = {}
    for key, body in bodies.items():
        try:
            stored.append(read_record(body, key))
        except UnreadableEntryError as error:
            unreadable[key] = str(error)
    records = counting(stored)
    replaced = {one.written: records[one.key] for one in stored if records[one.key] is not one}
    index = ChainIndex(context, ConfigEntries.of(record.entry for record in records.values()))
    return LoadedEntries(revision, records, unreadable, replaced, index)


@dataclass(frozen=True, slots=True)
class EntryUndoPlan:
    """What undo would do: ``takes_back`` is the last change in effect, ``to`` the revision that undo restores."""

    takes_back: RevisionInfo
    to: RevisionInfo


class EntryHistory:
    """Reads the ``line`` of config entries of a store."""

    def __init__(self, store: Store) -> None:
        self.line = Line(store, LINE)
        self._store = store

    async def content(self, revision: int) -> dict[Key, EntryRecord]:
        """All entries at a revision. Revision 0 is empty.

        Raises ``NotFoundError``, ``GoneError``, ``UnreadableEntryError``, ``StoreError``.
        """
        return await self._read(await self._blob_ids(revision))

    async def changes(self, old: int, new: int) -> tuple[EntryChange, ...]:
        """The entries that differ between two revisions, by kind and name. Revision 0 is empty. Raises as ``content``.

        An entry that was deleted and written again is not a difference.
        """
        before_ids, after_ids = await self._blob_ids(old), await self._blob_ids(new)
        stored = before_ids.keys() | after_ids.keys()
        differ = {entry_key(*one) for one in stored if before_ids.get(one) != after_ids.get(one)}
        before = await self._read({one: blob for one, blob in before_ids.items() if entry_key(*one) in differ})
        after = await self._read({one: blob for one, blob in after_ids.items() if entry_key(*one) in differ})
        changes = (EntryChange(key, before.get(key), after.get(key)) for key in sorted(differ))
        return tuple(each for each in changes if not _is_same(each))

    async def edit(self, old: int, new: int) -> EntryEdit:
        """What turns the entries of one revision into those of another, as they are stored. Raises as ``content``."""
        before_ids, after_ids = await self._blob_ids(old), await self._blob_ids(new)
        put = await self._read({one: blob for one, blob in after_ids.items() if before_ids.get(one) != blob})
        present = {entry_key(*one) for one in after_ids}
        gone = (entry_key(*one) for one in before_ids.keys() - after_ids.keys())
        return EntryEdit(put, tuple(key for key in gone if key not in present))

    async def undo_plan(self) -> EntryUndoPlan:
        """What undo would do. Raises ``NotFoundError`` if there is no revision to go back to, ``StoreError``."""
        takes_back: RevisionInfo | None = None
        async for line in self.line.newest_first():
            if takes_back is None:
                takes_back = line if not line.undone_by and not line.content_of else None
            elif not line.undone_by and line.content:
                return EntryUndoPlan(takes_back, line)
        if takes_back is None:
            raise NotFoundError("config entries were never written")
        raise NotFoundError(f"config entries: there is no revision before {takes_back.revision} to go back to")

    async def _blob_ids(self, revision: int) -> dict[WrittenKey, str]:
        if revision <= 0:
            return {}
        if await self._store.head(LINE) is None:
            raise NotFoundError("config entries were never written")
        try:
            manifest = await self._store.manifest(LINE, revision)
        except GoneError:
            raise
        except NotFoundError:
            raise NotFoundError(f"there is no revision {revision} of the config entries") from None
        return {(kind, name): blob for kind, name, blob in manifest.entries}

    async def _read(self, blob_ids: Mapping[WrittenKey, str]) -> dict[Key, EntryRecord]:
        blobs = await self._store.blobs(set(blob_ids.values()))
        return await run_sized(_records, blob_ids, blobs, resources=len(blob_ids))


def _records(blob_ids: Mapping[WrittenKey, str], blobs: Mapping[str, bytes]) -> dict[Key, EntryRecord]:
    return counting(read_record(blobs[blob], key) for key, blob in blob_ids.items())


def _is_same(change: EntryChange) -> bool:
    before, after = change.before, change.after
    return before is not None and after is not None and before.entry == after.entry


class ChainRevisions:
    """The revision at which each chain changed last.

    This is the newest revision of the entries that the chain depends on. If the last changes of these left the chain
    unchanged, the older revision is kept. The revision of a chain never decreases. ``revision_of`` returns the revision
    of an entry, present or not.
    """

    def __init__(self, revision_of: Callable[[Key], int]) -> None:
        self._revision_of = revision_of
        self._kept_revisions: dict[ComparedName, int] = {}

    def of(self, index: ChainIndex, service: str, overrides: Overrides | None = None, datacenter: str = "") -> int:
        """The revision of a service's chain; 0 if no entry that it depends on ever existed.

        A chain with overrides, or seen from another datacenter, depends on other entries, and each change of these
        counts. Raises ``CompileRequestError``.
        """
        context = index.context
        if overrides is not None or datacenter not in ("", context.datacenter):
            context = replace(context, datacenter=datacenter or context.datacenter)
            return self._newest(compile_recorded(context.request(service, index.entries, overrides)).consulted)
        kept = self._kept_revisions.get(compared(service)) if index.is_kept(service) else None
        return kept if kept is not None else self._newest(index.consulted(service))

    def keep(self, index: ChainIndex, proposal: Proposal) -> None:
        """Keep the revisions of chains that a proposal leaves unchanged. Call it before the proposal is accepted."""
        for service in proposal.compiled.keys() - proposal.changed:
            self._kept_revisions[service] = self.of(index, proposal.compiled[service].service)
        for service in proposal.changed:
            self._kept_revisions.pop(service, None)

    def clear(self) -> None:
        """Forget all kept revisions: other entries were loaded."""
        self._kept_revisions.clear()

    def _newest(self, keys: Iterable[Key]) -> int:
        return max(map(self._revision_of, keys), default=0)
