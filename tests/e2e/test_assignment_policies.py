"""Policies with real Envoys: what is shed at the source, who stands by, and zones that answer with errors."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import pytest

from tests.e2e.test_demand import POLICY
from tests.e2e.test_grpc_clients import GROUP
from tests.e2e.test_load_reports import StartUpstream, envoy, load, server, wait_reporting, zoned
from tests.support import resources as r
from tests.support.background import Background
from tests.support.envoy import EnvoyProcess
from tests.support.load import HttpLoad
from tests.support.process import wait_until
from tests.support.server import ServerProcess
from tests.support.upstream import Upstream

__all__ = ["envoy", "server"]  # fixtures

CAPACITY_RPS, RPS = 50.0, 100.0
SAMPLE = 150  # requests that a split is judged by
DECIDED_S = 60.0

Zones = dict[str, Upstream]


@pytest.fixture
def zones(upstream: StartUpstream) -> Zones:
    return {"z1": upstream("near"), "z2": upstream("far")}


@pytest.fixture
def steer(server: ServerProcess) -> Callable[..., None]:
    """Puts a policy in force: a zone takes half of the requests."""

    def put(**fields: Any) -> None:
        policy = {**POLICY, "maximum_step": 1.0, "minimum_change": 0.0, **fields}
        answer = server.request("PUT", f"/api/v1/groups/{GROUP}/assignments/web", json=policy)
        assert answer.status_code == 200, answer.text

    return put


def push(server: ServerProcess, zones: Zones, unhealthy: str = "") -> None:
    made = zoned("web", {zone: [one.port] for zone, one in zones.items()}, **r.STEERED)
    for locality in made[1]["endpoints"]:
        if locality["locality"]["zone"] == unhealthy:
            locality["lb_endpoints"] = [{**one, "health_status": "UNHEALTHY"} for one in locality["lb_endpoints"]]
    server.push(GROUP, made)


def near_source(server: ServerProcess) -> r.Json:
    sources = server.get(f"/groups/{GROUP}/assignments/web")["sources"]
    return next((one for one in sources if one["source"]["zone"] == "z1"), {"allotments": [], "reasons": [], "shed": 0})


def share(server: ServerProcess, zone: str) -> float:
    return sum(float(one["share"]) for one in near_source(server)["allotments"] if one["locality"]["zone"] == zone)


def reasons(server: ServerProcess) -> set[str]:
    return {reason["code"] for reason in near_source(server)["reasons"]}


@pytest.fixture
def traffic(
    server: ServerProcess,
    envoy: Callable[..., EnvoyProcess],
    zones: Zones,
    background: Background,
    running: ExitStack,
) -> HttpLoad:
    """An Envoy in z1 under load: twice of what a zone can take."""
    push(server, zones)
    port = envoy("z1").wait_listener("web")
    wait_reporting(server, "web", ["envoy-z1"])
    return running.enter_context(HttpLoad(background, port, rps=RPS, connections=20))


def test_demand_beyond_all_capacity_is_shed_at_its_source(
    server: ServerProcess, zones: Zones, traffic: HttpLoad, steer: Callable[..., None]
) -> None:
    """The zone gets what it can serve, the proxy drops the rest, and no other zone gets any of it."""
    steer(spill={"within": "zone", "shed": True})
    wait_until(lambda: 0.4 <= near_source(server)["shed"] <= 0.6, "half is shed", DECIDED_S)
    assert "shedding" in reasons(server)
    traffic.wait_total(round(RPS))  # the proxy has it
    failed, total, far = traffic.report.failed, traffic.report.total, traffic.report.bodies["far"]
    traffic.wait_total(SAMPLE)
    lost = (traffic.report.failed - failed) / (traffic.report.total - total)
    assert 0.25 <= lost <= 0.75, "a random half is dropped"
    assert traffic.report.bodies["far"] == far
    wait_until(lambda: sum(load(server, "web")["drops"].values()) > 0, "the drops are reported")
    assert "uncategorised" not in load(server, "web")["drops"], "they have the category of the policy"


@pytest.mark.soak
def test_a_standby_zone_gets_requests_only_when_the_others_cannot(
    server: ServerProcess, zones: Zones, traffic: HttpLoad, steer: Callable[..., None]
) -> None:
    steer(standby=[{"zone": "z2"}])
    wait_until(lambda: share(server, "z1") == 1.0 and "overload" in _cluster_reasons(server), "all at home", DECIDED_S)
    traffic.wait_body("near", round(RPS))
    far = traffic.report.bodies["far"]
    traffic.wait_total(SAMPLE)
    assert traffic.report.bodies["far"] == far, "though the zone is above its capacity"
    push(server, zones, unhealthy="z1")
    wait_until(lambda: share(server, "z2") == 1.0, "it takes over", DECIDED_S)
    traffic.wait_body("far", SAMPLE)
    near = traffic.report.bodies["near"]
    traffic.wait_total(SAMPLE)
    assert traffic.report.bodies["near"] == near
    assert traffic.report.failed == 0


def _cluster_reasons(server: ServerProcess) -> set[str]:
    return {reason["code"] for reason in server.get(f"/groups/{GROUP}/assignments/web")["reasons"]}


def _left_for_errors(server: ServerProcess, zones: Zones, traffic: HttpLoad, steer: Callable[..., None]) -> None:
    traffic.rps = CAPACITY_RPS / 2
    steer(errors_above=0.3)
    wait_until(lambda: share(server, "z1") == 1.0, "all at home", DECIDED_S)
    zones["z1"].status = 503
    wait_until(lambda: share(server, "z2") >= 0.9, "the zone is left", DECIDED_S)
    assert "not_followed" in reasons(server)


def test_a_zone_that_answers_with_errors_is_left(
    server: ServerProcess, zones: Zones, traffic: HttpLoad, steer: Callable[..., None]
) -> None:
    _left_for_errors(server, zones, traffic, steer)
    traffic.wait_body("far", 10)
    failed, total = traffic.report.failed, traffic.report.total
    traffic.wait_total(50)
    assert (traffic.report.failed - failed) / (traffic.report.total - total) <= 0.3, "but for a probe"


@pytest.mark.soak
def test_a_zone_that_answered_with_errors_is_probed_and_used_again(
    server: ServerProcess, zones: Zones, traffic: HttpLoad, steer: Callable[..., None]
) -> None:
    _left_for_errors(server, zones, traffic, steer)
    zones["z1"].status = 200
    wait_until(lambda: share(server, "z1") == 1.0, "the zone is found again", 5 * DECIDED_S)
    far = traffic.report.bodies["far"]
    wait_until(lambda: traffic.report.bodies["near"] > 0, "it serves")
    traffic.wait_body("near", SAMPLE)
    assert traffic.report.bodies["far"] <= far + SAMPLE
