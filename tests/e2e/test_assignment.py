"""Traffic stays in its zone until the zone is full: two zones with real Envoys under load, and no lost request.

``near`` and ``far`` are the zones. Each has an Envoy and two endpoints, and a capacity of ``CAPACITY_RPS``.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.test_grpc_clients import TARGET, backend, service
from tests.support import resources as r
from tests.support.background import Background
from tests.support.bootstrap import EnvoyBootstrap, Variant, grpc_bootstrap
from tests.support.envoy import EnvoyProcess
from tests.support.grpc_client import GrpcClient, old_grpc_python
from tests.support.http import plain_client
from tests.support.load import HttpLoad
from tests.support.process import DEADLINE_S, LOOPBACK, wait_until
from tests.support.server import ServerProcess
from tests.support.upstream import Upstream

GROUP = "test"
NEAR, FAR = "near", "far"
CAPACITY_RPS = 60.0
LOW_RPS, HIGH_RPS, FAR_RPS = 30.0, 100.0, 15.0
POLICY: dict[str, Any] = {
    "capacity": {"rates": [{"per_endpoint_rps": CAPACITY_RPS / 2}]},
    "interval_s": 1,
    "dwell_s": 2,
    "stale_after_s": 10,
    "fallback_after_s": 60,
    "maximum_step": 0.5,
    "minimum_change": 0.0,
}
SETTLED_S = 90.0  # some intervals, on a busy machine
SAMPLE = 60  # the number of requests that measure a split


@dataclass
class Zones:
    """The two zones, and their measurements."""

    server: ServerProcess
    upstreams: dict[str, list[Upstream]]
    loads: dict[str, HttpLoad]

    def push(self, gone: str = "", **cluster: Any) -> None:
        """Push the cluster; the endpoints of a zone may be marked as unhealthy."""
        self.server.push(GROUP, self.content(gone, **cluster))

    def content(self, gone: str = "", **cluster: Any) -> list[r.Json]:
        """The cluster with its endpoints, and a listener for it."""
        zones = {zone: [each.port for each in members] for zone, members in self.upstreams.items()}
        assignment = r.zoned_load_assignment("web", zones)
        for locality in assignment["endpoints"]:
            if locality["locality"]["zone"] == gone:
                locality["lb_endpoints"] = [{**one, "health_status": "UNHEALTHY"} for one in locality["lb_endpoints"]]
        return [
            r.steered_cluster("web", **r.http_health_check(), **cluster),
            assignment,
            r.listener("web", r.rds("web")),
            r.route_config("web", r.route("web")),
        ]

    def steer(self, **fields: Any) -> r.Json:
        """Set the policy."""
        answer = self.server.request("PUT", f"/api/v1/groups/{GROUP}/assignments/web", json={**POLICY, **fields})
        assert answer.status_code == 200, answer.text
        assert answer.json()["warnings"] == []
        found: r.Json = answer.json()
        return found

    def decided(self, zone: str) -> dict[str, float]:
        """The decided shares of a zone's requests, by target zone."""
        item = self.server.get(f"/groups/{GROUP}/assignments/web")
        own = next((one for one in item["sources"] if one["source"]["zone"] == zone), None)
        shares = own["allotments"] if own is not None and own["standing"] != "pushed" else []
        return {one["locality"]["zone"]: one["share"] for one in shares if one["share"]}

    def wait_decided(self, zone: str, **shares: tuple[float, float]) -> None:
        """Wait until the shares of a zone's requests are within these bounds."""

        def is_so() -> bool:
            found = self.decided(zone)
            return all(low <= found.get(name, 0.0) <= high for name, (low, high) in shares.items())

        wait_until(is_so, f"{zone}: {shares}", SETTLED_S, detail=lambda: self.decided(zone))

    def split(self, zone: str) -> dict[str, float]:
        """The zones that answer the next requests of a zone."""
        load = self.loads[zone]
        before = Counter(load.report.bodies)
        load.wait_total(SAMPLE)
        answered = load.report.bodies - before
        return {name: count / answered.total() for name, count in answered.items()}

    def wait_all(self, zone: str, target: str) -> None:
        """Wait until all requests of a zone are answered in one."""
        wait_until(lambda: self.split(zone) == {target: 1.0}, f"all of {zone} in {target}", SETTLED_S)

    def lost(self) -> list[str]:
        """The failed requests, by error."""
        return [sample for load in self.loads.values() for sample in load.report.samples]


