"""How much of a target stays free: what noise and trends of its load need, and no more."""

from __future__ import annotations

import pytest

from tests.steering.core.world import US, A, B, policy
from xds.model.node import Locality
from xds.steering.core.free_capacity import DemandChange, FreeCapacity, free_capacity
from xds.steering.core.placement import Placement

CAPACITY = {A: 1_000.0, B: 1_000.0}


def free(change: DemandChange, flows: dict[Locality, dict[Locality, float]], **surplus: float) -> FreeCapacity:
    demand = {source: sum(own.values()) for source, own in flows.items()}
    missing = {A: surplus["a"]} if surplus else {}
    return free_capacity(policy(), demand, CAPACITY, Placement(flows, missing), change)


def test_noise_of_several_sources_partly_cancels_out() -> None:
    noisy = dict.fromkeys((A, B, US), 0.02)
    alone = free(DemandChange(noisy), {A: {A: 1_000.0}})
    shared = free(DemandChange(noisy), {A: {A: 500.0}, B: {A: 250.0}, US: {A: 250.0}})
    assert alone.returned[A] == pytest.approx(0.03)
    assert shared.returned[A] == pytest.approx(0.03 * (0.5**2 + 2 * 0.25**2) ** 0.5)


def test_a_relief_leaves_free_what_load_will_rise_by() -> None:
    flows = {A: {A: 900.0, B: 100.0}}
    steady = free(DemandChange({A: 0.001}), flows)
    rising = free(DemandChange({A: 0.001}, {A: 2.0}), flows)
    assert steady.relieved[A] == pytest.approx(0.015)
    assert rising.relieved[A] == pytest.approx(0.015 + 8 * 2.0 * 0.9 / 1_000)
    assert rising.relieved[B] == pytest.approx(0.015 + 8 * 2.0 * 0.1 / 1_000)
    assert free(DemandChange({A: 0.001}, {A: 20.0}), flows).relieved[A] == pytest.approx(0.05), (
        "half of the band at most"
    )


def test_a_target_whose_load_falls_is_filled_up() -> None:
    steady = free(DemandChange({A: 0.01}), {A: {A: 1_000.0}})
    falling = free(DemandChange({A: 0.01}, {A: -10.0}), {A: {A: 1_000.0}})
    assert steady.returned[A] == pytest.approx(0.015)
    assert falling.returned[A] == pytest.approx(0.005), "half of the noise"


def test_free_capacity_is_bounded_when_everything_is_full() -> None:
    change = DemandChange({A: 0.01}, is_full=True)
    flows = {A: {A: 1_000.0, B: 1_000.0}}
    assert free(change, flows, a=0.0).when_full[A] == pytest.approx(0.005)
    assert free(change, flows, a=16.0).when_full[A] == pytest.approx(0.008)
    assert free(change, flows, a=500.0).when_full[A] == pytest.approx(0.015)
    assert free(change, flows, a=500.0).tolerated[A] == pytest.approx(0.02)
    assert free(DemandChange({A: 0.01}), flows, a=500.0).tolerated[A] == 0.0


def test_a_source_that_nothing_is_known_of_leaves_half_of_the_band_free() -> None:
    found = free(DemandChange(), {A: {A: 1_000.0}})
    assert found.returned[A] == found.relieved[A] == pytest.approx(0.05)
