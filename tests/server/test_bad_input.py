"""Bad input at the gRPC port: a clear error or silence. The process stays up, and other clients are not affected."""

from __future__ import annotations

import os

import grpc
import pytest

from tests.server.conftest import DELTA, Harness, Start, refusal, sotw, until
from xds.model.node import NODE_BYTES
from xds.model.resource_type import CLUSTER, ENDPOINT, LISTENER
from xds.proto import wire_pb2
from xds.protocol.requests import StreamLimits

ADS_V2 = "/envoy.service.discovery.v2.AggregatedDiscoveryService/StreamAggregatedResources"
LRS = "/envoy.service.load_stats.v3.LoadReportingService/StreamLoadStats"
FETCH = "/envoy.service.cluster.v3.ClusterDiscoveryService/FetchClusters"
CDS = "/envoy.service.cluster.v3.ClusterDiscoveryService/StreamClusters"


@pytest.mark.usefixtures("bystander")
class TestRefused:
    async def test_truncated_protobuf(self, server: Harness) -> None:
        whole = sotw(names=["some-name"])
        assert (await refusal(server, whole[:-3]))[0] is grpc.StatusCode.INVALID_ARGUMENT
        assert (await refusal(server, whole[:-3], DELTA))[0] is grpc.StatusCode.INVALID_ARGUMENT

    async def test_random_bytes(self, server: Harness) -> None:
        for size in (1, 10, 1000, 100_000):
            code, _ = await refusal(server, b"\xff" + os.urandom(size))
            assert code is grpc.StatusCode.INVALID_ARGUMENT

    async def test_a_request_without_a_node(self, server: Harness) -> None:
        for data in (b"", wire_pb2.DiscoveryRequest(type_url=CLUSTER).SerializeToString(), sotw(node_id="")):
            assert (await refusal(server, data))[0] is grpc.StatusCode.INVALID_ARGUMENT

    async def test_a_malformed_node(self, server: Harness) -> None:
        data = wire_pb2.DiscoveryRequest(type_url=CLUSTER, node=b"\xff\xff").SerializeToString()
        assert (await refusal(server, data))[0] is grpc.StatusCode.INVALID_ARGUMENT

    async def test_a_node_too_large_to_be_kept(self, server: Harness) -> None:
        """A larger node would take seconds to read, and memory as long as the stream is open."""
        node = wire_pb2.Node(id="n1")
        node.metadata["k"] = "v" * NODE_BYTES
        data = wire_pb2.DiscoveryRequest(type_url=CLUSTER, node=node.SerializeToString()).SerializeToString()
        for method, request in (
            ("", data),
            (
                DELTA,
                wire_pb2.DeltaDiscoveryRequest(node=node.SerializeToString(), type_url=CLUSTER).SerializeToString(),
            ),
            (LRS, wire_pb2.LoadStatsRequest(node=node.SerializeToString()).SerializeToString()),
        ):
            code, message = await refusal(server, request, method)
            assert code is grpc.StatusCode.RESOURCE_EXHAUSTED
            assert f"a node of {node.ByteSize()} bytes; at most {NODE_BYTES} are accepted" in message
        assert server.metrics.limit_hits["node_bytes"] == 3
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await (await server.channel()).unary_unary(FETCH)(data)
        assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert server.metrics.limit_hits["node_bytes"] == 4

    async def test_no_type_on_an_aggregated_stream(self, server: Harness) -> None:
        assert (await refusal(server, sotw("")))[0] is grpc.StatusCode.INVALID_ARGUMENT

    async def test_a_wrong_type_on_a_type_stream(self, server: Harness) -> None:
        code, message = await refusal(server, sotw(LISTENER), CDS)
        assert code is grpc.StatusCode.INVALID_ARGUMENT
        assert LISTENER in message

    async def test_100_000_names(self, server: Harness) -> None:
        code, _ = await refusal(server, sotw(ENDPOINT, [f"name-{number}" for number in range(100_000)]))
        assert code is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert server.metrics.limit_hits["names_per_request"] == 1

    async def test_too_many_types(self, server: Harness) -> None:
        stream = await server.stream()
        for number in range(StreamLimits().types_per_stream + 1):
            await stream.request(f"type.googleapis.com/no.such.Type{number}")
        assert (await stream.ended())[0] is grpc.StatusCode.RESOURCE_EXHAUSTED


@pytest.mark.usefixtures("bystander")
class TestTolerated:
    async def test_names_of_10_kb(self, server: Harness) -> None:
        stream = await server.stream(DELTA)
        name = "n" * 10_000
        await stream.request(ENDPOINT, [name])
        assert list((await stream.receive()).removed_resources) == [name]

    async def test_odd_names(self, server: Harness) -> None:
        stream = await server.stream()
        await stream.request(CLUSTER, ["", "*", "*", "c1", "\U0001f600", "xdstp://?%zz=%", "a/b?c#d"])
        assert [each.value for each in (await stream.receive()).resources] == [b"c1=a", b"c2=a"]

    async def test_an_ack_that_comes_twice(self, server: Harness) -> None:
        stream = await server.stream()
        await stream.request()
        for revision in range(2, 6):
            response = await stream.receive()
            for _ in range(2):
                await stream.ack(response)
            server.push({"c1": f"{revision}", "c2": "a"})
        response = await stream.receive()
        assert next(each.value for each in response.resources) == b"c1=5"
        assert server.metrics.type(CLUSTER).responses <= 12

    async def test_a_flood_is_slowed_down_not_cut(self, start: Start) -> None:
        server = await start(requests_per_s=20, requests_burst=20)
        server.push({"c1": "a"})
        stream = await server.stream()
        await stream.request()
        response = await stream.receive()
        for _ in range(60):
            await stream.ack(response)
        server.push({"c1": "b"})
        assert next(each.value for each in (await stream.receive()).resources) == b"c1=b"
        assert server.metrics.limit_hits["requests_per_second"] > 0

    async def test_a_node_that_changes_its_name_keeps_the_first(self, server: Harness) -> None:
        stream = await server.stream()
        await stream.request(node_id="first")
        await stream.receive()
        await stream.request(ENDPOINT, ["c1"], node_id="second")
        await until(lambda: server.metrics.node_mismatches == 1)
        assert server.fleet.connected() == {"bystander", "first"}
