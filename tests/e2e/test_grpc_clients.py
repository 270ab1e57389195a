"""Real gRPC clients and servers (C core) that take their configuration from the server."""

from __future__ import annotations

import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.support import resources as r
from tests.support.bootstrap import grpc_bootstrap
from tests.support.grpc_client import GrpcBackend, GrpcClient, XdsGrpcServer, old_grpc_python
from tests.support.process import free_port
from tests.support.server import ServerProcess

# A gRPC client doubles its reconnect delay, and the old one takes some seconds more to ACK.
RECONNECT_S = 80.0
GROUP = "test"  # where others use what is here, with a server of their own
TARGET = "xds:///svc"
OTHER = r.api_listener("other", r.rds("other"))


def service(cluster: str, port: int, **cluster_fields: Any) -> list[r.Json]:
    """What a gRPC client needs for `TARGET`."""
    return [
        r.api_listener("svc", r.rds("routes")),
        r.route_config("routes", r.route(cluster, prefix="")),
        r.eds_cluster(cluster, **cluster_fields),
        r.cluster_load_assignment(cluster, port),
    ]


@pytest.fixture
def server(shared_server: ServerProcess) -> ServerProcess:
    """The server that modules like this one share."""
    shared_server.begin_anew()
    return shared_server


@pytest.fixture(params=["v3", "v2-transport"])
def client(request: pytest.FixtureRequest, tmp_path: Path, server: ServerProcess, running: ExitStack) -> GrpcClient:
    """Today's gRPC, and 1.49.1 which speaks the v2 transport unless its bootstrap says ``xds_v3``."""
    old = request.param == "v2-transport"
    names = {"node_id": server.node, "node_cluster": server.group}
    bootstrap = grpc_bootstrap(server.grpc_port, **names, features=() if old else ("xds_v3",))
    return running.enter_context(GrpcClient(tmp_path, bootstrap, python=old_grpc_python() if old else None))


# An old client polls every 10 s and reconnects late, so its slow tests are in `make soak`.
slow_if_old = pytest.mark.parametrize(
    "client", ["v3", pytest.param("v2-transport", marks=pytest.mark.soak)], indirect=True
)


def backend(running: ExitStack, name: str) -> GrpcBackend:
    """A started backend, ended with the test."""
    return running.enter_context(GrpcBackend(name))


def test_first_call_update_and_removal(server: ServerProcess, client: GrpcClient, running: ExitStack) -> None:
    a, b, c = (backend(running, name) for name in "abc")
    server.push(server.group, service("c1", a.port))
    client.wait_body(TARGET, "a")
    server.push(server.group, service("c1", b.port))
    client.wait_body(TARGET, "b")
    server.push(server.group, service("c2", c.port))
    client.wait_body(TARGET, "c")
    # LDS is full state: a removal is told by a response without the resource, were it empty.
    server.push(server.group, [OTHER])
    client.wait_status(TARGET, "UNAVAILABLE")
    server.push(server.group, service("c1", a.port))
    client.wait_body(TARGET, "a")


def test_nack_keeps_the_last_good_state_and_the_fix_goes_through(
    server: ServerProcess, client: GrpcClient, running: ExitStack
) -> None:
    a, b = (backend(running, name) for name in "ab")
    server.push(server.group, service("c1", a.port))
    client.wait_body(TARGET, "a")
    server.push(server.group, service("c1", a.port, lb_policy="MAGLEV"))
    # The old client reads its stream promptly only while a call waits, else by a poll every 10 s.
    record = server.wait_nack(server.node, "clusters", meanwhile=lambda: client.call(TARGET))
    assert "LB policy is not supported" in str(record)
    assert client.call(TARGET).body == "a"
    server.push(server.group, service("c1", b.port, lb_policy="MAGLEV"))
    client.wait_body(TARGET, "b")
    server.push(server.group, service("c1", a.port))
    client.wait_body(TARGET, "a")
    server.wait_synced(server.group, server.node)


