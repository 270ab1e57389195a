"""Traffic assignment over a simulated fleet, faster than real time: what becomes of demand, faults and missing reports.

    python -m bench.assignment [--proxies 3000] [--seed 1] [--only jump,zone_loss] [--out docs/load-assignment]

Proxies in four zones send by chance, balance as Envoy does and report every ten seconds; the pure computation of
``xds.assignment.decide`` is asked once an interval, and its decision is served with the next. With ``--out``, the
numbers behind every row are written there and drawn (needs matplotlib: bench/requirements.txt). The columns are
explained at ``bench.zones.figures.Row``; equal parameters give equal figures.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

from bench.zones.figures import numbers, row, table
from bench.zones.plot import draw
from bench.zones.run import Run, run
from bench.zones.scenarios import SCENARIOS


def main() -> None:
    """Run the scenarios, print the table, write the pictures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--proxies", type=int, default=3_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default=",".join(scenario.name for scenario in SCENARIOS))
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    known = {scenario.name: scenario for scenario in SCENARIOS}
    names = given.only.split(",")
    if unknown := [name for name in names if name not in known]:
        parser.error(f"no scenario {', '.join(unknown)}; there are {', '.join(known)}")
    began = time.perf_counter()
    runs = [run(known[name], given.proxies, given.seed) for name in names]
    simulated_h = sum(len(one.beats) * one.interval_s for one in runs) / 3_600
    print(f"{given.proxies} proxies, {simulated_h:.1f} hours")
    print(table([row(one) for one in runs]))
    print(f"{simulated_h * 3_600 / (time.perf_counter() - began):.0f} times faster than real time", file=sys.stderr)
    if given.out:
        _write(runs, given.out)


def _write(runs: list[Run], folder: Path) -> None:
    """One picture a scenario, and the numbers of all in ``simulation.json``."""
    folder.mkdir(parents=True, exist_ok=True)
    told = {one.scenario.name: numbers(one) for one in runs}
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(one, separators=(',', ':'))}" for name, one in told.items())
    (folder / "simulation.json").write_text(f"{{\n{lines}\n}}\n")
    for name, one in told.items():
        draw(one, folder / f"{name.replace('_', '-')}.png")


if __name__ == "__main__":
    main()
