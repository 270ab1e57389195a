"""A server as somebody on call finds it: nodes of every state, a NACK, a rollout; and what its pages show then."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

from tests.support import resources as r
from tests.support.grpc_stream import SOTW, GrpcStream, sotw_ack
from tests.support.server import ServerProcess
from xds.proto import wire_pb2

GROUP, ROLLED_OUT = "edge", "shop"
KEY = "-----BEGIN THE KEY-----"
INJECTED = "<img src=x onerror=\"document.title='owned'\">"
WHY = f"Error adding/updating cluster(s) c: {INJECTED} hosts are not set"
ODD = "a/b c?d=e&f#g %2F é"  # an id, too
LONG = "x" * 500  # without a place to break it; a name of a node and a cluster
STREAM_S = 3600.0
SECRET = {
    "@type": r.SECRET_TYPE,
    "name": "key",
    "generic_secret": {"secret": {"inline_string": KEY}},
}

# Every page by its address, with words that stand on it once all of it is read.
VIEWS = {
    "/": "On the command line",
    "/ui/nodes": "edge-2",
    "/ui/nodes/edge-1": "On the command line",
    "/ui/nodes/edge-bad": "hosts are not set",
    "/ui/nodes/gone": "No node gone is connected",
    "/ui/groups": "shop",
    "/ui/groups/edge": "first",
    "/ui/groups/edge/diff?from=1&to=2": "clusters/c",
    "/ui/groups/none": "There is no such group.",
    "/ui/load/none": "No client has reported load of this cluster lately.",
    "/ui/events": "committed",
    "/ui/nodes/too/deep": "There is no page at this address.",
}


def identity(node_id: str, cluster: str = GROUP, zone: str = "a", version: str = "1.36.2") -> wire_pb2.Node:
    """A node as an Envoy names itself."""
    major, minor, patch = map(int, version.split("."))
    node = wire_pb2.Node(id=node_id, cluster=cluster, user_agent_name="envoy")
    node.locality.region, node.locality.zone = "eu", zone
    number = node.user_agent_build_version.version
    number.major_number, number.minor_number, number.patch = major, minor, patch
    return node


def first_request(node: wire_pb2.Node, type_url: str = r.CLUSTER_TYPE) -> bytes:
    """A first request of a node."""
    return wire_pb2.DiscoveryRequest(type_url=type_url, node=node.SerializeToString()).SerializeToString()


def refusal(response: Any, why: str) -> bytes:
    """The NACK of a response."""
    request = wire_pb2.DiscoveryRequest(type_url=response.type_url, response_nonce=response.nonce)
    request.error_detail.code, request.error_detail.message = 3, why
    return request.SerializeToString()


def connect(running: ExitStack, server: ServerProcess, node: wire_pb2.Node, refuses: str = "") -> GrpcStream:
    """A node that takes clusters, and says why it refuses them if it does."""
    stream = running.enter_context(GrpcStream(server.grpc_port, SOTW, deadline_s=STREAM_S))
    stream.send(first_request(node))
    response = stream.receive()
    stream.send(refusal(response, refuses) if refuses else sotw_ack(response))
    return stream


def furnish(running: ExitStack, server: ServerProcess) -> None:
    """Bring the server into the state that `VIEWS` are of."""
    select(server, GROUP)
    select(server, ROLLED_OUT)
    server.push(GROUP, [r.static_cluster("a"), SECRET], author="ann", message="first")
    server.push(ROLLED_OUT, [r.static_cluster("a")])
    for number in (1, 2):
        connect(running, server, identity(f"edge-{number}"))
    for number in range(1, 5):
        connect(running, server, identity(f"shop-{number}", ROLLED_OUT, "b", "1.37.0"))
    lost = running.enter_context(GrpcStream(server.grpc_port, SOTW, deadline_s=STREAM_S))
    lost.send(first_request(identity("lost", "elsewhere")))  # no group matches it, so nothing is answered
    connect(running, server, identity("gone-away")).close()
    server.push(
        GROUP,
        [r.static_cluster("a"), r.static_cluster("c"), r.static_cluster(LONG), SECRET],
        author="ann",
        message=INJECTED,
    )
    connect(running, server, identity(LONG, zone=LONG), refuses=LONG * 10)
    connect(running, server, identity("edge-bad"), refuses=WHY)
    connect(running, server, identity(INJECTED), refuses=WHY)
    connect(running, server, identity(ODD))


def select(server: ServerProcess, group: str) -> None:
    """A group of the nodes that name it as their cluster."""
    selector = {"selector": f'node.cluster == "{group}"'}
    assert server.request("PUT", f"/api/v1/groups/{group}", json=selector).is_success
