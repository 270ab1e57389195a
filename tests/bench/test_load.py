"""Fleets of the load generator at our server and at a plain grpc.aio server."""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest

from bench.load import process
from bench.load.client import node_rest
from bench.load.fleet import Fleet, FleetError, FleetSpec, Subscription, Variant
from bench.load.process import WorkerProcess
from bench.load.spec import ADS, METHODS
from tests.support.pki import Certificate, CertificateAuthority
from tests.support.process import LOOPBACK
from tests.support.server import ServerProcess
from xds.model.resource_type import CLUSTER, ENDPOINT
from xds.proto import wire_pb2

STREAMS = 24
TIMEOUT_S = 40.0
NAMES = tuple(f"cluster-{index}" for index in range(4))

variants = pytest.mark.parametrize("variant", ["sotw", "delta"])


# At our server


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with ServerProcess(tmp_path_factory.mktemp("load"), ["--store", "memory"]) as server:
        yield server


def resources(edition: int, clusters: int = 4) -> list[dict[str, Any]]:
    """Clusters and their assignments, all of which change with the edition."""
    made: list[dict[str, Any]] = []
    for index in range(clusters):
        name = f"cluster-{index}"
        source = {"ads": {}, "resource_api_version": "V3"}
        cluster = {"name": name, "type": "EDS", "connect_timeout": f"{edition + 1}s"}
        made.append({"@type": CLUSTER, **cluster, "eds_cluster_config": {"eds_config": source}})
        address = {"socket_address": {"address": "10.0.0.1", "port_value": 80}}
        endpoint = {"endpoint": {"address": address}, "load_balancing_weight": edition + 1}
        made.append({"@type": ENDPOINT, "cluster_name": name, "endpoints": [{"lb_endpoints": [endpoint]}]})
    return made


def spec(server: ServerProcess, variant: Variant, **fields: Any) -> FleetSpec:
    subscriptions = (Subscription(CLUSTER), Subscription(ENDPOINT, NAMES))
    return FleetSpec(
        f"{LOOPBACK}:{server.grpc_port}",
        **{"streams": STREAMS, "subscriptions": subscriptions, **fields},
        variant=variant,
    )


@variants
@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"worker_streams": 10},
        {"streams_per_connection": 7},
        {"node_bytes": 61_000, "node_every_request": True, "streams": 8},
        {"node_bytes": 61_000, "node_every_request": True, "streams": 8, "streams_per_connection": 8},
    ],
    ids=["alone", "workers", "shared", "nodes", "nodes-shared"],
)
async def test_each_push_is_acked_by_each_stream(
    server: ServerProcess, variant: Variant, fields: dict[str, Any]
) -> None:
    server.push("default", resources(0), "before")
    fleet = Fleet(spec(server, variant, **fields))
    try:
        await fleet.start(TIMEOUT_S)
        streams = fleet.spec.streams
        for edition in (1, 2):
            fleet.mark(record=True)
            server.push("default", resources(edition), f"edition-{edition}")
            ack = await fleet.acked(2 * streams, TIMEOUT_S)
            assert ack.count == 2 * streams
            assert ack.first_at <= ack.last_at
            # A push amid an earlier transition may be sent in two sets of one label, which differ behind the "+".
            sent = Counter((url, version.partition("+")[0]) for _, url, version in fleet.acks())
            assert sent == {(CLUSTER, f"edition-{edition}"): streams, (ENDPOINT, f"edition-{edition}"): streams}
        stats = fleet.stats()
        assert not stats["errors"]
        assert not stats["unanswered"]
        assert len(stats["waits"]) == streams
        assert stats["messages"] == 6 * streams
        assert stats["cpu_s"] > 0
    finally:
        await fleet.stop()
    assert not server.nacks(group="default")


