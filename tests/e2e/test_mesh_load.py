"""Load of lowered clusters with a real Envoy: reports are theirs, and traffic weights reach their assignments."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack

import pytest

from tests.e2e.mesh_site import HTTP, Json
from tests.e2e.test_demand import POLICY
from tests.e2e.test_load_reports import StartUpstream, envoy, load, server, wait_reporting
from tests.support.background import Background
from tests.support.commands import xds
from tests.support.envoy import EnvoyProcess
from tests.support.load import HttpLoad
from tests.support.process import LOOPBACK, free_port, wait_until
from tests.support.server import ServerProcess
from tests.support.upstream import Upstream

__all__ = ["envoy", "server"]  # fixtures

GROUP = "shop"
V1 = "v1.web.default.dc1.internal.consul"
CAPACITY_RPS, RPS = 50.0, 100.0
SAMPLE = 150  # requests that a split is judged by
DECIDED_S = 60.0
RESOLVER: Json = {
    "Kind": "service-resolver",
    "Name": "web",
    "DefaultSubset": "v1",
    "Subsets": {"v1": {"Filter": "Service.Meta.version == v1"}},
}


@pytest.fixture
def zones(server: ServerProcess, upstream: StartUpstream) -> dict[str, Upstream]:
    """A service with an instance in each of two zones."""
    made = {"z1": upstream("near"), "z2": upstream("far")}
    for zone, one in made.items():
        document = {"Name": "web", "Address": LOOPBACK, "Port": one.port, "Meta": {"version": "v1"}}
        document |= {"Locality": {"Region": "r", "Zone": zone}}
        ask(server, "PUT", f"/registrations/{one.name}", document)
    return made


def ask(server: ServerProcess, method: str, path: str, body: object) -> Json:
    answer = server.request(method, f"/api/v1{path}", json=body)
    assert answer.is_success, answer.text
    found: Json = answer.json()
    return found


def decided(server: ServerProcess) -> dict[str, float]:
    """The shares of the zones, for requests from z1."""
    sources = server.get(f"/groups/{GROUP}/assignments/{V1}")["sources"]
    found: list[Json] = next((one["allotments"] for one in sources if one["source"]["zone"] == "z1"), [])
    return {one["locality"]["zone"]: round(one["share"], 2) for one in found}


@pytest.mark.timeout(300)
def test_load_and_traffic_weights_of_a_lowered_cluster(
    server: ServerProcess,
    zones: dict[str, Upstream],
    envoy: Callable[..., EnvoyProcess],
    background: Background,
    running: ExitStack,
) -> None:
    """The zone can take half of the requests: the rest goes on to the next one, after a restart as well."""
    port = free_port()
    ask(server, "POST", "/config-entries", [HTTP, RESOLVER])
    document = {"upstreams": [{"service": "web", "bind_port": port}], "locality_aware": True}
    ask(server, "PUT", f"/groups/{GROUP}/upstreams?selector=node.id%20%3D%3D%20%22envoy-z1%22", document)
    envoy("z1").wait_listener(f"web:{LOOPBACK}:{port}")
    wait_reporting(server, V1, ["envoy-z1"])
    traffic = running.enter_context(HttpLoad(background, port, rps=RPS, connections=20))
    wait_until(lambda: load(server, V1)["issued"] >= SAMPLE, "the load is reported", DECIDED_S)
    told = xds("load", "--server", f"http://{LOOPBACK}:{server.http_port}")
    assert (told.code, V1 in told.out) == (0, True), told

    policy = {**POLICY, "capacity": {"rates": [{"per_locality_rps": CAPACITY_RPS}]}, "maximum_step": 1.0}
    assert ask(server, "PUT", f"/groups/{GROUP}/assignments/{V1}", policy)["warnings"] == []
    wait_until(lambda: 0.35 <= decided(server).get("z1", 0) <= 0.65, "half stays", DECIDED_S, lambda: decided(server))
    wait_split(traffic)
    revision = server.get(f"/groups/{GROUP}/snapshot")["revision"]
    server.stop()
    server.start()
    assert server.get(f"/groups/{GROUP}/snapshot")["revision"] == revision
    wait_split(traffic)
    assert traffic.report.failed == 0, traffic.report


def wait_split(traffic: HttpLoad) -> None:
    def halved() -> bool:
        before = traffic.report.bodies.copy()
        traffic.wait_total(SAMPLE)
        counts = traffic.report.bodies - before
        return 0.3 <= counts["near"] / counts.total() <= 0.7

    wait_until(halved, "half of the requests leave the zone", DECIDED_S, traffic.report.bodies.copy)
