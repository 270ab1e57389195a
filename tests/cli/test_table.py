"""Lists as text: columns, order, number, formats."""

from __future__ import annotations

import json
import re

import pytest
import yaml

from xds.cli import output
from xds.cli.commands.events import event_line
from xds.cli.errors import CommandError, Exit
from xds.cli.node_table import NODES, nodes_layout
from xds.cli.output import Color, Format, paint
from xds.cli.table import Column, Style, TableLayout, cell_text, rendered
from xds.cli.wait import late

VIEW = TableLayout(
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


NASTY = "esc\x1b]0;PWN\x07\x1b[31mRED \x9b2J\u202etfel\rback\x7f"


def test_control_characters_are_escaped_in_cells() -> None:
    """A proxy chooses its node id and the messages of its NACKs, so they may contain control sequences."""
    for color in Color:
        text = rendered([{"name": NASTY, "note": NASTY, "time": ""}], VIEW, Style(color=color))
        shown = re.sub(r"[0-9a-f]{32}\x1b\[[0-9]+m", "", text)  # ours
        assert shown.replace("\n", "").isprintable()
        assert r"esc\x1b]0;PWN\x07\x1b[31mRED \x9b2J\u202etfel back\x7f" in shown


@pytest.mark.parametrize("format", [Format.JSON, Format.JSONL])
def test_json_has_no_control_characters_and_is_otherwise_unchanged(format: Format) -> None:
    text = rendered([{"name": NASTY}], VIEW, Style(format))
    assert not set(text) & {"\x1b", "\x07", "\x9b", "\x7f", "\r"}
    document = json.loads(text)
    assert (document["items"][0] if format is Format.JSON else document)["name"] == NASTY


def test_only_sequences_of_our_own_reach_the_stream(capsys: pytest.CaptureFixture[str]) -> None:
    output.write(f"{paint('red', 'bad')} \x1b[31mnot\x1b[0m\ttab {NASTY}\n")
    output.print_error(f"xds: {NASTY}")
    written = capsys.readouterr()
    assert written.out.startswith("\x1b[31mred\x1b[0m \\x1b[31mnot\\x1b[0m\ttab esc\\x1b]0;PWN\\x07\\x1b[31mRED")
    assert not set(written.out[14:] + written.err) & {"\x1b", "\x07", "\x9b", "\x7f", "\r"}


def test_a_name_stays_one_line() -> None:
    """A script reads a name per line: a proxy must not add lines by its node id."""
    assert rendered([{"name": "a\nb\u202e"}], VIEW, Style(Format.NAME)) == "a\\nb\\u202e\n"


def test_a_type_that_a_proxy_asks_for_is_no_line_of_the_table() -> None:
    layout = nodes_layout([{"types": {"x/a\r\n\u202eb": {}}}])
    assert "X/A \\u202eB" in [column.header for column in layout.columns]


def test_a_wait_shows_one_line_a_node() -> None:
    told = late({"pending": 1, "pending_nodes": ["a\nxds: done\u202e"], "held": []})
    assert told == "timed out waiting for 1 node: a xds: done\\u202e"


def test_an_event_stays_one_line() -> None:
    event = {"kind": "nack", "time": "t", "node": "a\nb\x1b[2J", "message": "x\n\x1b]0;y\x07"}
    assert event_line(event) == "t  nack  node=a\\nb\\x1b[2J  x \\x1b]0;y\\x07\n"


def test_a_node_that_only_reports_load_is_up() -> None:
    (up,) = (column for column in NODES.columns if column.header == "UP")
    load = {"opened": TIME, "load": {}}
    assert not cell_text(up.cell, {"streams": [load], "connected": True, "last_seen": TIME}).startswith("gone")
    assert cell_text(up.cell, {"streams": [], "connected": False, "last_seen": TIME}).startswith("gone")