async def test_a_node_is_as_long_as_asked_and_like_envoys(server: ServerProcess) -> None:
    assert 61_000 <= len(node_rest(61_000)) < 61_200
    server.push("default", resources(0), "before")
    async with Fleet(spec(server, "sotw", streams=3, node_bytes=5_000, first_node=500)):
        nodes = server.nodes()
        assert {f"node-00050{index}" for index in range(3)} <= nodes.keys()
        assert nodes["node-000500"]["user_agent"] == "envoy 1.40.0"


@variants
async def test_returning_streams_show_their_versions(server: ServerProcess, variant: Variant) -> None:
    server.push("default", resources(0), "before")
    edition = {"sotw": 10, "delta": 20}[variant]  # the server sends again what came back
    async with Fleet(spec(server, variant, subscriptions=(Subscription(CLUSTER),), worker_streams=10)) as fleet:
        fleet.mark()
        server.push("default", resources(edition, clusters=40), "held")
        await fleet.acked(STREAMS, TIMEOUT_S)
        first_bytes = fleet.stats()["bytes_in"]
        await fleet.cut()
        await fleet.reconnect(known=True, timeout_s=TIMEOUT_S)
        stats = fleet.stats()
        assert len(stats["waits"]) == STREAMS
        assert not stats["errors"]
        known_bytes = stats["bytes_in"] - first_bytes
        await fleet.cut()
        await fleet.reconnect(known=False, timeout_s=TIMEOUT_S)
        unknown_bytes = fleet.stats()["bytes_in"] - first_bytes - known_bytes
        assert unknown_bytes > STREAMS * 40 * len("cluster-00")
        assert known_bytes * 3 < unknown_bytes, "resources were sent to those who hold them"
        fleet.mark()
        server.push("default", resources(edition + 1, clusters=40), "after")
        await fleet.acked(STREAMS, TIMEOUT_S)


@variants
async def test_known_names_are_not_waited_for_where_nothing_differs(server: ServerProcess, variant: Variant) -> None:
    server.push("default", resources(0), "before")
    async with Fleet(spec(server, variant)) as fleet:
        await fleet.cut()
        await fleet.reconnect(timeout_s=TIMEOUT_S)
        assert len(fleet.stats()["waits"]) == STREAMS
        fleet.mark()
        server.push("default", resources(1), "after")
        await fleet.acked(2 * STREAMS, TIMEOUT_S)


# At a server of grpc.aio, which sees the requests themselves


class Recorder:
    """An ADS server that keeps every request, and answers first requests and `push` by one type's content."""

    def __init__(self) -> None:
        self.requests: list[list[Any]] = []
        self._queues: list[asyncio.Queue[bytes]] = []
        self._edition = 0
        self.resources = 3

    def push(self) -> None:
        self._edition += 1
        for queue in self._queues:
            queue.put_nowait(b"")

    async def serve(self, variant: Variant, requests: Any, context: Any) -> AsyncIterator[bytes]:
        kind = wire_pb2.DiscoveryRequest if variant == "sotw" else wire_pb2.DeltaDiscoveryRequest
        seen: list[Any] = []
        self.requests.append(seen)
        wakes: asyncio.Queue[bytes] = asyncio.Queue()
        self._queues.append(wakes)

        async def read() -> None:
            async for data in requests:
                seen.append(kind.FromString(data))
                if not seen[-1].response_nonce:
                    wakes.put_nowait(b"")

        reading = asyncio.create_task(read())
        try:
            for nonce in itertools.count(1):
                await wakes.get()
                yield self._response(variant, f"{nonce}")
        finally:
            self._queues.remove(wakes)
            reading.cancel()

    def _response(self, variant: Variant, nonce: str) -> bytes:
        version = f"{self._edition}"
        if variant == "sotw":
            sotw = wire_pb2.DiscoveryResponse(version_info=version, type_url=CLUSTER, nonce=nonce)
            for index in range(self.resources):
                sotw.resources.add(type_url=CLUSTER, value=b"%d" % index * 200)
            return bytes(sotw.SerializeToString())
        delta = wire_pb2.DeltaDiscoveryResponse(system_version_info=version, type_url=CLUSTER, nonce=nonce)
        for index in range(self.resources):
            delta.resources.add(name=f"c{index}", version=version).resource.value = b"%d" % index * 200
        delta.removed_resources.append("c0")
        return bytes(delta.SerializeToString())


