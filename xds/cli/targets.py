"""The targets of a policy as a table: how full each one is, and the decided share beside the real one."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from xds.cli.output import Color, Format
from xds.cli.table import Column, Style, TableLayout, rendered

Json = dict[str, Any]

FULL = 0.9  # of its capacity; a waterfall fills a zone to the middle of the hysteresis band, 95 % by default
OVER = 1.005
APART = 0.1  # a decided and a real share that differ by more
BAR_LEAST, BAR_MOST, BAR_ELSEWHERE = 10, 40, 20
_EIGHTHS = "▏▎▍▌▋▊▉█"
_GAP = 2


def targets_text(items: Iterable[Json], style: Style) -> str:
    """The targets of all items, with a bar that fits the terminal; nothing where there are none."""
    rows = [row for item in items for row in _rows(item)]
    if not rows or style.format not in {Format.TABLE, Format.WIDE} or style.columns:
        return ""
    plain = Style(style.format, style.has_headers, timestamps=style.timestamps, color=style.color)
    return rendered(rows, _view(_bar_width(rows, plain)), plain)


def bar(part: float | None, width: int) -> str:
    """A part as a bar of ``width`` cells, full from 1 on; with ``#`` where the terminal has no block characters."""
    filled = min(max(part or 0.0, 0.0), 1.0) * width
    whole = int(filled)
    if not _has_blocks():
        return f"[{'#' * round(filled):-<{width}}]"
    rest = int((filled - whole) * 8)
    return f"{'█' * whole + (_EIGHTHS[rest - 1] if rest else ''):░<{width}}"


def _rows(item: Json) -> Iterator[Json]:
    for target in item["targets"]:
        yield {**target, "cluster": item["cluster"], "place": _place(target["locality"])}


def _view(width: int) -> TableLayout:
    columns = (
        Column("CLUSTER", lambda row: row["cluster"]),
        Column("TARGET", lambda row: row["place"]),
        Column("HEALTHY", lambda row: f"{row['healthy']}/{row['endpoints']}", _health_style),
        Column("LOAD", lambda row: f"{row['load_rps']:.1f}"),
        Column("CAPACITY", lambda row: f"{row['capacity_rps']:.4g}"),
        Column("FULL", lambda row: _percent(row["utilisation"]), _full_style),
        *((Column("", lambda row: bar(row["utilisation"], width), _full_style),) if width else ()),
        Column("DECIDED", lambda row: _percent(row["decided_share"])),
        Column("REAL", lambda row: _percent(row["real_share"]), _real_style),
        Column("PRIORITY", lambda row: str(row["pushed_priority"]), is_wide=True),
        Column("DECIDED-RPS", lambda row: f"{row['decided_rps']:.1f}", is_wide=True),
        Column("METRICS", lambda row: ",".join(f"{k}={v:.3g}" for k, v in row["metrics"].items()), is_wide=True),
    )
    return TableLayout(lambda row: f"{row['cluster']} {row['place']}", columns)


def _bar_width(rows: list[Json], style: Style) -> int:
    """What the other columns leave of the terminal's width; 0 where that is too little for a bar."""
    if not sys.stdout.isatty():
        return BAR_ELSEWHERE
    uncolored = Style(style.format, style.has_headers, color=Color.NEVER)
    widest = max(map(len, rendered(rows, _view(0), uncolored).splitlines()), default=0)
    left = shutil.get_terminal_size().columns - widest - _GAP - (0 if _has_blocks() else 2)
    return min(left, BAR_MOST) if left >= BAR_LEAST else 0


def _has_blocks() -> bool:
    try:
        f"{_EIGHTHS}░".encode(sys.stdout.encoding or "utf-8")
    except (UnicodeError, LookupError):
        return False
    return True


def _place(locality: Mapping[str, str]) -> str:
    return "/".join(filter(None, locality.values()))


def _percent(part: float | None) -> str:
    return "" if part is None else f"{part:.0%}"


def _health_style(row: Json) -> str:
    return "good" if row["healthy"] == row["endpoints"] else "warn" if row["healthy"] else "bad"


def _full_style(row: Json) -> str:
    part = row["utilisation"]
    if part is None:
        return "dim"
    return "bad" if part > OVER else "warn" if part >= FULL else "good"


def _real_style(row: Json) -> str:
    decided, real = row["decided_share"], row["real_share"]
    return "warn" if decided is not None and real is not None and abs(decided - real) > APART else ""
