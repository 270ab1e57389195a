"""Load reports over gRPC to a real server: the CPU of ``xds serve`` for the reports of a fleet, from its sockets on.

    python -m bench.load_served [--nodes 1000] [--clusters 1000] [--localities 3] [--active 1] [--rps 1000]
        [--ordered] [--idle-rows] [--node-bytes 61000] [--rounds 3] [--docs docs]

The reports are those of `bench.load_reports`; each node sends its own at its own time within the interval of 10 s. CPU
is that of all threads of the process, by the kernel's clock, for all reports after those of the first interval. The
clock is read when the server has counted them all, however long that takes on a busy machine: a report that was not
read would seem to cost nothing. ``--docs`` writes the figures there, and into the page of performance.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from tempfile import TemporaryFile
from time import monotonic
from typing import Any, NamedTuple

import grpc
import httpx

from bench.load_reports import (
    GOAL_CORE,
    GOAL_MB,
    INTERVAL_S,
    Fleet,
    extensions,
    fleet_parser,
    fleets_of,
    kept_reports,
    node_field,
)
from bench.peers.peer import Peer
from bench.suite import machine

READ_WITHIN_S, READ_PAUSE_S, SCRAPE_TIMEOUT_S = 240.0, 0.5, 120.0
# So little CPU in a pause, so many times in turn: nothing is left to read.
STILL_S, STILL_TIMES = 0.02, 6
METHOD = "/envoy.service.load_stats.v3.LoadReportingService/StreamLoadStats"
STREAMS_PER_CONNECTION = 20  # grpc.aio's connections are dear, and the server does not mind
FIXED_INTERVAL = {"XDS_LOAD__LONGEST_INTERVAL_S": "0"}  # under load, too
RESULTS = "load.json"
TITLE = "Load reports"
INTRODUCTION = """\
Reports as Envoy sends them, each node at its own time of the interval of 10 s: the clusters in another order in each
report, localities without traffic left out, the node of 61 kB repeated. Written by `python -m bench.load_served --docs
docs`. *CPU* is that of `xds serve`, all threads: CPU seconds for the reports of an interval, divided by its 10 s; the
first interval is left out. *Reading* is the part that turns the bytes of reports into counters. The rest is HTTP/2,
gRPC and the event loop.
"""
COLUMNS = (
    "commit", "nodes", "clusters", "localities with traffic", "order", "CPU", "us a cluster", "reading", "memory MB",
    "reports counted", "load average",
)  # fmt: skip
NOTE = """\
Goals: one locality with traffic under 0.5 of a core, three under 1.0, at most 1,000 MB, shuffled within 1.2 of ordered.
One process reads all reports. If that needs more than a core, several processes would have to read them, each for some
of the nodes, and merge their windows once a second.
"""
_COUNTED = re.compile(r"^xds_server_lrs_reports_total(?:\{[^}]*\})? (\S+)$", re.MULTILINE)
_READING = re.compile(r"^xds_server_lrs_reading_seconds_total (\S+)$", re.MULTILINE)


class Measured(NamedTuple):
    """Seconds of CPU for so many intervals, memory beyond that of a start, reports that were sent and counted.

    ``reading_s``: CPU for reading and counting them, as the server has it, those of the first round included.
    """

    cpu_s: float
    intervals: int
    memory_kb: int
    sent: int
    counted: int
    reading_s: float

    @property
    def core(self) -> float:
        """Cores for the reports of an interval, all along."""
        return self.cpu_s / self.intervals / INTERVAL_S


async def open_streams(target: str, fleet: Fleet, running: AsyncExitStack) -> list[Any]:
    """A stream for each node, which has said who it is and been told what to report."""
    streams: list[Any] = []
    tail = extensions(fleet)
    for node in range(fleet.nodes):
        if node % STREAMS_PER_CONNECTION == 0:
            options = [("grpc.use_local_subchannel_pool", 1)]
            channel = await running.enter_async_context(grpc.aio.insecure_channel(target, options))
        stream: Any = channel.stream_stream(METHOD)()
        await stream.write(node_field(fleet, node, tail))
        await stream.read()
        streams.append(stream)
    return streams


async def measure(fleet: Fleet, rounds: int) -> Measured:
    """One round that makes what the others find, and ``rounds`` of which the server's CPU is taken."""
    tail = extensions(fleet)
    with TemporaryFile() as file:
        reports = kept_reports(fleet, 1 + rounds, file)
        # All are made before the first is there, a minute or more; begun later, they would come late and in a burst.
        following = await asyncio.to_thread(next, reports)
        async with AsyncExitStack() as running:
            peer = await running.enter_async_context(Peer.start("ours", environment=FIXED_INTERVAL))
            begun_kb = peer.rss_kb()
            streams = await open_streams(peer.target, fleet, running)
            begin = monotonic() + 1.0
            cpu_s = peer.cpu_s()
            for number in range(fleet.nodes * (1 + rounds)):
                (node, _, report), following = following, await asyncio.to_thread(next, reports, following)
                if number == fleet.nodes:
                    cpu_s, begin = await until_read(peer.cpu_s), monotonic() - INTERVAL_S
                await asyncio.sleep(begin + number / fleet.nodes * INTERVAL_S - monotonic())
                await streams[node].write(node_field(fleet, node, tail) + report)
            sent = fleet.nodes * (1 + rounds)
            cpu_s = await until_read(peer.cpu_s) - cpu_s
            memory_kb = peer.rss_kb() - begun_kb
            return Measured(cpu_s, rounds, memory_kb, sent, *await counted(peer.admin))