@slow_if_old
def test_moves_between_clusters_lose_no_call(server: ServerProcess, client: GrpcClient, running: ExitStack) -> None:
    a, b = (backend(running, name) for name in "ab")
    server.push(server.group, service("c1", a.port))
    client.wait_body(TARGET, "a")
    for turn in range(4):
        cluster, port, name = [("c2", b.port, "b"), ("c1", a.port, "a")][turn % 2]
        server.push(server.group, service(cluster, port))
        outcome = client.call(TARGET)
        while outcome.body != name:
            assert outcome.status == "OK", outcome
            outcome = client.call(TARGET)
        assert client.call(TARGET).status == "OK"


def test_targets_of_one_client_are_independent(server: ServerProcess, client: GrpcClient, running: ExitStack) -> None:
    a, b = (backend(running, name) for name in "ab")
    second = [
        r.api_listener("svc2", r.rds("routes2")),
        r.route_config("routes2", r.route("c2", prefix="")),
        r.eds_cluster("c2"),
        r.cluster_load_assignment("c2", b.port),
    ]
    server.push(server.group, [*service("c1", a.port), *second])
    client.wait_body(TARGET, "a")
    client.wait_body("xds:///svc2", "b")
    server.push(server.group, second)
    client.wait_status(TARGET, "UNAVAILABLE")
    assert client.call("xds:///svc2").body == "b"


@slow_if_old
def test_server_restart_does_not_disturb_calls(server: ServerProcess, client: GrpcClient, running: ExitStack) -> None:
    a, b = (backend(running, name) for name in "ab")
    server.push(server.group, service("c1", a.port))
    client.wait_body(TARGET, "a")
    server.kill()
    assert client.call(TARGET).body == "a"
    server.start()
    server.wait_synced(server.group, server.node, RECONNECT_S)
    assert client.call(TARGET).body == "a"
    server.push(server.group, service("c1", b.port))
    client.wait_body(TARGET, "b")


def test_xds_enabled_server_serves_when_its_listener_comes(
    tmp_path: Path, server: ServerProcess, running: ExitStack
) -> None:
    port = free_port()
    target = f"127.0.0.1:{port}"
    bootstrap = grpc_bootstrap(server.grpc_port, server.node, server.group)
    served = running.enter_context(XdsGrpcServer(tmp_path, bootstrap, "served", port))
    client = running.enter_context(GrpcClient(tmp_path))
    assert client.call(target, fresh=True).status == "UNAVAILABLE"
    server.push(server.group, [r.grpc_server_listener(port)])
    client.wait_body(target, "served", fresh=True)
    assert served.calls() == 1
    server.push(server.group, [r.grpc_server_listener(port, [r.deny_filter()])])
    client.wait_status(target, "PERMISSION_DENIED", fresh=True)
    server.push(server.group, [r.grpc_server_listener(port)])
    client.wait_body(target, "served", fresh=True)
    server.push(server.group, [OTHER])
    client.wait_status(target, "UNAVAILABLE", fresh=True)


def test_a_call_to_an_unknown_service_fails_at_once(tmp_path: Path, server: ServerProcess, running: ExitStack) -> None:
    """Rule 39, A88: told by resource_errors, a client that reads them does not wait out its timer of 15 s."""
    bootstrap = grpc_bootstrap(server.grpc_port, node_id=server.node, node_cluster=server.group)
    reads = {"GRPC_EXPERIMENTAL_XDS_DATA_ERROR_HANDLING": "true"}
    client = running.enter_context(GrpcClient(tmp_path, bootstrap, environment=reads))
    web = service("c1", backend(running, "a").port)
    listener, _, *rest = web
    server.push(server.group, [listener, *rest])
    begun = time.monotonic()
    outcome = client.call(TARGET, deadline_s=14.0)
    assert (outcome.status, "routes" in outcome.details) == ("UNAVAILABLE", True), outcome
    assert time.monotonic() - begun < 12
    server.push(server.group, web)
    client.wait_body(TARGET, "a")
