"""An in-process server and raw gRPC clients."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from time import monotonic
from typing import Any, Self

import grpc
import pytest

from tests.support.pki import Certificate, CertificateAuthority
from tests.support.plane import plane
from tests.support.sansio import make_resource
from xds.fleet.fleet import Fleet
from xds.fleet.state import Sync
from xds.lrs.aggregates import LoadAggregates
from xds.model.resource_type import CLUSTER
from xds.model.snapshot import Snapshot, build_snapshot
from xds.proto import wire_pb2
from xds.server.counters import Metrics
from xds.server.options import ASYNCIO, ServerOptions
from xds.server.server import XdsServer
from xds.snapshots.cache import SnapshotCache, Translate

__all__ = ["plane"]

DEADLINE_S = 20.0
ADS = "/envoy.service.discovery.v3.AggregatedDiscoveryService/"
SOTW = ADS + "StreamAggregatedResources"
DELTA = ADS + "DeltaAggregatedResources"


async def until(condition: Callable[[], Any]) -> Any:
    """Wait until ``condition`` returns something true."""

    async def poll() -> Any:
        while not (found := condition()):
            await asyncio.sleep(0.005)
        return found

    return await asyncio.wait_for(poll(), DEADLINE_S)


async def within(work: Awaitable[Any]) -> Any:
    return await asyncio.wait_for(work, DEADLINE_S)


def node(node_id: str = "n1", cluster: str = "") -> bytes:
    return wire_pb2.Node(id=node_id, cluster=cluster).SerializeToString()


def sotw(type_url: str = CLUSTER, names: Sequence[str] = (), node_id: str = "n1", **fields: Any) -> bytes:
    """A first DiscoveryRequest."""
    request = wire_pb2.DiscoveryRequest(type_url=type_url, resource_names=names, node=node(node_id), **fields)
    return request.SerializeToString()


def delta(type_url: str = CLUSTER, names: Sequence[str] = (), node_id: str = "n1") -> bytes:
    """A first DeltaDiscoveryRequest."""
    request = wire_pb2.DeltaDiscoveryRequest(type_url=type_url, resource_names_subscribe=names, node=node(node_id))
    return request.SerializeToString()


class RawStream:
    """One stream of raw bytes. ``receive`` reads DiscoveryResponses (or delta ones)."""

    def __init__(self, channel: Any, method: str = SOTW, metadata: Sequence[tuple[str, str]] = ()) -> None:
        self.call = channel.stream_stream(method)(metadata=tuple(metadata))
        self._is_delta = "/Delta" in method

    async def send(self, data: bytes) -> None:
        await within(self.call.write(data))

    async def request(self, type_url: str = CLUSTER, names: Sequence[str] = (), node_id: str = "n1") -> None:
        await self.send(delta(type_url, names, node_id) if self._is_delta else sotw(type_url, names, node_id))

    async def receive(self) -> Any:
        data = await within(self.call.read())
        assert data is not grpc.aio.EOF, f"the stream ended: {await self.status()}"
        kind = wire_pb2.DeltaDiscoveryResponse if self._is_delta else wire_pb2.DiscoveryResponse
        return kind.FromString(data)

    async def ack(self, response: Any, names: Sequence[str] = (), error: str = "") -> None:
        """ACK, or NACK with the message ``error``."""
        request = wire_pb2.DiscoveryRequest(
            type_url=response.type_url,
            version_info=response.version_info,
            response_nonce=response.nonce,
            resource_names=names,
        )
        if error:
            request.error_detail.code = 13
            request.error_detail.message = error
        await self.send(request.SerializeToString())

    async def ended(self) -> tuple[grpc.StatusCode, str]:
        """Read to the end; the final status."""
        try:
            while await within(self.call.read()) is not grpc.aio.EOF:
                pass
        except grpc.aio.AioRpcError:
            pass
        return await self.status()

    async def status(self) -> tuple[grpc.StatusCode, str]:
        return await within(self.call.code()), await within(self.call.details())


class Harness:
    """A server with its cache, fleet and metrics."""

    def __init__(
        self,
        options: ServerOptions,
        variants: Mapping[str, Translate] | None = None,
        aggregates: LoadAggregates | None = None,
    ) -> None:
        self.cache = SnapshotCache("test", nonce_prefix="t", translations=variants, rules=options.order)
        self.fleet = Fleet()
        self.metrics = Metrics()
        self.server = XdsServer(self.cache, self.fleet, options, self.metrics, aggregates)
        self._open = AsyncExitStack()

    async def start(self, ready: bool = True) -> Self:
        await self.server.start()
        if ready:
            await self.server.set_ready()
        self._open.push_async_callback(self.server.drain, 0.0)
        return self

    async def stop(self) -> None:
        await self._open.aclose()

    async def channel(self, credentials: Any = None, **options: int) -> Any:
        """A channel with its own connection."""
        arguments = [("grpc.use_local_subchannel_pool", 1), ("grpc.max_receive_message_length", -1)]
        arguments += [(f"grpc.{key}", value) for key, value in options.items()]
        address = f"localhost:{self.server.port}" if credentials else f"127.0.0.1:{self.server.port}"
        if credentials is None:
            channel = grpc.aio.insecure_channel(address, options=arguments)
        else:
            channel = grpc.aio.secure_channel(address, credentials, options=arguments)
        return await self._open.enter_async_context(channel)

    async def stream(self, method: str = SOTW, **metadata: str) -> RawStream:
        """A stream on its own connection."""
        return RawStream(await self.channel(), method, tuple(metadata.items()))

    def push(self, texts: dict[str, str], group: str = "default", type_url: str = CLUSTER) -> Snapshot:
        """Replace the group's resources of one type."""
        before = self.cache.pushed(group)
        revision = before.revision + 1 if before is not None else 1
        kept = [each for each in before.resources() if each.type_url != type_url] if before is not None else []
        versions = {each.type.type_url: each.version_info for each in before} if before is not None else {}
        resources = [*kept, *(make_resource(type_url, name, text) for name, text in texts.items())]
        snapshot = build_snapshot(group, revision, resources, {**versions, type_url: str(revision)}, before)
        self.cache.set(snapshot, now_s=monotonic())
        self.fleet.published(snapshot)
        self.server.wake([group])
        return snapshot


