"""Demand as real clients report it: what they drop counts, nothing counts twice, and silence means zero."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.test_grpc_clients import GROUP, TARGET, backend, service
from tests.e2e.test_load_reports import (
    StartUpstream,
    envoy,
    load,
    server,
    wait_counts,
    wait_more,
    wait_reporting,
    zoned,
)
from tests.support import resources as r
from tests.support.background import Background
from tests.support.bootstrap import grpc_bootstrap
from tests.support.envoy import EnvoyProcess, get
from tests.support.grpc_client import GrpcClient
from tests.support.load import HttpLoad
from tests.support.process import wait_until
from tests.support.server import ServerProcess
from xds.lrs.figures import attempted

__all__ = ["envoy", "server"]  # fixtures

Json = r.Json

SENT, AT_ONCE = 60, 20
SLOW_S = 0.2
RETRY: Json = {"retry_policy": {"retry_on": "5xx", "num_retries": 2}}


def _limited(**limits: int) -> Json:
    return {"circuit_breakers": {"thresholds": [limits]}}


# The cluster, the route's action, the status of the upstream; the tries that each request makes at most.
CASES: dict[str, tuple[Json, Json, int, int]] = {
    "max_connections": (_limited(max_connections=2), {}, 200, 1),
    "max_pending_requests": (_limited(max_connections=2, max_pending_requests=1), {}, 200, 1),
    "max_requests": (_limited(max_requests=3), {}, 200, 1),
    "max_retries": (_limited(max_retries=1), RETRY, 503, 3),
    "retries": (_limited(max_retries=1000), RETRY, 503, 3),
    "drop_overload": ({}, {}, 200, 1),
}


LONG = {"max_connections", "max_pending_requests", "retries"}


@pytest.mark.parametrize("case", [pytest.param(case, marks=pytest.mark.soak if case in LONG else ()) for case in CASES])
def test_the_tries_of_an_envoy_are_counted_once_whatever_it_refuses(
    case: str, server: ServerProcess, envoy: Callable[..., EnvoyProcess], upstream: StartUpstream
) -> None:
    """The table of `attempted`: issued, dropped and errors add up to what was sent."""
    cluster, action, status, tries = CASES[case]
    web = upstream("a")
    half = {"category": "half", "drop_percentage": {"numerator": 50, "denominator": "HUNDRED"}}
    policy = {"policy": {"drop_overloads": [half]}} if case == "drop_overload" else {}
    resources = zoned("c1", {"z1": [web.port]}, policy, **cluster)
    resources[-1] = r.route_config("web", {"match": {"prefix": "/"}, "route": {"cluster": "c1", **action}})
    server.push(GROUP, resources)
    port = envoy("z1").wait_listener("web")
    wait_reporting(server, "c1", ["envoy-z1"])
    web.status, web.delay_s = status, SLOW_S
    with ThreadPoolExecutor(AT_ONCE) as pool:
        statuses = list(pool.map(lambda _: get(port).status_code, range(SENT)))
    dropped = statuses.count(503) if status == 200 else 0
    errors = dropped if case == "max_requests" else web.failures
    found = wait_counts(server, "c1", issued=web.requests, dropped=dropped, errors=errors)
    counted = attempted(*(found[name] for name in ("issued", "successes", "errors", "dropped")))
    assert counted == web.requests + dropped
    assert counted >= SENT and (tries > 1 or counted == SENT)
    assert dropped > 0 or case in ("max_connections", "max_retries", "retries")


RPS, LOW_RPS, CAPACITY_RPS, FAR_RPS = 95.0, 30.0, 50.0, 150.0
# A tenth stays free: a queue of ten requests overflows where a zone is filled to 95 %.
POLICY: Json = {
    "capacity": {
        "rates": [
            {"localities": {"zone": "z1"}, "per_locality_rps": CAPACITY_RPS},
            {"per_locality_rps": FAR_RPS},
        ]
    },
    "target_utilisation": 0.9,
    "interval_s": 1,
    "dwell_s": 2,
    "stale_after_s": 4,
    "fallback_after_s": 9,
    "maximum_step": 0.5,
}


# What limits the requests of the cluster, and the route's action.
BREAKERS: dict[str, tuple[Json, Json]] = {
    "max_requests": (_limited(max_requests=10), {}),
    "max_pending_requests": (_limited(max_connections=2, max_pending_requests=8), {}),
    "retries": (_limited(max_requests=10), RETRY),
}


@pytest.mark.parametrize(
    "breaker", [pytest.param(name, marks=() if name == "max_requests" else pytest.mark.soak) for name in BREAKERS]
)
def test_requests_that_a_circuit_breaker_drops_spill_into_the_next_zone(
    breaker: str,
    server: ServerProcess,
    envoy: Callable[..., EnvoyProcess],
    upstream: StartUpstream,
    background: Background,
) -> None:
    """Half of the requests fail at first; within five intervals less than 3 % do, and the shares return in one go."""
    cluster, action = BREAKERS[breaker]
    near, far = upstream("near"), upstream("far")
    near.rate_rps, far.rate_rps = CAPACITY_RPS, FAR_RPS
    resources = zoned("web", {"z1": [near.port], "z2": [far.port]}, **{**r.STEERED, **cluster})
    resources[-1] = r.route_config("web", {"match": {"prefix": "/"}, "route": {"cluster": "web", **action}})
    server.push(GROUP, resources)
    port = envoy("z1").wait_listener("web")
    wait_reporting(server, "web", ["envoy-z1"])
    answer = server.request("PUT", f"/api/v1/groups/{GROUP}/assignments/web", json=POLICY)
    assert answer.status_code == 200, answer.text
    with HttpLoad(background, port, rps=LOW_RPS, connections=20) as steady:
        with HttpLoad(background, port, rps=RPS - LOW_RPS, connections=40) as surge:
            surge.wait_total(round(surge.rps))
            early = surge.report.failed / surge.report.total
            surge.wait_total(round(surge.rps * 4))  # five intervals since the beginning
            lost = [_lost(surge)]
            while lost[-1] >= 0.03 and len(lost) < 3:
                lost.append(_lost(surge))  # a machine that stands still for a moment fills the breaker too
        returning = _shares_until_home(server)
    assert early > 0.2, "the breaker drops what the zone cannot serve"
    assert lost[-1] < 0.03, lost
    assert surge.report.bodies["far"] > 0
    assert returning == sorted(returning), "no share goes back and forth when the load goes away"
    assert steady.report.bodies["near"] > 0


def _lost(load_: HttpLoad) -> float:
    """The share of failed requests in the next five seconds."""
    before, failed = load_.report.total, load_.report.failed
    load_.wait_total(round(load_.rps * 5))
    return (load_.report.failed - failed) / (load_.report.total - before)


def _shares_until_home(server: ServerProcess) -> list[float]:
    """The share of the near zone, again and again until it is 1."""
    shares: list[float] = []

    def is_home() -> bool:
        allotments = server.get(f"/groups/{GROUP}/assignments/web")["sources"][0]["allotments"]
        shares.append(next((one["share"] for one in allotments if one["locality"]["zone"] == "z1"), 0.0))
        return shares[-1] == 1.0

    wait_until(is_home, "all requests in their zone", 60.0, detail=lambda: shares)
    return shares


def test_a_source_whose_requests_fail_for_good_is_not_called_settled(
    server: ServerProcess, envoy: Callable[..., EnvoyProcess], upstream: StartUpstream, background: Background
) -> None:
    """Both zones serve a tenth of what the policy says: no change of shares helps, and the source says so."""
    near, far = upstream("near"), upstream("far")
    near.rate_rps = far.rate_rps = CAPACITY_RPS / 10
    resources = zoned("web", {"z1": [near.port], "z2": [far.port]}, **{**r.STEERED, **_limited(max_requests=10)})
    server.push(GROUP, resources)
    port = envoy("z1").wait_listener("web")
    wait_reporting(server, "web", ["envoy-z1"])
    assert server.request("PUT", f"/api/v1/groups/{GROUP}/assignments/web", json=POLICY).status_code == 200

    def is_said() -> bool:
        own = server.get(f"/groups/{GROUP}/assignments/web")["sources"][0]
        codes = {reason["code"] for reason in own["reasons"]}
        is_failing = own["standing"] == "failing" and "failing" in codes
        return is_failing and own["failed_rps"] > own["demand_rps"] / 2 and own["repeats_rps"] < own["demand_rps"] / 4

    with HttpLoad(background, port, rps=RPS, connections=40):
        wait_until(
            is_said, "the source is failing", 30.0, detail=lambda: server.get(f"/groups/{GROUP}/assignments/web")
        )


def _idle(tmp_path: Path, running: ExitStack, idle_s: float, **policy: Any) -> None:
    """A client that has its zone's assignment, says nothing for so long, and calls again."""
    server = running.enter_context(ServerProcess(tmp_path, ["--lrs-interval", "1s"]))
    near, far = backend(running, "near"), backend(running, "far")
    routed = service("web", near.port, **r.STEERED)
    server.push(GROUP, [*routed[:-1], r.zoned_load_assignment("web", {"z": [near.port], "far": [far.port]})])
    client = running.enter_context(GrpcClient(tmp_path, grpc_bootstrap(server.grpc_port)))
    ample = {**POLICY, "capacity": {"rates": [{"per_endpoint_rps": 100_000}]}, **policy}
    answer = server.request("PUT", f"/api/v1/groups/{GROUP}/assignments/web", json=ample)
    assert answer.status_code == 200, answer.text
    wait_until(lambda: {client.call(TARGET).body for _ in range(30)} == {"near"}, "all calls in the zone", 60.0)

    def standing() -> set[str]:
        return {one["standing"] for one in server.get(f"/groups/{GROUP}/assignments/web")["sources"]}

    until, stood = time.monotonic() + idle_s, set[str]()

    def is_over() -> bool:
        stood.update(standing())
        return time.monotonic() >= until

    wait_until(is_over, "the client is idle", idle_s + 30)
    assert stood <= {"settled", "moving"}
    assert {client.call(TARGET).body for _ in range(36)} == {"near"}