async def until_read(cpu: Callable[[], float]) -> float:
    """The CPU time of the server once it has read all that was sent: when it has had nothing to do for some seconds.

    Other work on the machine may keep it waiting. It is not asked meanwhile: a scrape with so many clusters costs as
    much as some hundred reports.
    """
    until, before_s, still = monotonic() + READ_WITHIN_S, cpu(), 0
    while still < STILL_TIMES and monotonic() < until:
        await asyncio.sleep(READ_PAUSE_S)
        still = still + 1 if cpu() - before_s < STILL_S else 0
        before_s = cpu()
    return cpu()


async def counted(admin: str) -> tuple[int, float]:
    """How many reports the server has counted, and CPU for reading them."""
    async with httpx.AsyncClient(trust_env=False, timeout=SCRAPE_TIMEOUT_S) as client:
        text = (await client.get(f"{admin}/metrics")).text
    return round(sum(map(float, _COUNTED.findall(text)))), sum(map(float, _READING.findall(text)))


def told(fleet: Fleet, found: Measured) -> str:
    """A line for people."""
    core = found.core
    reading = found.reading_s / (found.sent / fleet.nodes) / INTERVAL_S
    cluster_us = core * INTERVAL_S / fleet.reported * 1e6
    return (
        f"{fleet}, served: {cluster_us:.2f} us per cluster,"
        f" {core:.2f} of a core at {INTERVAL_S:.0f} s (goal {GOAL_CORE}), {reading:.2f} of it reading;"
        f" {found.memory_kb / 1e3:.0f} MB (goal {GOAL_MB}); {found.counted} of {found.sent} reports counted"
    )


def row_of(fleet: Fleet, found: Measured) -> dict[str, Any]:
    """A row of the page of performance, by column."""
    core = found.core
    intervals = found.sent / fleet.nodes
    cells = (
        machine.commit(),
        fleet.nodes,
        fleet.clusters,
        f"{fleet.active:g} of {fleet.localities}",
        "ordered" if fleet.is_ordered else "shuffled",
        round(core, 2),
        round(core * INTERVAL_S / fleet.reported * 1e6, 2),
        round(found.reading_s / intervals / INTERVAL_S, 2),
        round(found.memory_kb / 1e3),
        f"{found.counted:,} of {found.sent:,}",
        round(machine.load(), 1),
    )
    return dict(zip(COLUMNS, cells, strict=True))


def section(folder: Path) -> Iterator[str]:
    """The section of the page of performance; nothing where nothing was measured."""
    path = folder / RESULTS
    if path.exists():
        yield f"## {TITLE}\n"
        yield INTRODUCTION
        header = (COLUMNS, tuple("---" for _ in COLUMNS))
        rows = [
            [f"{row[name]:,}" if name in ("nodes", "clusters") else str(row[name]) for name in COLUMNS]
            for row in json.loads(path.read_text())
        ]
        yield "\n".join(f"| {' | '.join(row)} |" for row in (*header, *rows)) + "\n"
        yield NOTE


def keep(row: dict[str, Any], docs: Path) -> None:
    """Add a row, in the place of the one of the same fleet and commit, and write the page anew."""
    from bench.envoys.__main__ import write_page

    path = docs / "performance" / RESULTS
    known = json.loads(path.read_text()) if path.exists() else []
    same = COLUMNS[:5]
    rows = [each for each in known if any(each[name] != row[name] for name in same)]
    path.write_text(json.dumps([*rows, row], indent=1) + "\n")
    write_page(docs)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = fleet_parser(__doc__, 3)
    parser.add_argument("--docs", type=Path)
    chosen = parser.parse_args(arguments)
    for fleet in fleets_of(chosen):
        found = asyncio.run(measure(fleet, chosen.rounds))
        print(told(fleet, found), flush=True)
        if chosen.docs:
            keep(row_of(fleet, found), chosen.docs)


if __name__ == "__main__":
    main()
