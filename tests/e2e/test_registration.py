"""Registration with a real server: kills, standstills, and Envoys and a gRPC client under load."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

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

GROUP, WEB = "test", "web"
GRPC_GROUP, SVC = "grpc", "svc"
VARIANTS = (Variant.ADS_DELTA, Variant.ADS_SOTW)
DRAIN_S = 1.0
TTL_S = 2.0
BEATEN_TTL_S = 4.0  # where heartbeats must never be late, though the machine stands still for a moment


def put(server: ServerProcess, path: str, body: object = None) -> httpx.Response:
    return server.request("PUT", f"/v1/{path}", json=body)


def health(server: ServerProcess, service: str = WEB) -> dict[str, str]:
    """The status of the instances of a service by id, the worst of their checks."""
    items = server.request("GET", f"/v1/health/service/{service}").json()
    order = ("passing", "warning", "critical")
    return {
        item["Service"]["ID"]: max((check["Status"] for check in item["Checks"]), key=order.index, default="passing")
        for item in items
    }


def definition(id: str, port: int, ttl_s: float = TTL_S) -> r.Json:
    return {
        "ID": id,
        "Name": WEB,
        "Address": LOOPBACK,
        "Port": port,
        "Check": {"TTL": f"{ttl_s}s", "Status": "passing"},
    }


# Kills and standstills


def test_answered_registrations_survive_kill_9_and_do_not_expire_while_the_server_is_away(
    server: ServerProcess,
) -> None:
    assert put(server, "agent/service/register", definition("a", 80)).status_code == 200
    assert (
        put(server, "agent/service/register", {**definition("b", 81), "Check": {"TTL": f"{TTL_S}s"}}).status_code == 200
    )
    assert put(server, "agent/check/pass/service:b").status_code == 200
    assert put(server, "agent/service/register", {**definition("c", 82), "Check": None}).status_code == 200
    assert put(server, "agent/service/maintenance/c?enable=true").status_code == 200
    assert put(server, "agent/service/register", {**definition("d", 83), "Check": None}).status_code == 200
    assert put(server, "agent/service/deregister/d").status_code == 200
    ages = {one["id"]: one["since"] for one in server.get(f"/services/{WEB}")["instances"]}
    time.sleep(1.5)  # the catalog stores what it has seen once a second
    for id in "ab":
        assert put(server, f"agent/check/pass/service:{id}").status_code == 200
    server.kill()
    time.sleep(2 * TTL_S)
    server.start()
    assert health(server) == {"a": "passing", "b": "passing", "c": "critical"}
    found = {one["id"]: one["since"] for one in server.get(f"/services/{WEB}")["instances"]}
    assert {id: found[id] for id in "abc"} == {id: ages[id] for id in "abc"}
    wait_until(lambda: health(server)["a"] == "critical", "a expires", 4 * TTL_S)
    assert put(server, "agent/check/pass/service:a").status_code == 200
    assert health(server)["a"] == "passing"
    # Nothing that runs beside has removed the records since: they are there at the next start as well.
    server.kill()
    server.start()
    assert health(server)["a"] == "passing"
    assert health(server).keys() == {"a", "b", "c"}


def test_a_stopped_server_expires_no_check_with_a_heartbeat_afterwards(server: ServerProcess) -> None:
    """The checks have not been told for longer than their TTL, since nobody could."""
    put(server, "agent/service/register", definition("a", 80))
    os.kill(server.process.pid, signal.SIGSTOP)
    time.sleep(3 * TTL_S)
    os.kill(server.process.pid, signal.SIGCONT)
    seen = set()
    ends = time.monotonic() + 0.6 * TTL_S
    while time.monotonic() < ends:
        seen.add(health(server)["a"])
        time.sleep(0.05)
    assert seen == {"passing"}
    wait_until(lambda: health(server)["a"] == "critical", "its clock goes on", 4 * TTL_S)


def test_writers_and_a_kill_lose_no_answered_registration(server: ServerProcess) -> None:
    """Ten writers register while the server is killed: what was answered with 200 is there afterwards, and nothing else
    of what was deregistered."""
    answered: dict[str, bool] = {}
    stopped = threading.Event()

    def write(writer: int) -> None:
        with plain_client(base_url=f"http://{LOOPBACK}:{server.http_port}") as client:
            number = 0
            while not stopped.is_set():
                id = f"{writer}-{number}"
                number += 1
                try:
                    answer = client.put("/v1/agent/service/register", json=definition(id, 1 + number))
                    if answer.status_code == 200:
                        answered[id] = True
                    if number % 3 == 0:
                        answered.pop(id, None)
                        if client.put(f"/v1/agent/service/deregister/{id}").status_code == 200:
                            answered[id] = False
                except httpx.HTTPError:
                    return

    writers = [threading.Thread(target=write, args=(writer,)) for writer in range(10)]
    for writer in writers:
        writer.start()
    wait_until(lambda: len(answered) > 300, "registrations")
    server.kill()
    stopped.set()
    for writer in writers:
        writer.join()
    server.start()
    found = server.request("GET", "/v1/agent/services").json().keys()
    assert {id for id, is_there in answered.items() if is_there} <= found
    assert not {id for id, is_there in answered.items() if not is_there} & found


# Proxies under load


class Heart:
    """The heartbeats of instances, in a thread."""

    def __init__(self, server: ServerProcess) -> None:
        self.beating: set[str] = set()
        self._url = f"http://{LOOPBACK}:{server.http_port}"
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        with plain_client(base_url=self._url, timeout=5.0) as client:
            while not self._stopped.wait(BEATEN_TTL_S / 20):
                for id in list(self.beating):
                    try:
                        client.put(f"/v1/agent/check/pass/service:{id}")
                    except httpx.HTTPError:
                        break  # the server is away

    @contextmanager
    def running(self) -> Iterator[Heart]:
        self._thread.start()
        try:
            yield self
        finally:
            self._stopped.set()
            self._thread.join()


@dataclass
class Site(Clients):
    """Instances by name, which register themselves, and clients that are sent to them.

    The instances of ``web`` are for Envoys, those of ``svc`` with the same names for a gRPC client.
    """

    server: ServerProcess
    upstreams: dict[str, Upstream]
    backends: dict[str, GrpcBackend]
    heart: Heart

    def push(self, timeout: str = "1s") -> None:
        """Push the configuration. The pushed endpoints are of nobody: none of them may be used."""
        self.server.push(
            GROUP,
            [
                r.eds_cluster(WEB, connect_timeout=timeout, common_lb_config={"healthy_panic_threshold": {"value": 0}}),
                r.cluster_load_assignment(WEB, self.upstreams["pushed"].port),
                r.listener(WEB, r.rds(WEB)),
                r.route_config(WEB, r.route(WEB)),
            ],
        )
        self.server.push(GRPC_GROUP, service(SVC, self.backends["pushed"].port, connect_timeout=timeout))

    def ids(self, name: str) -> dict[str, r.Json]:
        """The definitions of an instance by id."""
        web = definition(name, self.upstreams[name].port, BEATEN_TTL_S)
        svc = {**definition(f"{SVC}-{name}", self.backends[name].port, BEATEN_TTL_S), "Name": SVC}
        return {web["ID"]: web, svc["ID"]: svc}

    def register(self, name: str, **fields: object) -> None:
        for id, body in self.ids(name).items():
            assert put(self.server, "agent/service/register", {**body, **fields}).status_code == 200
            assert put(self.server, f"agent/check/pass/service:{id}").status_code == 200
            self.heart.beating.add(id)

    def deregister(self, name: str) -> None:
        for id in self.ids(name):
            self.heart.beating.discard(id)
            assert put(self.server, f"agent/service/deregister/{id}").status_code == 200

    def maintain(self, name: str, is_enabled: bool) -> None:
        for id in self.ids(name):
            path = f"agent/service/maintenance/{id}?enable={str(is_enabled).lower()}"
            assert put(self.server, path).status_code == 200

    def fall_silent(self, name: str) -> None:
        """Tell the status of an instance no more."""
        self.heart.beating -= self.ids(name).keys()

    def wait_hosts(self, *names: str) -> None:
        """Wait until the Envoys have exactly these endpoints, draining and unhealthy ones included."""
        self.wait_endpoints(WEB, {self.upstreams[name].port for name in names})

    def check(self) -> None:
        """No request is lost, and nobody was sent to the pushed endpoint."""
        super().check()
        assert all(load.report.bodies["pushed"] == 0 for load in self.loads)
        assert self.calls is None or self.calls.bodies["pushed"] == 0


@pytest.fixture
def site(
    tmp_path: Path, running: ExitStack, background: Background, upstream: Callable[[str], Upstream]
) -> Iterator[Site]:
    environment = {"XDS_ORDER__ENDPOINT_DRAIN_S": str(DRAIN_S), "XDS_SERVER__DRAIN_S": "0.5"}
    server = running.enter_context(ServerProcess(tmp_path, environment=environment))
    names = ("a", "b", "c", "pushed")
    backends = {name: backend(running, name) for name in names}
    site = Site(server, {name: upstream(name) for name in names}, backends, Heart(server))
    running.enter_context(site.heart.running())
    site.register("a")
    site.push()
    for group, name in ((GROUP, WEB), (GRPC_GROUP, SVC)):
        answer = server.request("PUT", f"/api/v1/groups/{group}/bindings/{name}", json={"service": name})
        assert answer.status_code == 200, answer.text
    for variant in VARIANTS:
        bootstrap = EnvoyBootstrap(server.grpc_port, variant, node_id=f"envoy-{variant.value}")
        envoy = running.enter_context(EnvoyProcess(tmp_path, bootstrap, f"envoy-{variant.value}"))
        site.envoys.append(envoy)
        site.loads.append(running.enter_context(HttpLoad(background, envoy.wait_listener(WEB), rps=150)))
    client = GrpcClient(tmp_path, grpc_bootstrap(server.grpc_port, node_id="grpc", node_cluster=GRPC_GROUP))
    running.enter_context(client)
    client.wait_body(TARGET, "a")
    site.calls = running.enter_context(GrpcCalls(client, TARGET).running())
    yield site


# The random run takes these steps in another order; only the shares of weights and requests in flight are left to soak.
@pytest.mark.soak
def test_instances_come_change_weight_and_health_drain_and_go_without_a_lost_request(site: Site) -> None:
    revision = site.server.get(f"/groups/{GROUP}")["revision"]
    site.register("b")
    site.wait_answered_by("a", "b")
    site.register("b", Weights={"Passing": 9, "Warning": 1})

    def is_weighed() -> bool:  # gRPC shares requests by the weights of localities, not of endpoints
        return all(split.get("b", 0) > 3 * split.get("a", 0) for split in site.splits()[: len(VARIANTS)])

    wait_until(is_weighed, "nine tenths to b", PATIENCE_S, detail=site.splits)
    site.push("2s")
    site.wait_answered_by("a", "b")
    site.maintain("a", True)
    site.wait_answered_by("b")
    site.wait_hosts("a", "b")
    site.maintain("a", False)
    site.wait_answered_by("a", "b")
    site.fall_silent("a")
    site.wait_answered_by("b")
    site.heart.beating |= site.ids("a").keys()
    site.wait_answered_by("a", "b")
    # Requests in flight on an instance that goes end well, and it may stop once the proxies have dropped it.
    site.upstreams["a"].delay_s = 0.5
    site.deregister("a")
    site.wait_hosts("b")
    site.upstreams["a"].close()
    site.backends["a"].kill()
    site.register("c")
    site.wait_answered_by("b", "c")
    assert site.server.get(f"/groups/{GROUP}")["revision"] == revision + 1, "none of it makes a revision"
    site.check()


@pytest.mark.parametrize(
    "ends",
    [[ServerProcess.kill], pytest.param([ServerProcess.kill, ServerProcess.stop], marks=pytest.mark.soak)],
    ids=["once", "again"],
)
def test_a_server_that_is_killed_and_comes_back_changes_nothing(
    site: Site, ends: Sequence[Callable[[ServerProcess], object]]
) -> None:
    site.register("b")
    site.wait_answered_by("a", "b")
    for end in ends:
        end(site.server)
        time.sleep(2 * BEATEN_TTL_S)
        site.server.start()
        for envoy in site.envoys:
            envoy.wait_stat("control_plane.connected_state", 1)
        watched_until = time.monotonic() + BEATEN_TTL_S
        while time.monotonic() < watched_until:
            assert all(set(split) == {"a", "b"} for split in site.splits())
        site.check()
    site.register("c")
    site.wait_answered_by("a", "b", "c")
    site.check()


@pytest.mark.parametrize(("seed", "steps"), [(1, 12), pytest.param(2, 100, marks=pytest.mark.soak)])
def test_a_random_run_ends_with_equal_sets_after_every_step(site: Site, seed: int, steps: int) -> None:
    """What is registered, what readers see, and what each Envoy has are equal; no request is lost on the way."""
    dice = random.Random(seed)
    wanted, maintained = {"a"}, set[str]()
    for step in range(steps):
        name = dice.choice("abc")
        act = dice.random()
        if act < 0.1:
            site.push(f"{2 + step}s")
        elif name in wanted and act < 0.3:
            if name in maintained:
                maintained.discard(name)
            elif wanted - maintained - {name}:
                maintained.add(name)
            site.maintain(name, name in maintained)
        elif name in wanted and wanted - maintained - {name} and act < 0.7:
            wanted.discard(name)
            maintained.discard(name)
            site.deregister(name)
        else:
            wanted.add(name)
            site.register(name, Weights={"Passing": dice.randint(1, 5), "Warning": 1})
        expected = {each: "critical" if each in maintained else "passing" for each in wanted}
        assert health(site.server) == expected
        site.wait_hosts(*wanted)
        site.check()
    site.wait_answered_by(*(wanted - maintained))
    # An instance whose TTL is over without a heartbeat gets no requests until it reports its status again.
    for name in maintained:
        site.maintain(name, False)
    for name in "ab":
        site.register(name)
    wanted |= {"a", "b"}
    site.wait_answered_by(*wanted)
    site.fall_silent("a")
    site.wait_answered_by(*(wanted - {"a"}))
    site.wait_hosts(*wanted)
    site.heart.beating |= site.ids("a").keys()
    site.wait_answered_by(*wanted)
    site.check()
