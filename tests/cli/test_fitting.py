"""Tables within a width: what is shortened, and what is left out."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from xds.cli.fitting import ColumnWidth, fitted, shortened, text_width, total

WIDTHS = st.builds(ColumnWidth, st.integers(1, 14), st.integers(0, 60), st.booleans(), st.integers(0, 3), st.booleans())


@given(st.lists(WIDTHS, min_size=1, max_size=12), st.integers(20, 200))
def test_rows_fit_whatever_the_columns(columns: list[ColumnWidth], width: int) -> None:
    widths = fitted(columns, width)
    assert widths
    assert list(widths) == sorted(set(widths) & set(range(len(columns))))
    assert total(list(widths.values())) <= width
    wanted = [column.wanted for column in columns]
    if total(wanted) <= width:
        assert widths == dict(enumerate(wanted))


def test_prose_is_shortened_before_names() -> None:
    name, message = ColumnWidth(4, 40), ColumnWidth(7, 200, is_prose=True)
    assert fitted([name, message], 80) == {0: 40, 1: 38}
    assert fitted([name, message], 60) == {0: 34, 1: 24}


def test_columns_are_left_out_before_names_become_unreadable() -> None:
    assert sorted(fitted([ColumnWidth(4, 40)] * 3, 30).values()) == [8, 9, 9]  # all have room
    assert fitted([ColumnWidth(4, 40)] * 6, 50) == {0: 16, 1: 16}  # they have not


def test_columns_without_values_are_left_out_first_then_those_that_one_can_do_without() -> None:
    name, note = ColumnWidth(4, 16), ColumnWidth(4, 24, is_prose=True)
    agent, zone = ColumnWidth(5, 16, leaves=2), ColumnWidth(4, 16, leaves=1)
    empty = ColumnWidth(3, 1, is_empty=True)
    columns = [name, agent, zone, empty, note]
    assert list(fitted(columns, 90)) == [0, 1, 2, 3, 4]
    assert list(fitted(columns, 74)) == [0, 1, 2, 4]
    assert list(fitted(columns, 69)) == [0, 1, 4]
    assert list(fitted(columns, 50)) == [0, 4]


def test_names_keep_both_ends_and_prose_its_beginning() -> None:
    assert shortened("edge-of-the-region-17", 9, at_end=False) == "edge…n-17"
    assert shortened("The certificate expired", 9, at_end=True) == "The cert…"
    assert shortened("short", 9, at_end=True) == "short"


@given(st.text(alphabet="ab漢é\u0301", max_size=30), st.integers(1, 30), st.booleans())
def test_wide_and_combining_characters_are_counted(text: str, width: int, at_end: bool) -> None:
    assert text_width(shortened(text, width, at_end)) <= width
