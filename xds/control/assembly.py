"""Between resources and what the store keeps: encoding pushed ones, putting contents together. Pure.

Resources and sets that did not change stay the same objects, so that "unchanged" is an identity for every stream.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType

from xds.codec.record import dump_record, load_record
from xds.control.content import BlobIds, Content, Key
from xds.model.errors import ValidationError
from xds.model.resource import Resource
from xds.model.snapshot import Snapshot, amend_snapshot, build_snapshot
from xds.protocol.precompute import Precomputed
from xds.store.base import CorruptError, Entry, Manifest, blob_id

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


def encode(resources: list[Resource], near: Content | None = None) -> tuple[tuple[Entry, ...], Blobs]:
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


def decode(entries: list[Entry], blobs: Mapping[str, bytes]) -> dict[Key, Resource]:
    """The resources of manifest lines. Raises ``CorruptError`` for a blob that is no resource, or not the line's."""
    try:
        found = {(entry.type_url, entry.name): load_record(blobs[entry.blob_id]) for entry in entries}
    except ValidationError as error:
        raise CorruptError(f"a stored resource cannot be read: {error}") from error
    for key, resource in found.items():
        if key != (resource.type_url, resource.name):
            raise CorruptError(f"the stored resource {key[1]!r} is another one: {resource.name!r}")
    return found


def assemble(
    manifest: Manifest,
    ids: BlobIds,
    known: Mapping[Key, Resource],
    near: Content | None,
    digests: Mapping[str, bytes] = NOTHING,
) -> Content:
    """Put a content together; resources and sets equal to those of ``near`` are shared with it.

    ``digests`` (by type URL) are those that are known already.
    """
    touched = ids.touched_since(near.blob_ids) if near is not None else None
    if near is not None and touched is not None:
        put = [known[key] for key in touched if key in ids]
        removed = [key for key in touched if key not in ids]
        snapshot = amend_snapshot(near.snapshot, manifest.revision, put, removed, manifest.versions, digests)
    else:
        previous = near.snapshot if near is not None else None
        resources = (_member(key, blob, known, near) for key, blob in ids.items())
        snapshot = build_snapshot(manifest.group, manifest.revision, resources, manifest.versions, previous, digests)
    for resource_set in snapshot:
        resource_set.prepare()
    return Content(snapshot, ids, manifest.meta)


def succeed(
    manifest: Manifest,
    ids: BlobIds,
    known: Mapping[Key, Resource],
    held: Content | None,
    digests: Mapping[str, bytes],
    precompute: Callable[[Snapshot], Precomputed],
) -> tuple[Content, Precomputed]:
    """As ``assemble``, with what ``precompute`` says that streams will ask for."""
    content = assemble(manifest, ids, known, held, digests)
    return content, precompute(content.snapshot)


def _member(key: Key, blob: str, known: Mapping[Key, Resource], near: Content | None) -> Resource:
    if near is not None and near.blob_ids.get(key) == blob:
        return near.snapshot.sets[key[0]].resources[key[1]]
    return known[key]


def shared(manifest: Manifest, held: Content | None) -> dict[Key, Resource]:
    """The resources of a manifest that ``held`` has."""
    if held is None:
        return {}
    ids = held.blob_ids
    return {
        (entry.type_url, entry.name): held.snapshot.sets[entry.type_url].resources[entry.name]
        for entry in manifest.entries
        if ids.get((entry.type_url, entry.name)) == entry.blob_id
    }
