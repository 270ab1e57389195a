"""The simulated fleet of traffic assignment: equal seeds give equal runs, and the page tells what was measured."""

from __future__ import annotations

import json
from dataclasses import replace
from math import isfinite
from typing import Any

import pytest

from bench.assignment import SCENARIOS
from bench.zones.control import Envoys, Plain
from bench.zones.figures import COLUMNS, Figures, figures, numbers
from bench.zones.fleet import Hosts, balanced
from bench.zones.foresight import foreseen
from bench.zones.optimum import optimum
from bench.zones.random_days import changes_at_rest, random_day
from bench.zones.run import Run, run
from bench.zones.scenarios import HOUR_S, A, B
from tests.support.process import REPOSITORY
from xds.steering.core.assignment import Allotment

PAGE = REPOSITORY / "docs" / "internals" / "assignment-algorithm.md"
MEASURED = REPOSITORY / "docs" / "load-assignment" / "simulation.json"
KNOWN = {scenario.name: scenario for scenario in SCENARIOS}


def in_soak(name: str, but: tuple[str, ...]) -> list[Any]:
    """A scenario of `make test`, and others of its kind, which are played in soak."""
    return [name, *(pytest.param(other, marks=pytest.mark.soak) for other in but)]


def measured(name: str, seed: int = 3) -> Figures:
    return figures(run(KNOWN[name], seed))


def least_away(done: Run) -> float:
    """The part of the requests that leave their zone in the optimum of a linear program; nan without scipy."""
    known = [(optimum(beat.demand, beat.capacity), sum(beat.demand.values())) for beat in done.beats]
    return sum(found.away / total for found, total in known) / len(known)


@pytest.mark.soak
def test_equal_seeds_give_equal_runs() -> None:
    first, second = (numbers(run(KNOWN["jump"], seed=7)) for _ in range(2))
    assert first == second
    assert first != numbers(run(KNOWN["jump"], seed=8))


def test_a_jump_of_demand_is_relieved_within_five_intervals() -> None:
    """Two of them pass until the reports have it."""
    relieved = measured("jump").relieved
    assert relieved is not None and relieved <= 5


@pytest.mark.parametrize("name", in_soak("silent_30", but=("silent_5", "silent_50")))
def test_proxies_that_never_report_are_made_up_for(name: str) -> None:
    assert measured(name).above < 0.01


@pytest.mark.parametrize("name", in_soak("zone_dies_untold", but=("split_dies_untold",)))
def test_a_zone_that_is_dead_at_the_proxies_only_is_relieved_in_four_intervals(name: str) -> None:
    found = measured(name)
    assert found.relieved is not None and found.relieved <= 4
    assert found.above < 0.005
    assert found.changes <= 12, "a probe that costs nothing stays; a death that is told costs 8.6"


@pytest.mark.soak
def test_proxies_that_follow_forty_seconds_late_are_not_taken_for_gone() -> None:
    """They left no target: nothing arrives there yet. It was taken for dead, and 6.6 % of the requests were lost."""
    found = figures(run(replace(KNOWN["jump"], delivery_s=40), 1))
    assert found.above < 0.006
    assert found.changes <= figures(run(KNOWN["jump"], 1)).changes, "as with proxies that follow at once"


@pytest.mark.soak
def test_a_flood_from_one_region_does_not_affect_the_others() -> None:
    """With Envoy alone they lose nothing either; a tenth of a percent is the noise of their own demand."""
    assert measured("flood").elsewhere < 0.001
    assert figures(run(KNOWN["flood"], 3, Envoys)).elsewhere < 0.001


@pytest.mark.soak
def test_a_flood_uses_the_room_of_the_other_regions() -> None:
    """What stays free there is lost at the source. It was 0.74 points above the least, with six changes an hour."""
    own = run(KNOWN["flood"], 3)
    least = sum(beat.least_above for beat in own.beats) / len(own.beats)
    assert figures(own).above < least + 0.0066
    assert figures(own).changes <= 2


