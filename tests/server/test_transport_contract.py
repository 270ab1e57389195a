"""The contract of the two transports: what holds over our own and over grpcio's.

The other tests of the server run over our own alone: behind `xds.server.transport` nothing knows which one it is.
"""

from __future__ import annotations

import asyncio
import datetime
import gc
import os
from hashlib import sha256
from time import monotonic, time
from typing import Any

import grpc
import pytest
from grpc_channelz.v1 import channelz_pb2
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection_pb2

from tests.server.conftest import (
    ADS,
    DEADLINE_S,
    DELTA,
    SOTW,
    Harness,
    RawStream,
    Start,
    refusal,
    shown,
    sotw,
    state_of,
    tls,
    until,
    within,
)
from tests.support.linkerd_client import added
from tests.support.linkerd_site import HOST, LinkerdSite, instance
from tests.support.pki import CertificateAuthority, served_serial
from xds.access.authorisation import Access, ClaimPattern, NodeAuthMode, NodeRule, NodeRules, PrincipalPattern
from xds.access.tokens import EVERYTHING, Tokens
from xds.codec import schema
from xds.fleet.event_log import EventFilter, EventKind
from xds.fleet.fleet import Fleet
from xds.fleet.state import Sync
from xds.model.resource_type import CLUSTER, ENDPOINT
from xds.proto import wire_pb2
from xds.protocol.requests import StreamLimits
from xds.protocol.stream import DiscoveryStream
from xds.server import aging
from xds.server.counters import Metrics
from xds.server.discovery import DiscoveryHandler
from xds.server.options import ASYNCIO, GRPCIO, ServerOptions
from xds.server.server import XdsServer
from xds.server.services import SERVICES
from xds.snapshots.cache import SnapshotCache

CSDS = "/envoy.service.status.v3.ClientStatusDiscoveryService/"
LRS = "/envoy.service.load_stats.v3.LoadReportingService/StreamLoadStats"
ADS_V2 = "/envoy.service.discovery.v2.AggregatedDiscoveryService/StreamAggregatedResources"
SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING
UNAUTHENTICATED = grpc.StatusCode.UNAUTHENTICATED


@pytest.fixture(params=[ASYNCIO, GRPCIO])
def transport(request: pytest.FixtureRequest) -> str:
    return str(request.param)


# -- calls -------------------------------------------------------------------------------------------------------------


async def test_a_request_is_answered_and_acked(server: Harness) -> None:
    stream = await server.stream()
    await stream.request()
    response = await stream.receive()
    assert (response.version_info, response.type_url) == ("1", CLUSTER)
    assert [resource.value for resource in response.resources] == [b"c1=a", b"c2=a"]
    assert response.control_plane.identifier == "test"
    await stream.ack(response)
    await until(lambda: state_of(server) == {"clusters": Sync.SYNCED})


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


async def test_a_push_reaches_every_stream(server: Harness) -> None:
    streams = [await server.stream() for _ in range(5)]
    for number, stream in enumerate(streams):
        await stream.request(node_id=f"n{number}")
        await stream.ack(await stream.receive())
    await until(lambda: all(state_of(server, f"n{number}") == {"clusters": Sync.SYNCED} for number in range(5)))
    server.push({"c1": "b", "c2": "a"})
    for stream in streams:
        response = await stream.receive()
        while response.version_info != "2":
            await stream.ack(response)
            response = await stream.receive()
        assert [resource.value for resource in response.resources] == [b"c1=b", b"c2=a"]


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


async def test_a_half_closed_stream_still_gets_its_answer(server: Harness) -> None:
    stream = await server.stream()
    await stream.request()
    await within(stream.call.done_writing())
    assert (await stream.receive()).version_info == "1"
    assert (await stream.ended())[0] is grpc.StatusCode.OK


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


