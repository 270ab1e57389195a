"""Counts of real Envoys for requests that end in each usual way: `/load` equals the counts of the upstreams."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.e2e.test_grpc_clients import GROUP
from tests.e2e.test_load_reports import REPORTED_S, load, wait_counts, wait_more, wait_reporting, zoned
from tests.support import resources as r
from tests.support.bootstrap import EnvoyBootstrap, Variant
from tests.support.envoy import EnvoyProcess, get, wait_body
from tests.support.process import LOOPBACK, free_port, wait_until
from tests.support.server import ServerProcess
from tests.support.upstream import Upstream

Json = r.Json
StartUpstream = Callable[[str], Upstream]

NODE = "envoy-z1"
NUMBER = 20  # requests to each cluster
STATUSES = {"missing": 404, "limited": 429, "broken": 500}
RETRIES = {"retry_on": "5xx", "num_retries": 2}


@pytest.fixture
def server(tmp_path: Path, running: ExitStack) -> ServerProcess:
    """A server that asks for a report a second."""
    return running.enter_context(ServerProcess(tmp_path, ["--lrs-interval", "1s"]))


@pytest.fixture
def envoy(tmp_path: Path, server: ServerProcess, running: ExitStack) -> EnvoyProcess:
    """An Envoy in zone z1 that reports."""
    locality = {"region": "r", "zone": "z1"}
    bootstrap = EnvoyBootstrap(server.grpc_port, Variant.ADS_DELTA, node_id=NODE, locality=locality, load_reports=True)
    return running.enter_context(EnvoyProcess(tmp_path, bootstrap, NODE))


def statuses(port: int, path: str) -> set[int]:
    return {get(port, path=path).status_code for _ in range(NUMBER)}


def test_requests_are_counted_by_how_they_end(
    server: ServerProcess, envoy: EnvoyProcess, upstream: StartUpstream
) -> None:
    """Every try counts. A 4xx is a success; a request that found no connection was never issued."""
    names = [*STATUSES, "slow", "retried", "main", "mirror"]
    upstreams = {name: upstream(name) for name in names}
    for name, status in STATUSES.items():
        upstreams[name].status = status
    upstreams["slow"].delay_s = 0.5
    upstreams["retried"].status = 503
    ports = {**{name: one.port for name, one in upstreams.items()}, "closed": free_port()}
    routes = [
        *(r.route(name, f"/{name}") for name in (*STATUSES, "closed")),
        r.route("slow", "/slow", timeout="0.05s"),
        r.route("retried", "/retried-twice", retry_policy=RETRIES),
        r.route("main", "/main", request_mirror_policies=[{"cluster": "mirror"}]),
    ]
    clusters = [made for name, port in ports.items() for made in zoned(name, {"z1": [port]})[:2]]
    server.push(GROUP, [*clusters, r.listener("web", r.rds("web")), r.route_config("web", *routes)])
    port = envoy.wait_listener("web")
    for name in ports:
        wait_reporting(server, name, [NODE], more=0)
    wait_more(server, [NODE])

    for name, status in STATUSES.items():
        assert statuses(port, f"/{name}") == {status}
    assert statuses(port, "/slow") == {504}
    assert statuses(port, "/retried-twice") == {503}
    assert statuses(port, "/main") == {200}
    assert statuses(port, "/closed") == {503}

    for name in ("missing", "limited", "main", "mirror"):
        wait_counts(server, name, successes=NUMBER, errors=0, issued=NUMBER)
    for name in ("broken", "slow"):
        wait_counts(server, name, successes=0, errors=NUMBER, issued=NUMBER)
    tries = upstreams["retried"].requests
    assert tries > 2 * NUMBER  # a budget may end some
    wait_counts(server, "retried", successes=0, errors=tries, issued=tries)
    wait_counts(server, "closed", successes=0, errors=NUMBER, issued=0)
    assert {name: upstreams[name].requests for name in ("main", "mirror", "slow")} == dict.fromkeys(
        ("main", "mirror", "slow"), NUMBER
    )


def test_failed_over_requests_are_reported_by_priority(
    server: ServerProcess, envoy: EnvoyProcess, upstream: StartUpstream
) -> None:
    """Two localities; the one of priority 0 is pushed as unhealthy, later."""
    first, second = upstream("first"), upstream("second")

    def push(health: str) -> None:
        cluster, assignment, *rest = zoned("c1", {"z1": [first.port], "z2": [second.port]})
        near, far = assignment["endpoints"]
        near["lb_endpoints"][0]["health_status"] = health
        far["priority"] = 1
        server.push(GROUP, [cluster, assignment, *rest])

    push("HEALTHY")
    port = envoy.wait_listener("web")
    wait_reporting(server, "c1", [NODE])
    assert statuses(port, "/") == {200}
    push("UNHEALTHY")
    wait_body(port, "second")
    assert statuses(port, "/") == {200}
    wait_counts(server, "c1", successes=first.requests + second.requests)
    rows = load(server, "c1")["localities"]
    found = {(row["locality"]["zone"], row["priority"]): row["successes"] for row in rows}
    assert found == {("z1", 0): first.requests, ("z2", 1): second.requests}
    assert second.requests > NUMBER


def test_endpoints_that_drain_for_an_interval_before_they_go_are_counted(
    server: ServerProcess, envoy: EnvoyProcess, upstream: StartUpstream
) -> None:
    """Envoy drops the counts of an endpoint that is removed; as one that drains, it is reported once more."""
    old, new = upstream("old"), upstream("new")

    def push(*endpoints: tuple[Upstream, str]) -> None:
        cluster, assignment, *rest = zoned("c1", {"z1": [each.port for each, _ in endpoints]})
        for made, (_, health) in zip(assignment["endpoints"][0]["lb_endpoints"], endpoints, strict=True):
            made["health_status"] = health
        server.push(GROUP, [cluster, assignment, *rest])

    push((old, "HEALTHY"))
    port = envoy.wait_listener("web")
    wait_reporting(server, "c1", [NODE])
    for _ in range(2):
        assert statuses(port, "/") == {200}
        push((old, "DRAINING"), (new, "HEALTHY"))
        wait_body(port, new.name)
        wait_more(server, [NODE])
        push((new, "HEALTHY"))
        server.wait_synced(GROUP, NODE)
        old, new = new, old
    assert statuses(port, "/") == {200}
    sent = old.requests + new.requests
    assert sent > 3 * NUMBER
    wait_until(lambda: load(server, "c1")["issued"] == sent, f"{sent} requests", REPORTED_S)


def test_live_endpoints_that_go_are_counted_to_the_last_request(
    server: ServerProcess, envoy: EnvoyProcess, upstream: StartUpstream
) -> None:
    """Nobody has to mark them: they drain for `order.endpoint_drain_s`, which is longer than an interval."""
    old, new = upstream("old"), upstream("new")
    server.push(GROUP, zoned("c1", {"z1": [old.port]}))
    port = envoy.wait_listener("web")
    wait_reporting(server, "c1", [NODE])

    def swap(gone: Upstream, come: Upstream) -> None:
        """As a deployment does: another endpoint instead of one that just had requests."""
        place: Json = {"locality": {"region": "r", "zone": "z1"}}
        body: Json = {
            "put": [{"address": f"{LOOPBACK}:{come.port}", **place}],
            "remove": [f"{LOOPBACK}:{gone.port}"],
        }
        answer = server.request("PATCH", f"/api/v1/groups/{GROUP}/endpoints/c1", json=body)
        assert answer.status_code == 200, answer.text

    for _ in range(3):
        assert statuses(port, "/") == {200}
        swap(old, new)
        wait_body(port, new.name)
        old, new = new, old
    assert statuses(port, "/") == {200}
    sent = old.requests + new.requests
    assert sent > 4 * NUMBER
    wait_until(lambda: load(server, "c1")["issued"] == sent, f"{sent} requests", REPORTED_S)