def test_an_idle_grpc_client_keeps_its_zone(tmp_path: Path, running: ExitStack) -> None:
    """C core reports nothing after two empty intervals, but its stream is open."""
    _idle(tmp_path, running, 9.0, fallback_after_s=6)


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_an_idle_grpc_client_keeps_its_zone_for_ten_minutes(tmp_path: Path, running: ExitStack) -> None:
    _idle(tmp_path, running, 600.0, interval_s=10, stale_after_s=30, fallback_after_s=300)


def test_nodes_that_never_report_are_shown(
    server: ServerProcess, envoy: Callable[..., EnvoyProcess], upstream: StartUpstream
) -> None:
    """Of two proxies of a zone one has no load stream; the demand counts twice, and a warning says so."""
    web = upstream("a")
    server.push(GROUP, zoned("web", {"z1": [web.port]}, **r.STEERED))
    port = envoy("z1").wait_listener("web")
    envoy("z1", node_id="envoy-silent", load_reports=False).wait_listener("web")
    wait_reporting(server, "web", ["envoy-z1"])
    assert server.request("PUT", f"/api/v1/groups/{GROUP}/assignments/web", json=POLICY).status_code == 200

    def told() -> bool:
        get(port)
        item = server.get(f"/groups/{GROUP}/assignments/web")
        reasons = {reason["code"] for source in item["sources"] for reason in source["reasons"]}
        return "partial_reports" in reasons and "partial_reports" in {one["code"] for one in item["warnings"]}

    wait_until(told, "one of two nodes is silent", 30.0)
    wait_more(server, ["envoy-z1"])
    assert load(server, "web")["issued"] > 0
