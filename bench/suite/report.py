"""docs/performance.md: the results in words and tables."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from bench import chain
from bench.envoys import section
from bench.suite.goals import Verdict, judge_all
from bench.suite.results import Cell, Results
from bench.suite.scale import ROUNDS
from bench.suite.workloads import WORKLOADS, Workload

PEERS = {
    "ours": "ours",
    "ours-tls": "ours, TLS",
    "go-snapshot": "go-control-plane, snapshot cache",
    "go-linear": "go-control-plane, linear cache",
    "broadcaster": "bare grpc.aio broadcaster",
    "libraries": "the libraries alone",
}
BUSY_PER_CORE = 2

INTRODUCTION = """\
# Performance

Written by `make bench` (`make bench-quick` measures the smaller part of it) from `docs/performance/results.json`, which
holds every round behind these tables.

## How it is measured

All servers of a cell run at the same time on one machine, with as many streams each; rounds alternate between them, so
that whatever else the machine does meets all of them. A round is a push, and the wait for the ACK of every stream. Two
rounds of each warm up, the medians of at least five more are kept. Ratios are of medians in one cell. Never compare
microseconds of different runs: the same run again differs by a fifth.

In the storm (d) and with idle streams (e) a round is a run of its own: one server at a time is started anew, and the
servers alternate round by round; the tables show medians of these rounds as well. Where a server had fewer than five,
its row says how many: the goals of the storm are about ours alone, so go-control-plane has one round of it.

* **CPU per push + ACK**: user and system time of the server's process, all threads, by the kernel's clock of that
  process, from before the push until the server has nothing left to do after the last ACK, over the number of streams.
  Building the snapshot is in it, and for our server the whole admin call: HTTP, parsing, checks, the store. *Without
  streams* is the same push with nobody connected, spread over as many streams: subtract it to compare with a library
  that is handed its snapshot in memory. The goals are judged with all of it.
* **Wall time**: *answer to last ACK* begins when the push is answered (by our admin API; by `SetSnapshot` returning),
  *call to last ACK* when it is sent. `SetSnapshot` puts the snapshot into the cache and then builds the responses of
  all streams, so what it takes from its answer on leaves out most of its work. A push is accepted, for the goal, when
  ours is answered (durable, published) and when theirs is in the cache, which is at once: our first column is compared
  with their second. The comparison of the calls has our HTTP request in it as well.
* **Memory**: resident memory of the server's process; the kernel's socket buffers are in nobody's figure.
* **Ours** is `xds serve` with its memory store, pushed to in protobuf; (g) has JSON and the store on disk.
* **Peers**: go-control-plane with its snapshot cache and with its linear cache, the same resources; and a broadcaster
  over bare `grpc.aio` that sends one ready message to each stream and drops what comes back, with no protocol at all,
  as what gRPC's own transport takes. The programs are in `bench/peers`.
* **Load**: raw HTTP/2 from processes of their own (`bench/load`), one per 2,500 streams, each stream on a connection of
  its own. The generator's CPU per ACK stands in the tables: it shares the cores with the servers.
"""

MARK = """\
A ratio says our figure over the peer's; in brackets the least and the most of rounds that followed each other."""


def render(
    results: Results,
    plots: Mapping[str, str],
    profile: str,
    fleets: Results | None = None,
    chains: Iterable[str] = (),
) -> str:
    """The whole page. ``plots`` are file names by workload, ``profile`` a section written by hand.

    ``fleets`` is what ``python -m bench.envoys`` has measured, ``chains`` the section of ``python -m bench.chain``.
    """
    parts = [INTRODUCTION, *_machine(results.machine), "## Goals\n", MARK + "\n", *_busy(results)]
    verdicts = judge_all(results)
    parts += (_goals(verdicts), *_reasons(verdicts))
    if profile:
        parts.append(profile.rstrip() + "\n")
    for letter, workload in WORKLOADS.items():
        cells = [cell for cell in results.cells.values() if cell.workload == letter]
        if cells:
            parts += _workload(letter, workload, cells, plots)
    if fleets is not None and fleets.cells:
        parts += (f"## {section.TITLE}\n", *section.section(fleets))
    parts += chains
    return "\n".join(parts)


