"""Streams over real gRPC: answers, pushes, NACKs, groups."""

from __future__ import annotations

import asyncio
import gc

import grpc
import pytest

from tests.server.conftest import DELTA, SOTW, Harness, RawStream, Start, sotw, until, within
from xds.fleet.state import Sync
from xds.model.resource_type import CLUSTER, ENDPOINT, V2_URLS
from xds.proto import wire_pb2
from xds.protocol.stream import DiscoveryStream
from xds.server.discovery import DiscoveryHandler
from xds.server.options import ASYNCIO, GRPCIO
from xds.server.services import SERVICES


@pytest.fixture(params=[ASYNCIO, GRPCIO])
def transport(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def state_of(server: Harness, node_id: str = "n1") -> dict[str, Sync]:
    found = server.fleet.node(node_id)
    return {each.type: each.state for each in found.types} if found is not None else {}


async def test_a_request_is_answered_and_acked(server: Harness) -> None:
    stream = await server.stream()
    await stream.request()
    response = await stream.receive()
    assert (response.version_info, response.type_url) == ("1", CLUSTER)
    assert [resource.value for resource in response.resources] == [b"c1=a", b"c2=a"]
    assert response.control_plane.identifier == "test"
    await stream.ack(response)
    await until(lambda: state_of(server) == {"clusters": Sync.SYNCED})


async def test_a_push_reaches_every_stream(server: Harness) -> None:
    streams = [await server.stream() for _ in range(5)]
    for number, stream in enumerate(streams):
        await stream.request(node_id=f"n{number}")
        await stream.ack(await stream.receive())
    await until(lambda: all(state_of(server, f"n{number}") == {"clusters": Sync.SYNCED} for number in range(5)))
    server.push({"c1": "b"})
    for stream in streams:
        response = await stream.receive()
        while response.version_info != "2":
            await stream.ack(response)
            response = await stream.receive()
        assert [resource.value for resource in response.resources] == [b"c1=b"]


async def test_delta(server: Harness) -> None:
    stream = await server.stream(DELTA)
    await stream.request()
    response = await stream.receive()
    assert [resource.name for resource in response.resources] == ["c1", "c2"]
    ack = wire_pb2.DeltaDiscoveryRequest(type_url=CLUSTER, response_nonce=response.nonce)
    await stream.send(ack.SerializeToString())
    await until(lambda: state_of(server) == {"clusters": Sync.SYNCED})
    server.push({"c1": "b", "c2": "a"})
    response = await stream.receive()
    assert [resource.name for resource in response.resources] == ["c1"]


async def test_a_nack_is_recorded_counted_and_not_answered(server: Harness) -> None:
    stream = await server.stream()
    await stream.request()
    response = await stream.receive()
    await stream.ack(response, error="no such thing")
    [record] = await until(lambda: list(server.fleet.nacks()))
    assert (record.node, record.message, record.code) == ("n1", "no such thing", 13)
    server.push({"c1": "fixed"})
    assert next(resource.value for resource in (await stream.receive()).resources) == b"c1=fixed"
    text = server.metrics.render().decode()
    assert 'xds_server_nacks_total{group="default",type="clusters"} 1.0' in text


async def test_a_node_without_group_waits(start: Start) -> None:
    server = await start()
    stream = await server.stream()
    await stream.request()
    await until(lambda: server.fleet.connected(""))
    server.push({"c1": "a"}, group="elsewhere")
    server.push({"c1": "mine"}, group="n1")
    assert [resource.value for resource in (await stream.receive()).resources] == [b"c1=mine"]
    assert server.fleet.connected("n1") == {"n1"}


async def test_a_better_group_takes_over(server: Harness) -> None:
    stream = await server.stream()
    await stream.request()
    await stream.ack(await stream.receive())
    await until(lambda: state_of(server) == {"clusters": Sync.SYNCED})
    server.push({"c1": "mine", "c2": "mine"}, group="n1")
    assert [resource.value for resource in (await stream.receive()).resources] == [b"c1=mine", b"c2=mine"]
    await until(lambda: server.fleet.connected("n1"))


async def test_a_node_that_loses_its_group_is_orphaned_and_comes_back(server: Harness) -> None:
    stream = await server.stream()
    await stream.request()
    await stream.ack(await stream.receive())
    await until(lambda: state_of(server) == {"clusters": Sync.SYNCED})
    server.cache.drop("default")
    server.server.wake(["default"])
    await until(lambda: state_of(server) == {"clusters": Sync.ORPHANED})
    server.push({"c1": "again", "c2": "again"})
    assert [resource.value for resource in (await stream.receive()).resources] == [b"c1=again", b"c2=again"]


async def test_every_service_has_its_methods(server: Harness) -> None:
    channel = await server.channel()
    for service in SERVICES:
        for method in service.methods():
            if "/Fetch" in method:
                continue
            stream = RawStream(channel, method)
            await stream.send(b"")
            code, message = await stream.ended()
            assert code is grpc.StatusCode.INVALID_ARGUMENT, (method, message)


async def test_a_type_stream_needs_no_type_url(server: Harness) -> None:
    stream = await server.stream("/envoy.service.cluster.v3.ClusterDiscoveryService/StreamClusters")
    await stream.request(type_url="")
    assert (await stream.receive()).type_url == CLUSTER


async def test_split_streams_of_one_client(server: Harness) -> None:
    server.push({"c1": "1", "c2": "2"}, type_url=ENDPOINT)
    channel = await server.channel()
    clusters = RawStream(channel, "/envoy.service.cluster.v3.ClusterDiscoveryService/StreamClusters")
    await clusters.request()
    await clusters.ack(await clusters.receive())
    for name in ("c1", "c2"):
        endpoints = RawStream(channel, "/envoy.service.endpoint.v3.EndpointDiscoveryService/StreamEndpoints")
        await endpoints.request(ENDPOINT, [name])
        await endpoints.ack(await endpoints.receive(), [name])
    await until(lambda: state_of(server) == {"clusters": Sync.SYNCED, "endpoints": Sync.SYNCED})
    found = server.fleet.node("n1")
    assert found is not None
    assert len(found.streams) == 3


async def test_fetch(server: Harness) -> None:
    fetch_clusters = (await server.channel()).unary_unary(
        "/envoy.service.cluster.v3.ClusterDiscoveryService/FetchClusters"
    )
    response = wire_pb2.DiscoveryResponse.FromString(await within(fetch_clusters(sotw())))
    assert [resource.value for resource in response.resources] == [b"c1=a", b"c2=a"]
    for data, code in ((b"\xff", "INVALID_ARGUMENT"), (b"", "INVALID_ARGUMENT"), (sotw(ENDPOINT), "INVALID_ARGUMENT")):
        try:
            await within(fetch_clusters(data))
        except grpc.aio.AioRpcError as error:
            assert error.code().name == code
        else:
            raise AssertionError("answered")


async def test_fetch_without_a_snapshot(start: Start) -> None:
    server = await start()
    fetch_clusters = (await server.channel()).unary_unary(
        "/envoy.service.cluster.v3.ClusterDiscoveryService/FetchClusters"
    )
    try:
        await within(fetch_clusters(sotw()))
    except grpc.aio.AioRpcError as error:
        assert error.code() is grpc.StatusCode.NOT_FOUND
    else:
        raise AssertionError("answered")


async def test_the_old_transport_has_types_of_its_own(server: Harness) -> None:
    server.push({"c1": "old"}, type_url=V2_URLS[CLUSTER])
    stream = await server.stream("/envoy.service.discovery.v2.AggregatedDiscoveryService/StreamAggregatedResources")
    await stream.request(V2_URLS[CLUSTER])
    response = await stream.receive()
    assert (response.type_url, [each.value for each in response.resources]) == (V2_URLS[CLUSTER], [b"c1=old"])


async def test_a_closed_stream_leaves_nothing_behind(server: Harness) -> None:
    stream = await server.stream()
    await stream.request()
    await stream.receive()
    assert len(server.server.registry) == 1
    stream.call.cancel()
    await until(lambda: len(server.server.registry) == 0)
    assert not server.fleet.connected()
    assert server.metrics.streams["sotw", "ADS"] == 0


def alive(*kinds: type) -> int:
    gc.collect()
    return sum(type(each) in kinds for each in gc.get_objects())


async def test_rule_80_nothing_of_a_stream_outlives_it(server: Harness) -> None:
    before = alive(DiscoveryHandler, DiscoveryStream)
    for method in (SOTW, DELTA):
        for number in range(20):
            stream = await server.stream(method)
            await stream.request(node_id=f"n{number}")
            await stream.receive()
            stream.call.cancel()
    await until(lambda: len(server.server.registry) == 0)
    await until(lambda: alive(DiscoveryHandler, DiscoveryStream) == before)


async def test_a_half_closed_stream_still_gets_its_answer(server: Harness) -> None:
    stream = await server.stream()
    await stream.request()
    await within(stream.call.done_writing())
    assert (await stream.receive()).version_info == "1"
    assert (await stream.ended())[0] is grpc.StatusCode.OK


async def test_pushes_in_a_row_are_coalesced(server: Harness) -> None:
    stream = await server.stream()
    await stream.request()
    first = await stream.receive()
    for number in range(20):
        server.push({"c1": str(number), "c2": "a"})
        await asyncio.sleep(0)
    await stream.ack(first)
    told = []
    while b"c1=19" not in told:
        response = await stream.receive()
        told.append(next(resource.value for resource in response.resources))
        await stream.ack(response)
    # At most what was told last when the ACK came, what the pause behind that brought, and the newest.
    assert len(told) <= 3
