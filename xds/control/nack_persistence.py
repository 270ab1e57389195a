"""Open NACKs outlast a restart: what a node refused is not sent to it again after one.

They are observed state, beside the path of requests: written in batches, the last second of them may be lost, and a
store that is down loses nothing but what it would have kept. They go when they are resolved or their node is forgotten.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Mapping, MutableMapping
from time import time

import structlog

from xds.fleet.fleet import Fleet
from xds.fleet.nacks import decoded, encoded
from xds.fleet.refused_content import RefusedContent
from xds.store.base import OpenNack, Store, StoreError

WRITE_EVERY_S = 1.0
BATCH = 200  # records: what the event loop encodes at once
BATCH_EVERY_S = 0.1
RETRY_AT_MOST_S = 30.0

# What nodes refused before the restart: node id -> type URL -> name -> version.
Refused = MutableMapping[str, Mapping[str, Mapping[str, str]]]

_log = structlog.get_logger(logger_name="xds.control.nack_persistence")


class NackPersistence:
    """Keeps the fleet's open NACKs in the store; ``refused`` is where the engine looks up what it is not to send."""

    def __init__(self, store: Store, fleet: Fleet, refused: Refused) -> None:
        self._store = store
        self._fleet = fleet
        self._refused = refused
        self._node_of: dict[int, str] = {}  # of the records that are in ``refused``
        self._restored: dict[str, dict[int, RefusedContent]] = {}  # by node and id
        self._unreadable: list[int] = []
        self._is_failing = False
        self._task: asyncio.Task[None] | None = None

    async def load(self) -> None:
        """Take up what stood when the server ended, before any stream is answered. Raises ``StoreError``."""
        found = []
        for row in await self._store.nacks():
            try:
                found.append(decoded(row.id, row.node, row.type_url, row.body))
            except ValueError as error:
                self._unreadable.append(row.id)
                _log.warning("nacks.unreadable", node_id=row.node, error_message=str(error))
        self._fleet.restore(found, time())
        for refusal in found:
            if refusal.guilty:
                self._node_of[refusal.record.id] = refusal.record.node
                self._restored.setdefault(refusal.record.node, {})[refusal.record.id] = refusal
        self._refused.update((node, _by_type(refusals.values())) for node, refusals in self._restored.items())
        if found:
            _log.info("nacks.restored", nacks_n=len(found))

    def start(self) -> None:
        """Keep up from now on."""
        self._task = asyncio.create_task(self._run())

    async def close(self) -> None:
        """Write what is left, as far as the store takes it."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait((self._task,))
            while await self._write() == BATCH:
                pass

    async def _run(self) -> None:
        delay_s = WRITE_EVERY_S
        while True:
            await asyncio.sleep(delay_s)
            written = await self._write()
            if self._is_failing:
                delay_s = min(2 * delay_s, RETRY_AT_MOST_S)
            else:
                delay_s = BATCH_EVERY_S if written == BATCH else WRITE_EVERY_S

    async def _write(self) -> int:
        """Write one batch; how many records were in it, 0 when the store did not take them."""
        changes = self._fleet.nack_log.take_changes(BATCH)
        self._forget(changes.gone)
        if not (changes.stand or changes.gone or self._unreadable):
            return 0
        rows = [_row(refusal) for refusal in changes.stand]
        try:
            await self._store.put_nacks(rows, [*changes.gone, *self._unreadable])
        except asyncio.CancelledError:
            self._fleet.nack_log.give_back(changes)
            raise
        except StoreError as error:
            self._fleet.nack_log.give_back(changes)
            if not self._is_failing:
                _log.warning("nacks.not_kept", error_message=str(error))
            self._is_failing = True
            return 0
        self._unreadable.clear()
        self._is_failing = False
        return len(changes.stand) + len(changes.gone)

    def _forget(self, ids: Collection[int]) -> None:
        """The engine need not know of these any more; of a node that left again it has a memory of its own."""
        for id in ids:
            node = self._node_of.pop(id, None)
            if node is None:
                continue
            left = self._restored[node]
            del left[id]
            if not left:
                del self._restored[node]
                self._refused.pop(node, None)
            elif node in self._refused:
                self._refused[node] = _by_type(left.values())


def _by_type(refusals: Iterable[RefusedContent]) -> dict[str, dict[str, str]]:
    """What is refused for certain, by type URL."""
    found: dict[str, dict[str, str]] = {}
    for refusal in refusals:
        versions = refusal.refused_versions
        found.setdefault(refusal.record.type_url, {}).update((name, versions[name]) for name in refusal.guilty)
    return found


def _row(refusal: RefusedContent) -> OpenNack:
    record = refusal.record
    return OpenNack(record.id, record.node, record.type_url, encoded(refusal))