@asynccontextmanager
async def recorder_server(certificate: Certificate | None = None) -> AsyncIterator[tuple[Recorder, str]]:
    recorder = Recorder()

    def handler(variant: Variant) -> Any:
        async def serve(requests: Any, context: Any) -> AsyncIterator[bytes]:
            async for response in recorder.serve(variant, requests, context):
                yield response

        return grpc.stream_stream_rpc_method_handler(serve)

    server = grpc.aio.server()
    service = ADS.strip("/")
    methods = {name: handler(variant) for variant, name in METHODS.items()}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, methods),))
    if certificate is None:
        port = server.add_insecure_port(f"{LOOPBACK}:0")
    else:
        pair = (certificate.key_pem.encode(), certificate.pem.encode())
        port = server.add_secure_port(f"{LOOPBACK}:0", grpc.ssl_server_credentials([pair]))
    await server.start()
    try:
        yield recorder, f"{LOOPBACK}:{port}"
    finally:
        await server.stop(None)


def cluster_fleet(target: str, variant: Variant, names: Sequence[str] | None = None, **fields: Any) -> Fleet:
    subscriptions = (Subscription(CLUSTER, None if names is None else tuple(names)),)
    return Fleet(FleetSpec(target, **{"streams": STREAMS, **fields}, variant=variant, subscriptions=subscriptions))


@variants
async def test_requests_are_those_of_an_xds_client(variant: Variant) -> None:
    async with recorder_server() as (recorder, target), cluster_fleet(target, variant, ["c0", "c1", "c2"]) as fleet:
        fleet.mark()
        recorder.push()
        await fleet.acked(STREAMS, TIMEOUT_S)
        await until(lambda: all(len(seen) == 3 for seen in recorder.requests))
        await fleet.cut()
        await fleet.reconnect(timeout_s=TIMEOUT_S)
        await until(lambda: len(recorder.requests) == 2 * STREAMS and all(recorder.requests))
        first_again = [seen[0] for seen in recorder.requests[STREAMS:]]
    assert len(recorder.requests) == 2 * STREAMS
    ids = set()
    for first, answered, pushed in recorder.requests[:STREAMS]:
        ids.add(node_id(first.node))
        assert not answered.node
        assert first.type_url == answered.type_url == pushed.type_url == CLUSTER
        assert (first.response_nonce, answered.response_nonce, pushed.response_nonce) == ("", "1", "2")
        if variant == "sotw":
            assert (first.version_info, answered.version_info, pushed.version_info) == ("", "0", "1")
            assert [*first.resource_names] == [*pushed.resource_names] == ["c0", "c1", "c2"]
        else:
            assert [*first.resource_names_subscribe] == ["c0", "c1", "c2"]
            assert not first.initial_resource_versions
            assert not pushed.resource_names_subscribe
    assert len(ids) == STREAMS
    assert {node_id(request.node) for request in first_again} == ids
    for request in first_again:
        if variant == "sotw":
            assert request.version_info == "1"
        else:
            assert dict(request.initial_resource_versions) == {"c1": "1", "c2": "1"}


@variants
async def test_a_megabyte_is_read_and_acked(variant: Variant) -> None:
    async with recorder_server() as (recorder, target), cluster_fleet(target, variant, streams=4) as fleet:
        recorder.resources = 5_000
        for _ in range(3):
            fleet.mark()
            recorder.push()
            await fleet.acked(4, TIMEOUT_S)
        stats = fleet.stats()
        assert stats["bytes_in"] > 12_000_000
        assert not stats["errors"]


