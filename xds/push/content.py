"""The content of a group at a revision, and the difference between two revisions. Pure.

Encodes pushed resources for the store, decodes stored ones, and builds snapshots. Unchanged resources and sets stay the
same objects, so that a stream sees by identity that they are unchanged.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
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
from xds.snapshots.cache import Precomputed
from xds.store.base import NO_META, CorruptError, Delta, Entry, Lifetime, Manifest, Meta, blob_id

Key = tuple[str, str]  # (type_url, name)

_ETAG_DIGEST_BYTES = 4


class BlobIds(dict[Key, str]):
    """The blob ids of the resources of a group, by type URL and name, in pushed order.

    An amended mapping remembers its base and the keys that may differ from it, so that a push of one resource to a
    large group does not compare all resources.
    """

    __slots__ = ("__weakref__", "_base", "_touched")

    def __init__(self, lines: Mapping[Key, str] | Iterable[tuple[Key, str]] = ()) -> None:
        super().__init__(lines)
        self._base: ref[BlobIds] | None = None
        self._touched: tuple[Key, ...] = ()

    def amended(self, put: Mapping[Key, str], delete: Iterable[Key]) -> BlobIds:
        """A copy with changes. A key that exists keeps its place, a new key goes last. Raises ``KeyError``."""
        amended = BlobIds(self)
        amended.update(put)
        removed = tuple(delete)
        for key in removed:
            del amended[key]
        amended._base, amended._touched = ref(self), tuple(dict.fromkeys((*put, *removed)))
        return amended

    def replaced(self, lines: Mapping[Key, str]) -> BlobIds:
        """A mapping of ``lines``. This mapping is its base if keys and order are the same."""
        replacement = BlobIds(lines)
        if list(replacement) == list(self):
            pairs = zip(replacement.items(), self.values(), strict=True)
            differing = tuple(key for (key, blob), before in pairs if blob != before)
            replacement._base, replacement._touched = ref(self), differing
        return replacement

    def touched_since(self, base: object) -> tuple[Key, ...] | None:
        """The keys that may differ from ``base``; None when this was not made from ``base``."""
        return self._touched if self._base is not None and self._base() is base else None


@dataclass(frozen=True, eq=False)
class GroupContent:
    """A snapshot with the blob ids of its resources, in pushed order."""

    snapshot: Snapshot
    blob_ids: BlobIds
    meta: Meta = NO_META

    @property
    def group(self) -> str:
        """The name of the group."""
        return self.snapshot.group

    @property
    def revision(self) -> int:
        """The revision of the content."""
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
        return {type_label(each.type.type_url): each.version_info for each in self.snapshot}

    def counts(self) -> dict[str, int]:
        """The number of resources by type label."""
        return {type_label(each.type.type_url): len(each) for each in self.snapshot}

    @cached_property
    def etag(self) -> str:
        """Identifies revision and content: ``r42-1f3a9c07``, without quotes. All replicas compute the same etag."""
        digest = blake2b(digest_size=_ETAG_DIGEST_BYTES)
        for type_url, each in sorted(self.snapshot.sets.items()):
            digest.update(type_url.encode() + each.digest)
        return f"r{self.revision}-{digest.hexdigest()}"


def type_label(type_url: str) -> str:
    """The name of a type in API answers: its alias, or the message name where the alias means another type (v2)."""
    alias = alias_of(type_url)
    return alias if type_url_of(alias) == type_url else type_url.rpartition("/")[2]


def blob_ids(entries: Iterable[Entry], current: BlobIds | None = None) -> BlobIds:
    """The blob ids of a manifest's entries, in their order. ``current`` are the blob ids that they replace."""
    lines = {(type_url, name): blob for type_url, name, blob in entries}
    return current.replaced(lines) if current is not None else BlobIds(lines)