def write(results: Results, page: Path, plots: Mapping[str, str]) -> None:
    """Write the page; of its folder ``profile.md`` goes in as it is, and what other benches have measured."""
    folder = page.with_suffix("")
    written_by_hand = folder / "profile.md"
    profile = written_by_hand.read_text() if written_by_hand.exists() else ""
    fleets = Results.load(folder / section.RESULTS)
    page.write_text(render(results, plots, profile, fleets, chain.section(folder)))


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [header, ["---"] * len(header), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def number(value: float | None) -> str:
    """Three significant digits, or as many as stand before the point."""
    if value is None:
        return ""
    return f"{value:,.0f}" if abs(value) >= 100 or value == int(value) else f"{value:.3g}"


def _machine(machine: Mapping[str, Any]) -> list[str]:
    if not machine:
        return []
    rows = [[name.replace("_", " "), f"{value}"] for name, value in machine.items()]
    return ["## The machine\n", table(["", ""], rows)]


def _busy(results: Results) -> Iterator[str]:
    """A warning where the machine had more to do than the bench: that takes two runnable processes a core at most."""
    limit = BUSY_PER_CORE * results.machine.get("cores", 1)
    letters = sorted({cell.workload for cell in results.cells.values() if cell.load > limit})
    if letters:
        yield (
            f"**The machine was busy with other work** (load average above {limit:g}) while some cells of"
            f" {', '.join(letters)} were measured: their verdicts are provisional.\n"
        )


def _goals(verdicts: Iterable[Verdict]) -> str:
    rows, before = [], ""
    for verdict in verdicts:
        goal = verdict.goal
        rows.append([goal.workload if goal.workload != before else "", goal.what, *_judged(verdict)])
        before = goal.workload
    return table(["workload", "", "goal", "measured", "verdict", "figures"], rows)


def _reasons(verdicts: Iterable[Verdict]) -> Iterator[str]:
    """Why goals are missed, as far as that is known."""
    goals = [verdict.goal for verdict in verdicts if verdict.is_missed and verdict.goal.why]
    if goals:
        yield "### What is missed, and why\n"
        yield "".join(f"* **{goal.workload}, {goal.what}**.\n  {_indented(goal.why)}\n" for goal in goals)


def _indented(text: str) -> str:
    return text.replace("\n", "\n  ")


def _judged(verdict: Verdict) -> Iterator[str]:
    goal = verdict.goal
    unit = "" if goal.peer else f" {goal.unit}".rstrip()
    yield f"{'below' if goal.below else 'at most'} {goal.bound:g}{unit}"
    several = verdict.high > verdict.low
    spread = f" ({number(verdict.low)} to {number(verdict.high)})" if several else ""
    yield "" if verdict.value is None else f"{number(verdict.value)}{unit}{spread}"
    yield verdict.word
    against = f"{number(verdict.ours)} / {number(verdict.theirs)} {goal.unit}; " if verdict.theirs is not None else ""
    missed = f"; missed in {verdict.misses} of {verdict.cells} cells" if verdict.misses and verdict.cells > 1 else ""
    yield f"{against}`{verdict.cell}`{missed}" if verdict.cell else ""


def _workload(letter: str, workload: Workload, cells: Sequence[Cell], plots: Mapping[str, str]) -> Iterator[str]:
    title = f"({letter}) {workload.title}" if len(letter) == 1 else workload.title
    yield f"## {title}\n"
    yield workload.text + "\n"
    rows = [row for cell in cells for row in _rows(cell, workload)]
    yield table(["cell", "streams", "server", *workload.columns.values()], rows)
    loads = [cell.load for cell in cells]
    scales = ", ".join(sorted({cell.scale for cell in cells}))
    days = sorted({cell.measured_at[:10] for cell in cells})
    commits = ", ".join(sorted({f"`{cell.commit}`" for cell in cells if cell.commit}))
    yield f"Measured {' and '.join(days)} at {commits} ({scales}), load average {min(loads):.1f} to {max(loads):.1f}.\n"
    if letter in plots:
        yield f"![{workload.title}](performance/{plots[letter]})\n"


def _rows(cell: Cell, workload: Workload) -> Iterator[list[str]]:
    """A row for each server, and under ours the ratios."""
    streams = number(cell.conditions.get("streams"))
    for place, peer in enumerate(cell.figures):
        figures = [_figure(cell, peer, name) for name in workload.columns]
        server = PEERS.get(peer, peer) + _few(cell, peer, workload)
        yield [f"`{cell.key}`" if place == 0 else "", streams if place == 0 else "", server, *figures]


def _few(cell: Cell, peer: str, workload: Workload) -> str:
    """How many rounds the server had, where these are fewer than the goals ask for."""
    rounds = max(len(cell.values(peer, name)) for name in workload.columns)
    if not workload.in_rounds or not 0 < rounds < ROUNDS:
        return ""
    return f" ({rounds} round{'s' if rounds > 1 else ''})"


def _figure(cell: Cell, peer: str, name: str) -> str:
    """The median; for a peer, the ratio of ours to it behind."""
    value = cell.median(peer, name)
    ours = cell.median("ours", name)
    shown = number(value)
    compared = name in {"cpu_us", "wall_ms", "call_ms", "p50", "p99", "stream_kb", "pushed_kb", "connect_us"}
    if peer == "ours" or not value or not ours or not compared:
        return shown
    return f"{shown} (x {number(ours / value)})"
