"""Config entries with a store: loading them from SQLite at a start, and one write with its commit and its chains."""

from __future__ import annotations

import asyncio
import statistics
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tests.support.entries import entries_of
from xds.mesh.config_entries import EntryTable
from xds.mesh.core.chain.index import ChainContext
from xds.mesh.core.entries.entry import ConfigEntry
from xds.mesh.core.entries.resolver import ServiceResolver
from xds.mesh.entry_records import PutEntry
from xds.store.base import Store
from xds.store.engines import open_store


@dataclass(frozen=True, slots=True)
class StoredFigures:
    """Medians. ``start_s`` and ``write_ms`` are CPU time of all threads, ``write_wall_ms`` is time that passed."""

    start_s: float
    write_ms: float
    write_wall_ms: float


def measure_stored(
    entries: Sequence[ConfigEntry], changes: Sequence[ServiceResolver], context: ChainContext, rounds: int
) -> StoredFigures:
    """Start over stored entries, and write each change by itself."""
    with tempfile.TemporaryDirectory() as folder:
        return asyncio.run(_measure(Path(folder), entries, changes, context, rounds))


async def _measure(
    folder: Path, entries: Sequence[ConfigEntry], changes: Sequence[ServiceResolver], context: ChainContext, rounds: int
) -> StoredFigures:
    store = open_store("sqlite", folder)
    await store.open()
    try:
        publisher = await _loaded(store, context)
        await publisher.apply([PutEntry(entry) for entry in entries])
        started = []
        for _ in range(rounds):
            began = time.process_time()
            publisher = await _loaded(store, context)
            started.append(time.process_time() - began)
        written = [await _write(publisher, entry) for entry in changes]
    finally:
        await store.close()
    cpu, wall = zip(*written, strict=True)
    return StoredFigures(statistics.median(started), statistics.median(cpu) * 1e3, statistics.median(wall) * 1e3)


async def _loaded(store: Store, context: ChainContext) -> EntryTable:
    publisher = entries_of(store, context)
    await publisher.load()
    return publisher


async def _write(publisher: EntryTable, entry: ServiceResolver) -> tuple[float, float]:
    """Seconds of CPU time, and those that passed, of a write that changes the chains of its set."""
    changed = replace(entry, connect_timeout_ns=entry.connect_timeout_ns + 1)
    cpu, wall = time.process_time(), time.perf_counter()
    result = await publisher.apply([PutEntry(changed)])
    taken = time.process_time() - cpu, time.perf_counter() - wall
    assert result.changed
    assert result.chains
    return taken
