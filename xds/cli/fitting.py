"""Fits tables to the terminal: the widest cells are shortened, and columns that still do not fit are left out.

First to be left out are columns without any value, then those that a table can do without, then those at its right.

A row is never wrapped. Output to a file or a pipe has all columns with their full values.
"""

from __future__ import annotations

import shutil
import sys
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

GAP = 2
PROSE_LEAST = 24  # prose is shortened to this width before names are shortened
NAME_LEAST = 16
CELL_LEAST = 8  # names are shortened to this only if all columns then fit
_ELLIPSIS = "…"


@dataclass(frozen=True, slots=True)
class ColumnWidth:
    """The width of a column's header and of its widest cell; prose is shortened first, and at its end.

    ``leaves``: the place of the column among those that the table can do without; 0: it is not one of them.
    """

    header: int
    cell: int
    is_prose: bool = False
    leaves: int = 0
    is_empty: bool = False

    @property
    def wanted(self) -> int:
        """The width at which nothing is shortened."""
        return max(self.header, self.cell)


def terminal_width() -> int:
    """The width of the terminal; 0 if standard output is not a terminal. ``COLUMNS`` has precedence."""
    return shutil.get_terminal_size((0, 0)).columns if sys.stdout.isatty() else 0


def fitted(columns: Sequence[ColumnWidth], width: int) -> dict[int, int]:
    """The widths of the columns that fit into ``width``, by their positions. The other columns are left out."""
    kept = list(range(len(columns)))
    for position in (*_dispensable(columns), None):
        shown = [columns[at] for at in kept]
        readable = _narrowed(shown, NAME_LEAST, width)
        if total(readable) <= width or position is None or len(kept) == 1:
            break
        kept.remove(position)
    if total(readable) > width:
        narrowest = _narrowed(shown, CELL_LEAST, width)
        readable = narrowest if total(narrowest) <= width else _fitting_widths(readable, width) or [width]
    return dict(zip(kept, readable, strict=False))


def _dispensable(columns: Sequence[ColumnWidth]) -> list[int]:
    """The positions of the columns that a table can do without, the first to be left out first."""
    columns_to_drop = [at for at, column in enumerate(columns) if column.is_empty or column.leaves]
    return sorted(columns_to_drop, key=lambda at: (not columns[at].is_empty, columns[at].leaves))


def total(widths: Sequence[int]) -> int:
    """The width of a row."""
    return sum(widths) + GAP * (len(widths) - 1)


def _narrowed(columns: Sequence[ColumnWidth], least: int, width: int) -> list[int]:
    """The widths after prose is shortened, then all cells, to ``least`` at the least. Headers stay whole."""
    widths = [min(column.wanted, width) for column in columns]
    prose = [PROSE_LEAST if column.is_prose else width for column in columns]
    for step in (prose, [least] * len(columns)):
        _narrow(widths, [max(column.header, each) for column, each in zip(columns, step, strict=True)], width)
    return widths


def _fitting_widths(widths: Sequence[int], width: int) -> list[int]:
    ends = accumulate(widths, lambda end, each: end + GAP + each)
    return [each for each, end in zip(widths, ends, strict=True) if end <= width]


def _narrow(widths: list[int], least: Sequence[int], width: int) -> None:
    """Narrow the widest column above its least width, again and again, until the row fits or no such column is left."""
    for _ in range(total(widths) - width):
        widest = max(range(len(widths)), key=lambda at: (widths[at] > least[at], widths[at]))
        if widths[widest] <= least[widest]:
            return
        widths[widest] -= 1


def text_width(text: str) -> int:
    """The width of a printable text on a terminal."""
    return len(text) if text.isascii() else sum(map(_character_width, text))


def _character_width(character: str) -> int:
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in {"W", "F"} else 1


def shortened(text: str, width: int, at_end: bool) -> str:
    """The text, shortened to ``width`` at its end or in its middle: names often differ only at the end."""
    if text_width(text) <= width:
        return text
    tail = "" if at_end else _end(text, (width - 1) // 2)
    return f"{_start(text, width - 1 - text_width(tail))}{_ELLIPSIS}{tail}"


def _start(text: str, width: int) -> str:
    ends = accumulate(map(_character_width, text))
    return text[: sum(end <= width for end in ends)]


def _end(text: str, width: int) -> str:
    return _start(text[::-1], width)[::-1]
