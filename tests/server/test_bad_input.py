"""Bad input at the gRPC door: a clear error or silence; the process stays up and others notice nothing."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import suppress

import grpc
import pytest

from tests.server.conftest import DELTA, Harness, RawStream, Start, sotw, until, within
from xds.model.resource_type import CLUSTER, ENDPOINT, LISTENER
from xds.proto import wire_pb2
from xds.protocol.requests import StreamLimits
from xds.server.options import ASYNCIO, GRPCIO
from xds.wire.node import NODE_BYTES

ADS_V2 = "/envoy.service.discovery.v2.AggregatedDiscoveryService/StreamAggregatedResources"
LRS = "/envoy.service.load_stats.v3.LoadReportingService/StreamLoadStats"
FETCH = "/envoy.service.cluster.v3.ClusterDiscoveryService/FetchClusters"
CDS = "/envoy.service.cluster.v3.ClusterDiscoveryService/StreamClusters"


@pytest.fixture(params=[ASYNCIO, GRPCIO])
def transport(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
async def bystander(server: Harness) -> AsyncIterator[RawStream]:
    """Another client, which is served before and after."""
    stream = await server.stream()
    await stream.request(node_id="bystander")
    await stream.ack(await stream.receive())
    yield stream
    server.push({"c1": "afterwards", "c2": "a"})
    response = await stream.receive()
    while next(each.value for each in response.resources) != b"c1=afterwards":
        await stream.ack(response)
        response = await stream.receive()
    assert len(server.server.registry) >= 1


async def refusal(server: Harness, data: bytes, method: str = "") -> tuple[grpc.StatusCode, str]:
    stream = await server.stream(method) if method else await server.stream()
    with suppress(grpc.aio.AioRpcError):  # refused before anything was sent
        await stream.send(data)
    return await stream.ended()


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

    async def test_no_node(self, server: Harness) -> None:
        for data in (b"", wire_pb2.DiscoveryRequest(type_url=CLUSTER).SerializeToString(), sotw(node_id="")):
            assert (await refusal(server, data))[0] is grpc.StatusCode.INVALID_ARGUMENT

    async def test_a_node_that_is_none(self, server: Harness) -> None:
        data = wire_pb2.DiscoveryRequest(type_url=CLUSTER, node=b"\xff\xff").SerializeToString()
        assert (await refusal(server, data))[0] is grpc.StatusCode.INVALID_ARGUMENT

    async def test_a_node_too_large_to_be_kept(self, server: Harness) -> None:
        """Finding 5: it would take seconds to read, and memory for as long as the stream lives."""
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

    async def test_a_request_larger_than_the_limit(self, server: Harness) -> None:
        for mebibytes in (9, 50):
            code, _ = await refusal(server, sotw(node_id="x" * (mebibytes << 20)))
            assert code is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert server.metrics.limit_hits["receive_bytes"] == 1

    async def test_too_many_types(self, server: Harness) -> None:
        stream = await server.stream()
        for number in range(StreamLimits().types_per_stream + 1):
            await stream.request(f"type.googleapis.com/no.such.Type{number}")
        assert (await stream.ended())[0] is grpc.StatusCode.RESOURCE_EXHAUSTED

    async def test_an_unknown_method(self, server: Harness) -> None:
        code, _ = await refusal(server, b"", "/envoy.service.cluster.v3.ClusterDiscoveryService/StreamNothing")
        assert code is grpc.StatusCode.UNIMPLEMENTED


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

    async def test_a_client_that_never_reads(self, start: Start) -> None:
        """Nothing piles up for it, and the others of its group are served."""
        server = await start(limits=StreamLimits(offer_timeout_s=0.01))
        texts = {f"c{number}": "x" * 10_000 for number in range(500)}
        server.push(texts)
        deaf, other = await server.stream(), await server.stream()
        await deaf.request(node_id="deaf")
        await until(lambda: server.metrics.type(CLUSTER).responses == 1)
        await other.request(node_id="other")
        await other.ack(await other.receive())
        for number in range(20):
            server.push({**texts, "c0": f"{number}"})
            response = await other.receive()
            await other.ack(response)
        answered = server.metrics.type(CLUSTER).kinds["ack"]
        assert server.metrics.type(CLUSTER).responses <= answered + 5
        deaf.call.cancel()
        await until(lambda: "deaf" not in server.fleet.connected())

    async def test_a_client_that_asks_and_never_reads(self, start: Start) -> None:
        server = await start(limits=StreamLimits(types_per_stream=10_000), requests_per_s=1e6, requests_burst=10**6)
        server.push({f"c{number}": "x" * 10_000 for number in range(100)})
        stream = await server.stream()
        names = [[f"c{number}"] for number in range(100)]

        async def ask() -> None:
            for round_ in range(200):
                await stream.request(CLUSTER, names[round_ % 100])

        asking = asyncio.create_task(ask())
        await asyncio.wait([asking], timeout=1.0)
        asking.cancel()
        stream.call.cancel()
        await until(lambda: len(server.server.registry) == 0)

    async def test_a_bug_of_ours_costs_one_stream(self, start: Start) -> None:
        def fail(_: object) -> None:
            raise ZeroDivisionError

        server = await start(variants={"v2": fail})
        server.push({"c1": "a"})
        fine, broken = await server.stream(), await server.stream(ADS_V2)
        await fine.request(node_id="fine")
        await fine.ack(await fine.receive())
        await broken.request("type.googleapis.com/envoy.api.v2.Cluster")
        assert (await broken.ended())[0] is grpc.StatusCode.INTERNAL
        server.push({"c1": "b"})
        assert next(each.value for each in (await fine.receive()).resources) == b"c1=b"

    async def test_a_node_that_changes_its_name_keeps_the_first(self, server: Harness) -> None:
        stream = await server.stream()
        await stream.request(node_id="first")
        await stream.receive()
        await stream.request(ENDPOINT, ["c1"], node_id="second")
        await until(lambda: server.metrics.node_mismatches == 1)
        assert server.fleet.connected() == {"bystander", "first"}

    async def test_a_client_that_vanishes_mid_conversation(self, server: Harness) -> None:
        for _ in range(20):
            channel = await server.channel()
            stream = RawStream(channel)
            await stream.request(node_id="fleeting")
            await channel.close()
        await until(lambda: "fleeting" not in server.fleet.connected())

    @pytest.mark.parametrize(
        "prefix", [b"", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01"]
    )
    async def test_random_bytes_to_the_port(self, server: Harness, prefix: bytes) -> None:
        for _ in range(5):
            reader, writer = await asyncio.open_connection("127.0.0.1", server.server.port)
            try:
                writer.write(prefix + os.urandom(4096))
                await writer.drain()
                writer.write_eof()
                await within(reader.read())
            except OSError:
                pass  # the server may reset the connection
            finally:
                writer.close()
