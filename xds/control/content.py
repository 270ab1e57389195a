"""What a group holds at a revision, and what a change makes of it. Pure.

Between resources and what the store keeps: encoding pushed ones, putting contents together. Pure.

Resources and sets that did not change stay the same objects, so that "unchanged" is an identity for every stream.

What a push leads to, type by type, before it is committed: labels show it. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from types import MappingProxyType
from weakref import ref

from xds.codec.record import dump_record, load_record
from xds.model.errors import NotFoundError, ValidationError
from xds.model.resource import Resource
from xds.model.resource_type import alias_of, type_url_of
from xds.model.snapshot import Change, ResourceSet, Snapshot, amend_snapshot, build_snapshot, content_digest, empty_set
from xds.protocol.builder import prepare
from xds.protocol.foresight import Foresight, foresee
from xds.store.base import NO_META, CorruptError, Delta, Entry, Manifest, Meta, blob_id

Key = tuple[str, str]  # (type_url, name)

_ETAG_DIGEST_BYTES = 4


class BlobIds(dict[Key, str]):
    """What the store calls the resources of a group, in pushed order.

    One that was amended knows from which other it was made, and the keys that may differ: a push of one resource to a
    large group must not cost a look at all of them.
    """

    __slots__ = ("__weakref__", "_base", "_touched")

    def __init__(self, lines: Mapping[Key, str] | Iterable[tuple[Key, str]] = ()) -> None:
        super().__init__(lines)
        self._base: ref[BlobIds] | None = None
        self._touched: tuple[Key, ...] = ()

    def amended(self, put: Mapping[Key, str], delete: Iterable[Key]) -> BlobIds:
        """A put of a key that exists keeps its place, a new one goes last. Raises ``KeyError``."""
        made = BlobIds(self)
        made.update(put)
        gone = tuple(delete)
        for key in gone:
            del made[key]
        made._base, made._touched = ref(self), tuple(dict.fromkeys((*put, *gone)))
        return made

    def replaced(self, lines: Mapping[Key, str]) -> BlobIds:
        """All of it in their place; known as made from this where the keys and their order stay."""
        made = BlobIds(lines)
        if list(made) == list(self):
            pairs = zip(made.items(), self.values(), strict=True)
            made._base, made._touched = ref(self), tuple(key for (key, blob), before in pairs if blob != before)
        return made

    def touched_since(self, base: object) -> tuple[Key, ...] | None:
        """The keys that may differ from ``base``; None when this was not made from it."""
        return self._touched if self._base is not None and self._base() is base else None


@dataclass(frozen=True, eq=False)
class GroupContent:
    """A snapshot together with what the store calls its resources. ``blob_ids`` is in pushed order."""

    snapshot: Snapshot
    blob_ids: BlobIds
    meta: Meta = NO_META

    @property
    def group(self) -> str:
        return self.snapshot.group

    @property
    def revision(self) -> int:
        return self.snapshot.revision

    def __len__(self) -> int:
        return len(self.blob_ids)

    def get(self, key: Key) -> Resource | None:
        """One resource by type URL and name."""
        return self.snapshot.get(key[0]).resources.get(key[1])

    def resources(self) -> Iterator[Resource]:
        """All resources in pushed order."""
        for type_url, name in self.blob_ids:
            yield self.snapshot.sets[type_url].resources[name]

    def entries(self) -> Iterator[Entry]:
        """The manifest's lines, in pushed order."""
        for (type_url, name), blob in self.blob_ids.items():
            yield Entry(type_url, name, blob)

    def versions(self) -> dict[str, str]:
        """version_info by type label."""
        return {type_label(found.type.type_url): found.version_info for found in self.snapshot}

    @cached_property
    def etag(self) -> str:
        """Identifies revision and content, without quotes: ``r42-1f3a9c07``. The same on every replica."""
        digest = blake2b(digest_size=_ETAG_DIGEST_BYTES)
        for type_url, found in sorted(self.snapshot.sets.items()):
            digest.update(type_url.encode() + found.digest)
        return f"r{self.revision}-{digest.hexdigest()}"


