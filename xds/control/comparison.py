"""What leads from one revision of a group to another: names first, then the contents that are wanted."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from xds.control.assembly import decode
from xds.control.content import BlobIds, Key, blob_ids, changes
from xds.control.off_loop import off_loop
from xds.model.resource import Resource
from xds.model.snapshot import Change
from xds.store.base import Entry, Store


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two revisions of a group, which hold ``before`` and ``after``; ``changes`` by type URL."""

    group: str
    old: int
    new: int
    before: BlobIds
    after: BlobIds
    changes: Mapping[str, Change]

    def touched(self) -> list[Key]:
        """All that differs."""
        return [
            (type_url, name)
            for type_url, change in self.changes.items()
            for name in (*change.added, *change.changed, *change.removed)
        ]


@dataclass(frozen=True, slots=True)
class Sides:
    """Resources of a comparison by type URL and name, as they were and as they became."""

    before: Mapping[Key, Resource]
    after: Mapping[Key, Resource]


async def compare(store: Store, group: str, old: int, new: int) -> Comparison:
    """Revision 0, and one that deleted the group, hold nothing. Raises ``NotFoundError``, ``StoreError``."""
    after = await _held(store, group, new)
    before = await _held(store, group, old)
    found = await off_loop(len(before) + len(after), changes, before, after)
    return Comparison(group, old, new, before, after, found)


async def read(store: Store, comparison: Comparison, keys: Collection[Key]) -> Sides:
    """The contents behind ``keys`` on both sides, where they are there. Raises ``StoreError``."""
    before, after = (
        [Entry(*key, ids[key]) for key in keys if key in ids] for ids in (comparison.before, comparison.after)
    )
    blobs = await store.blobs({entry.blob_id for entry in (*before, *after)})
    return Sides(
        await off_loop(len(before), decode, before, blobs),
        await off_loop(len(after), decode, after, blobs),
    )


async def _held(store: Store, group: str, revision: int) -> BlobIds:
    if revision == 0:
        return BlobIds()
    found = await store.history(group, before=revision + 1, limit=1)
    if found and found[0].revision == revision and not found[0].live:
        return BlobIds()
    entries = (await store.manifest(group, revision)).entries
    return await off_loop(len(entries), blob_ids, entries)
