"""Keeps the last good set of each source and service across restarts.

The sets are observed state. They are written in batches, at most once a second for each service. A crash may lose the
last second of changes; the sources show them again.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import islice

import structlog

from xds.services.core.holding import ServiceHolding
from xds.services.core.holding_record import HoldingEncoder, decoded
from xds.services.core.index import ServiceIndex
from xds.services.source_feed import SourceStatus
from xds.store.base import ObservedRecord, Store, StoreError
from xds.tasks.batch_writer import BATCH, BatchWriter
from xds.tasks.lifecycle import HoldsLease, alone
from xds.tasks.threads import run_rarely_collected

STATUS_EVERY_S = 30.0  # how old the stored ``read_at`` of a source may be
_STATUS = ""  # in place of a service name: the record of the source itself

Key = tuple[str, str]  # source and service

_log = structlog.get_logger(logger_name="xds.services.catalog_persistence")


@dataclass(frozen=True, slots=True)
class StoredSource:
    """A source from before a restart. ``read_at`` (epoch seconds) is when it was last read."""

    name: str
    kind: str = ""
    read_at: float = 0.0


@dataclass(frozen=True, slots=True)
class StoredCatalog:
    """The stored catalog. ``unreadable`` are the keys of records that this release cannot read."""

    sources: Sequence[StoredSource]
    holdings: Sequence[tuple[str, str, ServiceHolding]]
    unreadable: Sequence[Key]


async def read_catalog(store: Store) -> StoredCatalog:
    """Read the last good sets. Raises ``StoreError``."""
    return await run_rarely_collected(_read, await store.observed())


def _read(records: Iterable[ObservedRecord]) -> StoredCatalog:
    sources: dict[str, StoredSource] = {}
    holdings: list[tuple[str, str, ServiceHolding]] = []
    unreadable: list[Key] = []
    for record in records:
        if "/" in record.source:
            continue  # not a source: registrations are stored in records of their own
        sources.setdefault(record.source, StoredSource(record.source))
        try:
            if record.service == _STATUS:
                sources[record.source] = _read_source(record)
            else:
                holdings.append((record.source, record.service, decoded(record.body)))
        except ValueError as error:
            unreadable.append((record.source, record.service))
            _log.error("catalog.unreadable", source=record.source, service=record.service, error_message=str(error))
    return StoredCatalog(tuple(sources.values()), holdings, unreadable)


def _read_source(record: ObservedRecord) -> StoredSource:
    try:
        document = json.loads(record.body)
        return StoredSource(record.source, str(document["kind"]), float(document["read_at"]))
    except (TypeError, KeyError) as error:
        raise ValueError(f"not the record of a source: {error!r:.100}") from error


class CatalogWriter:
    """Writes the changes of the catalog, of several servers at the holder of the lease.

    ``statuses`` returns the status of each source.
    """

    def __init__(
        self,
        store: Store,
        index: ServiceIndex,
        statuses: Callable[[], Iterable[SourceStatus]],
        holds_lease: HoldsLease = alone,
    ) -> None:
        self._store = store
        self._holds_lease = holds_lease
        self._index = index
        self._statuses = statuses
        self._stored_at: dict[str, float] = {}  # the stored ``read_at``, by source
        self._status_every_s = STATUS_EVERY_S
        self._round: set[Key] = set()  # changes that are left of those that are written now
        self._encoder = HoldingEncoder()
        self._writer = BatchWriter(self._write)

    def start(self) -> None:
        """Start to write changes."""
        self._writer.start()

    async def finish(self) -> None:
        """Stop, and write all remaining changes that the store accepts."""
        self._status_every_s = 0.0
        await self._writer.close()
        while await self._write():
            pass

    async def _write(self) -> int | None:
        """Write a batch of changed records, and the sources whose stored time is too old.

        Returns the number of records, None when the store failed.
        """
        if not self._holds_lease():
            return 0
        self._round = self._round or set(self._index.unsaved)  # later changes are written in the next round
        keys = set(islice(self._round, BATCH))
        self._round -= keys
        self._index.unsaved -= keys
        put, removed = [], []
        for source, service in keys:
            holding = self._index.holding(source, service)
            if holding is None:
                removed.append((source, service))
            else:
                put.append(ObservedRecord(source, service, self._encoder.encoded((source, service), holding)))
        read_at = self._outdated_statuses()
        put += [_status_record(status) for status in self._statuses() if status.name in read_at]
        removed += [(name, _STATUS) for name in self._stored_at.keys() - {status.name for status in self._statuses()}]
        if not (put or removed):
            return 0
        try:
            await self._store.put_observed(put, removed, may_write=self._holds_lease)
        except BaseException as error:
            self._index.unsaved |= keys
            if not isinstance(error, StoreError):
                raise
            if not self._writer.is_failing:
                _log.warning("catalog.not_kept", error_message=str(error))
            return None
        self._stored_at = {name: at for name, at in self._stored_at.items() if (name, _STATUS) not in removed} | read_at
        return len(put) + len(removed)

    def _outdated_statuses(self) -> dict[str, float]:
        """The present ``read_at`` of the sources whose stored one is too old, by source."""
        return {
            status.name: status.read_at
            for status in self._statuses()
            if status.name not in self._stored_at
            or status.read_at > self._stored_at[status.name] + self._status_every_s
        }


def _status_record(status: SourceStatus) -> ObservedRecord:
    body = json.dumps({"kind": status.kind, "read_at": status.read_at}).encode()
    return ObservedRecord(status.name, _STATUS, body)
