"""Lingering resources: reported, reported again when a stream ends, and ended by hand."""

from __future__ import annotations

from tests.server.conftest import DELTA, SOTW, Harness, RawStream, Start, until
from xds.fleet.node_state import NodeState
from xds.fleet.state import Sync
from xds.model.resource_type import CLUSTER, ENDPOINT
from xds.snapshots.order import OrderRules


def node_state(server: Harness, node_id: str = "n1") -> NodeState:
    found = server.fleet.node(node_id)
    assert found is not None
    return found


async def take(server: Harness, stream: RawStream, node_id: str = "n1") -> list[bytes]:
    """Take the next response for clusters, so that the server knows; the bodies in it."""
    response = await stream.receive()
    await stream.ack(response)
    await until(lambda: all(type.state is Sync.SYNCED for type in node_state(server, node_id).types))
    return [resource.value for resource in response.resources]


async def lingering(server: Harness, node_id: str = "n1") -> RawStream:
    """A client for which c2 lingers."""
    stream = await server.stream()
    await stream.request(node_id=node_id)
    await take(server, stream, node_id)
    server.push({"c1": "b"})
    assert await take(server, stream, node_id) == [b"c1=b", b"c2=a"]
    await until(lambda: node_state(server, node_id).lingering and node_state(server, node_id).lingering[0].until)
    return stream


async def test_lingering_of_a_client_is_ended_by_hand(server: Harness) -> None:
    mine, other = await lingering(server, "n1"), await server.stream()
    await other.request(node_id="n2")
    await take(server, other, "n2")
    (found,) = node_state(server).lingering
    assert (found.type, found.names, found.revision) == ("clusters", ("c2",), 2)
    await server.server.end_lingering(["n1"])
    assert node_state(server).lingering == ()
    assert await take(server, mine) == [b"c1=b"]


async def test_lingering_is_ended_only_for_the_named_clients(server: Harness) -> None:
    await lingering(server, "n1")
    await server.server.end_lingering(["n2"])
    assert node_state(server, "n1").lingering


async def test_lingering_ends_without_a_push(start: Start) -> None:
    server = await start(order=OrderRules(removal_delay_s=0.0))
    server.push({"c1": "a", "c2": "a"})
    stream = await lingering(server)
    assert await take(server, stream) == [b"c1=b"]  # on the grid of five seconds
    await until(lambda: not node_state(server).lingering)


async def test_another_stream_reports_lingering_after_the_first_has_ended(server: Harness) -> None:
    channel = await server.channel()
    clusters, endpoints = RawStream(channel, SOTW), RawStream(channel, DELTA)
    await clusters.request()
    await take(server, clusters)
    await endpoints.request(ENDPOINT, ["c1"])
    await until(lambda: len(node_state(server).streams) == 2)
    server.push({"c1": "b"})
    await clusters.ack(await clusters.receive())
    await until(lambda: node_state(server).lingering)
    clusters.call.cancel()
    await until(lambda: len(server.server.registry) == 1)
    (found,) = await until(lambda: node_state(server).lingering)
    assert (found.type, found.names) == ("clusters", ("c2",))
    assert CLUSTER not in {type.type_url for type in node_state(server).streams[0].types}
