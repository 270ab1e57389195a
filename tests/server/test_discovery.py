"""Streams over real gRPC: answers, pushes, NACKs, groups."""

from __future__ import annotations

import asyncio
from collections import Counter

import grpc
import pytest

from tests.server.conftest import Harness, RawStream, Start, sotw, state_of, until, within
from xds.fleet.state import Sync
from xds.model.resource_type import CLUSTER, ENDPOINT, V2_URLS
from xds.protocol import cohort
from xds.server.discovery import DiscoveryHandler


async def test_a_nack_is_recorded_counted_and_not_answered(server: Harness) -> None:
    stream = await server.stream()
    await stream.request()
    response = await stream.receive()
    await stream.ack(response, error="no such thing")
    [record] = await until(lambda: list(server.fleet.nack_log.select()))
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


async def test_what_others_had_in_the_same_state_waits_for_no_turn(
    server: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first offer and the first ACK of a push take work items, the others are handled at once; all are counted."""
    nodes = ("n1", "n2", "n3")

    async def synced(node_id: str) -> None:
        await until(lambda: state_of(server, node_id) == {"clusters": Sync.SYNCED})

    streams = [await server.stream() for _ in nodes]
    for stream, node_id in zip(streams, nodes, strict=True):
        await stream.request(node_id=node_id)
        await stream.ack(await stream.receive())
        await synced(node_id)
    turns: Counter[str] = Counter()

    def count(method: str) -> None:
        run = getattr(DiscoveryHandler, method)

        def note(stream: DiscoveryHandler) -> None:
            turns[method] += 1
            run(stream)

        monkeypatch.setattr(DiscoveryHandler, method, note)

    count("_work")
    count("_consume")
    monkeypatch.setattr(cohort, "SHARED_S", 60.0)  # the machine may be busy
    server.push({"c1": "2", "c2": "2"})
    responses = [await stream.receive() for stream in streams]
    for stream, node_id, response in zip(streams, nodes, responses, strict=True):
        await stream.ack(response)
        await synced(node_id)
    assert turns == {"_work": 1, "_consume": 1}
    text = server.metrics.render().decode()
    assert 'xds_server_requests_total{kind="ack",type="clusters"} 6.0' in text
    assert 'xds_server_responses_total{type="clusters"} 6.0' in text
    assert 'xds_server_resources_sent_total{type="clusters"} 12.0' in text
    assert 'xds_server_ack_seconds_count{type="clusters"} 6.0' in text
    for name in ("response_size_bytes", "push_queue_seconds", "response_build_seconds"):
        assert f"xds_server_{name}_count {6.0 if name == 'response_size_bytes' else 3.0}" in text, name
    await streams[1].ack(responses[1], error="too late")
    await streams[2].request(CLUSTER, node_id="n3")
    server.push({"c1": "3", "c2": "3"})
    assert [(await stream.receive()).version_info for stream in streams] == ["3"] * len(nodes)
