"""The trend of a source's demand: whether it rises or falls steadily, and by how much.

Reports are late by an interval or two, and smoothing delays a fall further. Where demand follows a trend, as in the
course of a day, the estimate makes up for that delay. Noise and single jumps are not a trend: what comes after them is
not known.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from statistics import fmean, median

# Two halves are compared, of two minutes and a half with intervals of ten seconds; and those of an interval before, as
# noise looks like a trend for a moment now and then. With shorter halves the slow part of a day's fall is not a trend,
# and its smoothed figure is 2 % too high.
_HALF = 15
TREND_FIGURES = 2 * _HALF + 1
# The difference of the halves, in times of the usual change from one figure to the next. Noise that lasts for a minute
# or two exceeds that some three times an hour. And as a part of demand: where figures hardly change, the usual change
# tells nothing.
_SIGNIFICANT, _LEAST = 5.0, 0.03
# A trend goes on through all three thirds: this part of the difference, at least, lies between each two of them.
_STEADY = 0.25
# The largest change from one figure to the next, as a part of the difference: with more it is a jump.
_JUMP = 0.8
_NEWEST = 3  # figures, of which the mean is extrapolated
# How many intervals ahead of these: reports are late, and the shares apply for an interval. A rise is already counted
# almost at once.
_RISE_AHEAD, _FALL_AHEAD = 2.0, 3.0


def slope(recent: Sequence[float]) -> float:
    """By how much demand rises from one figure to the next, negative where it falls; 0 without a trend."""
    if len(recent) < TREND_FIGURES:
        return 0.0
    before, now = _slope(recent[-TREND_FIGURES:-1]), _slope(recent[-TREND_FIGURES + 1 :])
    return now if before * now > 0 else 0.0


def _slope(figures: Sequence[float]) -> float:
    difference = fmean(figures[_HALF:]) - fmean(figures[:_HALF])
    changes = [abs(later - earlier) for earlier, later in pairwise(figures)]
    least = max(_SIGNIFICANT * median(changes), _LEAST * fmean(figures))
    if abs(difference) < least or max(changes) > _JUMP * abs(difference) or not _is_steady(figures):
        return 0.0
    return difference / _HALF


def _is_steady(figures: Sequence[float]) -> bool:
    """Whether the figures rise, or fall, from each third of them to the next."""
    third = len(figures) // 3
    first, second, last = (fmean(figures[begin : begin + third]) for begin in range(0, 3 * third, third))
    steps = (second - first, last - second)
    return min(steps) * max(steps) > 0 and min(map(abs, steps)) >= _STEADY * abs(last - first)


def extrapolate(smoothed_rps: float, recent: Sequence[float]) -> float:
    """The demand of now, by the trend of ``recent``; ``smoothed_rps`` without one.

    A rise is never below the smoothed figure, a fall never above it.
    """
    rise = slope(recent)
    newest, before = fmean(recent[-_NEWEST:]), fmean(recent[-2 * _NEWEST : -_NEWEST] or recent)
    if rise > 0:
        return max(smoothed_rps, newest + _RISE_AHEAD * rise)
    if rise < 0 and newest < before:
        return max(min(smoothed_rps, newest + _FALL_AHEAD * rise), 0.0)
    return smoothed_rps
