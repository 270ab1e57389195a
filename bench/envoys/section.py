"""The section of docs/performance.md, and the same for whoever watches: what is measured, in words and tables."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence

from bench.envoys.fleet import VARIANTS
from bench.envoys.kinds import KINDS
from bench.suite.latency import quantile
from bench.suite.results import Cell, Results

RESULTS = "envoys.json"
BUSY_PER_CORE = 2
TITLE = "Fleets of real Envoys"
SERVERS = {"ours": "ours", "go-snapshot": "go-control-plane, snapshot cache"}
PLACES = {"native": "Native processes", "containers": "Containers of docker-compose.yml"}
HEADER = (
    "cell", "server", "ACK p50, ms", "p99, ms", "last Envoy, ms", "lost", "of requests", "CPU, us", "CPU in all, us",
    "removed after, s",
)  # fmt: skip

INTRODUCTION = """\
Pushes to fleets of real Envoys that carry keep-alive load. Both servers run at the same time on the same machine, each
with a fleet of its own: the same nodes, the same resources, the same load; their pushes alternate. The last part of a
cell's name is the kind of push, the number before it how many Envoys each server has. Written by
`python -m bench.envoys` from `docs/performance/envoys.json`.

{kinds}

* **Envoys**: one worker thread each, Envoy's default drain time and strategy, one ADS stream.
  {load}
* **Push**: to ours, a transaction of the admin API that puts and deletes in JSON (HTTP, parsing, checks, store and all
  are in its figures); to go-control-plane, `SetSnapshot` in ADS mode, with ordered answers (SotW), of resources that
  were parsed before: a Go program has them as messages, and what it takes to make them is not in its figures.
* **ACK**: both servers are watched by the same relay between them and the Envoys, which reads along. An Envoy has a
  push when it has ACKed responses with all the resources that the push put, byte by byte; the time runs from the call
  until that ACK has been read from the Envoy's socket. *p50* and *p99* are over all pushes and Envoys, *last Envoy* is
  the median over the pushes.
* **Lost**: answers other than 200, resets and timeouts, of all requests from before the first of these pushes
  until {trailing} behind the last one where something is removed. An Envoy keeps old connections on what they began
  with for as long as it drains a listener, and they ask for a cluster that is gone in vain.
* **CPU**: user and system time of the server by push and Envoy, from the call until it has nothing left to do after the
  last ACK, the median. *In all*, where something is removed: that of the whole time in which requests are counted,
  divided by pushes and Envoys, less what the server takes without pushes. It has removals in it that a server makes
  later; what it takes without pushes is a good part of it where there are few Envoys, so read it with many.
* **Removed after**: from the call until the last Envoy has ACKed that the old cluster is gone, the median; empty where
  nothing goes, or where it had not gone by the end.
"""

ON_DISK = """\
Our server is the service `xds`, which has its store on disk, and is reached through the ports that it publishes; the
Envoys are those of its image in the network of the host; go-control-plane is the native process of above."""


def section(results: Results) -> Iterator[str]:
    """The parts of the section, without its heading; nothing where nothing was measured."""
    cells = sorted(results.cells.values(), key=_place)
    if not cells:
        return
    yield _introduction(cells)
    for place, title in PLACES.items():
        own = [cell for cell in cells if cell.workload == place]
        if own:
            yield f"### {title}\n"
            if place == "containers":
                yield ON_DISK + "\n"
            yield _table(HEADER, [row for cell in own for row in rows(cell)])
            yield _told_by_ours(own)
            yield _measured(own) + _busy(own, results.machine.get("cores", 1))
    if not any(cell.workload == "containers" for cell in cells):
        yield f"Not measured in containers: {results.machine.get('docker', 'no Docker')}\n"


def told(cell: Cell) -> Iterator[str]:
    """Lines for whoever watches."""
    yield f"{cell.key}, load average {cell.load:.1f}"
    for row in rows(cell):
        figures = [f"{name} {value}" for name, value in zip(HEADER[2:], row[2:], strict=True) if value]
        yield f"  {row[1]:34} {'; '.join(figures)}"
    samples = [*cell.conditions["refused"], *(words for own in cell.conditions["samples"].values() for words in own)]
    yield from (f"  {words}" for words in samples[:3])


def rows(cell: Cell) -> Iterator[list[str]]:
    """A row for each server."""
    for place, server in enumerate(cell.figures):
        acks = cell.values(server, "ack_ms")
        yield [
            f"`{cell.key}`" if place == 0 else "",
            SERVERS[server],
            _number(quantile(acks, 0.5)),
            _number(quantile(acks, 0.99)),
            *(_number(cell.median(server, name)) for name in ("last_ms", "lost", "requests", "cpu_us", "whole_us")),
            _number(cell.median(server, "removed_s")),
        ]


def _place(cell: Cell) -> tuple[str, int, int, int]:
    """Where a cell stands: kinds in the order in which they are told of."""
    place, variant, count, kind = cell.key.split("/")
    return place, list(VARIANTS).index(variant), int(count), list(KINDS).index(kind)


def _introduction(cells: Sequence[Cell]) -> str:
    named = {cell.key.rpartition("/")[2] for cell in cells}
    kinds = "\n".join(f"* `{kind.name}`: {kind.text}" for kind in KINDS.values() if kind.name in named)
    conditions = cells[0].conditions
    load = (
        f"{conditions['rps']:g} requests a second go through each fleet, over {conditions['connections']} connections"
        f" to each Envoy; {conditions['clusters']} further EDS\n  clusters never change."
    )
    return INTRODUCTION.format(load=load, kinds=kinds, trailing=f"{conditions['trailing_s']:g} s")


def _told_by_ours(cells: Sequence[Cell]) -> str:
    """How far our server's own account of the ACKs is from what was seen on the wire."""
    apart = [
        quantile(cell.values("ours", "told_ms"), 0.5) - quantile(cell.values("ours", "ack_ms"), 0.5)
        for cell in cells
        if cell.values("ours", "told_ms")
    ]
    if not apart:
        return ""
    return (
        "By our server's own account (`since` in `GET /nodes`: all ACKs behind the push, removals included) the p50 is"
        f"\n{statistics.median(apart):+.1f} ms from that of the relay ({min(apart):+.1f} to {max(apart):+.1f} over the"
        " cells).\n"
    )


def _measured(cells: Sequence[Cell]) -> str:
    days = sorted({cell.measured_at[:10] for cell in cells})
    commits = ", ".join(sorted({f"`{cell.commit}`" for cell in cells if cell.commit}))
    pushes = sorted({cell.conditions["pushes"] for cell in cells})
    loads = [cell.load for cell in cells]
    return (
        f"Measured {' and '.join(days)} at {commits}, {' or '.join(map(str, pushes))} pushes a cell and server,"
        f" load average {min(loads):.1f} to {max(loads):.1f}.\n"
    )


def _busy(cells: Sequence[Cell], cores: int) -> str:
    """A warning where the machine had more to do than the bench: that takes two runnable processes a core at most."""
    limit = BUSY_PER_CORE * cores
    busy = sum(cell.load > limit for cell in cells)
    if not busy:
        return ""
    return (
        f"**The machine was busy with other work** (load average above {limit:g}) in {busy} of {len(cells)} cells:"
        " their times are provisional.\n"
    )


def _table(header: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    whole = [header, ["---"] * len(header), *lines]
    return "".join(f"| {' | '.join(line)} |\n" for line in whole)


def _number(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:,.0f}" if abs(value) >= 100 or value == int(value) else f"{value:.3g}"
