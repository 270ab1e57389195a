"""The trend of a source's demand: whether demand rises or falls steadily, and by how much.

Reports are late by an interval or two, and smoothing delays a fall further. If demand follows a trend, as in the course
of a day, the estimate compensates for that delay. Noise and single jumps are not a trend: they predict nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from statistics import fmean, median

# Two halves are compared, each two and a half minutes long with intervals of ten seconds. The halves of an interval
# before are compared too, because noise sometimes looks like a trend for a moment. With shorter halves the slow part of
# a day's fall is not a trend, and its smoothed figure is 2 % too high.
_HALF = 15
TREND_FIGURES = 2 * _HALF + 1
# The least difference of the halves of a trend: as a multiple of the usual change from one figure to the next, and as a
# part of demand. Noise that lasts for a minute or two exceeds the first some three times an hour. Where figures hardly
# change, the usual change proves nothing, so the second figure applies.
_SIGNIFICANT, _LEAST = 5.0, 0.03
# A trend continues through all three thirds: at least this part of the difference lies between each two of them.
_STEADY = 0.25
# The largest change from one figure to the next, as a part of the difference. A larger change is a jump.
_JUMP = 0.8
_NEWEST = 3  # the mean of this many newest figures is extrapolated
# How many intervals ahead of these figures: reports are late, and the shares apply for an interval. The smoothed figure
# already follows a rise almost at once.
_RISE_AHEAD, _FALL_AHEAD = 2.0, 3.0


def slope(recent: Sequence[float]) -> float:
    """The rise of demand from one figure to the next, negative for a fall; 0 without a trend."""
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
    """The current demand by the trend of ``recent``; ``smoothed_rps`` without a trend.

    The result is never below the smoothed figure for a rise, and never above it for a fall.
    """
    rise = slope(recent)
    newest, before = fmean(recent[-_NEWEST:]), fmean(recent[-2 * _NEWEST : -_NEWEST] or recent)
    if rise > 0:
        return max(smoothed_rps, newest + _RISE_AHEAD * rise)
    if rise < 0 and newest < before:
        return max(min(smoothed_rps, newest + _FALL_AHEAD * rise), 0.0)
    return smoothed_rps
