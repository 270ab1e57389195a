"""Lists as text: columns, order, number, formats."""

from __future__ import annotations

import json

import pytest
import yaml

from xds.cli.failure import CommandError, Exit
from xds.cli.output import Color, Format
from xds.cli.table import Column, Style, View, rendered

VIEW = View(
    name=lambda item: str(item["name"]),
    columns=(
        Column("NAME", lambda item: item["name"]),
        Column("NOTE", lambda item: item["note"], lambda item: "bad"),
        Column("AGE", lambda item: item["time"], is_time=True),
        Column("MORE", lambda item: "more", is_wide=True),
    ),
)
TIME = "2020-01-01T00:00:00.000Z"
ITEMS = [
    {"name": name, "note": note, "time": TIME} for name, note in (("n-10", "a\n b"), ("n-9", ""), ("n-1", "x" * 300))
]


def lines(style: Style, items: list[dict[str, str]] = ITEMS) -> list[str]:
    return rendered(items, VIEW, style).splitlines()


def test_cells_are_one_line_each_and_never_cut_off() -> None:
    head, first, second, third = lines(Style(columns=("name", "NOTE")))
    assert head.split() == ["NAME", "NOTE"]
    assert first.split(maxsplit=1) == ["n-10", "a b"]
    assert second.split() == ["n-9", "-"]
    assert "x" * 300 in third


def test_columns_stand_below_their_headers() -> None:
    head, first, *_ = lines(Style(columns=("note", "name")))
    assert head.index("NAME") == first.index("n-10")


def test_the_same_columns_without_items() -> None:
    assert lines(Style(), []) == ["NAME  NOTE  AGE"]
    assert lines(Style(Format.WIDE), []) == ["NAME  NOTE  AGE  MORE"]
    assert lines(Style(has_headers=False), []) == []


def test_order_knows_numbers_within_names() -> None:
    assert lines(Style(Format.NAME, sort_by="name")) == ["n-1", "n-9", "n-10"]


def test_limit_is_taken_of_the_order() -> None:
    assert lines(Style(Format.NAME, sort_by="name", limit=2)) == ["n-1", "n-9"]
    assert lines(Style(Format.NAME, limit=1)) == ["n-10"]


def test_times_instead_of_ages() -> None:
    assert TIME in lines(Style(timestamps=True))[1]
    assert TIME not in lines(Style())[1]


def test_documents() -> None:
    assert json.loads(rendered(ITEMS, VIEW, Style(Format.JSON))) == {"items": ITEMS}
    assert yaml.safe_load(rendered(ITEMS, VIEW, Style(Format.YAML))) == {"items": ITEMS}
    assert [json.loads(line) for line in lines(Style(Format.JSONL))] == ITEMS


@pytest.mark.parametrize("style", [Style(columns=("typo",)), Style(sort_by="typo")])
def test_unknown_columns_are_wrong_usage(style: Style) -> None:
    with pytest.raises(CommandError, match="one of name, note, age, more") as caught:
        lines(style)
    assert caught.value.code is Exit.USAGE


def test_colors_when_asked_for_only() -> None:
    assert "\x1b[31m" in rendered(ITEMS, VIEW, Style(color=Color.ALWAYS))
    assert "\x1b" not in rendered(ITEMS, VIEW, Style())  # nobody's terminal
    assert "\x1b" not in rendered(ITEMS, VIEW, Style(color=Color.NEVER))