Start = Callable[..., Awaitable[Harness]]


@pytest.fixture
def transport() -> str:
    """What carries gRPC. The contract of both (``test_transport_contract``) has a fixture of this name with both."""
    return ASYNCIO


@pytest.fixture
async def start(transport: str) -> AsyncIterator[Start]:
    """Starts servers with the given options; ends them."""
    started: list[Harness] = []

    async def begin(
        *,
        ready: bool = True,
        variants: Mapping[str, Translate] | None = None,
        aggregates: LoadAggregates | None = None,
        **options: Any,
    ) -> Harness:
        harness = Harness(ServerOptions(**{"port": 0, "transport": transport, **options}), variants, aggregates)
        started.append(harness)
        return await harness.start(ready)

    yield begin
    for harness in started:
        await harness.stop()


@pytest.fixture
async def server(start: Start) -> Harness:
    """A server that is ready, with two clusters in ``default``."""
    harness = await start()
    harness.push({"c1": "a", "c2": "a"})
    return harness


@pytest.fixture
async def bystander(server: Harness) -> AsyncIterator[RawStream]:
    """Another client, which is served before and after the test."""
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


def state_of(server: Harness, node_id: str = "n1") -> dict[str, Sync]:
    found = server.fleet.node(node_id)
    return {each.type: each.state for each in found.types} if found is not None else {}


@pytest.fixture
def authority(tmp_path: Path) -> CertificateAuthority:
    return CertificateAuthority(tmp_path)


async def tls(start: Start, authority: CertificateAuthority, **options: Any) -> Harness:
    own = authority.issue("server")
    files = {"tls_certificate": own.path, "tls_key": own.key_path, "client_ca": authority.path}
    harness = await start(**files, **options)
    harness.push({"c1": "a"})
    return harness


def shown(authority: CertificateAuthority, certificate: Certificate) -> Any:
    pems = (authority.pem, certificate.key_pem, certificate.pem)
    return grpc.ssl_channel_credentials(*(pem.encode() for pem in pems))
