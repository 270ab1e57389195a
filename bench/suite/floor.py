"""The time that libraries alone take for an admin push: parsing, hashing and database rows, and nothing else."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable
from hashlib import blake2b
from http import HTTPStatus
from pathlib import Path
from typing import Any

import httpx

from xds.codec.schema import require
from xds.model.resource_type import ENDPOINT
from xds.proto import wire_pb2
from xds.store.base import BLOB_ID_BYTES
from xds.store.sqlite import schema

VERSION_BYTES = 10
_ASSIGNMENT = "envoy.config.endpoint.v3.ClusterLoadAssignment"
_GROUP, _TYPE = 1, 1


class Floor:
    """A database of the store's tables with ``size`` assignments of one group, nothing else."""

    def __init__(self, folder: Path, size: int) -> None:
        self._revision = 1
        self._connection = sqlite3.connect(folder / "floor.db", isolation_level=None)
        schema.configure(self._connection, None)
        run = self._connection.execute
        run("BEGIN")
        schema.ensure(self._connection)
        run("INSERT INTO grp (id, name, revision, live, last_rank) VALUES (?, 'g', 1, 1, 0)", (_GROUP,))
        run("INSERT INTO type (id, url) VALUES (?, ?)", (_TYPE, ENDPOINT))
        self._connection.executemany(
            "INSERT INTO entry (grp, type, name, h, rank, born) VALUES (?, ?, ?, x'', ?, 1)",
            ((_GROUP, _TYPE, f"cluster-{index}", index) for index in range(size)),
        )
        run("COMMIT")

    def close(self) -> None:
        """Let go of the file."""
        self._connection.close()

    def push(self, content: bytes) -> dict[str, float]:
        """Read a serialized DiscoveryResponse and store its assignments, each changed; milliseconds by part."""
        self._revision += 1
        times_s = [time.perf_counter()]
        bodies = _read(content)
        times_s.append(time.perf_counter())
        blobs = [(blake2b(body, digest_size=BLOB_ID_BYTES).digest(), 0, body) for _, body in bodies]
        rows = [(blob[0], self._revision, _GROUP, _TYPE, name) for (name, _), blob in zip(bodies, blobs, strict=True)]
        times_s.append(time.perf_counter())
        self._write(blobs, rows)
        times_s.append(time.perf_counter())
        self._connection.execute("COMMIT")
        times_s.append(time.perf_counter())
        parts = ("read_ms", "blobs_ms", "store_ms", "disk_ms")
        return {part: (times_s[at + 1] - times_s[at]) * 1e3 for at, part in enumerate(parts)}

    def _write(self, blobs: list[tuple[bytes, int, bytes]], rows: list[tuple[bytes, int, int, int, str]]) -> None:
        run = self._connection
        run.execute("BEGIN IMMEDIATE")
        run.executemany("INSERT OR IGNORE INTO blob (h, codec, data) VALUES (?, ?, ?)", blobs)
        run.execute(
            "INSERT INTO past (grp, type, name, h, rank, born, died)"
            " SELECT grp, type, name, h, rank, born, ? FROM entry WHERE grp = ? AND type = ?",
            (self._revision, _GROUP, _TYPE),
        )
        run.executemany("UPDATE entry SET h = ?, born = ? WHERE grp = ? AND type = ? AND name = ?", rows)


def _read(content: bytes) -> list[tuple[str, bytes]]:
    """The assignments by name, in canonical bytes; each is hashed for its version."""
    parse: Callable[[bytes], Any] = require(_ASSIGNMENT).FromString
    found = []
    for packed in wire_pb2.DiscoveryResponse.FromString(content).resources:
        if packed.type_url == ENDPOINT:
            message = parse(packed.value)
            body = message.SerializeToString(deterministic=True)
            blake2b(body, digest_size=VERSION_BYTES).hexdigest()
            found.append((message.cluster_name, body))
    return found


async def call_in_vain(client: httpx.AsyncClient, path: str, content: bytes) -> float:
    """Milliseconds of a request that is refused as soon as its body is there: what HTTP takes of one."""
    began = time.perf_counter()
    answer = await client.put(path, content=content, headers={"Content-Type": "text/plain"})
    took_ms = (time.perf_counter() - began) * 1e3
    if answer.status_code != HTTPStatus.UNSUPPORTED_MEDIA_TYPE:
        raise RuntimeError(f"PUT {path}: {answer.status_code} {answer.text[:200]}")
    return took_ms
