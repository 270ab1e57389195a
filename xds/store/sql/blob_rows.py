"""The rows of blobs: the bodies of resources, by their hash."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from xds.store import revisions
from xds.store.base import CorruptError
from xds.store.sql import collection
from xds.store.sql.connection import SqlConnection

RAW = 0  # codec of an unencoded blob
PER_STATEMENT = 50  # each statement waits for a database elsewhere


def read(connection: SqlConnection, ids: Iterable[str]) -> dict[str, bytes]:
    """``Store.blobs``."""
    bodies: dict[str, bytes] = {}
    for some in _parts(ids):
        marks = ", ".join("?" for _ in some)
        rows = connection.execute(f"SELECT h, codec, data FROM blob WHERE h IN ({marks})", _hashes(some))  # noqa: S608
        stored = {h: (codec, data) for h, codec, data in rows}
        for blob in some:
            bodies[blob] = _sound_body(blob, *stored.get(bytes.fromhex(blob), (RAW, None)))
    return bodies


def insert(connection: SqlConnection, named: Collection[str], given: Mapping[str, bytes]) -> None:
    """Insert the blobs of a push that names some. Raises ``CorruptError`` if one is neither given nor stored."""
    connection.executemany(
        "INSERT INTO blob (h, codec, data) VALUES (?, ?, ?) ON CONFLICT (h) DO NOTHING",
        [(bytes.fromhex(blob), RAW, data) for blob, data in given.items()],
    )
    for some in _parts(set(named) - given.keys()):
        marks = ", ".join("?" for _ in some)
        stored = connection.execute(f"SELECT h FROM blob WHERE h IN ({marks})", _hashes(some))  # noqa: S608
        missing = set(_hashes(some)) - {h for (h,) in stored}
        if missing:
            raise CorruptError(f"blob {min(missing).hex()} is neither given nor stored")
    collection.spare(connection, named)


def _sound_body(blob: str, codec: int, data: object) -> bytes:
    if data is None:
        raise CorruptError(f"blob {blob} is missing")
    if codec != RAW:
        raise CorruptError(f"blob {blob} has the unknown codec {codec}")
    if not isinstance(data, bytes):
        raise CorruptError(f"blob {blob} is damaged: it is not a BLOB")
    revisions.check_blob(blob, data)
    return data


def _parts(blobs: Iterable[str]) -> Iterator[Sequence[str]]:
    """The blobs in parts for one statement each."""
    wanted = list(dict.fromkeys(blobs))
    return (wanted[at : at + PER_STATEMENT] for at in range(0, len(wanted), PER_STATEMENT))


def _hashes(blobs: Sequence[str]) -> list[bytes]:
    return [bytes.fromhex(blob) for blob in blobs]