def ids_at(head: Iterable[Entry], changed: Iterable[Lifetime], revisions: Sequence[int]) -> Iterator[BlobIds]:
    """The blob ids at earlier revisions, the oldest first, each amended from the one before. Their order is lost.

    ``head`` are the entries of the head, ``changed`` those that began or ended after the first of ``revisions``.
    """
    puts, ends = ([dict[Key, str]() for _ in revisions] for _ in range(2))
    begun = set[Key]()
    for (type_url, name, blob), born, died in changed:
        first = bisect_left(revisions, born)
        end = bisect_left(revisions, died) if died else len(revisions)
        if first:
            begun.add((type_url, name))
        if first < end:
            puts[first][type_url, name] = blob
            if end < len(revisions):
                ends[end][type_url, name] = blob
    present = ((key, blob) for key, blob in blob_ids(head).items() if key not in begun)
    ids = BlobIds({**dict(present), **puts[0]})
    yield ids
    for put, ended in zip(puts[1:], ends[1:], strict=True):
        ids = ids.amended(put, [key for key in ended if key not in put and key in ids])
        yield ids


def amended(current: BlobIds, delta: Delta) -> BlobIds:
    """``current`` after ``delta``. Raises ``NotFoundError`` for the deletion of an unknown resource."""
    for key in delta.delete:
        if key not in current:
            raise NotFoundError(f"no {type_label(key[0])} resource named {key[1]!r}")
    return current.amended(blob_ids(delta.put), delta.delete)


def changes(old: BlobIds, new: BlobIds) -> dict[str, Change]:
    """The differences by type URL. Types without a difference are left out."""
    added, changed, removed = (dict[str, list[str]]() for _ in range(3))
    touched = new.touched_since(old)
    for key in new if touched is None else (key for key in touched if key in new):
        before = old.get(key)
        if before is None:
            added.setdefault(key[0], []).append(key[1])
        elif before != new[key]:
            changed.setdefault(key[0], []).append(key[1])
    absent = old.keys() - new.keys() if touched is None else [key for key in touched if key not in new]
    for type_url, name in absent:
        removed.setdefault(type_url, []).append(name)
    types = dict.fromkeys((*added, *changed, *removed))
    return {
        url: Change(tuple(added.get(url, ())), tuple(changed.get(url, ())), tuple(sorted(removed.get(url, ()))))
        for url in types
    }


NO_DIGESTS: Mapping[str, bytes] = MappingProxyType({})


class Blobs(Mapping[str, bytes]):
    """Stored forms of resources by blob id. A resource whose blob id is known is encoded only when it is read."""

    def __init__(self) -> None:
        self._encoded: dict[str, bytes] = {}
        self._unencoded: dict[str, Resource] = {}

    def add(self, resource: Resource, blob: str | None) -> str:
        """Add a resource and return its blob id. ``blob`` is the id, if it is known."""
        if blob is None:
            data = dump_record(resource)
            blob = blob_id(data)
            self._encoded[blob] = data
        else:
            self._unencoded[blob] = resource
        return blob

    def __getitem__(self, blob: str) -> bytes:
        data = self._encoded.get(blob)
        return data if data is not None else dump_record(self._unencoded[blob])

    def __contains__(self, blob: object) -> bool:
        return blob in self._encoded or blob in self._unencoded

    def __iter__(self) -> Iterator[str]:
        return iter({**self._encoded, **self._unencoded})

    def __len__(self) -> int:
        return len(self._encoded.keys() | self._unencoded.keys())


class JoinedBlobs(Mapping[str, bytes]):
    """Two mappings of stored forms as one; nothing is encoded before it is read."""

    def __init__(self, first: Mapping[str, bytes], second: Mapping[str, bytes]) -> None:
        self._parts = first, second

    def __getitem__(self, blob: str) -> bytes:
        first, second = self._parts
        return first[blob] if blob in first else second[blob]

    def __contains__(self, blob: object) -> bool:
        return any(blob in part for part in self._parts)

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys(blob for part in self._parts for blob in part))

    def __len__(self) -> int:
        return sum(1 for _ in self)


def encode_resources(resources: list[Resource], base: GroupContent | None = None) -> tuple[tuple[Entry, ...], Blobs]:
    """Manifest entries in order, and blobs by id, for the store.

    ``base`` is content that may contain some of these resource objects; their blob ids are taken from it.
    """
    blobs, entries = Blobs(), list[Entry]()
    ids = base.blob_ids if base is not None else BlobIds()
    present = {each.type.type_url: each.resources for each in base.snapshot} if base is not None else {}
    for resource in resources:
        type_url, name = resource.type_url, resource.name
        is_present = type_url in present and present[type_url].get(name) is resource
        blob = blobs.add(resource, ids[type_url, name] if is_present else None)
        entries.append(Entry(type_url, name, blob))
    return tuple(entries), blobs


