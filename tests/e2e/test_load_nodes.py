"""Reports of real Envoys: nodes that share an id, many clusters, subsets, metrics of backends, an Envoy that stops."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.e2e.test_grpc_clients import GROUP
from tests.e2e.test_load_reports import load, wait_counts, wait_more, wait_reporting, zoned
from tests.support import resources as r
from tests.support.bootstrap import EnvoyBootstrap, Variant
from tests.support.envoy import EnvoyProcess, get
from tests.support.server import ServerProcess
from tests.support.upstream import Upstream

NODE = "envoy-z1"
NUMBER = 20
CLUSTERS = 40  # Envoy reports them in the order of a hash map: another one in each report
ORCA = "endpoint-load-metrics: TEXT cpu_utilization=0.25,named_metrics.q=3\r\n"
SUBSET = {"filter_metadata": {"envoy.lb": {"stage": "canary"}}}


@pytest.fixture
def server(tmp_path: Path, running: ExitStack) -> ServerProcess:
    """A server that asks for a report a second."""
    return running.enter_context(ServerProcess(tmp_path, ["--lrs-interval", "1s"]))


@pytest.fixture
def envoy(tmp_path: Path, server: ServerProcess, running: ExitStack) -> Callable[..., EnvoyProcess]:
    """Starts an Envoy that reports, under a name of its own log and, if it is said so, the id of another one."""

    def start(name: str, node_id: str = "") -> EnvoyProcess:
        locality = {"region": "r", "zone": "z1"}
        bootstrap = EnvoyBootstrap(
            server.grpc_port, Variant.ADS_DELTA, node_id=node_id or name, locality=locality, load_reports=True
        )
        return running.enter_context(EnvoyProcess(tmp_path, bootstrap, name))

    return start


def test_nodes_are_counted_as_they_are_whatever_the_order_of_clusters(
    server: ServerProcess, envoy: Callable[..., EnvoyProcess], upstream: Callable[[str], Upstream]
) -> None:
    """Two Envoys share an id, a third has its own: two nodes, and the requests of all three."""
    web = upstream("web")
    names = [f"c{number}" for number in range(CLUSTERS)]
    clusters = [made for name in names for made in zoned(name, {"z1": [web.port]})[:2]]
    routes = [r.route(name, f"/{name}") for name in reversed(names)]  # the longer prefix first
    server.push(GROUP, [*clusters, r.listener("web", r.rds("web")), r.route_config("web", *routes)])
    ports = [each.wait_listener("web") for each in (envoy(NODE), envoy("twin", NODE), envoy("other"))]
    for name in names:
        wait_reporting(server, name, [NODE, "other"], more=0)
    wait_more(server, [NODE, "other"])
    for port in ports:
        for name in names:
            assert get(port, path=f"/{name}").status_code == 200
    for name in names:
        found = wait_counts(server, name, issued=3, successes=3, errors=0)
        assert found["nodes"] == 2, name
    wait_more(server, [NODE, "other"], more=6)
    assert {load(server, name)["nodes"] for name in names} == {2}
    assert web.requests == 3 * CLUSTERS


def test_requests_to_a_subset_and_metrics_of_backends_are_exact(
    server: ServerProcess, envoy: Callable[..., EnvoyProcess], upstream: Callable[[str], Upstream]
) -> None:
    canary, stable, measured = upstream("canary"), upstream("stable"), upstream("measured")
    measured.head = ORCA
    cluster, assignment, *_ = zoned(
        "web", {"z1": [canary.port, stable.port]}, lb_subset_config={"subset_selectors": [{"keys": ["stage"]}]}
    )
    for endpoint, stage in zip(assignment["endpoints"][0]["lb_endpoints"], ("canary", "stable"), strict=True):
        endpoint["metadata"] = {"filter_metadata": {"envoy.lb": {"stage": stage}}}
    metrics: r.Json = {"lrs_report_endpoint_metrics": ["cpu_utilization", "named_metrics.q"]}
    routes = [
        r.route("web", "/web", metadata_match=SUBSET),
        r.route("measured", "/measured"),
    ]
    listener, table = r.listener("web", r.rds("web")), r.route_config("web", *routes)
    others = zoned("measured", {"z1": [measured.port]}, **metrics)[:2]
    server.push(GROUP, [cluster, assignment, *others, listener, table])
    port = envoy(NODE).wait_listener("web")
    for name in ("web", "measured"):
        wait_reporting(server, name, [NODE])
    for name in ("web", "measured"):
        assert {get(port, path=f"/{name}").status_code for _ in range(NUMBER)} == {200}
    wait_counts(server, "web", issued=NUMBER, successes=NUMBER, errors=0)
    assert (canary.requests, stable.requests) == (NUMBER, 0)
    found = wait_counts(server, "measured", issued=NUMBER, successes=NUMBER, errors=0)
    assert measured.requests == NUMBER
    told = {name: (one["requests"], one["average"]) for name, one in found["metrics"].items()}
    assert told == {"cpu_utilization": (NUMBER, 0.25), "named_metrics.q": (NUMBER, 3.0)}


def test_counts_of_the_last_report_stay_when_an_envoy_stops(
    server: ServerProcess, envoy: Callable[..., EnvoyProcess], upstream: Callable[[str], Upstream]
) -> None:
    """It sends no report at its exit: what came after the last one is lost, and nothing before."""
    web = upstream("web")
    server.push(GROUP, zoned("web", {"z1": [web.port]}))
    stopping = envoy(NODE)
    port = stopping.wait_listener("web")
    wait_reporting(server, "web", [NODE])
    assert {get(port).status_code for _ in range(NUMBER)} == {200}
    wait_counts(server, "web", issued=NUMBER)
    assert {get(port).status_code for _ in range(NUMBER)} == {200}
    stopping.stop()
    other = envoy("other")
    other.wait_listener("web")
    wait_reporting(server, "web", ["other"])
    assert NUMBER <= load(server, "web")["issued"] <= web.requests == 2 * NUMBER
