"""Pods of a Kubernetes cluster as endpoints of real Envoys and gRPC clients, under load."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import yaml

from tests.e2e.conftest import Connect
from tests.support import resources as r
from tests.support.background import Background
from tests.support.bootstrap import Variant, grpc_bootstrap
from tests.support.envoy import EnvoyProcess
from tests.support.grpc_client import GrpcBackend, GrpcClient
from tests.support.kubernetes_cluster import KubernetesCluster
from tests.support.kubernetes_pods import DRAINING, READY, UNREADY, FakePodApi, PodApi, Pods, RealPodApi
from tests.support.load import HttpLoad
from tests.support.process import wait_until
from tests.support.server import ServerProcess
from tests.support.upstream import Upstream

GO_TIMEOUT_S = 3_000  # the first run builds the API server, on whatever machine
DRAIN_S = 1.0
SERVICE = "web.shop"
real = pytest.param("real", marks=[pytest.mark.soak, pytest.mark.timeout(GO_TIMEOUT_S)])

pytestmark = [pytest.mark.xdist_group("kubernetes")]


@pytest.fixture(params=["fake", real])
def api(request: pytest.FixtureRequest, tmp_path: Path, background: Background, running: ExitStack) -> Iterator[PodApi]:
    """A Kubernetes API: the fake in `make test`, and the real one in `make soak`."""
    if request.param == "fake":
        fake = FakePodApi(background, tmp_path)
        yield fake
        assert not fake.fake.complaints
    else:
        yield RealPodApi(background, tmp_path, running.enter_context(KubernetesCluster(tmp_path)))


@pytest.fixture
def server(tmp_path: Path, api: PodApi, running: ExitStack) -> ServerProcess:
    """A server whose source is the API."""
    source = {"kind": "kubernetes", "kubeconfig": str(api.kubeconfig()), "retry_s": 0.2, "longest_retry_s": 1.0}
    document = {
        "sources": {"cluster": source},
        "order": {"endpoint_drain_s": DRAIN_S},
        "services": {"hold_window_s": 1.0},
    }
    (tmp_path / "xds.yaml").write_text(yaml.safe_dump(document))
    return running.enter_context(ServerProcess(tmp_path, flags=["--config", str(tmp_path / "xds.yaml")]))


def bind(server: ServerProcess, assignment: str) -> None:
    answer = server.request("PUT", f"/api/v1/groups/{server.group}/bindings/{assignment}", json={"service": SERVICE})
    assert answer.is_success, answer.text


def endpoints(envoy: EnvoyProcess) -> dict[int, str]:
    """Health by port, as Envoy has it."""
    hosts = envoy.clusters().get("svc", {}).get("host_statuses", [])
    return {
        one["address"]["socket_address"]["port_value"]: one["health_status"].get("eds_health_status", "HEALTHY")
        for one in hosts
    }


def wait_endpoints(envoys: list[EnvoyProcess], server: ServerProcess, wanted: dict[int, str]) -> None:
    for envoy in envoys:
        _wait_envoy(envoy, server, wanted)


def _wait_envoy(envoy: EnvoyProcess, server: ServerProcess, wanted: dict[int, str]) -> None:
    wait_until(
        lambda: endpoints(envoy) == wanted,
        f"{envoy.name} has {wanted}",
        detail=lambda: f"{endpoints(envoy)}\n{server.process.log_tail()}",
    )


def test_envoys_follow_the_pods_of_a_service_and_lose_no_request(
    api: PodApi,
    server: ServerProcess,
    connect: Connect,
    upstream: Callable[[str], Upstream],
    background: Background,
    running: ExitStack,
) -> None:
    a, b, c, d = (upstream(name) for name in "abcd")
    pods = Pods(api)
    pods.set("a", a.port, READY)
    pods.set("b", b.port, READY)
    pushed = server.push(server.group, [r.eds_cluster("svc"), *r.web_resources("svc")[-2:]])
    bind(server, "svc")
    envoys = [connect(Variant.ADS_DELTA), connect(Variant.ADS_SOTW, node_id="envoy-2")]
    for envoy in envoys:
        envoy.wait_live()
    wait_endpoints(envoys, server, {a.port: "HEALTHY", b.port: "HEALTHY"})
    loads = [running.enter_context(HttpLoad(background, envoy.wait_listener("web"), connections=4)) for envoy in envoys]
    for load in loads:
        load.wait_body("a")
        load.wait_body("b")

    # Come
    pods.set("c", c.port, READY)
    for load in loads:
        load.wait_body("c")

    # Drain and go, as a pod that is deleted: its process ends when its grace period does.
    pods.set("b", b.port, DRAINING)
    wait_endpoints(envoys, server, {a.port: "HEALTHY", b.port: "DRAINING", c.port: "HEALTHY"})
    pods.remove("b")
    wait_endpoints(envoys, server, {a.port: "HEALTHY", c.port: "HEALTHY"})
    b.close()

    # Not ready, and ready again
    pods.set("a", a.port, UNREADY)
    wait_endpoints(envoys, server, {a.port: "UNHEALTHY", c.port: "HEALTHY"})
    served = a.requests
    for load in loads:
        load.wait_total(50)
    assert a.requests <= served + 8  # those under way
    pods.set("a", a.port, READY)
    for load in loads:
        load.wait_body("a")

    # The API dies. Changes come when it is back.
    api.kill()
    wait_until(lambda: _state(server) == "failing", "the source fails")
    for load in loads:
        load.wait_total(100)
    api.start()
    pods.set("d", d.port, READY)
    for load in loads:
        load.wait_body("d")

    # The server dies while the API is away: the last good set is served. It is written once a second.
    api.kill()
    time.sleep(2.5)
    server.kill()
    server.start()
    wait_until(lambda: _state(server) == "failing", "the source fails")
    wait_endpoints(envoys, server, {each.port: "HEALTHY" for each in (a, c, d)})
    wait_until(
        lambda: server.types("envoy-1").get("endpoints", {}).get("state") == "synced", "envoy-1 is back and in step"
    )
    assert len(server.get(f"/services/{SERVICE}")["instances"]) == 3
    api.start()
    wait_until(lambda: _state(server) == "reading", "the source reads")

    # The API is back with nothing: the loss is held, until the pods are there again.
    api.lose_everything()
    wait_until(lambda: _held(server) == 3, "the loss is held", detail=lambda: server.get("/services"))
    wait_endpoints(envoys, server, {each.port: "HEALTHY" for each in (a, c, d)})
    pods.create_again()
    wait_until(lambda: _held(server) == 0, "nothing is held", detail=lambda: server.get("/services"))
    wait_endpoints(envoys, server, {each.port: "HEALTHY" for each in (a, c, d)})

    for load in loads:
        assert load.stop().failed == 0, load.report
    assert server.get(f"/groups/{server.group}")["revision"] == pushed["revision"]


def _state(server: ServerProcess) -> str:
    (item,) = [one for one in server.get("/sources")["items"] if one["name"] == "cluster"]
    return str(item["state"])


def _held(server: ServerProcess) -> int:
    (item,) = [one for one in server.get("/services")["items"] if one["service"] == SERVICE]
    return int(item["held"])


def test_a_grpc_client_follows_the_pods_of_a_service(
    api: PodApi, server: ServerProcess, tmp_path: Path, running: ExitStack
) -> None:
    a, b = (running.enter_context(GrpcBackend(name)) for name in "ab")
    pods = Pods(api)
    pods.set("a", a.port, READY)
    server.push(
        server.group,
        [
            r.api_listener("svc", r.rds("routes")),
            r.route_config("routes", r.route("svc", prefix="")),
            r.eds_cluster("svc"),
        ],
    )
    bind(server, "svc")
    bootstrap = grpc_bootstrap(server.grpc_port, node_id=server.node, node_cluster=server.group, features=("xds_v3",))
    client = running.enter_context(GrpcClient(tmp_path, bootstrap))
    client.wait_body("xds:///svc", "a")
    pods.set("b", b.port, READY)
    client.wait_body("xds:///svc", "b")
    pods.set("a", a.port, DRAINING)
    wait_until(lambda: [client.call("xds:///svc").body for _ in range(8)] == ["b"] * 8, "only b is called")
    pods.remove("a")
    assert [client.call("xds:///svc").body for _ in range(20)] == ["b"] * 20