def decode_resources(entries: list[Entry], blobs: Mapping[str, bytes]) -> dict[Key, Resource]:
    """The resources of manifest entries. Raises ``CorruptError`` for a blob that is not this resource."""
    try:
        resources = {(entry.type_url, entry.name): load_record(blobs[entry.blob_id]) for entry in entries}
    except ValidationError as error:
        raise CorruptError(f"a stored resource cannot be read: {error}") from error
    for key, resource in resources.items():
        if key != (resource.type_url, resource.name):
            raise CorruptError(f"the stored resource {key[1]!r} is another one: {resource.name!r}")
    return resources


def build_content(
    manifest: Manifest,
    ids: BlobIds,
    known: Mapping[Key, Resource],
    base: GroupContent | None,
    digests: Mapping[str, bytes] = NO_DIGESTS,
) -> GroupContent:
    """Build the content of a manifest. Resources and sets equal to those of ``base`` are shared with ``base``.

    ``known`` has at least the resources that ``base`` lacks. ``digests`` (by type URL) are the digests that are known
    already.
    """
    touched = ids.touched_since(base.blob_ids) if base is not None else None
    if base is not None and touched is not None:
        put = [known[key] for key in touched if key in ids]
        removed = [key for key in touched if key not in ids]
        snapshot = amend_snapshot(base.snapshot, manifest.revision, put, removed, manifest.versions, digests)
    else:
        previous = base.snapshot if base is not None else None
        resources = (_member(key, blob, known, base) for key, blob in ids.items())
        snapshot = build_snapshot(manifest.group, manifest.revision, resources, manifest.versions, previous, digests)
    for resource_set in snapshot:
        resource_set.prepare()
    return GroupContent(snapshot, ids, manifest.meta)


def build_next_content(
    manifest: Manifest,
    ids: BlobIds,
    known: Mapping[Key, Resource],
    current: GroupContent | None,
    digests: Mapping[str, bytes],
    precompute: Callable[[Snapshot], Precomputed],
) -> tuple[GroupContent, Precomputed]:
    """Build the content as ``build_content`` does, and compute in advance what its streams will need."""
    content = build_content(manifest, ids, known, current, digests)
    return content, precompute(content.snapshot)


def _member(key: Key, blob: str, known: Mapping[Key, Resource], base: GroupContent | None) -> Resource:
    if base is not None and base.blob_ids.get(key) == blob:
        return base.snapshot.sets[key[0]].resources[key[1]]
    return known[key]


def shared(manifest: Manifest, current: GroupContent | None) -> dict[Key, Resource]:
    """The resources of a manifest that ``current`` has as well."""
    if current is None:
        return {}
    ids = current.blob_ids
    return {
        (entry.type_url, entry.name): current.snapshot.sets[entry.type_url].resources[entry.name]
        for entry in manifest.entries
        if ids.get((entry.type_url, entry.name)) == entry.blob_id
    }


def digests_of(
    difference: Mapping[str, Change], current: GroupContent | None, resources: Mapping[Key, Resource]
) -> dict[str, bytes]:
    """The digests of the changed sets after a change, by type URL. Labels show them, so they precede the commit.

    ``resources`` contains the new and changed resources.
    """
    bases = {url: current.snapshot.get(url) if current is not None else empty_set(url) for url in difference}
    return {url: _digest(bases[url], change, resources) for url, change in difference.items()}


def _digest(base: ResourceSet, change: Change, resources: Mapping[Key, Resource]) -> bytes:
    """The digest of a set after a change.

    A digest is a sum over all members. So it is computed from the members that stay, or from those that change,
    whichever are fewer.
    """
    type_url = base.type.type_url
    put = [(name, resources[type_url, name].version) for name in (*change.added, *change.changed)]
    replaced = [*change.changed, *change.removed]
    if len(replaced) > len(base) // 2:
        unchanged = base.resources.keys() - replaced
        return content_digest((*put, *((name, base.resources[name].version) for name in unchanged)))
    subtracted = content_digest((name, base.resources[name].version) for name in replaced)
    total = sum(int.from_bytes(part, "big") for part in (base.digest, content_digest(put)))
    total -= int.from_bytes(subtracted, "big")
    return (total % (1 << 8 * len(subtracted))).to_bytes(len(subtracted), "big")
