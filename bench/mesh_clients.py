"""Clients of a mesh: Delta streams that request what an Envoy requests, ACK responses, and note when each came."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Sequence
from contextlib import AsyncExitStack, suppress
from typing import Any

import grpc
import grpc.aio

from bench.fanout import ADS, METHODS
from xds.model.resource_type import CLUSTER, ENDPOINT, LISTENER, ROUTE
from xds.proto import wire_pb2

# grpc.aio's connections are dear, and the server does not mind.
STREAMS_PER_CONNECTION = 20
ARRIVED_WITHIN_S = 60.0
AGGREGATE = b"envoy.clusters.aggregate"


class MeshClient:
    """One stream: all listeners and clusters, the routes of its upstreams, the assignments of its EDS clusters.

    ``arrived`` has for each type when the last response with resources was read.
    """

    def __init__(self, name: str, upstreams: Sequence[str]) -> None:
        self.name = name
        self.upstreams = upstreams
        self.arrived: dict[str, float] = {}
        self._clusters: set[str] = set()

    async def run(self, channel: grpc.aio.Channel, changed: asyncio.Event) -> None:
        """Follow until cancelled. ``changed`` is set for each response."""
        call: Any = channel.stream_stream(ADS + METHODS["delta"])()
        node = wire_pb2.Node(id=self.name, cluster="mesh").SerializeToString()
        await call.write(_request(CLUSTER, node=node))
        await call.write(_request(LISTENER))
        await call.write(_request(ROUTE, self.upstreams))
        while (data := await call.read()) is not grpc.aio.EOF:
            response = wire_pb2.DeltaDiscoveryResponse.FromString(data)
            if response.resources:
                self.arrived[response.type_url] = time.perf_counter()
            if response.type_url == CLUSTER and (new := self._new_assignments(response)):
                await call.write(_request(ENDPOINT, new))
            await call.write(_request(response.type_url, nonce=response.nonce))
            changed.set()

    def _new_assignments(self, response: Any) -> list[str]:
        """The assignments of clusters that are new here. Aggregates have none."""
        found = [one for one in response.resources if one.name not in self._clusters]
        self._clusters.update(one.name for one in found)
        return [one.name for one in found if AGGREGATE not in one.resource.value]


def _request(type_url: str, names: Collection[str] = (), node: bytes = b"", nonce: str = "") -> bytes:
    request = wire_pb2.DeltaDiscoveryRequest(
        type_url=type_url, node=node, response_nonce=nonce, resource_names_subscribe=names
    )
    return bytes(request.SerializeToString())


class MeshClients:
    """All clients. Use as an asynchronous context."""

    def __init__(self, target: str, clients: Sequence[MeshClient]) -> None:
        self.all = clients
        self._target = target
        self._changed = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._open = AsyncExitStack()

    async def __aenter__(self) -> MeshClients:
        options = [("grpc.use_local_subchannel_pool", 1), ("grpc.max_receive_message_length", -1)]
        for start in range(0, len(self.all), STREAMS_PER_CONNECTION):
            channel = await self._open.enter_async_context(grpc.aio.insecure_channel(self._target, options))
            for client in self.all[start : start + STREAMS_PER_CONNECTION]:
                self._tasks.append(asyncio.create_task(client.run(channel, self._changed)))
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._open.aclose()

    async def wait_arrived(self, clients: Collection[MeshClient], type_url: str, since: float) -> float:
        """Wait until each has read resources of the type since then. Returns when the last one did."""
        deadline = time.perf_counter() + ARRIVED_WITHIN_S
        while True:
            missing = [one.name for one in clients if one.arrived.get(type_url, 0.0) <= since]
            if not missing:
                return max((one.arrived[type_url] for one in clients), default=since)
            if time.perf_counter() > deadline:
                raise SystemExit(f"{type_url} did not come to {len(missing)} clients: {missing[:5]}")
            self._changed.clear()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait(), ARRIVED_WITHIN_S / 10)