@variants
async def test_tls_and_a_fleet_that_comes_back_over_it(tmp_path: Path, variant: Variant) -> None:
    ca = CertificateAuthority(tmp_path)
    served = recorder_server(ca.issue("server"))
    async with served as (recorder, target), cluster_fleet(target, variant, ca=ca.path) as fleet:
        for _ in range(2):
            fleet.mark()
            recorder.push()
            await fleet.acked(STREAMS, TIMEOUT_S)
            await fleet.cut()
            await fleet.reconnect(timeout_s=TIMEOUT_S)
            assert len(fleet.stats()["waits"]) == STREAMS
        assert not fleet.stats()["errors"]


async def test_a_certificate_of_another_authority_is_refused(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    async with recorder_server(CertificateAuthority(other).issue("server")) as (_, target):
        fleet = cluster_fleet(target, "sotw", streams=1, ca=CertificateAuthority(tmp_path).path)
        try:
            with pytest.raises(FleetError, match="SSLCertVerificationError"):
                await fleet.start(TIMEOUT_S)
        finally:
            await fleet.stop()


async def test_paused_streams_read_nothing_until_they_are_resumed() -> None:
    fields: dict[str, Any] = {"worker_streams": 10, "streams": 20}
    async with recorder_server() as (recorder, target), cluster_fleet(target, "sotw", **fields) as fleet:
        fleet.pause(12)
        fleet.mark(record=True)
        recorder.push()
        await fleet.acked(8, TIMEOUT_S)
        with pytest.raises(FleetError, match="8 of 9 ACKs"):
            await fleet.acked(9, 0.5)
        assert {stream for _, stream, _ in fleet.stream_acks()} == set(range(12, 20))
        fleet.resume()
        await fleet.acked(20, TIMEOUT_S)


async def test_streams_that_the_server_ends_come_back_and_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    async with recorder_server() as (recorder, target), cluster_fleet(target, "delta", streams=6) as fleet:
        await until(lambda: len(recorder.requests) == 6)
        serve = recorder.serve

        async def refuse(variant: Variant, requests: Any, context: Any) -> AsyncIterator[bytes]:
            if len(recorder.requests) < 9:
                recorder.requests.append([])
                await context.abort(grpc.StatusCode.UNAVAILABLE, "not now")
            async for response in serve(variant, requests, context):
                yield response

        monkeypatch.setattr(recorder, "serve", refuse)
        await fleet.cut()
        await fleet.reconnect(timeout_s=TIMEOUT_S)
        stats = fleet.stats()
        assert stats["errors"]["grpc-status 14: not now"] == 3
        assert len(stats["waits"]) == 6


async def test_a_server_that_is_not_there_is_tried_again() -> None:
    fleet = cluster_fleet(f"{LOOPBACK}:1", "sotw", streams=2)
    starting = asyncio.create_task(fleet.start(TIMEOUT_S))
    try:
        # Tried more than once: a server that comes up late is found.
        await until(lambda: fleet.stats()["errors"].get("connect: ConnectionRefusedError", 0) > 2)
        assert fleet.stats()["unanswered"] == 2
    finally:
        starting.cancel()
        await fleet.stop()


def node_id(node: bytes) -> str:
    return str(wire_pb2.Node.FromString(node).id)


async def until(condition: Any) -> None:
    async with asyncio.timeout(TIMEOUT_S):
        while not condition():
            await asyncio.sleep(0.01)


async def test_a_worker_that_does_not_answer_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    """It holds the loop, so nothing else could end the wait."""
    worker = WorkerProcess(asyncio.Event())
    try:
        assert worker.ask_now("stats")["messages"] == 0
        monkeypatch.setattr(process, "ANSWER_TIMEOUT_S", 0.2)
        os.kill(worker.pid, signal.SIGSTOP)
        with pytest.raises(FleetError, match=r"a worker of the fleet did not answer 'stats' in 0\.2 s"):
            worker.ask_now("stats")
    finally:
        os.kill(worker.pid, signal.SIGCONT)
        await worker.stop()