@pytest.fixture
def zones(
    tmp_path: Path, running: ExitStack, background: Background, upstream: Callable[[str], Upstream]
) -> Iterator[Zones]:
    server = running.enter_context(ServerProcess(tmp_path, ["--lrs-interval", "1s"], {"XDS_SERVER__DRAIN_S": "0.5"}))
    made = Zones(server, {zone: [upstream(zone), upstream(zone)] for zone in (NEAR, FAR)}, {})
    made.push()
    for zone, variant in ((NEAR, Variant.ADS_DELTA), (FAR, Variant.ADS_SOTW)):
        fields: dict[str, Any] = {"locality": {"region": "r", "zone": zone}, "load_reports": True}
        bootstrap = EnvoyBootstrap(server.grpc_port, variant, node_id=f"envoy-{zone}", **fields)
        port = running.enter_context(EnvoyProcess(tmp_path, bootstrap, f"envoy-{zone}")).wait_listener("web")
        rps = LOW_RPS if zone == NEAR else FAR_RPS
        made.loads[zone] = running.enter_context(HttpLoad(background, port, rps=rps))
    yield made


def settle(zones: Zones) -> int:
    """Set the policy, and wait until each zone keeps its requests; the revision of the group."""
    zones.steer()
    zones.wait_decided(NEAR, near=(1.0, 1.0), far=(0.0, 0.0))
    zones.wait_all(NEAR, NEAR)
    zones.wait_all(FAR, FAR)
    return int(zones.server.get(f"/groups/{GROUP}")["revision"])


def check(zones: Zones, revision: int) -> None:
    """No request is lost by a change of weights, and none of it makes a revision."""
    assert zones.lost() == []
    assert zones.server.get(f"/groups/{GROUP}")["revision"] == revision
    assert {"configured", "changed"} <= set(told(zones.server))


def test_excess_spills_to_the_next_zone_and_comes_back(zones: Zones) -> None:
    revision = settle(zones)

    zones.loads[NEAR].rps = HIGH_RPS  # 40 % more than the zone can take
    zones.wait_decided(NEAR, near=(0.45, 0.75), far=(0.25, 0.55))
    found = zones.split(NEAR)
    assert found[NEAR] > 0.3 and found[FAR] > 0.1, found
    assert zones.split(FAR) == {FAR: 1.0}, "the other zone keeps its own"

    zones.loads[NEAR].rps = LOW_RPS
    zones.wait_decided(NEAR, near=(1.0, 1.0))
    zones.wait_all(NEAR, NEAR)
    check(zones, revision)


@pytest.mark.parametrize("canary", [FAR, pytest.param(NEAR, marks=pytest.mark.soak)])
def test_both_lines_of_a_rollout_are_assigned_and_a_roll_back_changes_nothing(zones: Zones, canary: str) -> None:
    """The busy Envoy is outside of the wave, and in it."""
    settle(zones)
    plan = {"waves": [], "nodes": [f"envoy-{canary}"], "hold_s": 600, "timeout_s": 600, "max_errors": 1}
    body = {"resources": [*zones.content(), r.static_cluster("extra", 1)], "rollout": plan}
    assert zones.server.request("PUT", f"/api/v1/groups/{GROUP}/snapshot", json=body).status_code == 200
    zones.loads[NEAR].rps = HIGH_RPS
    zones.wait_decided(NEAR, near=(0.45, 0.75), far=(0.25, 0.55))
    assert zones.split(NEAR)[FAR] > 0.1
    zones.steer(interval_s=600, dwell_s=600, stale_after_s=600, fallback_after_s=600)  # no other decision meanwhile
    before = zones.decided(NEAR)

    def is_in_step() -> bool:
        return {each["state"] for each in zones.server.types(f"envoy-{NEAR}").values()} == {"synced"}

    wait_until(
        is_in_step, "the busy Envoy has what its line is served", detail=lambda: zones.server.types("envoy-near")
    )
    version = endpoints_version(zones.server, f"envoy-{NEAR}")
    assert "+" in version
    action = {"action": "abort"}
    assert zones.server.request("POST", f"/api/v1/groups/{GROUP}/rollout", json=action).is_success
    for zone in (NEAR, FAR):
        zones.server.wait_synced(GROUP, f"envoy-{zone}")
    assert zones.decided(NEAR) == before
    assert endpoints_version(zones.server, f"envoy-{NEAR}") == version
    assert zones.split(NEAR)[FAR] > 0.1
    assert zones.lost() == []


@pytest.mark.soak
def test_requests_of_a_zone_follow_the_living(zones: Zones) -> None:
    revision = settle(zones)
    for each in zones.upstreams[NEAR]:
        each.healthy = False  # the proxies notice first: failover goes to the other zone
    zones.wait_all(NEAR, FAR)
    for each in zones.upstreams[NEAR]:
        each.healthy = True
    zones.wait_all(NEAR, NEAR)

    zones.push(gone=NEAR)  # now a push says so, too
    zones.wait_decided(NEAR, far=(1.0, 1.0), near=(0.0, 0.0))
    zones.wait_all(NEAR, FAR)
    check(zones, revision + 1)


