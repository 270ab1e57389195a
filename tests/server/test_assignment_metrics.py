"""Traffic assignment as metrics."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
from prometheus_client.registry import CollectorRegistry

from tests.control.assigned import GROUP, KEY, A, Steered, cluster, connect, endpoints, policy
from tests.control.assigned import B as FAR
from tests.control.conftest import Plane
from xds.server.metrics.collectors import AssignmentMetrics


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
