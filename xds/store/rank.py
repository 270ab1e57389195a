"""Ranks: integers that store the order of a list in a table, so that an insertion changes one row. Pure."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from itertools import pairwise

GAP = 1 << 24  # allows 2**39 appended resources, and 24 insertions at one place before all ranks are assigned again


def assign(ranks: Sequence[int | None]) -> list[int]:
    """Strictly increasing ranks for a list. As many given ranks as possible are kept (None: a new member)."""
    given = [rank for rank in ranks if rank is not None]
    if not given:
        return _spaced_ranks(len(ranks))
    if len(given) == len(ranks) and all(low < high for low, high in pairwise(given)):
        return given
    return _fill_gaps(ranks, _longest_increasing(ranks))


def _spaced_ranks(count: int) -> list[int]:
    return list(range(GAP, GAP * (count + 1), GAP))


def _fill_gaps(ranks: Sequence[int | None], kept_indices: Sequence[int]) -> list[int]:
    """Keep the ranks at ``kept_indices`` and put the others in between; where there is no room, assign all again."""
    assigned: list[int] = []
    low: int | None = None
    for start, stop in pairwise([-1, *kept_indices, len(ranks)]):
        high = ranks[stop] if stop < len(ranks) else None
        filling = _ranks_between(low, high, stop - start - 1)
        if filling is None:
            return _spaced_ranks(len(ranks))
        assigned += filling if high is None else [*filling, high]
        low = high
    return assigned


def _ranks_between(low: int | None, high: int | None, count: int) -> Sequence[int] | None:
    """``count`` ranks between ``low`` and ``high`` (None: unbounded); None where there is no room."""
    if high is None:
        first = (low or 0) + GAP
        return range(first, first + GAP * count, GAP)
    if low is None:
        return range(high - GAP * count, high, GAP)
    step = (high - low) // (count + 1)
    return [low + step * number for number in range(1, count + 1)] if step else None


def _longest_increasing(ranks: Sequence[int | None]) -> list[int]:
    """The indices of a longest increasing subsequence of the given ranks (patience sorting)."""
    tops: list[int] = []  # lowest last rank of a subsequence, by its length
    ends: list[int] = []  # the index of that rank
    predecessors: dict[int, int] = {}
    for index, rank in enumerate(ranks):
        if rank is None:
            continue
        length = bisect_left(tops, rank)
        tops[length : length + 1] = [rank]
        ends[length : length + 1] = [index]
        predecessors[index] = ends[length - 1] if length else -1
    return _walk_back(predecessors, ends[-1])


def _walk_back(predecessors: dict[int, int], index: int) -> list[int]:
    indices: list[int] = []
    while index >= 0:
        indices.append(index)
        index = predecessors[index]
    return indices[::-1]