@pytest.mark.soak
@pytest.mark.parametrize(("name", "above", "changes"), [("flash_region", 0.0065, 14), ("ramp", 0.0003, 16)])
def test_rising_demand_loses_no_more_requests_than_without_feedback(name: str, above: float, changes: float) -> None:
    """It was 0.63 % with 14 changes an hour, and 0.03 % with 18.7."""
    found = measured(name)
    assert found.above < above
    assert found.changes <= changes


@pytest.mark.soak
def test_requests_that_circuit_breakers_drop_are_placed() -> None:
    assert measured("breaker").above < 0.01


@pytest.mark.soak
@pytest.mark.parametrize("seed", [2, 13])
def test_on_random_days_nothing_changes_long_after_an_event(seed: int) -> None:
    scenario, day = random_day(seed, 3 * HOUR_S // 2, told=True)
    assert changes_at_rest(run(scenario, seed), day) <= 1


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("told", [True, False])
@pytest.mark.parametrize("seed", range(6))
def test_on_random_days_nothing_oscillates(seed: int, told: bool) -> None:
    """Noise of 5 % beside a zone that is nearly full, and probes of what was left, cost some changes an hour."""
    scenario, day = random_day(seed, 6 * HOUR_S, told=told)
    found = run(scenario, seed)
    is_quiet = scenario.noise <= 0.01 and day.endpoint_rps >= 50
    assert changes_at_rest(found, day) <= (30 if not told else 6 if is_quiet else 20)
    if told:
        assert figures(found).changes <= max(8.0, figures(run(scenario, seed, Plain)).changes / 4)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(1, 8))
def test_a_day_of_three_regions_is_within_two_points_of_the_optimum(seed: int) -> None:
    own = run(KNOWN["day"], seed)
    assert figures(own).above < 0.0005
    assert figures(own).changes <= 7
    least = least_away(own)
    if isfinite(least):
        assert figures(own).away < least + 0.02


@pytest.mark.soak
def test_knowing_the_mean_demand_does_not_help_where_requests_come_by_chance() -> None:
    """A zone of one endpoint: within two points of the linear program is out of reach, with as little overload."""
    own = run(KNOWN["tiny"], 1)
    least = least_away(own)
    bound = foreseen(KNOWN["tiny"], 1, figures(own).above)
    assert bound.above <= figures(own).above
    assert 0 < bound.away < figures(own).away
    if isfinite(least):  # without scipy there is no optimum
        assert bound.away > least + 0.02


def test_the_page_has_the_figures_that_were_measured() -> None:
    rows = [line.strip("| ").split(" | ") for line in PAGE.read_text().splitlines() if line.startswith("| ")]
    told = {cells[0].replace(" ", "_"): cells[1:] for cells in rows}
    found = json.loads(MEASURED.read_text())
    assert found.keys() == KNOWN.keys()
    for name, one in found.items():
        assert told[name] == [one["figures"][column] for column in COLUMNS[1:]]


@pytest.mark.parametrize(
    ("healthy", "stays"),
    [(10, 1.0), (8, 1.0), (5, 0.7), (0, 0.0)],
)
def test_proxies_fail_over_by_the_overprovisioning_factor_of_envoy(healthy: int, stays: float) -> None:
    known = {A: Hosts(10, healthy, 1.0), B: Hosts(10, 10, 1.0)}
    shares = balanced((Allotment(A, 0, 10_000), Allotment(B, 1, 10_000)), known)
    assert shares.get(A, 0.0) == pytest.approx(stays)
    assert sum(shares.values()) == pytest.approx(1.0)


def test_within_a_priority_proxies_weigh_localities_by_health() -> None:
    """With half of its endpoints, 0.7 of a weight counts; the priority has 75 % healthy endpoints, so it is whole."""
    known = {A: Hosts(10, 5, 1.0), B: Hosts(10, 10, 1.0)}
    shares = balanced((Allotment(A, 0, 5_000), Allotment(B, 0, 5_000)), known)
    assert shares == {A: pytest.approx(0.7 / 1.7), B: pytest.approx(1 / 1.7)}
