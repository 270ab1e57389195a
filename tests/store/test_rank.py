"""Ranks keep a list's order and move as little as they can."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from xds.store.rank import GAP, assign

ranks = st.lists(st.integers(-50, 50), unique=True)


def longest_increasing(values: list[int]) -> int:
    best = [0] * len(values)
    for n, value in enumerate(values):
        best[n] = 1 + max((best[m] for m in range(n) if values[m] < value), default=0)
    return max(best, default=0)


@given(ranks, st.data())
def test_assigned_ranks_increase_and_most_stay(given_ranks: list[int], data: st.DataObject) -> None:
    spaced: list[int | None] = [rank * GAP for rank in given_ranks]
    for _ in range(data.draw(st.integers(0, 5))):
        spaced.insert(data.draw(st.integers(0, len(spaced))), None)
    assigned = assign(spaced)
    assert all(low < high for low, high in pairwise(assigned))
    kept = sum(rank == place for rank, place in zip(spaced, assigned, strict=True))
    assert kept >= longest_increasing(given_ranks)


@given(ranks)
def test_without_room_all_ranks_are_assigned_again(given_ranks: list[int]) -> None:
    crowded = sorted(given_ranks)
    halfway = len(crowded) // 2
    assigned = assign([*crowded[:halfway], None, *crowded[halfway:]])
    assert all(low < high for low, high in pairwise(assigned))


def test_one_insert_moves_nothing_else() -> None:
    for place in range(4):
        listed: list[int | None] = [GAP, 2 * GAP, 3 * GAP]
        listed.insert(place, None)
        assigned = assign(listed)
        assert assigned[:place] + assigned[place + 1 :] == [GAP, 2 * GAP, 3 * GAP]


def test_inserting_at_one_place_again_and_again_keeps_the_order() -> None:
    listed = assign([None, None])
    for _ in range(100):
        listed = assign([listed[0], None, *listed[1:]])
        assert all(low < high for low, high in pairwise(listed))
