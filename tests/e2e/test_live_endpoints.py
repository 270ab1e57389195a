"""Live endpoints under load: real Envoys and a gRPC client, with pushes, undo and restarts in between; no lost request.

The endpoints that are set by hand are a, b and c. ``pushed`` is the endpoint of the snapshot: while endpoints are set
by hand, nobody may be sent to it. The Envoys and the gRPC client have a group each.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.e2e.test_grpc_clients import TARGET, backend, service
from tests.support import resources as r
from tests.support.answering import PATIENCE_S, Clients, GrpcCalls
from tests.support.background import Background
from tests.support.bootstrap import EnvoyBootstrap, Variant, grpc_bootstrap
from tests.support.envoy import EnvoyProcess
from tests.support.grpc_client import GrpcBackend, GrpcClient
from tests.support.http import plain_client
from tests.support.load import HttpLoad
from tests.support.process import LOOPBACK, wait_until
from tests.support.server import ServerProcess
from tests.support.upstream import Upstream

WEB, SVC = "web", "svc"
GROUPS = {WEB: "test", SVC: "grpc"}
GROUP = GROUPS[WEB]
VARIANTS = (Variant.ADS_DELTA, Variant.ADS_SOTW)
DRAIN_S = 3.0
RECONNECT_S = PATIENCE_S
RANDOM_STEPS = 40


@dataclass
class Site(Clients):
    """The clients, the endpoints by name, and the load."""

    server: ServerProcess
    upstreams: dict[str, Upstream]
    backends: dict[str, GrpcBackend]

    def address(self, name: str, assignment: str = WEB) -> str:
        port = self.upstreams[name].port if assignment == WEB else self.backends[name].port
        return f"{LOOPBACK}:{port}"

    def push(self, timeout: str = "1s") -> int:
        """Push the configuration with the pushed endpoints; the revision."""
        answer = self.server.push(
            GROUP,
            [
                r.eds_cluster(WEB, connect_timeout=timeout),
                r.cluster_load_assignment(WEB, self.upstreams["pushed"].port),
                r.listener(WEB, r.rds(WEB)),
                r.route_config(WEB, r.route(WEB)),
            ],
        )
        self.server.push(GROUPS[SVC], service(SVC, self.backends["pushed"].port, connect_timeout=timeout))
        return int(answer["revision"])

    def ask(self, method: str, assignment: str, body: r.Json | None = None, **query: object) -> r.Json:
        path = f"/api/v1/groups/{GROUPS[assignment]}/endpoints/{assignment}"
        parameters = {name: str(value) for name, value in query.items()}
        answer = self.server.request(method, path, json=body, params=parameters)
        assert answer.status_code == 200, answer.text
        found: r.Json = answer.json()
        return found

    def set(self, *names: str, **query: object) -> None:
        self.ask("PUT", WEB, r.load_assignment(WEB, *(self.upstreams[name].port for name in names)), **query)
        self.ask("PUT", SVC, r.load_assignment(SVC, *(self.backends[name].port for name in names)), **query)

    def add(self, name: str, **fields: object) -> None:
        for assignment in (WEB, SVC):
            self.ask("PATCH", assignment, {"put": [{"address": self.address(name, assignment), **fields}]})

    def remove(self, name: str, **query: object) -> None:
        for assignment in (WEB, SVC):
            self.ask("PATCH", assignment, {"remove": [self.address(name, assignment)]}, **query)

    def wait_hosts(self, *names: str) -> None:
        """Wait until the Envoys have exactly these endpoints, draining ones included."""
        self.wait_endpoints(WEB, {self.upstreams[name].port for name in names})

    def health(self, name: str) -> list[str]:
        """The health of an endpoint in each Envoy; empty where it has none."""
        port = self.upstreams[name].port
        found = []
        for envoy in self.envoys:
            hosts = envoy.clusters()[WEB].get("host_statuses", [])
            at = [each for each in hosts if each["address"]["socket_address"]["port_value"] == port]
            found.append(at[0]["health_status"].get("eds_health_status", "") if at else "")
        return found


@pytest.fixture
def site(
    tmp_path: Path, running: ExitStack, background: Background, upstream: Callable[[str], Upstream]
) -> Iterator[Site]:
    environment = {"XDS_ORDER__ENDPOINT_DRAIN_S": str(DRAIN_S), "XDS_SERVER__DRAIN_S": "0.5"}
    server = running.enter_context(ServerProcess(tmp_path, environment=environment))
    names = ("a", "b", "c", "pushed")
    site = Site(
        server,
        {name: upstream(name) for name in names},
        {name: backend(running, name) for name in names},
    )
    site.push()
    site.set("a", drain_s=0)
    for variant in VARIANTS:
        bootstrap = EnvoyBootstrap(server.grpc_port, variant, node_id=f"envoy-{variant.value}")
        envoy = running.enter_context(EnvoyProcess(tmp_path, bootstrap, f"envoy-{variant.value}"))
        site.envoys.append(envoy)
        port = envoy.wait_listener(WEB)
        site.loads.append(running.enter_context(HttpLoad(background, port, rps=150)))
    client = GrpcClient(tmp_path, grpc_bootstrap(server.grpc_port, node_id="grpc", node_cluster=GROUPS[SVC]))
    running.enter_context(client)
    client.wait_body(TARGET, "a")
    site.calls = running.enter_context(GrpcCalls(client, TARGET).running())
    yield site


def test_endpoints_come_weigh_drain_and_go_with_pushes_and_undo_in_between(site: Site) -> None:
    revision = site.push("2s")
    site.wait_answered_by("a")
    site.add("b")
    site.wait_answered_by("a", "b")
    site.add("b", weight=9)
    site.wait_answered_by("a", "b")

    def is_weighed() -> bool:  # gRPC shares requests by the weights of localities, not of endpoints
        return all(split["b"] > 3 * split.get("a", 0) for split in site.splits()[: len(VARIANTS)])

    wait_until(is_weighed, "nine tenths to b", RECONNECT_S, detail=site.splits)
    site.push("3s")
    assert site.server.request("POST", f"/api/v1/groups/{GROUP}/rollback", json={"to": revision}).is_success
    site.wait_answered_by("a", "b")
    assert site.server.get(f"/groups/{GROUP}")["revision"] == revision + 2, "live changes make no revision"

    # Requests in flight on an endpoint that drains end well, and it may stop once the proxies have dropped it.
    site.upstreams["a"].delay_s = 1.0
    time.sleep(0.5)
    site.remove("a", drain_s=8)
    drains = ["DRAINING"] * len(VARIANTS)
    wait_until(lambda: site.health("a") == drains, "a drains", detail=lambda: site.health("a"))
    site.wait_answered_by("b")
    site.wait_hosts("b")
    site.upstreams["a"].close()
    site.backends["a"].kill()

    site.add("c")
    site.wait_answered_by("b", "c")
    site.remove("b", drain_s=60)
    site.wait_answered_by("c")
    site.add("b")
    site.wait_answered_by("b", "c")
    site.remove("b", drain_s=0)
    site.wait_hosts("c")
    assert all(load.report.bodies["pushed"] == 0 for load in site.loads)
    for assignment in (WEB, SVC):
        site.ask("DELETE", assignment)
    site.wait_answered_by("pushed")
    site.wait_hosts("pushed")
    site.check()


def test_restarts_lose_nothing_that_was_answered(site: Site) -> None:
    """After SIGTERM and after kill -9 the same endpoints are served, draining ones to their end; in step at once."""
    site.add("b")
    site.wait_answered_by("a", "b")
    site.server.stop()
    site.server.start()
    for envoy in site.envoys:
        envoy.wait_stat("control_plane.connected_state", 1)
    site.wait_answered_by("a", "b")
    site.add("c")
    site.remove("a", drain_s=6)
    ends_at = time.monotonic() + 6
    site.server.kill()
    site.server.start()
    site.wait_answered_by("b", "c")
    assert "DRAINING" in site.health("a") or time.monotonic() > ends_at
    site.wait_hosts("b", "c")
    assert time.monotonic() > ends_at - 1, "it drained for its whole time, the restart included"
    assert all(load.report.bodies["pushed"] == 0 for load in site.loads)
    site.check()


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.soak), pytest.param(3, marks=pytest.mark.soak)])
def test_a_random_run_ends_with_equal_sets_after_every_step(site: Site, seed: int) -> None:
    """What was asked for, what the server shows, and what each Envoy has are equal; no request is lost on the way."""
    dice = random.Random(seed)
    wanted = {"a"}
    for step in range(RANDOM_STEPS):
        name = dice.choice("abc")
        if dice.random() < 0.15:
            site.push(f"{2 + step}s")
        elif name in wanted and len(wanted) > 1 and dice.random() < 0.7:
            wanted.discard(name)
            # Without a drain, what is in flight there ends well too: the endpoint itself stays.
            site.remove(name, drain_s=dice.choice((0, 0.5)))
        else:
            wanted.add(name)
            site.add(name, weight=dice.randint(1, 5))
        shown = site.server.get(f"/groups/{GROUP}/endpoints/{WEB}")["endpoints"]
        live = {each["address"] for each in shown if each["health"] != "DRAINING"}
        assert live == {site.address(each) for each in wanted}
        site.wait_hosts(*wanted)
        site.check()
    site.wait_answered_by(*wanted)
    assert all(load.report.bodies["pushed"] == 0 for load in site.loads)


def test_writers_at_the_same_time_and_a_kill_lose_no_answered_change(site: Site) -> None:
    """Ten writers add endpoints while the server is killed: what was answered with 200 is there afterwards."""
    answered: list[int] = []
    ports = iter(range(20_000, 30_000))
    stopped = threading.Event()
    lock = threading.Lock()

    def write() -> None:
        with plain_client(base_url=f"http://{LOOPBACK}:{site.server.http_port}") as client:
            while not stopped.is_set():
                with lock:
                    port = next(ports)
                # Draining: no request is sent to what does not exist.
                body: dict[str, Any] = {"put": [{"address": f"{LOOPBACK}:{port}", "health": "draining"}]}
                try:
                    answer = client.patch(f"/api/v1/groups/{GROUP}/endpoints/{WEB}", json=body)
                except httpx.HTTPError:
                    return
                if answer.status_code == 200:
                    answered.append(port)

    writers = [threading.Thread(target=write) for _ in range(10)]
    for writer in writers:
        writer.start()
    wait_until(lambda: len(answered) > 100, "a hundred changes")
    site.server.kill()
    stopped.set()
    for writer in writers:
        writer.join()
    site.server.start()
    shown = site.server.get(f"/groups/{GROUP}/endpoints/{WEB}")["endpoints"]
    found = {int(each["address"].rpartition(":")[2]) for each in shown}
    assert found >= set(answered)
    wait_until(lambda: site.envoys[0].endpoint_ports(WEB) == found, "all of them in the Envoy", RECONNECT_S)
    site.wait_answered_by("a")
    site.check()
