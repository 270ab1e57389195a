"""The order of names in lists."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from xds.model.natural_order import OrderedNames, natural_key

NAMES = st.text(alphabet="abAB-./0129٣é", max_size=12)


def test_numbers_within_names_count_as_numbers() -> None:
    names = ["c10", "c2", "C3", "c", "c-1", "a1b10", "a1b9", "1.10", "1.9", "c002"]
    assert sorted(names, key=natural_key) == ["1.9", "1.10", "a1b9", "a1b10", "c", "c-1", "c002", "c2", "C3", "c10"]


@given(st.integers(0, 10**30), st.integers(0, 10**30))
def test_numbers_of_any_length(one: int, other: int) -> None:
    assert (natural_key(f"n{one}") < natural_key(f"n{other}")) is (one < other)


@given(NAMES, NAMES)
def test_different_names_have_different_places(one: str, other: str) -> None:
    assert (natural_key(one) == natural_key(other)) is (one == other)


@given(st.lists(NAMES), st.lists(NAMES), NAMES)
def test_ordered_names_are_a_sorted_set(added: list[str], removed: list[str], after: str) -> None:
    names = OrderedNames()
    for name in added:
        names.add(name)
    for name in removed:
        names.discard(name)
    expected = sorted(set(added) - set(removed), key=natural_key)
    assert names.after("") == expected
    if after:
        assert names.after(after) == [name for name in expected if natural_key(name) > natural_key(after)]
