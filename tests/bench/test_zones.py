"""The simulated fleet of traffic assignment: equal seeds give equal runs, and the page tells what was measured."""

from __future__ import annotations

import json

import pytest

from bench.zones.figures import COLUMNS, numbers
from bench.zones.fleet import Hosts, balanced
from bench.zones.run import run
from bench.zones.scenarios import SCENARIOS, A, B
from tests.support.process import REPOSITORY
from xds.assignment.assignment import Allotment

PAGE = REPOSITORY / "docs" / "assignment-algorithm.md"
MEASURED = REPOSITORY / "docs" / "load-assignment" / "simulation.json"
JUMP = next(scenario for scenario in SCENARIOS if scenario.name == "jump")


def test_equal_seeds_give_equal_runs() -> None:
    first, second = (numbers(run(JUMP, 12, seed=7)) for _ in range(2))
    assert first == second
    assert first != numbers(run(JUMP, 12, seed=8))


def test_a_jump_of_demand_is_relieved_within_three_intervals() -> None:
    assert int(numbers(run(JUMP, 60, seed=3))["figures"]["relieved"]) <= 3


def test_the_page_has_the_figures_that_were_measured() -> None:
    rows = [line.strip("| ").split(" | ") for line in PAGE.read_text().splitlines() if line.startswith("| ")]
    told = {cells[0].replace(" ", "_"): cells[1:] for cells in rows}
    measured = json.loads(MEASURED.read_text())
    assert measured.keys() == {scenario.name for scenario in SCENARIOS}
    for name, one in measured.items():
        assert told[name] == [one["figures"][column] for column in COLUMNS[1:]]


@pytest.mark.parametrize(
    ("healthy", "stays"),
    [(10, 1.0), (8, 1.0), (5, 0.7), (0, 0.0)],
)
def test_proxies_fail_over_by_the_overprovisioning_factor_of_envoy(healthy: int, stays: float) -> None:
    hosts = {A: Hosts(10, healthy, 1.0), B: Hosts(10, 10, 1.0)}
    shares = balanced((Allotment(A, 0, 10_000), Allotment(B, 1, 10_000)), hosts)
    assert shares.get(A, 0.0) == pytest.approx(stays)
    assert sum(shares.values()) == pytest.approx(1.0)


def test_within_a_priority_proxies_weigh_localities_by_health() -> None:
    """With half of its endpoints, 0.7 of a weight counts; the priority has 75 % healthy endpoints, so it is whole."""
    hosts = {A: Hosts(10, 5, 1.0), B: Hosts(10, 10, 1.0)}
    shares = balanced((Allotment(A, 0, 5_000), Allotment(B, 0, 5_000)), hosts)
    assert shares == {A: pytest.approx(0.7 / 1.7), B: pytest.approx(1 / 1.7)}
