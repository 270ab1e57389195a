"""Keeps open NACKs across restarts, so that rejected resources are not re-sent to a node after one.

NACKs are observed state and are written in batches by a task of its own. A crash may lose the NACKs of the last second.
A NACK is deleted when it is resolved or its node is forgotten.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping, MutableMapping
from time import time

import structlog

from xds.fleet.fleet import Fleet
from xds.fleet.nacks import decoded, encoded
from xds.fleet.refused_content import RefusedContent
from xds.store.base import OpenNack, Store, StoreError
from xds.tasks.batch_writer import BATCH, BatchWriter

# The resources that nodes rejected before the restart: node id -> type URL -> name -> version.
Refused = MutableMapping[str, Mapping[str, Mapping[str, tuple[str, ...]]]]
NoteRefused = Callable[[str, Mapping[str, Iterable[str]]], None]

_log = structlog.get_logger(logger_name="xds.server.nack_persistence")


class NackPersistence:
    """Keeps the open NACKs of the fleet in the store.

    The engine does not send the resources in ``refused`` to their nodes. ``note_refused`` tells it of the versions that
    must not take the place of others, by type URL and name. ``is_mine``: whether it keeps the row with this id; the
    others are those of other servers (`xds.server.nacks_elsewhere`).
    """

    def __init__(
        self,
        store: Store,
        fleet: Fleet,
        refused: Refused,
        note_refused: NoteRefused,
        is_mine: Callable[[int], bool] = lambda id: True,
    ) -> None:
        self._store = store
        self._is_mine = is_mine
        self._fleet = fleet
        self._refused = refused
        self._note_refused = note_refused
        self._node_of: dict[int, str] = {}  # node id by record id, for the records in ``refused``
        self._restored: dict[str, dict[int, RefusedContent]] = {}  # by node id and record id
        self._unreadable: list[int] = []
        self._writer = BatchWriter(self._write)

    async def load(self) -> None:
        """Load the open NACKs. Call it before groups are loaded. Raises ``StoreError``."""
        refusals = []
        for row in await self._store.nacks():
            if not self._is_mine(row.id):
                continue
            try:
                refusals.append(decoded(row.id, row.node, row.type_url, row.body))
            except ValueError as error:
                self._unreadable.append(row.id)
                _log.warning("nacks.unreadable", node_id=row.node, error_message=str(error))
        self._fleet.restore(refusals, time())
        for refusal in refusals:
            if refusal.guilty:
                self._node_of[refusal.record.id] = refusal.record.node
                self._restored.setdefault(refusal.record.node, {})[refusal.record.id] = refusal
        for node, by_id in self._restored.items():
            self._refused[node] = by_type(by_id.values())
            for type_url, versions in self._refused[node].items():
                self._note_refused(type_url, versions)
        if refusals:
            _log.info("nacks.restored", nacks_n=len(refusals))

    def start(self) -> None:
        """Start writing changes."""
        self._writer.start()

    async def close(self) -> None:
        """Stop, and write the remaining changes that the store accepts."""
        await self._writer.close()

    async def _write(self) -> int | None:
        """Write one batch. Returns the number of records, None when the store failed."""
        changes = self._fleet.nack_log.take_changes(BATCH)
        self._forget(changes.closed)
        if not (changes.open or changes.closed or self._unreadable):
            return 0
        rows = [_row(refusal) for refusal in changes.open]
        try:
            await self._store.put_nacks(rows, [*changes.closed, *self._unreadable])
        except asyncio.CancelledError:
            self._fleet.nack_log.give_back(changes)
            raise
        except StoreError as error:
            self._fleet.nack_log.give_back(changes)
            if not self._writer.is_failing:
                _log.warning("nacks.not_kept", error_message=str(error))
            return None
        self._unreadable.clear()
        return len(changes.open) + len(changes.closed)

    def _forget(self, ids: Collection[int]) -> None:
        """Remove these records from ``refused``. For nodes that disconnected after the restart the engine has them."""
        for id in ids:
            node = self._node_of.pop(id, None)
            if node is None:
                continue
            remaining = self._restored[node]
            del remaining[id]
            if not remaining:
                del self._restored[node]
                self._refused.pop(node, None)
            elif node in self._refused:
                self._refused[node] = by_type(remaining.values())


def by_type(refusals: Iterable[RefusedContent]) -> dict[str, dict[str, tuple[str, ...]]]:
    """The names that are known to be rejected with their versions, by type URL."""
    by_type: dict[str, dict[str, tuple[str, ...]]] = {}
    for refusal in refusals:
        versions = refusal.refused_versions
        by_type.setdefault(refusal.record.type_url, {}).update((name, (versions[name],)) for name in refusal.guilty)
    return by_type


def _row(refusal: RefusedContent) -> OpenNack:
    record = refusal.record
    return OpenNack(record.id, record.node, record.type_url, encoded(refusal))