async def test_rule_80_all_state_of_a_stream_ends_with_it(server: Harness) -> None:
    before = alive(DiscoveryHandler, DiscoveryStream)
    for method in (SOTW, DELTA):
        for number in range(20):
            stream = await server.stream(method)
            await stream.request(node_id=f"n{number}")
            await stream.receive()
            stream.call.cancel()
    await until(lambda: len(server.server.registry) == 0)
    await until(lambda: alive(DiscoveryHandler, DiscoveryStream) == before)


# -- readiness and drain -----------------------------------------------------------------------------------------------


async def health(channel: Any, service: str = "") -> int:
    check = channel.unary_unary("/grpc.health.v1.Health/Check")
    answer = await within(check(health_pb2.HealthCheckRequest(service=service).SerializeToString()))
    return int(health_pb2.HealthCheckResponse.FromString(answer).status)


async def test_rule_9_no_stream_is_answered_before_the_state_is_loaded(start: Start) -> None:
    server = await start(ready=False)
    channel = await server.channel()
    code, message = await RawStream(channel, ADS + "StreamAggregatedResources").ended()
    assert (code, message) == (grpc.StatusCode.UNAVAILABLE, "the server is starting")
    assert await health(channel) == NOT_SERVING
    server.push({"c1": "a"})
    await server.server.set_ready()
    assert await health(channel) == SERVING
    assert await health(channel, "envoy.service.cluster.v3.ClusterDiscoveryService") == SERVING
    stream = RawStream(channel)
    await stream.request()
    assert (await stream.receive()).version_info == "1"
    assert +server.metrics.refused == {"starting": 1}


async def test_drain_ends_streams_in_good_order(server: Harness) -> None:
    channel = await server.channel()
    streams = [RawStream(channel) for _ in range(10)]
    for number, stream in enumerate(streams):
        await stream.request(node_id=f"n{number}")
        await stream.receive()
    watch = (await server.channel()).unary_stream("/grpc.health.v1.Health/Watch")
    watching = watch(health_pb2.HealthCheckRequest().SerializeToString())
    assert health_pb2.HealthCheckResponse.FromString(await within(watching.read())).status == SERVING
    drain = asyncio.create_task(server.server.drain(0.2))
    assert health_pb2.HealthCheckResponse.FromString(await within(watching.read())).status == NOT_SERVING
    assert {(await stream.ended())[0] for stream in streams} == {grpc.StatusCode.OK}
    await within(drain)
    assert len(server.server.registry) == 0
    assert (await RawStream(await server.channel()).ended())[0] is grpc.StatusCode.UNAVAILABLE


async def test_drain_does_not_wait_for_a_client_that_never_reads(server: Harness) -> None:
    server.push({f"c{number}": "x" * 100_000 for number in range(100)})
    stream = await server.stream()
    await stream.request()
    await until(lambda: server.metrics.type("type.googleapis.com/envoy.config.cluster.v3.Cluster").responses)
    await within(server.server.drain(0.1))
    assert len(server.server.registry) == 0


