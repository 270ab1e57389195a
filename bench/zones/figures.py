"""What a run comes to, in numbers: a row of the table, and what is behind the plot."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, fields
from math import isfinite
from typing import Any

from bench.zones.run import Beat, Run

# Above capacity by less is noise of the last interval, which nobody could have seen coming.
_RELIEVED = 0.01


@dataclass(frozen=True, slots=True)
class Row:
    """Figures of one run. ``relieved`` is the most intervals from an event until no target is above its capacity.

    Utilisation is load by capacity, in percent: ``peak`` the highest, ``alone`` the highest if zones kept their own.
    ``above`` and ``away`` are percents of all requests, above a target's capacity and out of their zone; the ``least``
    are what no assignment could do better, knowing everything at once. ``changes`` are those of the source
    that changed most, an hour.
    """

    scenario: str
    intervals: str
    relieved: str
    peak: str
    alone: str
    above: str
    least_above: str
    away: str
    least_away: str
    changes: str


COLUMNS = tuple(field.name for field in fields(Row))


def row(run: Run) -> Row:
    """The figures of a run."""
    beats = run.beats
    hours = len(beats) * run.interval_s / 3_600
    alone = max(beat.alone for beat in beats)
    relieved = [_relieved(run, event) for event in run.scenario.events]
    return Row(
        run.scenario.name,
        str(len(beats)),
        str(max(relieved)) if relieved else "-",
        f"{max(max(beat.utilisation.values()) for beat in beats):.0%}",
        f"{alone:.0%}" if isfinite(alone) else "-",
        f"{_mean(beats, 'above'):.2%}",
        f"{_mean(beats, 'least_above'):.2%}",
        f"{_mean(beats, 'away'):.1%}",
        f"{_mean(beats, 'least_away'):.1%}",
        f"{max(Counter(name for beat in beats for name in beat.changed).values(), default=0) / hours:.1f}",
    )


def table(rows: list[Row]) -> str:
    """Rows in columns of equal width."""
    cells = [COLUMNS, *(tuple(getattr(one, name) for name in COLUMNS) for one in rows)]
    widths = [max(len(line[column]) for line in cells) for column in range(len(COLUMNS))]
    return "\n".join(
        "  ".join(cell.ljust(width) if not column else cell.rjust(width) for column, (cell, width) in enumerate(pairs))
        for pairs in (tuple(zip(line, widths, strict=True)) for line in cells)
    )


def numbers(run: Run) -> dict[str, Any]:
    """What the plot draws, rounded: parts by locality over the intervals."""
    names = list(run.beats[0].utilisation)
    return {
        "title": run.scenario.title,
        "source": str(run.scenario.shown),
        "interval_s": run.interval_s,
        "events": list(run.scenario.events),
        "figures": {name: getattr(row(run), name) for name in COLUMNS},
        "share": {str(name): [round(beat.shares.get(name, 0.0), 4) for beat in run.beats] for name in names},
        "utilisation": {str(name): [round(beat.utilisation[name], 4) for beat in run.beats] for name in names},
        "changed": [len(beat.changed) for beat in run.beats],
    }


def _relieved(run: Run, event: int) -> int:
    """Intervals from an event until no target is above its capacity that need not be."""
    late = (index for index, beat in enumerate(run.beats[event:]) if beat.above <= beat.least_above + _RELIEVED)
    return next(late, len(run.beats) - event)


def _mean(beats: list[Beat], name: str) -> float:
    return float(sum(getattr(beat, name) for beat in beats)) / len(beats)
