"""Several servers on one PostgreSQL, beside one server on SQLite in the same run.

    python -m bench.replicas [--streams 300] [--rounds 20] [--megabytes 50]

Starts PostgreSQL (Debian's) and ``xds serve`` in processes of their own. Prints

* the answer of a push of one resource, one after the other and eight at a time, with pushes a second;
* from the call of a push at the first server to the last ACK at any, with 1, 2 and 3 servers that share the streams,
  and the memory of each server;
* the start of a server with a group of some megabytes: from the process to ``/readyz``.

Each figure of PostgreSQL stands beside that of SQLite; the ratio is what to look at.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import re
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from statistics import median
from typing import Any

import httpx

from bench.load.fleet import Fleet
from bench.load.spec import FleetSpec, Subscription
from tests.support.postgres import PostgresServer
from tests.support.process import LOOPBACK
from tests.support.server import ServerProcess
from xds.model.resource_type import CLUSTER

CLUSTERS = 100
AT_ONCE = 8
RESOURCE_BYTES = 5 * 1024
ACKS_TIMEOUT_S = 60.0
GROUP = "/api/v1/groups/default"

_changes = count(1)


def cluster(index: int, padding: str = "") -> dict[str, Any]:
    """A cluster; its timeout is another one each time."""
    body = {"@type": CLUSTER, "name": f"cluster-{index}", "type": "STATIC", "connect_timeout": f"{next(_changes)}s"}
    return {**body, "alt_stat_name": padding} if padding else body


@contextmanager
def servers(directory: Path, urls: Sequence[str]) -> Iterator[list[ServerProcess]]:
    """Servers with the stores of these URLs; an empty one stands for SQLite."""
    with ExitStack() as running:
        started = []
        for index, url in enumerate(urls):
            each = directory / str(index)
            each.mkdir(parents=True, exist_ok=True)
            flags = ["--store", url] if url else []
            server = ServerProcess(each, flags, forked=False, advertised=bool(url))
            started.append(running.enter_context(server))
        yield started


def memory_mb(server: ServerProcess) -> float:
    """Resident memory of a server."""
    status = Path(f"/proc/{server.process.pid}/status").read_text()
    found = re.search(r"VmRSS:\s+(\d+) kB", status)
    assert found is not None, "the server has ended"
    return int(found[1]) / 1024


def admin(server: ServerProcess) -> httpx.AsyncClient:
    return httpx.AsyncClient(base_url=f"http://{LOOPBACK}:{server.http_port}", timeout=120, trust_env=False)


@dataclass(frozen=True, slots=True)
class Pushes:
    """The answers of pushes of one resource."""

    alone_ms: float
    slowest_ms: float
    together_ms: float
    a_second: float


async def put_one(client: httpx.AsyncClient) -> float:
    begun = time.perf_counter()
    body = cluster(random.randrange(CLUSTERS))
    (await client.put(f"{GROUP}/resources/clusters/{body['name']}", json=body)).raise_for_status()
    return (time.perf_counter() - begun) * 1e3


async def measure_pushes(server: ServerProcess, rounds: int) -> Pushes:
    """Pushes of one resource, one after the other and several at a time."""
    async with admin(server) as client:
        snapshot = {"resources": [cluster(index) for index in range(CLUSTERS)]}
        (await client.put(f"{GROUP}/snapshot", json=snapshot)).raise_for_status()
        alone = [await put_one(client) for _ in range(rounds)]
        begun = time.perf_counter()
        together: list[float] = []
        for _ in range(rounds):
            together += await asyncio.gather(*(put_one(client) for _ in range(AT_ONCE)))
        return Pushes(median(alone), max(alone), median(together), len(together) / (time.perf_counter() - begun))


async def measure_fan_out(started: Sequence[ServerProcess], streams: int, rounds: int) -> float:
    """Median milliseconds from the call of a push at the first server to the last ACK."""
    async with admin(started[0]) as client:
        snapshot = {"resources": [cluster(index) for index in range(CLUSTERS)]}
        (await client.put(f"{GROUP}/snapshot", json=snapshot)).raise_for_status()
        share = streams // len(started)
        fleets = [
            Fleet(
                FleetSpec(
                    f"{LOOPBACK}:{server.grpc_port}", share, "delta", (Subscription(CLUSTER),), first_node=index * share
                )
            )
            for index, server in enumerate(started)
        ]
        walls = []
        try:
            for fleet in fleets:
                await fleet.start()
            for _ in range(rounds):
                for fleet in fleets:
                    fleet.mark()
                begun = time.monotonic()
                await put_one(client)
                acks = [await fleet.acked(share, ACKS_TIMEOUT_S) for fleet in fleets]
                walls.append((max(ack.last_at for ack in acks) - begun) * 1e3)
        finally:
            for fleet in fleets:
                await fleet.stop()
        return median(walls)


async def fill(server: ServerProcess, megabytes: int) -> None:
    """Push a group of this size, with resources of five KiB."""
    resources_n = megabytes * 1024 * 1024 // RESOURCE_BYTES
    snapshot = {
        "resources": [cluster(index, random.randbytes(RESOURCE_BYTES // 2).hex()) for index in range(resources_n)]
    }
    async with admin(server) as client:
        (await client.put(f"{GROUP}/snapshot", json=snapshot)).raise_for_status()


def start_s(server: ServerProcess) -> float:
    """Seconds of a restart until the server is ready."""
    server.stop()
    begun = time.perf_counter()
    server.start()
    return time.perf_counter() - begun


async def run(directory: Path, database: PostgresServer, arguments: argparse.Namespace) -> None:
    stores = {"SQLite": "", "PostgreSQL": database.make_database()}
    print(f"pushes of one of {CLUSTERS} clusters, {arguments.rounds} rounds")
    print(f"{'store':12} {'median ms':>10} {'slowest':>8} {f'{AT_ONCE} at once':>10} {'a second':>9}")
    for name, url in stores.items():
        with servers(directory / f"pushes-{name}", [url]) as (server,):
            found = await measure_pushes(server, arguments.rounds)
        row = (found.alone_ms, found.slowest_ms, found.together_ms, found.a_second)
        print(f"{name:12} {row[0]:10.1f} {row[1]:8.1f} {row[2]:10.1f} {row[3]:9.0f}")
    print(f"\na push to the last ACK, {arguments.streams} Delta streams on all servers together")
    print(f"{'servers':16} {'median ms':>10}  memory of each, MB")
    rows = [("1 SQLite", [""])] + [(f"{n} PostgreSQL", [database.make_database()] * n) for n in (1, 2, 3)]
    for title, urls in rows:
        with servers(directory / title, urls) as started:
            wall_ms = await measure_fan_out(started, arguments.streams, arguments.rounds)
            memory = " ".join(f"{memory_mb(server):.0f}" for server in started)
        print(f"{title:16} {wall_ms:10.1f}  {memory}")
    print(f"\nstart with a group of {arguments.megabytes} MB")
    for name, url in {"SQLite": "", "PostgreSQL": database.make_database()}.items():
        with servers(directory / f"start-{name}", [url]) as (server,):
            await fill(server, arguments.megabytes)
            print(f"{name:12} {start_s(server):6.1f} s   {memory_mb(server):.0f} MB")
            if url:
                database.kill()
                print(f"{'its copy':12} {start_s(server):6.1f} s   {memory_mb(server):.0f} MB")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--streams", type=int, default=300)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--megabytes", type=int, default=50)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory, PostgresServer() as database:
        asyncio.run(run(Path(directory), database, arguments))


if __name__ == "__main__":
    main()
