"""Measure, and write docs/performance.md.

    python -m bench.suite --quick|--all [--only a,node,b] [--rounds 5]
    python -m bench.suite --report

Every cell is written when it is measured, so an interrupted run keeps its results; ``--only`` replaces the cells
of those workloads and leaves the others as they were. ``--report`` measures nothing and writes the page again.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import httpx

from bench.load.fleet import FleetError
from bench.peers.child import PeerError
from bench.suite import machine, report
from bench.suite.goals import judge_all
from bench.suite.results import Results
from bench.suite.scale import ALL, QUICK
from bench.suite.stage import Stage
from bench.suite.workloads import WORKLOADS

DOCS = machine.REPOSITORY / "docs"
FAILURES = (AssertionError, OSError, RuntimeError, TimeoutError, FleetError, PeerError, httpx.HTTPError)
# A server of ours that is ended closes its streams at once: nobody waits for it.
DRAIN = {"XDS_SERVER__DRAIN_S": "0"}


async def measure(stage: Stage, letters: Sequence[str]) -> list[str]:
    """Run the workloads one after the other; those that failed. The others do not suffer from them."""
    failed = []
    for letter in letters:
        print(f"({letter}) {WORKLOADS[letter].title}", flush=True)
        try:
            await WORKLOADS[letter].run(stage)
        except FAILURES as error:
            print(f"({letter}) failed: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
            failed.append(letter)
    return failed


def write_report(results: Results, docs: Path) -> None:
    """The page; the verdicts are printed too."""
    report.write(docs / "performance.md")
    for verdict in judge_all(results):
        value = "" if verdict.value is None else f"{verdict.value:.3g}"
        print(f"{verdict.goal.workload}: {verdict.goal.what}: {value} ({verdict.goal.bound:g}) {verdict.word}")


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    chosen = parser.add_mutually_exclusive_group(required=True)
    chosen.add_argument("--quick", dest="scale", action="store_const", const=QUICK)
    chosen.add_argument("--all", dest="scale", action="store_const", const=ALL)
    chosen.add_argument("--report", action="store_true")
    parser.add_argument("--only", default=",".join(WORKLOADS), help="workloads, separated by commas")
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--docs", type=Path, default=DOCS, help="where the page and the results are")
    arguments = parser.parse_args()
    letters = arguments.only.split(",")
    if unknown := set(letters) - set(WORKLOADS):
        parser.error(f"no workload {', '.join(sorted(unknown))}: there are {', '.join(WORKLOADS)}")
    path = arguments.docs / "performance" / report.RESULTS
    results, failed = Results.load(path), []
    if not arguments.report:
        results.machine = machine.describe()
        os.environ.update(DRAIN)
        scale = arguments.scale.in_rounds(arguments.rounds) if arguments.rounds else arguments.scale
        failed = asyncio.run(measure(Stage(scale, results, path), letters))
    write_report(results, arguments.docs)
    if failed:
        raise SystemExit(f"failed: {', '.join(failed)}")


if __name__ == "__main__":
    main()
