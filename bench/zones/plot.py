"""One picture of a run: where the requests of a zone go over time, and the utilisation of the localities."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

COLOURS = ("#1b6ca8", "#c8553d", "#e2a76f", "#8d8d8d")
WIDTH_INCHES, HEIGHT_INCHES, DPI = 9.0, 5.2, 110


def draw(numbers: Mapping[str, Any], path: Path) -> None:
    """Draw what ``figures.numbers`` gives. Needs matplotlib (bench/requirements.txt)."""
    import_module("matplotlib").use("Agg")
    pyplot = import_module("matplotlib.pyplot")
    figure, (shares, loads) = pyplot.subplots(
        2, 1, figsize=(WIDTH_INCHES, HEIGHT_INCHES), layout="constrained", sharex=True
    )
    names = list(numbers["share"])
    minutes = [index * numbers["interval_s"] / 60 for index in range(len(numbers["changed"]))]
    _stack(shares, minutes, numbers)
    for name, colour in zip(names, COLOURS, strict=False):
        loads.plot(minutes, [value * 100 for value in numbers["utilisation"][name]], color=colour, linewidth=1.1)
    loads.axhline(100, color="black", linewidth=0.8, linestyle="--")
    loads.set_ylim(bottom=0)
    loads.set_ylabel("load, % of capacity")
    loads.set_xlabel("minutes")
    loads.set_xlim(minutes[0], minutes[-1])
    loads.grid(alpha=0.3)
    for axis in (shares, loads):
        for event in numbers["events"]:
            axis.axvline(minutes[event], color="black", linewidth=0.6, alpha=0.4)
    figure.suptitle(numbers["title"])
    # No date in the file: the same numbers make the same bytes.
    figure.savefig(path, dpi=DPI, metadata={"Software": None})
    pyplot.close(figure)


def _stack(axis: Any, minutes: Sequence[float], numbers: Mapping[str, Any]) -> None:
    rows = [[value * 100 for value in values] for values in numbers["share"].values()]
    axis.stackplot(minutes, rows, labels=list(numbers["share"]), colors=COLOURS[: len(rows)])
    axis.set_ylim(0, 100)
    axis.set_ylabel(f"share of the requests\nof {numbers['source']}, %")
    axis.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False)