async def test_a_drain_stops_the_transport_once(server: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two stops at once, grpcio lets one end the calls of a server that the other has freed: a rare crash."""
    transport, stops = server.server._transport, []
    assert transport is not None
    stop = transport.stop

    async def counted(grace_s: float) -> None:
        stops.append(grace_s)
        await stop(grace_s)

    monkeypatch.setattr(transport, "stop", counted)
    for _ in range(2):
        stream = await server.stream()
        await stream.request()
        await stream.receive()
    await within(server.server.drain(0.2))
    assert len(stops) == 1


# -- the age of streams ------------------------------------------------------------------------------------------------


async def acked(channel: Any) -> RawStream:
    """A stream on ``channel`` whose client has what it requested."""
    stream = RawStream(channel)
    await stream.request()
    await stream.ack(await stream.receive())
    return stream


async def test_a_stream_ends_at_its_age_and_the_next_one_is_on_another_connection(start: Start) -> None:
    server = await start(max_stream_age_s=1.0)
    server.push({"c1": "a"})
    channel = await server.channel()
    first = await acked(channel)
    connected = monotonic()
    (before,) = {stream.peer for stream in server.server._streams}
    assert (await first.ended())[0] is grpc.StatusCode.OK
    assert monotonic() - connected > 0.5
    await acked(channel)
    (after,) = {stream.peer for stream in server.server._streams}
    assert after != before


async def test_a_stream_does_not_end_at_its_age_before_its_response_is_answered(start: Start) -> None:
    server = await start(max_stream_age_s=0.3)
    server.push({"c1": "a"})
    stream = await server.stream()
    await stream.request()
    response = await stream.receive()
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(asyncio.shield(asyncio.ensure_future(stream.call.code())), 1.0)
    await stream.ack(response)
    assert (await stream.ended())[0] is grpc.StatusCode.OK


async def test_a_client_that_never_answers_is_closed_all_the_same(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(aging, "ANSWER_S", 0.3)
    server = await start(max_stream_age_s=0.3)
    server.push({"c1": "a"})
    stream = await server.stream()
    await stream.request()
    await stream.receive()
    assert (await stream.ended())[0] is grpc.StatusCode.OK


async def test_clients_spread_over_servers_on_one_port(start: Start) -> None:
    first = await start(max_stream_age_s=0.5, reuse_port=True)
    first.push({"c1": "a"})
    channels = [await first.channel() for _ in range(20)]
    ended = asyncio.gather(*[(await acked(channel)).ended() for channel in channels])
    second = await start(max_stream_age_s=60.0, reuse_port=True, port=first.server.port)
    second.push({"c1": "a"})
    await ended
    for channel in channels:
        await acked(channel)
    assert len(second.server.registry)  # of 20 that choose at random


async def test_a_port_is_not_shared_by_accident(start: Start) -> None:
    first = await start()
    with pytest.raises(OSError, match="cannot listen"):
        await start(port=first.server.port)


# -- credentials -------------------------------------------------------------------------------------------------------


async def test_tokens(start: Start) -> None:
    server = await start(tokens=Tokens((sha256(token).hexdigest(), EVERYTHING) for token in (b"secret", b"other")))
    server.push({"c1": "a"})
    for authorization in ("", "secret", "Bearer", "Bearer wrong", "Basic secret", "Bearer secret2"):
        metadata = {"authorization": authorization} if authorization else {}
        stream = await server.stream(**metadata)
        assert (await stream.ended())[0] is grpc.StatusCode.UNAUTHENTICATED, authorization
    for authorization in ("Bearer secret", "bearer other"):
        stream = await server.stream(authorization=authorization)
        await stream.request()
        assert (await stream.receive()).version_info == "1"
    assert await health(await server.channel()) == SERVING
    assert +server.metrics.refused == {"unauthenticated": 6}


async def test_tls_and_client_certificates(start: Start, authority: CertificateAuthority) -> None:
    own, client = authority.issue("server"), authority.issue("client")
    server = await start(tls_certificate=own.path, tls_key=own.key_path, client_ca=authority.path)
    server.push({"c1": "a"})
    root = authority.pem.encode()
    stranger = grpc.ssl_channel_credentials(root)
    code, _ = await RawStream(await server.channel(stranger)).ended()
    assert code is grpc.StatusCode.UNAVAILABLE
    known = grpc.ssl_channel_credentials(root, client.key_pem.encode(), client.pem.encode())
    stream = RawStream(await server.channel(known))
    await stream.request()
    assert (await stream.receive()).version_info == "1"


async def test_a_renewed_certificate_is_served_and_a_broken_one_is_not(
    start: Start, authority: CertificateAuthority
) -> None:
    first = authority.issue("server")
    server = await start(tls_certificate=first.path, tls_key=first.key_path)

    async def serial() -> int:
        return await asyncio.to_thread(served_serial, server.server.port, authority)

    assert await serial() == first.serial
    renewed = authority.issue("server")
    assert await serial() == renewed.serial
    renewed.path.unlink()
    assert await serial() == renewed.serial


async def test_streams_end_with_their_certificate(start: Start, authority: CertificateAuthority) -> None:
    server = await tls(start, authority, expiry_spread_s=0.5)
    short = authority.issue("short", valid_for=datetime.timedelta(seconds=2))
    ends_at = time() + 2
    long = authority.issue("long")
    channel = await server.channel(shown(authority, short))
    streams = [RawStream(channel, SOTW), RawStream(channel, DELTA)]
    staying = RawStream(await server.channel(shown(authority, long)))
    for number, stream in enumerate((*streams, staying)):
        await stream.request(node_id=f"n{number}")
        await stream.receive()
    for stream in streams:
        assert await stream.ended() == (UNAUTHENTICATED, "the client certificate has expired")
    assert time() >= ends_at - 1  # seconds, as certificates have them
    # Its connection went with it: a client that comes back has to show another one.
    await until(lambda: channel.get_state() is not grpc.ChannelConnectivity.READY)
    server.push({"c1": "b"})
    assert (await staying.receive()).version_info == "2"


async def test_the_principal_is_shown(start: Start, authority: CertificateAuthority) -> None:
    server = await tls(start, authority)
    named = authority.issue("edge-1", ["spiffe://corp/edge-1", "edge-1.corp"])
    stream = RawStream(await server.channel(shown(authority, named)))
    await stream.request()
    await stream.receive()
    found = server.fleet.node("n1")
    assert found is not None
    assert found.principals == ("spiffe://corp/edge-1",)
    events = server.fleet.events.after(0, EventFilter(frozenset({EventKind.STREAM})), 10).events
    assert [event.details["principal"] for event in events] == ["spiffe://corp/edge-1"]


async def test_a_node_that_its_certificate_does_not_allow_is_refused(
    start: Start, authority: CertificateAuthority
) -> None:
    """The tests of tests/attack/test_identity.py try every way into the server, over our own transport."""
    rule = NodeRule(PrincipalPattern("spiffe://corp/{id}"), ClaimPattern("{id}"))
    server = await tls(start, authority, access=Access(Tokens(), nodes=NodeRules(NodeAuthMode.ENFORCE, (rule,))))
    channel = await server.channel(shown(authority, authority.issue("edge-1", ["spiffe://corp/edge-1"])))
    for method in (SOTW, DELTA):
        own, other = RawStream(channel, method), RawStream(channel, method)
        await own.request(node_id="edge-1")
        await own.receive()
        await other.request(node_id="edge-2")
        assert (await other.ended())[0] is grpc.StatusCode.PERMISSION_DENIED


# -- the port and the services beside discovery ------------------------------------------------------------------------


async def test_a_port_in_use_is_an_error(server: Harness) -> None:
    other = XdsServer(SnapshotCache(), Fleet(), ServerOptions(port=server.server.port), Metrics())
    with pytest.raises(OSError, match="cannot listen"):
        await other.start()


@pytest.mark.parametrize("version", ["v1", "v1alpha"])
async def test_reflection_describes_the_served_services(server: Harness, version: str) -> None:
    channel = await server.channel()
    call = channel.stream_stream(f"/grpc.reflection.{version}.ServerReflection/ServerReflectionInfo")()
    kind = reflection_pb2.ServerReflectionResponse

    async def ask(**request: str) -> Any:
        await within(call.write(reflection_pb2.ServerReflectionRequest(**request).SerializeToString()))
        return kind.FromString(await within(call.read()))

    names = [each.name for each in (await ask(list_services="*")).list_services_response.service]
    assert "envoy.service.discovery.v3.AggregatedDiscoveryService" in names
    for name in names:
        described = await ask(file_containing_symbol=name)
        if name != "grpc.reflection.v1.ServerReflection":
            assert described.file_descriptor_response.file_descriptor_proto, name
    assert (await ask(file_containing_symbol="no.such.Thing")).error_response.error_code == 5


async def test_channelz_lists_the_server(server: Harness) -> None:
    get = (await server.channel()).unary_unary("/grpc.channelz.v1.Channelz/GetServers")
    answer = await within(get(channelz_pb2.GetServersRequest().SerializeToString()))
    assert channelz_pb2.GetServersResponse.FromString(answer).server


@pytest.mark.parametrize("count", [600, pytest.param(2_000, marks=pytest.mark.soak)])
async def test_many_streams_at_once_are_all_taken(server: Harness, count: int) -> None:
    """With grpcio's defaults, streams that open in a burst are rejected (docs/internals/design.md#push-path)."""
    channels = [await server.channel() for _ in range(4)]

    async def converse(number: int) -> str:
        stream = RawStream(channels[number % len(channels)])
        # One deadline for all: the last stream of a burst waits for the others.
        await stream.call.write(sotw(node_id=f"n{number}"))
        version: str = wire_pb2.DiscoveryResponse.FromString(await stream.call.read()).version_info
        stream.call.cancel()
        return version

    found = await asyncio.wait_for(asyncio.gather(*map(converse, range(count))), 6 * DEADLINE_S)
    assert set(found) == {"1"}


# -- bad clients -------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("bystander")
class TestBadClients:
    """Another client notices nothing of them."""

    async def test_a_request_larger_than_the_limit(self, server: Harness) -> None:
        for mebibytes in (9, 50):
            code, _ = await refusal(server, sotw(node_id="x" * (mebibytes << 20)))
            assert code is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert server.metrics.limit_hits["receive_bytes"] == 1

    async def test_an_unknown_method(self, server: Harness) -> None:
        code, _ = await refusal(server, b"", "/envoy.service.cluster.v3.ClusterDiscoveryService/StreamNothing")
        assert code is grpc.StatusCode.UNIMPLEMENTED

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

    async def test_a_bug_in_a_handler_ends_one_stream(self, start: Start) -> None:
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


# -- the other services ------------------------------------------------------------------------------------------------


async def test_load_reports_are_requested(server: Harness) -> None:
    stream = await server.stream(LRS)
    await stream.send(wire_pb2.LoadStatsRequest(node=wire_pb2.Node(id="n1").SerializeToString()).SerializeToString())
    answer = wire_pb2.LoadStatsResponse.FromString(await within(stream.call.read()))
    assert list(answer.clusters) == ["c1", "c2"]


@pytest.mark.parametrize("is_stream", [False, True], ids=["fetch", "stream"])
async def test_client_status_is_served(server: Harness, is_stream: bool) -> None:
    stream = await server.stream()
    await stream.request()
    await stream.ack(await stream.receive())
    channel = await server.channel()
    if is_stream:
        call = channel.stream_stream(CSDS + "StreamClientStatus")()
        await within(call.write(b""))
        answer = await within(call.read())
    else:
        answer = await within(channel.unary_unary(CSDS + "FetchClientStatus")(b""))
    shown_nodes: Any = schema.require("envoy.service.status.v3.ClientStatusResponse").FromString(answer)
    assert [config.node.id for config in shown_nodes.config] == ["n1"]


def test_linkerd_proxies_are_answered(transport: str) -> None:
    site = LinkerdSite(options=ServerOptions(transport=transport))
    try:
        site.put("web", instance("10.0.0.1"))
        client = site.client()
        stream = client.get(HOST)
        assert set(added(stream.next())) == {"10.0.0.1:8080"}
        site.put("web", instance("10.0.0.1"), instance("10.0.0.2"))
        assert set(added(stream.next())) == {"10.0.0.2:8080"}
        stream.cancel()
        site.wait(lambda: len(site.destinations) == 0, "the end of the stream")
        assert client.profile(HOST).next().fully_qualified_name == HOST
    finally:
        site.close()
