"""Lists as tables, documents or names. The columns do not depend on the data; on a terminal, a table fits its width.

An author column has the authenticated actor and, in parentheses, what the client said about itself, which is not
verified.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from xds.cli.errors import CommandError, Exit
from xds.cli.fitting import GAP, ColumnWidth, fitted, shortened, terminal_width, text_width, total
from xds.cli.output import (
    Color,
    Format,
    age,
    is_colored,
    is_quiet,
    one_line,
    paint,
    printable,
    say,
    to_json,
    to_yaml,
    write,
)
from xds.model.natural_order import natural_key

Json = dict[str, Any]
Cell = str | Callable[[Json], str]

EMPTY_CELL = "-"
_GAP = " " * GAP
_MORE = " …"  # after the headers of a table without some of its columns


def no_style(item: Json) -> str:
    """No color."""
    return ""


@dataclass(frozen=True, slots=True)
class Column:
    """A column. ``cell`` is the member of an item that it shows, or a function that returns the text.

    With ``is_time`` that is an RFC 3339 time. ``style`` returns the name of a color of `paint`. ``is_prose``: a text,
    such as a message, that is shortened at its end. ``leaves``: on a narrow terminal this column is left out as the
    1st, 2nd ... before others become unreadable.
    """

    header: str
    cell: Cell
    style: Callable[[Json], str] = no_style
    is_time: bool = False
    is_wide: bool = False
    is_prose: bool = False
    leaves: int = 0


def cell_text(cell: Cell, item: Json) -> str:
    """The text of an item in a cell; empty for null."""
    if callable(cell):
        return cell(item)
    return "" if item[cell] is None else str(item[cell])


@dataclass(frozen=True, slots=True)
class TableLayout:
    """How items are shown; ``name`` is the text of an item for ``-o name``.

    ``in_order``: the text by which items are sorted in natural order, unless ``--sort-by`` is given.
    """

    name: Cell
    columns: tuple[Column, ...]
    in_order: Cell | None = None


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


def write_items(items: Iterable[Json], layout: TableLayout, style: Style, empty: str = "") -> None:
    """Write a list; ``empty`` as of `rendered`. Raises ``CommandError`` for an unknown column."""
    if style.format is Format.JSONL:
        for item in chosen(items, layout, style):
            write(to_json(item, Format.JSONL))
    else:
        write(rendered(items, layout, style, empty))


def rendered(items: Iterable[Json], layout: TableLayout, style: Style, empty: str = "") -> str:
    """A list as text. Raises ``CommandError`` for an unknown column.

    ``empty`` is a sentence for a table without rows: it replaces the headers on a terminal, and is a message otherwise.
    """
    chosen_items = chosen(items, layout, style)
    match style.format:
        case Format.NAME:
            names = dict.fromkeys(printable(cell_text(layout.name, item)) for item in chosen_items)  # each once
            return "".join(f"{name}\n" for name in names)
        case Format.JSON:
            return to_json({"items": list(chosen_items)})
        case Format.YAML:
            return to_yaml({"items": list(chosen_items)})
        case Format.JSONL:
            return "".join(to_json(item, Format.JSONL) for item in chosen_items)
        case _:
            rows, columns = list(chosen_items), _columns(layout, style)
            return _table(rows, columns, style) if rows or not empty else _empty_table(columns, style, empty)


def chosen(items: Iterable[Json], layout: TableLayout, style: Style) -> Iterator[Json]:
    """The items in the requested order and number."""
    if style.sort_by:
        column = _column(layout, style.sort_by)
        items = sorted(items, key=lambda item: natural_key(cell_text(column.cell, item)))
    elif layout.in_order is not None:
        by = layout.in_order
        items = sorted(items, key=lambda item: natural_key(cell_text(by, item)))
    return islice(items, style.limit or None)


def _columns(layout: TableLayout, style: Style) -> Sequence[Column]:
    if style.columns:
        return [_column(layout, header) for header in style.columns]
    return [column for column in layout.columns if style.format is Format.WIDE or not column.is_wide]


def _column(layout: TableLayout, header: str) -> Column:
    for column in layout.columns:
        if column.header.casefold() == header.casefold():
            return column
    known = ", ".join(column.header.lower() for column in layout.columns)
    raise CommandError(Exit.USAGE, f"no such column: {header!r} (one of {known})")


def _empty_table(columns: Sequence[Column], style: Style, empty: str) -> str:
    if sys.stdout.isatty() and not is_quiet():
        return "".join(f"{printable(line)}\n" for line in empty.splitlines())
    say(empty)
    return _table([], columns, style)


def _table(items: Sequence[Json], columns: Sequence[Column], style: Style) -> str:
    rows = [[_text(column, item, style) for column in columns] for item in items]
    widths = [_width(column, [row[at] for row in rows], style) for at, column in enumerate(columns)]
    wanted = [width.wanted for width in widths]
    screen = terminal_width()
    is_wide = bool(screen) and total(wanted) > screen
    fitting = fitted(widths, screen - text_width(_MORE)) if is_wide else dict(enumerate(wanted))
    left_out = [column.header for at, column in enumerate(columns) if at not in fitting]
    shown = [[row[at] for at in fitting] for row in rows]
    lines = list(_lines(items, shown, [columns[at] for at in fitting], list(fitting.values()), style))
    if left_out and style.has_headers:
        lines[0] += _MORE
    if is_wide and not is_quiet():
        lines.append(shortened(_note(left_out), screen, at_end=True))
    return "".join(f"{line}\n" for line in lines)


def _lines(
    items: Sequence[Json], rows: Sequence[Sequence[str]], columns: Sequence[Column], widths: Sequence[int], style: Style
) -> Iterator[str]:
    """The headers, and a line for each item."""
    colored = is_colored(style.color, sys.stdout)
    if style.has_headers:
        headers = [column.header for column in columns]
        yield _line(_shortened(headers, columns, widths), widths, ["head"] * len(columns) if colored else ())
    for item, row in zip(items, rows, strict=True):
        styles = [column.style(item) for column in columns] if colored else ()
        yield _line(_shortened(row, columns, widths), widths, styles)


def _width(column: Column, cells: Sequence[str], style: Style) -> ColumnWidth:
    header = text_width(column.header) if style.has_headers else 0
    is_empty = bool(cells) and set(cells) == {EMPTY_CELL}
    return ColumnWidth(header, max(map(text_width, cells), default=0), column.is_prose, column.leaves, is_empty)


def _shortened(cells: Sequence[str], columns: Sequence[Column], widths: Sequence[int]) -> list[str]:
    """The cells of the shown columns, shortened to their widths."""
    return [shortened(cell, width, column.is_prose) for cell, column, width in zip(cells, columns, widths, strict=True)]


def _note(left_out: Sequence[str]) -> str:
    """The note below a shortened table."""
    without = f", without {', '.join(left_out)}" if left_out else ""
    return f"(shortened; append `| cat` for all{without})"


def _line(cells: Sequence[str], widths: Sequence[int], styles: Sequence[str]) -> str:
    padded = [cell + " " * (width - text_width(cell)) for cell, width in zip(cells, widths, strict=True)]
    if cells:
        padded[-1] = cells[-1]
    painted = [paint(cell, style) for cell, style in zip(padded, styles, strict=True)] if styles else padded
    return _GAP.join(painted).rstrip()


def _text(column: Column, item: Json, style: Style) -> str:
    cell = cell_text(column.cell, item)
    if column.is_time and not style.timestamps:
        return age(cell)
    return one_line(cell) if cell else EMPTY_CELL


def actor_text(item: dict[str, Any]) -> str:
    """``team-edge (root)``: the authenticated actor, and the claimed author if that differs."""
    actor, author = item.get("actor", ""), item.get("author", "")
    claimed = f"({author})" if author and author != actor else ""
    return " ".join(filter(None, (actor, claimed)))


def history_layout(what: Callable[[Json], str], size: Column) -> TableLayout:
    """The table of a history of revisions. ``what`` describes a revision; ``size`` is the column of its size."""
    return TableLayout(
        name="revision",
        columns=(
            Column("REVISION", "revision"),
            Column("AGE", "time", is_time=True),
            Column("AUTHOR", actor_text),
            Column("WHAT", what, lambda item: "dim" if item["undone_by"] else "", is_prose=True),
            size,
            Column("MESSAGE", "message", is_prose=True),
        ),
    )


def locality_text(locality: Mapping[str, str]) -> str:
    """``region/zone/sub_zone``, without the parts that are empty."""
    return "/".join(filter(None, locality.values()))
