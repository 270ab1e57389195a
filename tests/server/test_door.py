"""Who may come in and when: readiness, drain, tokens, TLS; and the services beside discovery."""

from __future__ import annotations

import asyncio
from hashlib import sha256
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_channelz.v1 import channelz_pb2
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection_pb2

from tests.server.conftest import ADS, DEADLINE_S, Harness, RawStream, Start, until, within
from tests.support.pki import CertificateAuthority, served_serial
from xds.control.tokens import EVERYTHING, Grant, Tokens
from xds.fleet.fleet import Fleet
from xds.protocol.cache import SnapshotCache
from xds.server.metrics.counters import Metrics
from xds.server.options import ASYNCIO, GRPCIO, ServerOptions
from xds.server.server import XdsServer
from xds.server.tls import pem_files

SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


@pytest.fixture(params=[ASYNCIO, GRPCIO])
def transport(request: pytest.FixtureRequest) -> str:
    return str(request.param)


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
    assert server.metrics.refused == {"starting": 1}


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
    assert server.metrics.refused == {"unauthenticated": 6}


async def test_a_token_for_other_things_opens_no_stream(start: Start) -> None:
    reader, proxy = Grant("reader", frozenset({"read"})), Grant("proxy", frozenset({"xds"}))
    tokens = Tokens([(sha256(b"r").hexdigest(), reader), (sha256(b"p").hexdigest(), proxy)])
    server = await start(tokens=tokens)
    server.push({"c1": "a"})
    refused = await server.stream(authorization="Bearer r")
    assert await refused.ended() == (grpc.StatusCode.PERMISSION_DENIED, "the token lacks the scope xds")
    stream = await server.stream(authorization="Bearer p")
    await stream.request()
    assert (await stream.receive()).version_info == "1"


@pytest.fixture
def authority(tmp_path: Path) -> CertificateAuthority:
    return CertificateAuthority(tmp_path)


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


def test_tls_settings_that_contradict_each_other(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="both"):
        pem_files(ServerOptions(tls_certificate=tmp_path))
    with pytest.raises(ValueError, match="need TLS"):
        pem_files(ServerOptions(client_ca=tmp_path))


async def test_a_port_in_use_is_an_error(server: Harness) -> None:
    other = XdsServer(SnapshotCache(), Fleet(), ServerOptions(port=server.server.port), Metrics())
    with pytest.raises(OSError, match="cannot listen"):
        await other.start()


@pytest.mark.parametrize("version", ["v1", "v1alpha"])
async def test_reflection_describes_what_is_served(server: Harness, version: str) -> None:
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


async def test_many_streams_at_once_are_all_taken(server: Harness) -> None:
    """push_path 5: with the defaults of gRPC, streams opened in a burst are rejected."""
    channels = [await server.channel() for _ in range(4)]

    async def converse(number: int) -> str:
        stream = RawStream(channels[number % len(channels)])
        await stream.request(node_id=f"n{number}")
        version: str = (await stream.receive()).version_info
        stream.call.cancel()
        return version

    found = await asyncio.wait_for(asyncio.gather(*map(converse, range(2000))), 3 * DEADLINE_S)
    assert set(found) == {"1"}


async def test_a_node_can_be_disconnected(server: Harness) -> None:
    stream, other = await server.stream(), await server.stream()
    await stream.request(node_id="n1")
    await other.request(node_id="n2")
    await stream.receive()
    await other.receive()
    assert server.server.disconnect("n3") == 0
    assert server.server.disconnect("n1") == 1
    assert await stream.ended() == (grpc.StatusCode.OK, "")
    assert server.fleet.connected() == {"n2"}
