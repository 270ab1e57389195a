"""What gRPC clients refuse or ignore in an assignment is a warning at the push, and the client shows the effect."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.support import resources as r
from tests.support.bootstrap import grpc_bootstrap
from tests.support.grpc_client import GrpcBackend, GrpcClient
from tests.support.process import free_port, wait_until
from tests.support.server import ServerProcess

TARGET = "xds:///svc"


@pytest.fixture
def server(shared_server: ServerProcess) -> ServerProcess:
    shared_server.begin_anew()
    return shared_server


def service(*localities: r.Json) -> list[r.Json]:
    """What a gRPC client needs for `TARGET`, with an assignment of these localities."""
    named = [{"locality": {"zone": f"z{place}"}, **one} for place, one in enumerate(localities)]
    assignment = {"@type": r.ENDPOINT_TYPE, "cluster_name": "c1", "endpoints": named}
    return [
        r.api_listener("svc", r.rds("routes")),
        r.route_config("routes", r.route("c1", prefix="")),
        r.eds_cluster("c1"),
        assignment,
    ]


def warned(pushed: dict[str, Any]) -> list[tuple[str, str]]:
    return [(one["code"], one["pointer"]) for one in pushed["warnings"] if one["code"].startswith("grpc")]


def test_grpc_fails_as_the_push_warned(tmp_path: Path, server: ServerProcess, running: ExitStack) -> None:
    names = {"node_id": server.node, "node_cluster": server.group}
    client = running.enter_context(GrpcClient(tmp_path, grpc_bootstrap(server.grpc_port, **names)))
    backend = running.enter_context(GrpcBackend("a"))
    good = r.zone_endpoints(backend.port)
    assert warned(server.push(server.group, service(good))) == []
    client.wait_body(TARGET, "a")

    # A locality without a weight: ACKed, and no endpoint is left.
    weightless = {"lb_endpoints": good["lb_endpoints"]}
    assert warned(server.push(server.group, service(weightless))) == [("grpc_locality", "/endpoints/0")]
    outcome = client.wait_status(TARGET, "UNAVAILABLE")
    assert "contains no localities" in outcome.details
    server.wait_synced(server.group, server.node)
    assert server.nacks(node=server.node) == []

    # Beside one with a weight, it is ignored.
    assert warned(server.push(server.group, service(weightless, good))) == [("grpc_locality", "/endpoints/0")]
    client.wait_body(TARGET, "a")

    # A gap, and two endpoints of one address: refused.
    pushed = server.push(server.group, service({**good, "priority": 1}))
    assert warned(pushed) == [("grpc_priorities", "/endpoints")]
    assert "priority 1" in str(server.wait_nack(server.node, "endpoints")["message"])
    other = r.zone_endpoints(free_port(), backend.port)
    pushed = server.push(server.group, service(good, {**other, "priority": 1}))
    assert ("grpc_endpoint", "/endpoints/1/lb_endpoints/1") in warned(pushed)
    wait_until(
        lambda: "duplicate" in str(server.nacks(node=server.node, type="endpoints")[0]).lower(),
        "the second NACK replaces the first one",
    )
    assert client.call(TARGET).body == "a"


def test_an_assignment_alone_is_warned_of_too(server: ServerProcess) -> None:
    """Where the group has the API listener, and only where one leads to the assignment."""
    good = r.zone_endpoints(80)
    server.push(server.group, [*service(good), r.eds_cluster("c2"), r.listener("l", r.inline_routes("c2"))])
    path = f"/api/v1/groups/{server.group}/resources/endpoints"
    for name, expected in (("c1", ["grpc_locality"]), ("c2", [])):
        weightless = {"cluster_name": name, "endpoints": [{"lb_endpoints": good["lb_endpoints"]}]}
        answer = server.request("PUT", f"{path}/{name}", json=weightless).json()
        assert [one["code"] for one in answer["warnings"] if one["code"].startswith("grpc")] == expected
