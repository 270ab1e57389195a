"""Keeps the draining endpoints of followed assignments across restarts.

These endpoints drain because a binding or a lowered cluster no longer selects them. Their instances are still in the
catalog, or never were, so the stored catalog does not say that they drain. They are observed state and are written
within a second, as the catalog is. A crash may lose the last second. Of several servers of a store, all of which let
the same endpoints drain, the holder of the lease writes them.
"""

from __future__ import annotations

import json
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from itertools import islice

import structlog

from xds.model.node import Locality
from xds.services.core.endpoints import ServedEndpoint, locality_parts
from xds.services.followed_assignments import FollowedAssignments
from xds.services.followed_target import DrainingEndpoints
from xds.store.base import ObservedRecord, Store, StoreError
from xds.store.document_keys import Key, document_id, key_of
from xds.tasks.batch_writer import BATCH, BatchWriter
from xds.tasks.lifecycle import HoldsLease, alone

RECORDS = "draining/"  # followed by the kind of the assignments' owner: no source has such a name

_log = structlog.get_logger(logger_name="xds.services.drain_persistence")


class DrainPersistence:
    """Reads and writes the draining endpoints. ``followed`` are the assignments by the name of their owner."""

    def __init__(
        self,
        store: Store,
        followed: Mapping[str, FollowedAssignments],
        clock: Callable[[], float] = time.time,
        holds_lease: HoldsLease = alone,
    ) -> None:
        self._store = store
        self._followed = followed
        self._clock = clock
        self._holds_lease = holds_lease
        self._writes = True
        self._stored: dict[tuple[str, Key], float] = {}  # when the last endpoint of a record has drained
        self._writer = BatchWriter(self._write)

    async def load(self) -> None:
        """Let the endpoints drain on that drained before the restart. Call it before the catalog is loaded.

        A record that this release cannot read is logged and not used; it is deleted as if its endpoints had drained.
        Raises ``StoreError``.
        """
        for record in await self._store.observed():
            if not record.source.startswith(RECORDS):
                continue
            owner, key = record.source.removeprefix(RECORDS), key_of(record.service)
            try:
                draining = decoded(record.body)
            except ValueError as error:
                draining = {}
                _log.error("draining.unreadable", group=key[0], assignment=key[1], error_message=str(error))
            self._stored[owner, key] = _last_end(draining)
            if owner in self._followed:
                self._followed[owner].resume(key, draining)

    def start(self) -> None:
        """Start to write changes."""
        self._writer.start()

    async def close(self) -> None:
        """Stop, and write the remaining changes that the store accepts."""
        await self._writer.close()

    async def _may_write(self) -> bool:
        """Whether this server writes. One that begins learns first what the last one wrote, to delete it in the end."""
        holds_lease = self._holds_lease()
        if holds_lease and not self._writes:
            try:
                for owner in self._followed:
                    for record in await self._store.observed(RECORDS + owner):
                        with suppress(ValueError):
                            self._stored[owner, key_of(record.service)] = _last_end(decoded(record.body))
            except StoreError:
                return False
        self._writes = holds_lease
        return holds_lease

    async def _write(self) -> int | None:
        """Write a batch of changed records, and delete drained ones.

        Returns the number of records, None when the store failed.
        """
        if not await self._may_write():
            return 0
        changed = list(islice(((owner, key) for owner, one in self._followed.items() for key in one.unsaved), BATCH))
        put, ends = [], {}
        for owner, key in changed:
            draining = self._followed[owner].draining(key)
            self._followed[owner].unsaved.discard(key)
            if draining:
                put.append(ObservedRecord(RECORDS + owner, document_id(key), encoded(draining)))
                ends[owner, key] = _last_end(draining)
        now = self._clock()
        drained = [record for record, end in self._stored.items() if end <= now and record not in ends]
        if not (put or drained):
            return len(changed)
        try:
            delete = [(RECORDS + owner, document_id(key)) for owner, key in drained]
            await self._store.put_observed(put, delete, may_write=self._holds_lease)
        except BaseException as error:
            for owner, key in changed:
                self._followed[owner].unsaved.add(key)
            if not isinstance(error, StoreError):
                raise
            if not self._writer.is_failing:
                _log.warning("draining.not_kept", error_message=str(error))
            return None
        self._stored = {record: end for record, end in self._stored.items() if record not in drained} | ends
        return max(len(changed), len(drained))


def encoded(draining: Mapping[int, DrainingEndpoints]) -> bytes:
    """Draining endpoints by priority, as JSON: a list for each endpoint, with the fields that ``decoded`` names."""
    rows = [
        [priority, *one.address, one.weight, *locality_parts(one.locality), until]
        for priority, endpoints in draining.items()
        for _, one, until in endpoints
    ]
    return json.dumps(rows, separators=(",", ":")).encode()


def decoded(body: bytes) -> dict[int, DrainingEndpoints]:
    """Draining endpoints by priority. Raises ``ValueError``."""
    by_priority: dict[int, DrainingEndpoints] = defaultdict(DrainingEndpoints)
    try:
        for priority, address, port, weight, region, zone, sub_zone, until in json.loads(body):
            locality = Locality(str(region), str(zone), str(sub_zone))
            one = ServedEndpoint.draining_at((str(address), int(port)), int(weight), locality)
            by_priority[int(priority)].begin(one.address, one, float(until))
    except TypeError as error:
        raise ValueError(f"not a list of draining endpoints: {error!r:.100}") from error
    return dict(by_priority)


def _last_end(draining: Mapping[int, DrainingEndpoints]) -> float:
    ends: Iterable[float] = (until for endpoints in draining.values() for _, _, until in endpoints)
    return max(ends, default=0.0)
