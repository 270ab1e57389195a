"""The catalog of services, end to end: from a change at a source to the ACKs of a fleet, through real sockets.

    python -m bench.catalog_served [--services 100,10000] [--streams 1000] [--rounds 20] [--rate 1000] [--seconds 5]
        [--docs docs]

A server process runs with its own store, and with a source that changes instances on request (`bench.catalog_source`).
Each service has ten instances, and an assignment of the group follows it. The Delta streams have separate connections
(`bench.load`), and subscribe to all assignments. A change gives one instance other health and weight. ``--docs`` writes
the figures there, and into the page of performance. The columns are explained at `Row`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import socket
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import httpx

from bench.catalog_source import INSTANCES, LOOPBACK
from bench.load.fleet import Fleet, FleetSpec, Subscription
from bench.peers.child import Child, PeerError, free_port
from bench.suite import machine
from xds.model.resource_type import CLUSTER, ENDPOINT

GROUP = "/api/v1/groups/default"
READY_WITHIN_S, FIRST_ANSWERS_S, ACKED_WITHIN_S, BINDING_S = 120.0, 500.0, 60.0, 60.0
BINDINGS_AT_ONCE = 16
POLL_S, QUIET_S = 0.02, 0.5
WARM_UP = 3  # rounds that are not counted
FLOODED_STREAMS = 100  # of 1,000, a flood is half a gigabyte a second: it would measure the machine's loopback
WALL_GROWTH, CPU_GROWTH = 1.5, 1.5  # goals, from the least to the largest number of services
CORE, LATE_S = 1.0, 1.0
RESULTS = "catalog.json"
TITLE = "Services"


class Row(NamedTuple):
    """The figures for one number of services.

    ``wall_ms`` and ``worst_ms``: from a change at the source until the last ACK of all streams, median and longest.
    ``stream_us``: CPU of the server for a change, by the number of streams. ``sent`` and ``bytes``: responses to each
    stream for a change, and their size. ``busy``: cores that a flood of changes takes, ``late_ms``: from its last
    change to the last ACK, ``flood_responses``: responses a second to each stream meanwhile. ``start_s``: from the
    start of a process until it is ready, with everything stored. ``revisions`` that the changes have made.
    """

    services: int
    streams: int
    wall_ms: float
    worst_ms: float
    stream_us: float
    sent: float
    bytes: float
    busy: float
    late_ms: float
    flood_responses: float
    memory_mb: float
    start_s: float
    revisions: int


@dataclass
class Site:
    """A server process with a source of so many services."""

    folder: Path
    services: int
    grpc: str = field(default_factory=lambda: f"{LOOPBACK}:{free_port()}")
    http: str = field(default_factory=lambda: f"{LOOPBACK}:{free_port()}")
    source_port: int = field(default_factory=free_port)
    turn: int = 0

    def __post_init__(self) -> None:
        options = {"services": self.services, "port": self.source_port}
        source = {"kind": "python", "object": "bench.catalog_source:make", "options": options, "hold_share": 1}
        settings = {"sources": {"bench": {**source, "changes_per_s": 1_000_000}}}
        self._config = self.folder / "config.yaml"
        self._config.write_text(json.dumps(settings))
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.child = self._start()

    def _start(self) -> Child:
        addresses = ["--grpc", self.grpc, "--http", self.http]
        stored = ["--config", str(self._config), "--data", str(self.folder / "data")]
        return Child([sys.executable, "-m", "xds.cli.main", "serve", *addresses, *stored], piped=False)

    def close(self) -> None:
        self._socket.close()
        self.child.kill()
        self.child.close()

    def admin(self) -> httpx.AsyncClient:
        return httpx.AsyncClient(base_url=f"http://{self.http}", timeout=BINDING_S, trust_env=False)

    async def restart(self) -> float:
        """Stop and start the server; seconds from its start until it is ready."""
        self.child.terminate()
        self.child.close()
        begun = time.monotonic()
        self.child = self._start()
        async with self.admin() as admin:
            await self.ready(admin)
        return time.monotonic() - begun

    async def ready(self, admin: httpx.AsyncClient) -> None:
        """Wait until it serves. Raises ``PeerError``."""
        until = time.monotonic() + READY_WITHIN_S
        while time.monotonic() < until and self.child.exit_code is None:
            try:
                if (await admin.get("/readyz")).is_success:
                    return
            except httpx.TransportError:
                pass
            await asyncio.sleep(POLL_S)
        raise PeerError(f"xds serve is not ready\n{self.child.log_tail()}")

    async def fill(self) -> None:
        """Make the group, and bind an assignment to each service."""
        async with self.admin() as admin:
            await self.ready(admin)
            cluster = {"@type": CLUSTER, "name": "c", "type": "STATIC", "connect_timeout": "1s"}
            (await admin.put(f"{GROUP}/snapshot", json={"resources": [cluster]})).raise_for_status()
            numbers = iter(range(self.services))
            await asyncio.gather(*(self._bind(admin, numbers) for _ in range(BINDINGS_AT_ONCE)))

    async def _bind(self, admin: httpx.AsyncClient, numbers: Iterator[int]) -> None:
        for number in numbers:
            path = f"{GROUP}/bindings/{assignment(number)}"
            (await admin.put(path, json={"service": f"service-{number}"})).raise_for_status()

    async def revision(self) -> int:
        async with self.admin() as admin:
            return int((await admin.get(GROUP)).json()["revision"])

    def change(self) -> float:
        """Let the source change the next service; when."""
        text = f"{self.turn % self.services} {self.turn // self.services}"
        self.turn += 1
        at = time.monotonic()
        self._socket.sendto(text.encode(), (LOOPBACK, self.source_port))
        return at


def assignment(number: int) -> str:
    """The assignment that follows a service."""
    return f"cluster-{number}"


@asynccontextmanager
async def fleet_of(site: Site, streams: int, first_node: int = 0) -> AsyncIterator[Fleet]:
    """Streams that have all assignments."""
    names = tuple(map(assignment, range(site.services)))
    spec = FleetSpec(site.grpc, streams, "delta", (Subscription(ENDPOINT, names),), first_node=first_node)
    fleet = Fleet(spec)
    try:
        await fleet.start(FIRST_ANSWERS_S)
        yield fleet
    finally:
        await fleet.stop()


async def measure(services: int, streams: int, rounds: int, rate: int, seconds: float) -> Row:
    """All figures for one number of services."""
    with tempfile.TemporaryDirectory() as folder, closing(Site(Path(folder), services)) as site:
        await site.fill()
        start_s = await site.restart()
        before = await site.revision()
        async with fleet_of(site, streams) as fleet:
            one = await changes(site, fleet, rounds)
            memory_mb = site.child.memory_kb("VmRSS") / 1e3
        async with fleet_of(site, min(streams, FLOODED_STREAMS), first_node=streams) as fleet:
            flooded = await flood(site, fleet, rate, seconds)
        return Row(services, streams, *one, *flooded, memory_mb, start_s, await site.revision() - before)


async def changes(site: Site, fleet: Fleet, rounds: int) -> tuple[float, float, float, float, float]:
    """Wall time, the longest, CPU by stream, and the responses to each stream with their size, of one change each."""
    streams, walls, spent = fleet.spec.streams, [], []
    for turn in range(WARM_UP + rounds):
        if turn == WARM_UP:
            counted = fleet.stats()
        fleet.mark()
        cpu_s = site.child.cpu_s()
        at = site.change()
        ack = await fleet.acked(streams, ACKED_WITHIN_S)
        await asyncio.sleep(QUIET_S / 5)  # the server reads the last ACKs
        if turn >= WARM_UP:
            walls.append(ack.last_at - at)
            spent.append(site.child.cpu_s() - cpu_s)
    after = fleet.stats()
    messages = after["messages"] - counted["messages"]
    sent, size = messages / streams / rounds, (after["bytes_in"] - counted["bytes_in"]) / max(messages, 1)
    return statistics.median(walls) * 1e3, max(walls) * 1e3, statistics.median(spent) / streams * 1e6, sent, size


async def flood(site: Site, fleet: Fleet, rate: int, seconds: float) -> tuple[float, float, float]:
    """Cores of the server, milliseconds from the last change to the last ACK, and responses a second to each stream."""
    fleet.mark()
    before, cpu_s, begun, done, last = fleet.stats(), site.child.cpu_s(), time.monotonic(), 0, 0.0
    while (passed := time.monotonic() - begun) < seconds:
        while done < passed * rate:
            last = site.change()
            done += 1
        await asyncio.sleep(0.005)
    ended = await until_quiet(fleet)
    busy = (site.child.cpu_s() - cpu_s) / (ended - begun)
    responses = (fleet.stats()["messages"] - before["messages"]) / fleet.spec.streams / (ended - begun)
    return busy, (ended - last) * 1e3, responses


async def until_quiet(fleet: Fleet) -> float:
    """Wait until each stream has sent an ACK, and no more are sent; when the last one was."""
    count = fleet.spec.streams
    while True:
        ack = await fleet.acked(count, ACKED_WITHIN_S)
        if ack.count == count and time.monotonic() - ack.last_at > QUIET_S:
            return ack.last_at
        count = ack.count
        await asyncio.sleep(QUIET_S / 2)


INTRODUCTION = f"""\
From a change at a source to the ACKs of the fleet, through real sockets: {INSTANCES} instances a service, each bound to
an assignment of one group, and Delta streams that subscribe to all of them. A change is another health of one instance.
Changes are collected for 50 ms, which are part of the wall time. Written by `python -m bench.catalog_served --docs
docs`. *CPU* is that of `xds serve`, all threads, for one change, by the number of streams. *Flood*: 1,000 changes a
second to services in turn, with {FLOODED_STREAMS} streams; cores of the server, the time from the last change to the
last ACK, and responses a second to each stream. *Start* is from the start of the process to `/readyz`, with everything
stored.
"""
NOTE = """\
Where the load average is far above the number of cores, the flood shows how much of the machine the server got, not
what it needs: `python -m bench.catalog` has its CPU.
"""
HEADER = (
    "commit", "services", "streams", "wall ms", "longest ms", "CPU us", "responses", "bytes", "flood: cores", "late ms",
    "responses/s", "memory MB", "start s", "revisions", "load average",
)  # fmt: skip


def cells_of(row: Row) -> list[str]:
    """A row of the page of performance."""
    whole = {"services", "streams", "revisions", "bytes", "memory_mb", "late_ms", "worst_ms", "wall_ms"}
    told = (f"{value:,.0f}" if name in whole else f"{value:.3g}" for name, value in row._asdict().items())
    return [machine.commit(), *told, f"{machine.load():.1f}"]


def growth(rows: Sequence[Row]) -> str:
    """What grows with the number of services, and whether the goals are met."""
    least, most = min(rows, key=lambda row: row.services), max(rows, key=lambda row: row.services)
    wall, cpu = most.wall_ms / least.wall_ms, most.stream_us / least.stream_us
    return (
        f"{least.services:,} to {most.services:,} services: wall time times {wall:.2f} (goal {WALL_GROWTH}),"
        f" CPU times {cpu:.2f} (goal {CPU_GROWTH}); {most.sent:g} responses to each stream for a change (goal 1);"
        f" a flood takes {most.busy:.2f} cores (goal {CORE:g}) and is over after {most.late_ms:,.0f} ms"
        f" (goal {LATE_S * 1e3:,.0f})"
    )


def section(folder: Path) -> Iterator[str]:
    """The section of the page of performance; nothing where nothing was measured."""
    path = folder / RESULTS
    if path.exists():
        found = json.loads(path.read_text())
        yield f"## {TITLE}\n"
        yield INTRODUCTION
        lines = (HEADER, ["---"] * len(HEADER), *found["rows"])
        yield "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"
        yield "\n".join(f"* {told}." for told in found["growth"]) + "\n"
        yield NOTE


def keep(rows: Sequence[Row], docs: Path) -> None:
    """Keep the rows in place of all others, and write the page anew."""
    from bench.envoys.__main__ import write_page

    found: dict[str, Any] = {"rows": [cells_of(row) for row in rows], "growth": [growth(rows)]}
    (docs / "performance" / RESULTS).write_text(json.dumps(found, indent=1) + "\n")
    write_page(docs)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--services", default="100,10000")
    parser.add_argument("--streams", type=int, default=1_000)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--rate", type=int, default=1_000)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--docs", type=Path)
    asked = parser.parse_args(arguments)
    print(f"{INSTANCES} instances a service, {asked.rate} changes/s, median of {asked.rounds} rounds")
    print(" ".join(f"{name:>15}" for name in Row._fields))
    rows = []
    for services in map(int, asked.services.split(",")):
        rows.append(asyncio.run(measure(services, asked.streams, asked.rounds, asked.rate, asked.seconds)))
        print(" ".join(f"{value:>15.4g}" for value in rows[-1]), flush=True)
    print(growth(rows))
    if asked.docs:
        keep(rows, asked.docs)


if __name__ == "__main__":
    main()
