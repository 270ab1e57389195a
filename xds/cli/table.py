"""Lists as tables, documents or names. The columns do not depend on the terminal or on the data.

An author column has the authenticated actor and, in parentheses, what the client said about itself, which is not
verified.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from xds.cli.errors import CommandError, Exit
from xds.cli.output import Color, Format, age, is_colored, paint, printable, to_json, to_yaml, write

Json = dict[str, Any]

_GAP = "  "
_DIGITS = re.compile(r"(\d+)")


def no_style(item: Json) -> str:
    """No color."""
    return ""


@dataclass(frozen=True, slots=True)
class Column:
    """A column. ``cell`` gives the text of an item; for a column of times it gives an RFC 3339 time.

    ``style`` names a color of `paint`.
    """

    header: str
    cell: Callable[[Json], str]
    style: Callable[[Json], str] = no_style
    is_time: bool = False
    is_wide: bool = False


@dataclass(frozen=True, slots=True)
class TableLayout:
    """How items are shown; ``name`` is the text of an item for ``-o name``.

    ``in_order``: the items are ordered by a text with its numbers as numbers, unless another order is asked for.
    """

    name: Callable[[Json], str]
    columns: tuple[Column, ...]
    in_order: Callable[[Json], str] | None = None


@dataclass(frozen=True, slots=True)
class Style:
    """The options of a list. ``columns`` are headers in any case; ``limit`` 0 means all."""

    format: Format = Format.TABLE
    has_headers: bool = True
    columns: tuple[str, ...] = ()
    sort_by: str = ""
    limit: int = 0
    timestamps: bool = False
    color: Color = Color.AUTO

    @property
    def is_table(self) -> bool:
        """Whether the format is a table."""
        return self.format in {Format.TABLE, Format.WIDE}


def write_items(items: Iterable[Json], layout: TableLayout, style: Style) -> None:
    """Write a list. Raises ``CommandError`` for an unknown column."""
    if style.format is Format.JSONL:
        for item in chosen(items, layout, style):
            write(to_json(item, Format.JSONL))
    else:
        write(rendered(items, layout, style))


def rendered(items: Iterable[Json], layout: TableLayout, style: Style) -> str:
    """A list as text. Raises ``CommandError`` for an unknown column."""
    found = chosen(items, layout, style)
    match style.format:
        case Format.NAME:
            return "".join(f"{layout.name(item)}\n" for item in found)
        case Format.JSON:
            return to_json({"items": list(found)})
        case Format.YAML:
            return to_yaml({"items": list(found)})
        case Format.JSONL:
            return "".join(to_json(item, Format.JSONL) for item in found)
        case _:
            return _table(list(found), _columns(layout, style), style)


def chosen(items: Iterable[Json], layout: TableLayout, style: Style) -> Iterator[Json]:
    """The items in the requested order and number."""
    if style.sort_by:
        column = _named(layout, style.sort_by)
        items = sorted(items, key=lambda item: natural(column.cell(item)))
    elif layout.in_order is not None:
        by = layout.in_order
        items = sorted(items, key=lambda item: natural(by(item)))
    return islice(items, style.limit or None)


def _columns(layout: TableLayout, style: Style) -> Sequence[Column]:
    if style.columns:
        return [_named(layout, header) for header in style.columns]
    return [column for column in layout.columns if style.format is Format.WIDE or not column.is_wide]


def _named(layout: TableLayout, header: str) -> Column:
    for column in layout.columns:
        if column.header.casefold() == header.casefold():
            return column
    known = ", ".join(column.header.lower() for column in layout.columns)
    raise CommandError(Exit.USAGE, f"no such column: {header!r} (one of {known})")


def _table(items: Sequence[Json], columns: Sequence[Column], style: Style) -> str:
    rows = [[_text(column, item, style) for column in columns] for item in items]
    headers = [[column.header for column in columns]] if style.has_headers else []
    widths = [max((len(line[at]) for line in (*headers, *rows)), default=0) for at in range(len(columns))]
    colored = is_colored(style.color, sys.stdout)
    lines = [_line(header, widths, ["head"] * len(columns) if colored else ()) for header in headers]
    for item, row in zip(items, rows, strict=True):
        lines.append(_line(row, widths, [column.style(item) for column in columns] if colored else ()))
    return "".join(f"{line}\n" for line in lines)


def _line(cells: Sequence[str], widths: Sequence[int], styles: Sequence[str]) -> str:
    padded = [cell.ljust(width) for cell, width in zip(cells, widths, strict=True)]
    if cells:
        padded[-1] = cells[-1]
    painted = [paint(cell, style) for cell, style in zip(padded, styles, strict=True)] if styles else padded
    return _GAP.join(painted).rstrip()


def _text(column: Column, item: Json, style: Style) -> str:
    cell = column.cell(item)
    if column.is_time and not style.timestamps:
        return age(cell)
    return printable(" ".join(cell.split())) if cell else "-"


def natural(text: str) -> list[tuple[bool, int, str]]:
    """A sort key that compares numbers within a text as numbers: ``edge-9`` before ``edge-10``."""
    return [
        (part.isdecimal(), int(part) if part.isdecimal() else 0, part)
        for part in _DIGITS.split(text.casefold())
        if part
    ]


def who(item: dict[str, Any]) -> str:
    """``team-edge (root)``: the authenticated actor, and the claimed author if that differs."""
    actor, author = item.get("actor", ""), item.get("author", "")
    claimed = f"({author})" if author and author != actor else ""
    return " ".join(filter(None, (actor, claimed)))


def history_layout(what: Callable[[Json], str], size: Column) -> TableLayout:
    """The table of a history of revisions; ``what`` says what a revision is, ``size`` is the column of its size."""
    return TableLayout(
        name=lambda item: str(item["revision"]),
        columns=(
            Column("REVISION", lambda item: str(item["revision"])),
            Column("AGE", lambda item: item["time"], is_time=True),
            Column("AUTHOR", who),
            Column("WHAT", what, lambda item: "dim" if item["undone_by"] else ""),
            size,
            Column("MESSAGE", lambda item: item["message"]),
        ),
    )


def place(locality: Mapping[str, str]) -> str:
    """``region/zone/sub_zone``, without the parts that are empty."""
    return "/".join(filter(None, locality.values()))
