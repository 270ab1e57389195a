"""Traffic assignment over a simulated fleet, faster than real time, under changing demand, faults and missing reports.

    python -m bench.assignment [--seed 1] [--only jump,flood] [--foresight] [--out docs/load-assignment]

Proxies in zones send at random, second by second, balance as Envoy does, and report every ten seconds, ten seconds
late. ``xds.steering.core.decide`` decides once an interval, and proxies follow a second later. Each scenario is also
run under a plain waterfall and with Envoy alone, and compared with the optimum of a linear program (nan without scipy:
bench/requirements.txt). ``--out`` writes the numbers of the scenarios with four zones there, draws them (this needs
matplotlib), and prints the table as the documentation has it. ``--foresight`` also prints the result of a control plane
that knows the mean demand in advance (`bench.zones.foresight`), with no more requests above capacity. The columns are
explained at ``bench.zones.figures.Row``; equal seeds give equal figures.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from bench.zones.control import Envoys, Plain
from bench.zones.figures import Row, figures, markdown, numbers, row, table
from bench.zones.foresight import foreseen
from bench.zones.nine_zones import NINE_ZONES
from bench.zones.plot import draw
from bench.zones.run import Run, run
from bench.zones.scenarios import FOUR_ZONES

SCENARIOS = (*FOUR_ZONES, *NINE_ZONES)


def main() -> None:
    """Run the scenarios, print the table, write the pictures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default=",".join(scenario.name for scenario in SCENARIOS))
    parser.add_argument("--foresight", action="store_true")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    known = {scenario.name: scenario for scenario in SCENARIOS}
    names = given.only.split(",")
    if unknown := [name for name in names if name not in known]:
        parser.error(f"no scenario {', '.join(unknown)}; there are {', '.join(known)}")
    began = time.perf_counter()
    runs = [run(known[name], given.seed) for name in names]
    rows = [row(one, run(one.scenario, given.seed, Plain), run(one.scenario, given.seed, Envoys)) for one in runs]
    for one in runs if given.foresight else ():
        bound = foreseen(one.scenario, given.seed, figures(one).above)
        print(
            f"{one.scenario.name} with foresight: {bound.above:.2%} above capacity, {bound.away:.1%} out of their zone"
        )
    simulated_h = sum(len(one.beats) * one.interval_s for one in runs) / 3_600
    print(f"{simulated_h:.1f} hours")
    print(markdown(rows) if given.out else table(rows))
    print(f"{simulated_h * 3_600 / (time.perf_counter() - began):.0f} times faster than real time", file=sys.stderr)
    if given.out:
        _write(runs, rows, given.out)


def _write(runs: Sequence[Run], rows: Sequence[Row], folder: Path) -> None:
    """One picture a scenario of four zones, and the numbers of all in ``simulation.json``."""
    folder.mkdir(parents=True, exist_ok=True)
    drawn = {scenario.name for scenario in FOUR_ZONES}
    told = {
        one.scenario.name: {"figures": asdict(figures), **(numbers(one) if one.scenario.name in drawn else {})}
        for one, figures in zip(runs, rows, strict=True)
    }
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(one, separators=(',', ':'))}" for name, one in told.items())
    (folder / "simulation.json").write_text(f"{{\n{lines}\n}}\n")

    for name in drawn & told.keys():
        draw(told[name], folder / f"{name.replace('_', '-')}.png")


if __name__ == "__main__":
    main()
