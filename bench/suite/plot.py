"""The plots of the report. Their numbers are those of the results, so they are in docs/performance/results.json."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from math import floor, log10
from pathlib import Path
from typing import Any

from bench.suite.report import PEERS
from bench.suite.results import Cell, Results

COLOURS = {
    "ours": "#1b6ca8",
    "ours-tls": "#7fb2d6",
    "go-snapshot": "#c8553d",
    "go-linear": "#e2a76f",
    "broadcaster": "#8d8d8d",
}
WIDTH_INCHES, HEIGHT_INCHES, DPI = 9.0, 4.2, 110
BAR = 0.2

Draw = Callable[[Any, Any, list[Cell]], None]


def draw(results: Results, folder: Path) -> dict[str, str]:
    """Draw what there are results for; file names by workload. Needs matplotlib (bench/requirements.txt)."""
    import_module("matplotlib").use("Agg")
    pyplot = import_module("matplotlib.pyplot")
    folder.mkdir(parents=True, exist_ok=True)
    drawn = {}
    for letter, (name, columns, plot) in PLOTS.items():
        cells = [cell for cell in results.cells.values() if cell.workload == letter]
        if not cells:
            continue
        figure, axes = pyplot.subplots(
            1, columns, figsize=(WIDTH_INCHES, HEIGHT_INCHES), layout="constrained", squeeze=False
        )
        plot(figure, axes[0], cells)
        # No date in the file: the same results make the same bytes.
        figure.savefig(folder / name, dpi=DPI, metadata={"Software": None})
        pyplot.close(figure)
        drawn[letter] = name
    return drawn


def present(folder: Path) -> dict[str, str]:
    """The plots that were drawn earlier."""
    return {letter: name for letter, (name, _, _) in PLOTS.items() if (folder / name).exists()}


def _bars(axis: Any, cells: list[Cell], figure: str, labels: list[str], unit: str) -> None:
    """Bars next to each other for each cell, on a logarithmic axis."""
    peers = [peer for peer in PEERS if any(cell.values(peer, figure) for cell in cells)]
    for place, peer in enumerate(peers):
        heights = [cell.median(peer, figure) or 0.0 for cell in cells]
        at = [index + (place - (len(peers) - 1) / 2) * BAR for index in range(len(cells))]
        axis.bar(at, heights, BAR, label=PEERS[peer], color=COLOURS[peer])
    smallest = min((value for cell in cells for peer in peers if (value := cell.median(peer, figure))), default=1.0)
    axis.set_yscale("log")
    axis.set_ylim(bottom=10 ** floor(log10(max(smallest, 1.0) * 0.9)))
    axis.set_ylabel(unit)
    axis.set_xticks(range(len(cells)), labels)
    axis.grid(axis="y", alpha=0.3)
    axis.set_axisbelow(True)


def _fan_out(figure: Any, axes: Any, cells: list[Cell]) -> None:
    for axis, variant in zip(axes, ("sotw", "delta"), strict=True):
        own = [cell for cell in cells if cell.conditions["variant"] == variant]
        labels = [f"{cell.conditions['changed']} of\n{cell.conditions['clusters']:,}" for cell in own]
        _bars(axis, own, "cpu_us", labels, "server CPU per push + ACK, us")
        axis.set_title("SotW" if variant == "sotw" else "Delta")
        axis.set_xlabel("clusters changed")
    _legend(figure, axes)


def _growth(figure: Any, axes: Any, cells: list[Cell]) -> None:
    for axis, variant in zip(axes, ("sotw", "delta"), strict=True):
        own = [cell for cell in cells if cell.conditions["variant"] == variant]
        for style, clusters in zip(("-", "--"), sorted({cell.conditions["clusters"] for cell in own}), strict=False):
            line = [cell for cell in own if cell.conditions["clusters"] == clusters]
            for peer in ("ours", "go-snapshot"):
                points = [(cell.conditions["streams"], cell.median(peer, "cpu_us")) for cell in line]
                label = f"{PEERS[peer]}, {clusters:,} clusters"
                axis.plot(*zip(*points, strict=True), style, marker="o", color=COLOURS[peer], label=label)
        axis.set_title("SotW, all changed" if variant == "sotw" else "Delta, one changed")
        axis.set_xscale("log")
        axis.set_yscale("log")
        axis.set_xlabel("streams")
        axis.set_ylabel("server CPU per push + ACK, us")
        axis.grid(alpha=0.3)
    _legend(figure, axes)


def _latency(figure: Any, axes: Any, cells: list[Cell]) -> None:
    for axis, variant in zip(axes, ("sotw", "delta"), strict=True):
        own = [cell for cell in cells if cell.conditions["variant"] == variant]
        for style, cell in zip(("-", "--"), own, strict=False):
            for peer in cell.figures:
                values = cell.values(peer, "latency_ms")
                shares = [(index + 1) / len(values) * 100 for index in range(len(values))]
                label = f"{PEERS[peer]}, {cell.conditions['streams']:,} streams"
                axis.plot([max(value, 0.1) for value in values], shares, style, color=COLOURS[peer], label=label)
        axis.set_title("SotW" if variant == "sotw" else "Delta")
        axis.set_xscale("log")
        axis.set_xlabel("from accepted push to last ACK, ms")
        axis.set_ylabel("share of pushes, %")
        axis.grid(alpha=0.3)
    _legend(figure, axes)


def _memory(figure: Any, axes: Any, cells: list[Cell]) -> None:
    for axis, variant in zip(axes, ("sotw", "delta"), strict=True):
        own = [cell for cell in cells if cell.conditions["variant"] == variant]
        labels = [f"{cell.conditions['clusters']:,}" for cell in own]
        _bars(axis, own, "stream_kb", labels, "resident memory per stream, kB")
        axis.set_title("SotW" if variant == "sotw" else "Delta")
        axis.set_xlabel("clusters")
    _legend(figure, axes)


def _storm(figure: Any, axes: Any, cells: list[Cell]) -> None:
    waits, memory = axes
    for style, cell in zip(("-", "--"), cells, strict=False):
        variant = "SotW" if cell.conditions["variant"] == "sotw" else "Delta"
        for peer, figures in cell.figures.items():
            label = f"{PEERS[peer]}, {variant}"
            answered = range(1, len(figures["waits_s"]) + 1)
            waits.plot(figures["waits_s"], answered, style, color=COLOURS[peer], label=label)
            memory.plot(figures["memory_at_s"], figures["memory_mb"], style, color=COLOURS[peer], label=label)
    waits.set_xlabel("since the stream was opened again, s")
    waits.set_ylabel("streams answered")
    memory.set_xlabel("since the cut, s")
    memory.set_ylabel("resident memory of the server, MB")
    for axis in axes:
        axis.set_ylim(bottom=0)
        axis.grid(alpha=0.3)
    _legend(figure, axes)


def _legend(figure: Any, axes: Any) -> None:
    """One for all axes, under them."""
    found: dict[str, Any] = {}
    for axis in axes:
        handles, labels = axis.get_legend_handles_labels()
        found.update(zip(labels, handles, strict=True))
    figure.legend(found.values(), found.keys(), loc="outside lower center", ncols=2, fontsize="small", frameon=False)


PLOTS: Mapping[str, tuple[str, int, Draw]] = {
    "a": ("cpu.png", 2, _fan_out),
    "c": ("latency.png", 2, _latency),
    "d": ("storm.png", 2, _storm),
    "e": ("memory.png", 2, _memory),
    "f": ("growth.png", 2, _growth),
}
