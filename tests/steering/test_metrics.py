"""Traffic assignment as metrics."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
from prometheus_client.registry import CollectorRegistry

from tests.steering.assigned import GROUP, KEY, A, Steered, cluster, connect, endpoints, policy
from tests.steering.assigned import B as FAR
from tests.support.plane import Plane
from xds.lrs.figures import Flow
from xds.steering.metrics import AssignmentMetrics, ClusterBudget


@pytest.fixture
async def steered() -> AsyncIterator[Steered]:
    plane = Plane()
    await plane.store.open()
    await plane.publisher.push(GROUP, [cluster(), endpoints()])
    yield Steered(plane)
    await plane.publisher.close()
    await plane.store.close()


async def test_policies_sources_and_events_are_counted(steered: Steered) -> None:
    registry = CollectorRegistry()
    registry.register(AssignmentMetrics(steered.assignments))

    def value(name: str, **labels: str) -> float | None:
        return registry.get_sample_value(f"xds_server_assignment_{name}", labels)

    assert value("policies", state="deciding") == value("events_total", action="held") == 0
    connect(steered.plane.fleet, FAR)
    steered.reports.rps = {A: 50.0}
    await steered.assignments.put(KEY, policy())
    await steered.assignments.put((GROUP, "api"), replace(policy(), cluster="api"))
    assert (value("policies", state="deciding"), value("policies", state="waiting")) == (1, 1)
    assert (value("sources", standing="settled"), value("sources", standing="pushed")) == (1, 1)
    assert value("events_total", action="changed") == 1
    steered.reports.reported = steered.now
    await steered.step(5)
    assert value("sources", standing="held") == value("events_total", action="held") == 1
    assert value("failures_total") == 0


GROUP_WEB = {"group": GROUP, "cluster": "web"}


def registered(steered: Steered, rows: int = 1_000) -> CollectorRegistry:
    registry = CollectorRegistry()
    registry.register(AssignmentMetrics(steered.assignments, rows))
    return registry


async def test_a_cluster_has_demand_capacity_load_and_shares_by_zone(steered: Steered) -> None:
    registry = registered(steered)

    def value(name: str, **labels: str) -> float | None:
        return registry.get_sample_value(f"xds_assignment_{name}", {**GROUP_WEB, **labels})

    assert value("demand_rps", source="r/za") is None
    steered.reports.rps = {A: 150.0, FAR: 10.0}
    steered.reports.flows = (Flow(A, A, 120.0, 0.0, 0), Flow(A, FAR, 30.0, 0.0, 0), Flow(FAR, FAR, 10.0, 0.0, 0))
    await steered.assignments.put(KEY, policy())
    assert (value("demand_rps", source="r/za"), value("dropped_rps", source="r/za")) == (150, 0)
    assert (value("capacity_rps", target="r/za"), value("load_rps", target="r/za")) == (100, 120)
    assert (value("load_rps", target="r/zb"), value("real_share", target="r/zb")) == (40, 0.25)
    away = value("decided_rps", source="r/za", target="r/zb")
    assert away is not None and 45 <= away <= 60, "what the near zone cannot serve"
    assert value("real_rps", source="r/za", target="r/zb") == 30
    decided = value("decided_share", target="r/zb")
    assert decided == pytest.approx((away + 10) / 160)
    assert value("nodes", source="r/za", state="reporting") == 1
    assert value("nodes", source="r/za", state="silent") == 0
    steered.reports.rps = {A: 500.0, FAR: 10.0}
    await steered.step()
    assert value("reasons", reason="overload") == 1
    await steered.assignments.delete(KEY)
    assert value("capacity_rps", target="r/za") is None


async def test_clusters_beyond_the_bound_are_summed_as_other(steered: Steered) -> None:
    names = ["web", *(f"c{number}" for number in range(3))]
    await steered.plane.publisher.push(
        GROUP, [made for name in names for made in (cluster(name), endpoints(name=name))]
    )
    steered.reports.rps = {A: 50.0}
    for name in names:
        await steered.assignments.put((GROUP, name), replace(policy(), cluster=name))
    whole = registered(steered)
    rows = sum(1 for family in whole.collect() for sample in family.samples if sample.labels.get("cluster") == "web")
    assert rows > 8
    registry = registered(steered, rows=10)

    def value(name: str, **labels: str) -> float | None:
        return registry.get_sample_value(f"xds_assignment_{name}", labels)

    left_out = value("clusters_left_out")
    assert left_out is not None and 0 < left_out < 4
    other = {"group": "other", "cluster": "other"}
    assert value("demand_rps", **other, source="other") == 50 * left_out
    assert value("capacity_rps", **other, target="other") == 200 * left_out
    assert value("decided_rps", **other, source="other", target="other") == 50 * left_out
    assert value("decided_share", **other, target="other") is None
    assert value("decided_share", group=GROUP, cluster="c0", target="r/za") == 1


def test_a_cluster_that_has_series_keeps_them() -> None:
    budget = ClusterBudget(10)
    assert budget.admit({("g", "b"): 6, ("g", "c"): 4}) == {("g", "b"), ("g", "c")}
    assert budget.admit({("g", "a"): 5, ("g", "b"): 6, ("g", "c"): 4}) == {("g", "b"), ("g", "c")}
    assert budget.admit({("g", "a"): 5, ("g", "c"): 4}) == {("g", "a"), ("g", "c")}
    assert budget.admit({("g", "huge"): 11}) == frozenset()
