"""Clients that return to a new process: what the store keeps for them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.client.test_pushes import CLUSTER_TYPE, a_cluster
from tests.embed.test_server import ENDPOINT_TYPE, client_of, is_in_group, names, received, until
from tests.support.grpc_stream import GrpcStream, sotw, sotw_ack
from tests.support.resources import cluster_load_assignment, eds_cluster
from xds.embed import Server
from xds.proto import wire_pb2
from xds.server import engine_persistence
from xds.server.engine_persistence import MOVED, REFUSED
from xds.snapshots.removal_log import PUSHES_KEPT
from xds.store.base import ObservedRecord
from xds.tasks import batch_writer


@pytest.fixture(autouse=True)
def written_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_writer, "WRITE_EVERY_S", 0.01)


def shown(type_url: str, version: str, node_id: str, names: Iterable[str] = ()) -> bytes:
    """The first request of a client that holds content with this label."""
    node = wire_pb2.Node(id=node_id, cluster="test").SerializeToString()
    request = wire_pb2.DiscoveryRequest(type_url=type_url, version_info=version, resource_names=names, node=node)
    return request.SerializeToString()


def nack(response: Any, message: str) -> bytes:
    request = wire_pb2.DiscoveryRequest.FromString(sotw_ack(response))
    request.version_info, request.error_detail.code, request.error_detail.message = "", 13, message
    return request.SerializeToString()


async def keys(server: Server, source: str) -> list[str]:
    """What the store keeps of a kind."""
    found = await server._running.store.observed()
    return [record.service for record in found if record.source == source]


async def kept(server: Server, source: str, expected: Sequence[str]) -> None:
    async with asyncio.timeout(20):
        while await keys(server, source) != list(expected):
            await asyncio.sleep(0.01)


@asynccontextmanager
async def served(data: Path, groups: dict[str, str]) -> AsyncIterator[Server]:
    settings = {"order": {"linger_max": PUSHES_KEPT}}  # so that a log can be filled soon
    async with Server(
        grpc="127.0.0.1:0", data=data, settings=settings, group_of=lambda node: groups.get(node.id)
    ) as server:
        yield server


async def answers(stream: GrpcStream, type_url: str) -> Any:
    """The next response of a type; others are ACKed."""
    while (response := await received(stream)).type_url != type_url:
        stream.send(sotw_ack(response, names(response)))
    return response


def are_resolved(server: Server) -> Callable[[], Awaitable[bool]]:
    """Whether no NACK is open any more."""

    async def condition() -> bool:
        return [each async for each in server.nacks(state="open")] == []

    return condition


async def moved(server: Server, groups: dict[str, str]) -> str:
    """Node n1 follows blue, then green. Returns the label of the clusters that it ACKed last."""
    for group in ("blue", "green"):
        await server.apply(group, [eds_cluster(group), cluster_load_assignment(group, 80)])
    async with client_of(server, sotw(CLUSTER_TYPE, node_id="n1")) as stream:
        response = await received(stream)
        stream.send(sotw_ack(response), sotw(ENDPOINT_TYPE, ["blue"], node_id="n1"))
        stream.send(sotw_ack(await answers(stream, ENDPOINT_TYPE), ["blue"]))
        groups["n1"] = "green"
        server.regroup()
        response = await answers(stream, CLUSTER_TYPE)
        assert set(names(response)) == {"blue", "green"}
        stream.send(sotw_ack(response))
        await until(is_in_group(server, "n1", "green"), "the move")
        await kept(server, MOVED, ["n1"])
        return str(response.version_info)


async def test_the_former_group_of_a_node_is_known_after_a_restart(tmp_path: Path) -> None:
    groups = {"n1": "blue"}
    async with served(tmp_path, groups) as server:
        label = await moved(server, groups)
    async with (
        served(tmp_path, groups) as server,
        client_of(server, shown(CLUSTER_TYPE, label, "n1")) as stream,
    ):
        response = await received(stream)
        assert set(names(response)) == {"blue", "green"}
        stream.send(sotw_ack(response), shown(ENDPOINT_TYPE, "1", "n1", ["blue", "green"]))
        assert names(await answers(stream, ENDPOINT_TYPE)) == ["green"]


async def test_a_node_that_was_not_moved_gets_nothing_of_another_group(tmp_path: Path) -> None:
    groups = {"n1": "blue"}
    async with served(tmp_path, groups) as server:
        label = await moved(server, groups)
    groups["n2"] = "green"
    async with (
        served(tmp_path, groups) as server,
        client_of(server, shown(CLUSTER_TYPE, label, "n2")) as stream,
    ):
        assert names(await received(stream)) == ["green"]


async def test_a_move_is_forgotten_when_no_connection_is_that_old(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    groups = {"n1": "blue"}
    async with served(tmp_path, groups) as server:
        label = await moved(server, groups)
    monkeypatch.setattr(engine_persistence, "kept_s", lambda rules: 0.0)
    async with served(tmp_path, groups) as server:
        await kept(server, MOVED, [])
        async with client_of(server, shown(CLUSTER_TYPE, label, "n1")) as stream:
            assert names(await received(stream)) == ["green"]


async def test_a_record_that_cannot_be_read_is_deleted(tmp_path: Path) -> None:
    records = [ObservedRecord(MOVED, "n1", b"[]"), ObservedRecord(REFUSED, f"{CLUSTER_TYPE} a", b"{}")]
    async with served(tmp_path, {}) as server:
        await server._running.store.put_observed(records)
    async with served(tmp_path, {}) as server:
        await kept(server, MOVED, [])
        await kept(server, REFUSED, [])


async def test_a_refused_cluster_that_a_repair_took_away_is_not_given_back_after_a_restart(tmp_path: Path) -> None:
    async with served(tmp_path, {}) as server:
        first = await server.apply("test", [a_cluster("a")])
        await server.apply("test", [a_cluster("a"), a_cluster("b"), a_cluster("bad")])
        async with client_of(server, sotw(CLUSTER_TYPE, node_id="n1")) as stream:
            response = await received(stream)
            stream.send(nack(response, "Error adding/updating cluster(s) bad: no"))
            await kept(server, REFUSED, [f"{CLUSTER_TYPE} bad"])
            await server.apply("test", [a_cluster("a", "2s")])
            stream.send(sotw_ack(await received(stream)))
            await until(are_resolved(server), "the repair")
    label = first.versions["clusters"]
    async with (
        served(tmp_path, {}) as server,
        client_of(server, shown(CLUSTER_TYPE, label, "n2")) as stream,
    ):
        assert set(names(await received(stream))) == {"a", "b"}
        for count in range(PUSHES_KEPT + 1):
            await server.apply("test", [a_cluster(f"c{count}")])
    async with served(tmp_path, {}) as server:
        await kept(server, REFUSED, [])
