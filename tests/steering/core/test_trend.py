"""Demand that follows a trend is extrapolated; noise and jumps are not."""

from __future__ import annotations

from math import inf
from random import Random

import pytest

from xds.steering.core.assignment import Demand, SourceMemory
from xds.steering.core.freshness import estimate_demand
from xds.steering.core.policy_document import parse_policy
from xds.steering.core.trend import TREND_FIGURES, extrapolate, slope

POLICY = parse_policy({"cluster": "web", "capacity": {"rates": [{"per_endpoint_rps": 100}]}})


def estimates(figures: list[float], every_s: float = 10.0) -> list[SourceMemory]:
    """The memory after each of the figures."""
    found: list[SourceMemory] = []
    for number, rps in enumerate(figures):
        now = number * every_s
        before = found[-1] if found else None
        estimate = estimate_demand(POLICY, Demand(rps, now), before, every_s / POLICY.interval_s, now)
        assert estimate.memory is not None
        found.append(estimate.memory)
    return found


@pytest.mark.parametrize("step", [-5.0, 5.0])
def test_the_estimate_is_not_behind_a_steady_rise_or_fall(step: float) -> None:
    """Reports are two intervals late."""
    figures = [1_000 + step * number for number in range(40)]
    last = estimates(figures)[-1]
    assert slope(last.recent_rps) == pytest.approx(step)
    assert last.demand_rps == pytest.approx(figures[-1] + 2 * step, abs=abs(step) * 1.1)


@pytest.mark.parametrize(("step", "least"), [(-3.0, 0.9), (3.0, 0.4)])
def test_the_slow_part_of_a_day_is_a_trend(step: float, least: float) -> None:
    """Some 0.3 % an interval beside noise of 1 %. Halves of a minute and a half told half of the fall, and no rise."""
    random, level, figures = Random(2), 0.0, []
    for number in range(200):
        level = 0.7 * level + random.gauss(0.0, 0.0071)
        figures.append((1_000 + step * number) * (1 + level))
    ends = range(TREND_FIGURES, len(figures))
    found = [slope(figures[end - TREND_FIGURES : end]) for end in ends]
    assert sum(one * step > 0 for one in found) > least * len(found)
    assert not any(one * step < 0 for one in found)


def test_a_trend_is_no_variation() -> None:
    """Demand that changes steadily is known as well as demand that stays: a target needs to keep no more free."""
    still, rising = ([1_000.0 + step * number for number in range(90)] for step in (0.0, 10.0))
    assert estimates(rising)[-1].variation == pytest.approx(estimates(still)[-1].variation, abs=0.001)


def test_without_a_trend_a_fall_counts_slowly() -> None:
    figures = [1_000.0] * 30 + [500.0]
    assert slope(figures) == 0.0
    assert estimates(figures)[-1].demand_rps == pytest.approx(925.0)


def test_a_jump_is_no_trend() -> None:
    """Not at any time after it."""
    figures = [1_000.0] * 20 + [1_600.0] * 20
    assert all(one.demand_rps <= 1_600.0 for one in estimates(figures))
    assert {slope(one.recent_rps) for one in estimates(figures)} == {0.0}


def test_noise_is_seldom_a_trend() -> None:
    random, level, found = Random(1), 0.0, 0
    figures = []
    for _ in range(2_000):
        level = 0.7 * level + random.gauss(0.0, 20.0)
        figures.append(1_000 + level)
    found = sum(slope(figures[: end + 1]) != 0.0 for end in range(TREND_FIGURES, len(figures)))
    assert found < 0.05 * len(figures)


def test_slow_noise_is_seldom_a_trend() -> None:
    """Demand that wanders by 3 %, over a minute or two: what a false trend brings back has to leave again."""
    random, level, began, was = Random(1), 0.0, 0, False
    figures: list[float] = []
    for _ in range(3_600):
        level = 0.9 * level + random.gauss(0.0, 0.03 * (1 - 0.9**2) ** 0.5)
        figures = [*figures[-TREND_FIGURES + 1 :], 1_000 * (1 + level)]
        began, was = began + (slope(figures) != 0.0 and not was), slope(figures) != 0.0
    assert began <= 31, "three times an hour; with halves of a minute and a half four times"


def test_few_figures_make_no_trend() -> None:
    assert slope([float(number) for number in range(TREND_FIGURES - 1)]) == 0.0


def test_a_fall_ends_at_zero_and_never_raises_the_estimate() -> None:
    falling = [100.0 - 3.3 * number for number in range(TREND_FIGURES)]
    assert extrapolate(20.0, falling) == 0.0
    assert extrapolate(1.0, [one + 100 for one in falling]) == 1.0


def test_a_fall_that_ends_is_not_extrapolated() -> None:
    falling = [1_000.0 - 10 * number for number in range(TREND_FIGURES)]
    assert extrapolate(900.0, falling) < falling[-1]
    assert extrapolate(900.0, falling[3:] + [falling[-1] + 20] * 3) == 900.0


def test_a_decision_between_two_intervals_adds_no_figure() -> None:
    found = estimates([100.0] * 8, every_s=5.0)
    assert [len(one.recent_rps) for one in found] == [1] * 8


def test_figures_from_before_a_long_silence_are_forgotten() -> None:
    memory = SourceMemory(100.0, 0.0, 100.0, recent_rps=(100.0,) * TREND_FIGURES)
    estimate = estimate_demand(POLICY, Demand(50.0, 1_000.0), memory, inf, 1_000.0)
    assert estimate.memory is not None and estimate.memory.recent_rps == (50.0,)
