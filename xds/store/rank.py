"""Ranks: integers that store the order of a list in a table, so that an insertion changes one row. Pure."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from itertools import pairwise

GAP = 1 << 24  # allows 2**39 appended resources, and 24 insertions at one place before all ranks are assigned again


def assign(ranks: Sequence[int | None]) -> list[int]:
    """Strictly increasing ranks for a list, keeping as many given ranks as possible (None: a new member)."""
    given = [rank for rank in ranks if rank is not None]
    if not given:
        return _afresh(len(ranks))
    if len(given) == len(ranks) and all(low < high for low, high in pairwise(given)):
        return given
    return _around(ranks, _longest_increasing(ranks))


def _afresh(count: int) -> list[int]:
    return list(range(GAP, GAP * (count + 1), GAP))


def _around(ranks: Sequence[int | None], kept: Sequence[int]) -> list[int]:
    """Keep the ranks at the positions ``kept`` and place the others in between; all again where there is no room."""
    assigned: list[int] = []
    low: int | None = None
    for start, stop in pairwise([-1, *kept, len(ranks)]):
        high = ranks[stop] if stop < len(ranks) else None
        between = _between(low, high, stop - start - 1)
        if between is None:
            return _afresh(len(ranks))
        assigned += between if high is None else [*between, high]
        low = high
    return assigned


def _between(low: int | None, high: int | None, count: int) -> Sequence[int] | None:
    """``count`` ranks between two (None: unbounded); None where there is no room."""
    if high is None:
        first = (low or 0) + GAP
        return range(first, first + GAP * count, GAP)
    if low is None:
        return range(high - GAP * count, high, GAP)
    step = (high - low) // (count + 1)
    return [low + step * place for place in range(1, count + 1)] if step else None


def _longest_increasing(ranks: Sequence[int | None]) -> list[int]:
    """The positions of a longest increasing subsequence of the given ranks (patience sorting)."""
    tops: list[int] = []  # lowest last rank of a subsequence, by its length
    ends: list[int] = []  # the position of that rank
    before: dict[int, int] = {}
    for place, rank in enumerate(ranks):
        if rank is None:
            continue
        length = bisect_left(tops, rank)
        tops[length : length + 1] = [rank]
        ends[length : length + 1] = [place]
        before[place] = ends[length - 1] if length else -1
    return _walk_back(before, ends[-1])


def _walk_back(before: dict[int, int], place: int) -> list[int]:
    run: list[int] = []
    while place >= 0:
        run.append(place)
        place = before[place]
    return run[::-1]