def type_label(type_url: str) -> str:
    """How a type is called in answers: its alias, or the message name where the alias means another type (v2)."""
    alias = alias_of(type_url)
    return alias if type_url_of(alias) == type_url else type_url.rpartition("/")[2]


def blob_ids(entries: Iterable[Entry], held: BlobIds | None = None) -> BlobIds:
    """A manifest as a mapping, order kept; ``held`` is what it replaces."""
    lines = {(type_url, name): blob for type_url, name, blob in entries}
    return held.replaced(lines) if held is not None else BlobIds(lines)


def amended(held: BlobIds, delta: Delta) -> BlobIds:
    """``held`` after ``delta``. Raises ``NotFoundError`` for the deletion of what is not there."""
    for key in delta.delete:
        if key not in held:
            raise NotFoundError(f"no {type_label(key[0])} resource named {key[1]!r}")
    return held.amended(blob_ids(delta.put), delta.delete)


def changes(old: BlobIds, new: BlobIds) -> dict[str, Change]:
    """What differs, by type URL; types without a difference are left out."""
    added, changed, removed = (dict[str, list[str]]() for _ in range(3))
    touched = new.touched_since(old)
    for key in new if touched is None else (key for key in touched if key in new):
        before = old.get(key)
        if before is None:
            added.setdefault(key[0], []).append(key[1])
        elif before != new[key]:
            changed.setdefault(key[0], []).append(key[1])
    gone = old.keys() - new.keys() if touched is None else [key for key in touched if key not in new]
    for type_url, name in gone:
        removed.setdefault(type_url, []).append(name)
    types = dict.fromkeys((*added, *changed, *removed))
    return {
        url: Change(tuple(added.get(url, ())), tuple(changed.get(url, ())), tuple(sorted(removed.get(url, ()))))
        for url in types
    }


NOTHING: Mapping[str, bytes] = MappingProxyType({})


class Blobs(Mapping[str, bytes]):
    """What resources are stored as, by blob id: made when it is asked for where the id is known already."""

    def __init__(self) -> None:
        self._made: dict[str, bytes] = {}
        self._known: dict[str, Resource] = {}

    def add(self, resource: Resource, blob: str | None) -> str:
        """The id of the resource's blob, which is ``blob`` where that is known."""
        if blob is None:
            data = dump_record(resource)
            blob = blob_id(data)
            self._made[blob] = data
        else:
            self._known[blob] = resource
        return blob

    def __getitem__(self, blob: str) -> bytes:
        made = self._made.get(blob)
        return made if made is not None else dump_record(self._known[blob])

    def __contains__(self, blob: object) -> bool:
        return blob in self._made or blob in self._known

    def __iter__(self) -> Iterator[str]:
        return iter({**self._made, **self._known})

    def __len__(self) -> int:
        return len(self._made.keys() | self._known.keys())


def encode_resources(resources: list[Resource], near: GroupContent | None = None) -> tuple[tuple[Entry, ...], Blobs]:
    """What the store is given: manifest lines in order, and blobs by id.

    ``near`` is content of which some of the resources, the same objects, may be: their blobs are known by it.
    """
    blobs, entries = Blobs(), list[Entry]()
    ids = near.blob_ids if near is not None else BlobIds()
    held = {each.type.type_url: each.resources for each in near.snapshot} if near is not None else {}
    for resource in resources:
        type_url, name = resource.type_url, resource.name
        is_held = type_url in held and held[type_url].get(name) is resource
        blob = blobs.add(resource, ids[type_url, name] if is_held else None)
        entries.append(Entry(type_url, name, blob))
    return tuple(entries), blobs