def test_a_restart_of_the_server_moves_no_traffic(zones: Zones) -> None:
    zones.loads[NEAR].rps = HIGH_RPS
    zones.steer()
    zones.wait_decided(NEAR, near=(0.45, 0.75), far=(0.25, 0.55))
    zones.steer(interval_s=600, dwell_s=600, stale_after_s=600, fallback_after_s=600)  # no other decision meanwhile
    zones.server.wait_synced(GROUP, f"envoy-{NEAR}")
    before, version = zones.decided(NEAR), endpoints_version(zones.server, f"envoy-{NEAR}")
    assert "+" in version
    zones.server.stop()
    zones.server.start()
    zones.server.wait_synced(GROUP, f"envoy-{NEAR}")
    assert endpoints_version(zones.server, f"envoy-{NEAR}") == version, "the same version_info as before"
    assert zones.decided(NEAR) == before
    assert zones.split(NEAR)[FAR] > 0.1
    assert zones.lost() == []


@pytest.mark.parametrize("api", ["v3", "v2"])
def test_grpc_clients_are_assigned_too(tmp_path: Path, running: ExitStack, api: str) -> None:
    """C core reports over its ADS connection and takes weights and priorities; 1.49.1 speaks the v2 transport."""
    server = running.enter_context(ServerProcess(tmp_path, ["--lrs-interval", "1s"]))
    near, far = backend(running, NEAR), backend(running, FAR)
    routed = service("web", near.port, **r.STEERED)
    server.push(GROUP, [*routed[:-1], r.zoned_load_assignment("web", {"z": [near.port], FAR: [far.port]})])
    features, python = (("xds_v3",), None) if api == "v3" else ((), old_grpc_python())
    bootstrap = grpc_bootstrap(server.grpc_port, features=features)
    client = running.enter_context(GrpcClient(tmp_path, bootstrap, python=python))
    ample = {**POLICY, "capacity": {"rates": [{"per_endpoint_rps": 100_000}]}}
    answer = server.request("PUT", f"/api/v1/groups/{GROUP}/assignments/web", json=ample)
    assert answer.status_code == 200, answer.text

    def bodies() -> set[str]:
        return {client.call(TARGET).body for _ in range(SAMPLE)}

    wait_until(lambda: bodies() == {NEAR}, "all calls in the zone of the client", SETTLED_S)
    assert "+" in endpoints_version(server, "grpc-1")
    near.kill()  # the other zone stands below
    client.wait_body(TARGET, FAR)
    assert bodies() == {FAR}


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_no_request_is_lost_while_weights_and_pushes_change(zones: Zones) -> None:
    """For minutes: load rises and falls, zones die and recover, clusters are pushed. No request fails."""
    zones.steer(dwell_s=1)
    zones.wait_decided(NEAR, near=(1.0, 1.0))
    for cycle in range(6):
        zones.loads[NEAR].rps = HIGH_RPS
        zones.wait_decided(NEAR, near=(0.45, 0.75), far=(0.25, 0.55))
        zones.push(connect_timeout=f"{cycle + 2}s")  # a changed cluster warms, with its assignment overlaid
        assert zones.split(NEAR)[FAR] > 0.1
        zones.loads[NEAR].rps = LOW_RPS
        zones.wait_decided(NEAR, near=(1.0, 1.0))
        zones.push(gone=(NEAR, FAR)[cycle % 2])
        zones.wait_all(NEAR, (FAR, NEAR)[cycle % 2])
        zones.push()
        zones.wait_all(NEAR, NEAR)
        zones.wait_all(FAR, FAR)
    assert zones.lost() == []


def told(server: ServerProcess) -> Iterator[str]:
    """The actions of assignment events from the start, where something changed."""
    url = f"http://{LOOPBACK}:{server.http_port}/api/v1/events"
    headers = {"Accept": "application/x-ndjson", "Last-Event-ID": "0"}
    with (
        plain_client(timeout=DEADLINE_S) as client,
        client.stream("GET", url, params={"kinds": "assignment"}, headers=headers) as answer,
    ):
        for line in answer.iter_lines():
            action = json.loads(line or "{}").get("action")
            if action is not None:
                yield action
            if action == "changed":
                return


def endpoints_version(server: ServerProcess, node: str) -> str:
    """The version_info of the endpoints that a node has ACKed."""
    return str(server.types(node)["endpoints"]["version_acked"])
