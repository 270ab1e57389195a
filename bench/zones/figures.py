"""The results of a run in numbers: a row of the table, and the data of the plot."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, fields
from math import isfinite
from typing import Any

from bench.zones.optimum import optimum
from bench.zones.run import Beat, Run

# Above capacity by less is noise of the last interval, which nobody could have seen coming.
_RELIEVED = 0.01


@dataclass(frozen=True, slots=True)
class Figures:
    """Figures of one run; parts of all requests. ``elsewhere``: what the regions lost most that are not shown."""

    relieved: int | None
    peak: float
    alone: float
    above: float
    elsewhere: float
    away: float
    abroad: float
    changes: float


@dataclass(frozen=True, slots=True)
class Row:
    """A row of the table.

    ``relieved`` is the most intervals from an event until no target is above its capacity. Utilisation is load by
    capacity, in percent: ``peak`` the highest, ``alone`` the highest if zones kept their own. ``above``, ``away`` and
    ``abroad`` are percents of all requests: above a target's capacity, out of their zone, out of their region.
    ``above plain`` and ``above envoy`` are those of a plain waterfall and of Envoy alone; the ``least`` are what no
    assignment could do better, knowing everything at once. ``elsewhere`` is what other regions lost. ``changes`` are
    those of the source that changed most, an hour.
    """

    scenario: str
    relieved: str
    peak: str
    alone: str
    above: str
    above_plain: str
    above_envoy: str
    least_above: str
    elsewhere: str
    away: str
    least_away: str
    abroad: str
    least_abroad: str
    changes: str
    changes_plain: str


COLUMNS = tuple(field.name for field in fields(Row))


def figures(run: Run) -> Figures:
    """The figures of a run."""
    beats = run.beats
    hours = len(beats) * run.interval_s / 3_600
    relieved = [_relieved(run, round(event / run.interval_s)) for event in run.scenario.events]
    shown = run.scenario.shown.region
    regions = {region for beat in beats for region in beat.lost} - {shown}
    lost = [sum(beat.lost.get(region, 0.0) for beat in beats) / len(beats) for region in regions]
    return Figures(
        max(relieved) if relieved else None,
        max(max(beat.utilisation.values()) for beat in beats),
        max(beat.alone for beat in beats),
        _mean(beats, "above"),
        max(lost, default=0.0),
        _mean(beats, "away"),
        _mean(beats, "abroad"),
        max(Counter(name for beat in beats for name in beat.changed).values(), default=0) / hours,
    )


def row(run: Run, plain: Run, envoy: Run) -> Row:
    """The product's run beside those of a plain waterfall and of Envoy alone, and the optimum. Needs scipy."""
    own, other = figures(run), figures(plain)
    best = [(optimum(beat.demand, beat.capacity), sum(beat.demand.values())) for beat in run.beats]
    above, away, abroad = (
        sum(getattr(found, name) / total for found, total in best) / len(best) for name in ("above", "away", "abroad")
    )
    return Row(
        run.scenario.name,
        "-" if own.relieved is None else str(own.relieved),
        f"{own.peak:.0%}",
        f"{own.alone:.0%}" if isfinite(own.alone) else "-",
        f"{own.above:.2%}",
        f"{other.above:.2%}",
        f"{figures(envoy).above:.2%}",
        f"{above:.2%}",
        f"{own.elsewhere:.2%}",
        f"{own.away:.1%}",
        f"{away:.1%}",
        f"{own.abroad:.1%}",
        f"{abroad:.1%}",
        f"{own.changes:.1f}",
        f"{other.changes:.1f}",
    )


def table(rows: list[Row]) -> str:
    """Rows in columns of equal width."""
    cells = [COLUMNS, *(tuple(getattr(one, name) for name in COLUMNS) for one in rows)]
    widths = [max(len(line[column]) for line in cells) for column in range(len(COLUMNS))]
    return "\n".join(
        "  ".join(cell.ljust(width) if not column else cell.rjust(width) for column, (cell, width) in enumerate(pairs))
        for pairs in (tuple(zip(line, widths, strict=True)) for line in cells)
    )


def markdown(rows: list[Row]) -> str:
    """The rows as a table for the documentation."""
    head = [name.replace("_", " ") for name in COLUMNS]
    lines = [head, ["---"] * len(head), *([getattr(one, name) for name in COLUMNS] for one in rows)]
    lines[2:] = [[line[0].replace("_", " "), *line[1:]] for line in lines[2:]]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def numbers(run: Run) -> dict[str, Any]:
    """What the plot draws, rounded: parts by locality over the intervals."""
    names = list(run.beats[0].utilisation)
    return {
        "title": run.scenario.title,
        "source": str(run.scenario.shown),
        "interval_s": run.interval_s,
        "events": [round(event / run.interval_s) for event in run.scenario.events],
        "share": {str(name): [round(beat.shares.get(name, 0.0), 3) for beat in run.beats] for name in names},
        "utilisation": {str(name): [round(beat.utilisation[name], 3) for beat in run.beats] for name in names},
        "changed": [len(beat.changed) for beat in run.beats],
    }


def _relieved(run: Run, event: int) -> int:
    """Intervals from an event until no target is above its capacity that need not be."""
    late = (index for index, beat in enumerate(run.beats[event:]) if beat.above <= beat.least_above + _RELIEVED)
    return next(late, len(run.beats) - event)


def _mean(beats: Sequence[Beat], name: str) -> float:
    return float(sum(getattr(beat, name) for beat in beats)) / len(beats)
