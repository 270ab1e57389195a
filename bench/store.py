"""How long pushes to the SQLite store take, durable and read back.

    python bench/store.py [DIRECTORY]

Prints the median and the maximum of each case in milliseconds. The body of a resource is 1 KiB of random bytes.
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from itertools import count
from pathlib import Path
from statistics import median

from xds.store.base import Delta, Entry, FullSet, GroupChange, Store, blob_id
from xds.store.engines import open_store

TYPE_URL = "type.googleapis.com/envoy.config.cluster.v3.Cluster"
BODY_BYTES = 1024
DELTAS = 500

_push_ids = count()


def whole(bodies: dict[str, bytes]) -> FullSet:
    entries = tuple(Entry(TYPE_URL, name, blob_id(body)) for name, body in bodies.items())
    return FullSet(entries, {entry.blob_id: bodies[entry.name] for entry in entries})


def one(name: str) -> Delta:
    body = os.urandom(BODY_BYTES)
    return Delta((Entry(TYPE_URL, name, blob_id(body)),), (), {blob_id(body): body})


def random_bodies(size: int) -> dict[str, bytes]:
    return {f"cluster-{n}": os.urandom(BODY_BYTES) for n in range(size)}


Call = Callable[[], Awaitable[object]]


async def measure(title: str, rounds: int, prepare: Callable[[int], Call]) -> None:
    """Time what ``prepare(round)`` returns; the preparation itself is not timed."""
    taken_ms: list[float] = []
    for number in range(rounds):
        call = prepare(number)
        started_s = time.perf_counter()
        await call()
        taken_ms.append((time.perf_counter() - started_s) * 1000)
    print(f"{title:<40} median {median(taken_ms):9.2f} ms   max {max(taken_ms):9.2f} ms   n {rounds}")


async def measure_group(store: Store, size: int, rounds: int) -> None:
    group, bodies = f"g{size}", random_bodies(size)
    backwards = dict(reversed(bodies.items()))

    def push(change: GroupChange) -> Call:
        return lambda: store.commit(group, change, push_id=f"{next(_push_ids)}")

    def changed(number: int) -> Call:
        return push(whole({**bodies, f"cluster-{number}": os.urandom(BODY_BYTES)}))

    def turned(number: int) -> Call:
        return push(whole({**(bodies if number % 2 else backwards), "turned": os.urandom(BODY_BYTES)}))

    await measure(f"{size} all new", rounds, lambda _: push(whole(random_bodies(size))))
    await push(whole(bodies))()
    await measure(f"{size} whole, 1 changed", rounds, changed)
    await measure(f"{size} whole, 1 changed, order reversed", rounds, turned)
    await measure(f"{size} delta of 1", DELTAS, lambda number: push(one(f"cluster-{number % size}")))
    await measure(f"{size} manifest of the head", rounds, lambda _: lambda: store.manifest(group))
    await measure(
        f"{size} manifest {DELTAS} revisions ago", rounds, lambda _: lambda: store.manifest(group, 2 * rounds)
    )
    ids = [entry.blob_id for entry in (await store.manifest(group)).entries]
    await measure(f"{size} blobs of the head", rounds, lambda _: lambda: store.blobs(ids))


async def run(directory: Path) -> None:
    store = open_store("sqlite", directory)
    await store.open()
    for size, rounds in ((1000, 20), (10_000, 5), (50_000, 2)):
        await measure_group(store, size, rounds)
    await store.close()


def main() -> None:
    above = sys.argv[1] if len(sys.argv) > 1 else None
    with tempfile.TemporaryDirectory(dir=above) as directory:
        asyncio.run(run(Path(directory)))


if __name__ == "__main__":
    main()
