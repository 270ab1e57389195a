"""Between resources and what the store keeps: encoding pushed ones, putting contents together. Pure.

Resources and sets that did not change stay the same objects, so that "unchanged" is an identity for every stream.
"""

from __future__ import annotations

from collections.abc import Mapping

from xds.codec.record import dump_record, load_record
from xds.control.content import BlobIds, Content, Key
from xds.model.errors import ValidationError
from xds.model.resource import Resource
from xds.model.snapshot import amend_snapshot, build_snapshot
from xds.protocol.builder import prepare
from xds.protocol.foresight import Foresight, foresee
from xds.store.base import CorruptError, Entry, Manifest, blob_id


def encode(resources: list[Resource]) -> tuple[tuple[Entry, ...], dict[str, bytes]]:
    """What the store is given: manifest lines in order, and blobs by id."""
    blobs: dict[str, bytes] = {}
    entries: list[Entry] = []
    for resource in resources:
        data = dump_record(resource)
        blob = blob_id(data)
        blobs[blob] = data
        entries.append(Entry(resource.type_url, resource.name, blob))
    return tuple(entries), blobs


def decode(entries: list[Entry], blobs: Mapping[str, bytes]) -> dict[Key, Resource]:
    """The resources of manifest lines. Raises ``CorruptError`` for a blob that is no resource."""
    try:
        return {(entry.type_url, entry.name): load_record(blobs[entry.blob_id]) for entry in entries}
    except ValidationError as error:
        raise CorruptError(f"a stored resource cannot be read: {error}") from error


def assemble(manifest: Manifest, ids: BlobIds, known: Mapping[Key, Resource], near: Content | None) -> Content:
    """Put a content together; resources and sets equal to those of ``near`` are shared with it."""
    touched = ids.touched_since(near.blob_ids) if near is not None else None
    if near is not None and touched is not None:
        put = [known[key] for key in touched if key in ids]
        removed = [key for key in touched if key not in ids]
        snapshot = amend_snapshot(near.snapshot, manifest.revision, put, removed, manifest.versions)
    else:
        previous = near.snapshot if near is not None else None
        resources = (_member(key, blob, known, near) for key, blob in ids.items())
        snapshot = build_snapshot(manifest.group, manifest.revision, resources, manifest.versions, previous)
    for resource_set in snapshot:
        prepare(resource_set)
    return Content(snapshot, ids, manifest.meta)


def succeed(
    manifest: Manifest, ids: BlobIds, known: Mapping[Key, Resource], held: Content | None
) -> tuple[Content, Foresight]:
    """As ``assemble``, with what the streams that follow ``held`` will ask."""
    content = assemble(manifest, ids, known, held)
    return content, foresee(held.snapshot if held is not None else None, content.snapshot)


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
