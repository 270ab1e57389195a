"""Tables within a width: what is shortened, and what is left out."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from xds.cli.fitting import ColumnWidth, fitted, shortened, text_width, total

WIDTHS = st.builds(ColumnWidth, st.integers(1, 14), st.integers(0, 60), st.booleans())


@given(st.lists(WIDTHS, min_size=1, max_size=12), st.integers(20, 200))
def test_rows_fit_whatever_the_columns(columns: list[ColumnWidth], width: int) -> None:
    widths = fitted(columns, width)
    assert 1 <= len(widths) <= len(columns)
    assert total(widths) <= width
    wanted = [column.wanted for column in columns]
    if total(wanted) <= width:
        assert widths == wanted


def test_prose_is_shortened_before_names() -> None:
    name, message = ColumnWidth(4, 40), ColumnWidth(7, 200, is_prose=True)
    assert fitted([name, message], 80) == [40, 38]
    assert fitted([name, message], 60) == [34, 24]


def test_columns_are_left_out_before_names_become_unreadable() -> None:
    assert sorted(fitted([ColumnWidth(4, 40)] * 3, 30)) == [8, 9, 9]  # all have room
    assert fitted([ColumnWidth(4, 40)] * 6, 50) == [16, 16]  # they have not


def test_names_keep_both_ends_and_prose_its_beginning() -> None:
    assert shortened("edge-of-the-region-17", 9, at_end=False) == "edge…n-17"
    assert shortened("The certificate expired", 9, at_end=True) == "The cert…"
    assert shortened("short", 9, at_end=True) == "short"


@given(st.text(alphabet="ab漢é\u0301", max_size=30), st.integers(1, 30), st.booleans())
def test_wide_and_combining_characters_are_counted(text: str, width: int, at_end: bool) -> None:
    assert text_width(shortened(text, width, at_end)) <= width
