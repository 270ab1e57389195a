"""Attacks on a running server, and what a good client beside them notices.

    python -m bench.attacks [--only rapid-reset,large-nodes] [--seconds 8]

Each attack has a server of its own, and a process of its own. The good client opens a connection, asks for clusters on
a stream and closes both, over and over: first alone, then beside the attack. Writes docs/performance/attacks.json and
the section of docs/performance.md; what is measured is said there.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from threading import Event, Thread

from bench.suite import machine
from bench.suite.latency import quantile
from bench.suite.process import cpu_s, rss_kb
from bench.suite.results import Cell, Results
from tests.attack.attacks import ATTACKS, HEAVY, Over, Ports, heavy_resources
from tests.attack.bystander import GROUP, Bystander
from tests.support import resources as r
from tests.support.server import ServerProcess

DOCS = Path(__file__).parents[1] / "docs"
RESULTS = "attacks.json"
TITLE = "Attacks"
ALONE, BESIDE, SERVER = "alone", "beside", "server"
SECONDS = 8.0
PAUSE_S = 0.02  # of the good client
SAMPLE_S = 0.1
WARM_UP_S = 1.0
HEADER = (
    "attack", "alone p50, ms", "alone p99, ms", "beside p50, ms", "beside p99, ms", "longest, ms", "answers",
    "server CPU, cores", "memory before, MB", "at most, MB",
)  # fmt: skip

INTRODUCTION = """\
One attack at a time on a server of its own (`tests/attack/attacks.py` has what each does), for {seconds:g} s, as fast
as one process of Python can; server, attacker and good client share the machine. The good client opens a connection,
asks for clusters on a stream, gets them and closes both, {pause:g} ms after the last; *alone* before the attack and
*beside* it, from the connection to the answer. The server's CPU is in cores (1 is all that its event loop can take),
its memory the resident set; all shared the machine with other work, as the load average below says, so that a wait is
longer than the CPU that it is for. A connection that is cut comes back at once: an attacker who does so is held off by
a firewall, not by the server. Written by `python -m bench.attacks` from `docs/performance/attacks.json`.
"""


def measure(name: str, seconds: float, directory: Path) -> Cell:
    """One attack. Raises ``AssertionError`` where the good client was refused."""
    with ServerProcess(directory, ["--store", "memory"]) as server:
        server.push(GROUP, [r.static_cluster("served")])
        server.push(HEAVY, heavy_resources())
        pid = server.process.pid
        good(server, WARM_UP_S)
        before_mb = rss_kb(pid) / 1e3
        alone = good(server, seconds)
        over = multiprocessing.get_context("spawn").Event()
        ports = Ports(server.grpc_port, server.http_port)
        attacking = multiprocessing.get_context("spawn").Process(target=run, args=(name, ports, over), daemon=True)
        attacking.start()
        try:
            time.sleep(WARM_UP_S)  # until the other process has imported what it needs
            began_s, began_cpu_s = time.monotonic(), cpu_s(pid)
            with sampled(pid) as peak:
                beside = good(server, seconds)
            cores = (cpu_s(pid) - began_cpu_s) / (time.monotonic() - began_s)
        finally:
            over.set()
            attacking.join(timeout=60)
            attacking.kill()
        assert server.process.running
    return Cell(
        key=f"attacks/{name}",
        conditions={"seconds": seconds},
        figures={
            ALONE: {"answer_s": alone},
            BESIDE: {"answer_s": beside},
            SERVER: {"cores": [cores], "before_mb": [before_mb], "peak_mb": [max(peak.seen_mb, default=before_mb)]},
        },
        measured_at=machine.now(),
        commit=machine.commit(),
        load=machine.load(),
    )


def run(name: str, ports: Ports, over: Over) -> None:
    """The attacker's process."""
    ATTACKS[name](ports, over)


def good(server: ServerProcess, seconds: float) -> list[float]:
    """How long each answer took that the good client got within so many seconds."""
    with Bystander(server.grpc_port, PAUSE_S) as client:
        end = time.monotonic() + seconds
        while time.monotonic() < end or not client.taken_s:
            assert not client.failures, client.failures
            time.sleep(SAMPLE_S)
    assert not client.failures, client.failures
    return client.taken_s


class sampled:  # noqa: N801 - used as a statement
    """The memory of a process while the body runs."""

    def __init__(self, pid: int) -> None:
        self.seen_mb: list[float] = []
        self._pid = pid
        self._over = Event()
        self._thread = Thread(target=self._look, daemon=True)

    def _look(self) -> None:
        while not self._over.wait(SAMPLE_S):
            self.seen_mb.append(rss_kb(self._pid) / 1e3)

    def __enter__(self) -> sampled:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()


def row(cell: Cell) -> tuple[str, ...]:
    """A line of the table."""
    alone, beside = cell.values(ALONE, "answer_s"), cell.values(BESIDE, "answer_s")
    cores, before_mb, peak_mb = (cell.values(SERVER, name)[0] for name in ("cores", "before_mb", "peak_mb"))
    times = (quantile(alone, 0.5), quantile(alone, 0.99), quantile(beside, 0.5), quantile(beside, 0.99), max(beside))
    shown = (f"{each:,.0f}" if each >= 1_000 else f"{each:.3g}" for each in (time_s * 1e3 for time_s in times))
    name = cell.key.partition("/")[2]
    return (name, *shown, f"{len(beside)}", f"{cores:.2f}", f"{before_mb:.0f}", f"{peak_mb:.0f}")


def section(results: Results) -> Iterator[str]:
    """The parts of the section, without its heading."""
    cells = list(results.cells.values())
    if not cells:
        return
    yield INTRODUCTION.format(seconds=cells[0].conditions["seconds"], pause=PAUSE_S * 1e3)
    lines = [HEADER, ("---",) * len(HEADER), *((f"`{name}`", *rest) for name, *rest in map(row, cells))]
    yield "".join(f"| {' | '.join(line)} |\n" for line in lines)
    commits = ", ".join(f"`{commit}`" for commit in sorted({cell.commit for cell in cells}))
    yield (
        f"Measured {max(cell.measured_at for cell in cells)[:10]} at {commits}, load average"
        f" {min(cell.load for cell in cells):.1f} to {max(cell.load for cell in cells):.1f}.\n"
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(ATTACKS), help="names, by commas")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="alone, and as long beside the attack")
    parser.add_argument("--docs", type=Path, default=DOCS, help="where the page and the results are")
    parser.add_argument("--report", action="store_true", help="measure nothing, write the page again")
    chosen = parser.parse_args(arguments)
    path = chosen.docs / "performance" / RESULTS
    results = Results.load(path)
    os.environ["GRPC_VERBOSITY"] = "NONE"
    print("good client beside attacks:", " | ".join(HEADER))
    for name in [] if chosen.report else chosen.only.split(","):
        with tempfile.TemporaryDirectory() as directory:
            cell = measure(name, chosen.seconds, Path(directory))
        results.machine = machine.describe()
        results.put(cell)
        results.save(path)
        print(*row(cell), flush=True)
    write_page(chosen.docs)


def write_page(docs: Path) -> None:
    """The page, with the plots that are there."""
    from bench.suite import plot, report

    folder = docs / "performance"
    report.write(Results.load(folder / "results.json"), docs / "performance.md", plot.present(folder))


if __name__ == "__main__":
    main()
