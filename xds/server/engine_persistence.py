"""Keeps across restarts what the engine remembers of nodes: the versions that they refused, and their former groups.

docs/internals/engine.md#a-client-that-returns: "Of a node id, two things outlive its connections and the process: the
versions that it refused, and the group that it was moved from". Both are observed state and are written within a
second, as the catalog is; a crash may lose the last second. What nodes refuse of the newest content is known from the
open NACKs as well (`xds.server.nack_persistence`). But a client that returns must not be given a version that was
refused before its repair, and such a NACK is no longer open.

A record of a refused resource has its versions, and is deleted when no removal log has them. A record of a node has the
groups that it followed and the time of its move; it is deleted when no connection is that old.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping
from itertools import islice

import structlog

from xds.protocol.clients import ClientTable
from xds.protocol.group_logs import LeftGroup
from xds.snapshots.cache import SnapshotCache
from xds.snapshots.removal_log import kept_s
from xds.store.base import ObservedRecord, Store, StoreError
from xds.tasks.batch_writer import BATCH, BatchWriter

# The ``source`` of the records in the store; no source has such a name.
MOVED = "engine/moved"
REFUSED = "engine/refused"

RecordKey = tuple[str, str]  # source and service, as in `ObservedRecord`

_log = structlog.get_logger(logger_name="xds.server.engine_persistence")


class EnginePersistence:
    """Reads and writes what ``cache`` knows as refused and what ``clients`` knows as moved."""

    def __init__(
        self, store: Store, cache: SnapshotCache, clients: ClientTable, clock: Callable[[], float] = time.time
    ) -> None:
        self._store = store
        self._cache = cache
        self._clients = clients
        self._clock = clock
        self._moves: dict[str, float] = {}  # when the record of a moved node ends, by node id
        self._unused: set[RecordKey] = set()  # records to delete
        self._writer = BatchWriter(self._write)

    async def load(self) -> None:
        """Load all records. Call it before groups are loaded. Raises ``StoreError``.

        A record that this release cannot read is logged and deleted.
        """
        loaders = {MOVED: self._load_moved, REFUSED: self._load_refused}
        for record in await self._store.observed():
            if record.source in loaders:
                try:
                    loaders[record.source](record.service, record.body)
                except ValueError as error:
                    self._unused.add((record.source, record.service))
                    _log.error("engine.unreadable", service=record.service, error_message=str(error))
        self._clients.changed_moves.clear()
        self._cache.changed_refusals.clear()

    def _load_moved(self, node_id: str, body: bytes) -> None:
        groups, moved_s = decoded_move(body)
        self._note_moved(node_id, groups, min(moved_s, self._clock()))  # the clock may have been set back
        self._clients.restore_followed(node_id, groups)

    def _load_refused(self, key: str, body: bytes) -> None:
        type_url, _, name = key.partition(" ")
        self._cache.note_refused(type_url, {name: decoded_versions(body)})

    def _note_moved(self, node_id: str, groups: Iterable[LeftGroup], moved_s: float) -> None:
        self._moves[node_id] = moved_s + max(kept_s(self._cache.rules_of(each.group)) for each in groups)

    def start(self) -> None:
        """Start to write changes. Call it when the groups are loaded."""
        for (type_url, name), versions in self._cache.refused_versions().items():
            if not self._cache.may_return(type_url, name, versions):
                self._unused.add((REFUSED, f"{type_url} {name}"))
        self._writer.start()

    async def close(self) -> None:
        """Stop, and write the remaining changes that the store accepts."""
        await self._writer.close()

    async def _write(self) -> int | None:
        """Write one batch and delete what has ended. Returns the number of records, None when the store failed."""
        now_s = self._clock()
        self._end_moves(now_s)
        changed = [*islice(self._changed_keys(), BATCH)]
        refused = self._cache.refused_versions() if self._cache.changed_refusals else {}
        records, unused = [], {*islice(self._unused, BATCH)}
        for key in changed:
            record = self._take(key, refused, now_s)
            if record is not None:
                records.append(record)
            else:
                unused.add(key)
        unused -= {(record.source, record.service) for record in records}
        if not (records or unused):
            return 0
        try:
            await self._store.put_observed(records, list(unused))
        except BaseException as error:
            self._give_back(changed)
            if not isinstance(error, StoreError):
                raise
            if not self._writer.is_failing:
                _log.warning("engine.not_kept", error_message=str(error))
            return None
        self._unused -= unused | set(changed)
        return max(len(changed), len(unused))

    def _changed_keys(self) -> Iterable[RecordKey]:
        yield from ((MOVED, node_id) for node_id in self._clients.changed_moves)
        yield from ((REFUSED, f"{type_url} {name}") for type_url, name in self._cache.changed_refusals)

    def _take(
        self, key: RecordKey, refused: Mapping[tuple[str, str], list[str]], now_s: float
    ) -> ObservedRecord | None:
        """The record of a change, which counts as written; None if nothing is left to be remembered."""
        source, service = key
        if source == MOVED:
            del self._clients.changed_moves[service]
            groups = self._clients.followed(service)
            if len(groups) < 2:
                return None
            self._note_moved(service, groups, now_s)
            return ObservedRecord(source, service, encoded_move(groups, now_s))
        type_url, _, name = service.partition(" ")
        del self._cache.changed_refusals[type_url, name]
        versions = refused.get((type_url, name))
        return ObservedRecord(source, service, json.dumps(versions).encode()) if versions else None

    def _give_back(self, keys: Iterable[RecordKey]) -> None:
        for source, service in keys:
            if source == MOVED:
                self._clients.changed_moves[service] = None
            else:
                type_url, _, name = service.partition(" ")
                self._cache.changed_refusals[type_url, name] = None

    def _end_moves(self, now_s: float) -> None:
        """Forget the former groups of nodes that moved long ago."""
        for node_id in [node_id for node_id, end_s in self._moves.items() if end_s <= now_s]:
            del self._moves[node_id]
            self._clients.forget_former_groups(node_id)
            self._unused.add((MOVED, node_id))


def encoded_move(groups: Iterable[LeftGroup], moved_s: float) -> bytes:
    """The groups that a node followed, the latest first, each with the revision when it left, and the epoch time."""
    return json.dumps({"groups": [*map(list, groups)], "moved_s": moved_s}).encode()


def decoded_move(body: bytes) -> tuple[list[LeftGroup], float]:
    """Groups and epoch time of ``encoded_move``. Raises ``ValueError``."""
    try:
        document = json.loads(body)
        groups = [LeftGroup(group, int(revision)) for group, revision in document["groups"]]
        moved_s = float(document["moved_s"])
    except (TypeError, KeyError, ValueError) as error:
        raise ValueError(f"not the record of a moved node: {error!r:.100}") from error
    if not groups or not all(isinstance(each.group, str) for each in groups):
        raise ValueError("not the record of a moved node: no groups")
    return groups, moved_s


def decoded_versions(body: bytes) -> list[str]:
    """The refused versions of a resource. Raises ``ValueError``."""
    versions = json.loads(body)
    if not (isinstance(versions, list) and all(isinstance(each, str) for each in versions)):
        raise ValueError("not the versions of a refused resource")
    return versions