def decode_resources(entries: list[Entry], blobs: Mapping[str, bytes]) -> dict[Key, Resource]:
    """The resources of manifest lines. Raises ``CorruptError`` for a blob that is no resource, or not the line's."""
    try:
        found = {(entry.type_url, entry.name): load_record(blobs[entry.blob_id]) for entry in entries}
    except ValidationError as error:
        raise CorruptError(f"a stored resource cannot be read: {error}") from error
    for key, resource in found.items():
        if key != (resource.type_url, resource.name):
            raise CorruptError(f"the stored resource {key[1]!r} is another one: {resource.name!r}")
    return found


def build_content(
    manifest: Manifest,
    ids: BlobIds,
    known: Mapping[Key, Resource],
    near: GroupContent | None,
    digests: Mapping[str, bytes] = NOTHING,
) -> GroupContent:
    """Put a content together; resources and sets equal to those of ``near`` are shared with it.

    ``digests`` (by type URL) are those that are known already.
    """
    touched = ids.touched_since(near.blob_ids) if near is not None else None
    if near is not None and touched is not None:
        put = [known[key] for key in touched if key in ids]
        removed = [key for key in touched if key not in ids]
        snapshot = amend_snapshot(near.snapshot, manifest.revision, put, removed, manifest.versions)
    else:
        previous = near.snapshot if near is not None else None
        resources = (_member(key, blob, known, near) for key, blob in ids.items())
        snapshot = build_snapshot(manifest.group, manifest.revision, resources, manifest.versions, previous)
    for type_url, digest in digests.items():
        snapshot.sets[type_url].digest = digest
    for resource_set in snapshot:
        prepare(resource_set, near.snapshot.sets.get(resource_set.type.type_url) if near is not None else None)
    return GroupContent(snapshot, ids, manifest.meta)


def build_next_content(
    manifest: Manifest,
    ids: BlobIds,
    known: Mapping[Key, Resource],
    held: GroupContent | None,
    digests: Mapping[str, bytes] = NOTHING,
) -> tuple[GroupContent, Foresight]:
    """As ``assemble``, with what the streams that follow ``held`` will ask."""
    content = build_content(manifest, ids, known, held, digests)
    return content, foresee(held.snapshot if held is not None else None, content.snapshot)


def _member(key: Key, blob: str, known: Mapping[Key, Resource], near: GroupContent | None) -> Resource:
    if near is not None and near.blob_ids.get(key) == blob:
        return near.snapshot.sets[key[0]].resources[key[1]]
    return known[key]


def shared(manifest: Manifest, held: GroupContent | None) -> dict[Key, Resource]:
    """The resources of a manifest that ``held`` has."""
    if held is None:
        return {}
    ids = held.blob_ids
    return {
        (entry.type_url, entry.name): held.snapshot.sets[entry.type_url].resources[entry.name]
        for entry in manifest.entries
        if ids.get((entry.type_url, entry.name)) == entry.blob_id
    }


def digests_of(
    difference: Mapping[str, Change], held: GroupContent | None, known: Mapping[Key, Resource]
) -> dict[str, bytes]:
    """The digests that the sets of the types that change will have, by type URL; ``known`` holds what comes."""
    bases = {url: held.snapshot.get(url) if held is not None else empty_set(url) for url in difference}
    return {url: _digest(bases[url], change, known) for url, change in difference.items()}


def _digest(base: ResourceSet, change: Change, known: Mapping[Key, Resource]) -> bytes:
    """The digest of a set after a change. It is a sum over all members: what is less is added up."""
    type_url = base.type.type_url
    coming = [(name, known[type_url, name].version) for name in (*change.added, *change.changed)]
    going = [*change.changed, *change.removed]
    if len(going) > len(base) // 2:
        left = base.resources.keys() - going
        return content_digest((*coming, *((name, base.resources[name].version) for name in left)))
    gone = content_digest((name, base.resources[name].version) for name in going)
    total = sum(int.from_bytes(part, "big") for part in (base.digest, content_digest(coming)))
    total -= int.from_bytes(gone, "big")
    return (total % (1 << 8 * len(gone))).to_bytes(len(gone), "big")
