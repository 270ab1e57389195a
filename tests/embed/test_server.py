"""The server within a program, with real gRPC clients."""

from __future__ import annotations

import asyncio
import inspect
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc.aio
import pytest

import xds
from tests.client.test_pushes import CLUSTER_TYPE, a_cluster, protobuf_cluster
from tests.support.grpc_stream import GrpcStream, sotw, sotw_ack
from tests.support.pki import CertificateAuthority
from xds.client import AbsentError, AccessError, AsyncClient, InvalidInputError, WriteConflictError, check_taken
from xds.embed import Hooks, Instance, Node, Server, ServerEvent, SettingsError, Sink
from xds.proto import wire_pb2

DEADLINE_S = 20.0
ENDPOINT_TYPE = "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment"


async def until(condition: Callable[[], object], what: str) -> None:
    """Wait until the condition, a function or a coroutine function, is true."""
    async with asyncio.timeout(DEADLINE_S):
        while True:
            found = condition()
            if await found if inspect.isawaitable(found) else found:
                return
            await asyncio.sleep(0.01)


@asynccontextmanager
async def client_of(server: Server, *requests: bytes) -> AsyncIterator[GrpcStream]:
    """A gRPC client in threads, beside the event loop of the server."""
    stream = await asyncio.to_thread(GrpcStream, server.grpc_address[1])
    stream.send(*requests)
    try:
        yield stream
    finally:
        await asyncio.to_thread(stream.close)


def state_of(server: Server, id: str, state: str) -> Callable[[], Awaitable[bool]]:
    """Whether the clusters of a node are in a state."""

    async def condition() -> bool:
        nodes = [node async for node in server.nodes(state=state) if node.id == id]
        return bool(nodes) and nodes[0].types["clusters"].state == state

    return condition


def is_in_group(server: Server, id: str, group: str) -> Callable[[], Awaitable[bool]]:
    """Whether a node is in a group."""

    async def condition() -> bool:
        return group in [node.group async for node in server.nodes() if node.id == id]

    return condition


async def groups_of(server: Server) -> list[str]:
    return [each.group async for each in server.groups()]


async def received(stream: GrpcStream) -> Any:
    async with asyncio.timeout(DEADLINE_S):
        return await asyncio.to_thread(stream.receive)


def names(response: Any) -> list[str]:
    from xds.codec import schema

    kind = schema.require(response.type_url.removeprefix("type.googleapis.com/"))
    field = "cluster_name" if response.type_url == ENDPOINT_TYPE else "name"
    return [getattr(kind.FromString(each.value), field) for each in response.resources]


async def test_a_snapshot_reaches_a_client() -> None:
    async with Server(grpc="127.0.0.1:0") as server:
        pushed = await server.apply("edge", [a_cluster("a"), protobuf_cluster("b")], version="v7")
        assert (pushed.revision, await groups_of(server)) == (1, ["edge"])
        async with client_of(server, sotw(CLUSTER_TYPE, node_id="n1", cluster="edge")) as stream:
            response = await received(stream)
            assert (names(response), response.version_info) == (["a", "b"], "v7")
            stream.send(sotw_ack(response))
            await until(state_of(server, "n1", "synced"), "the ACK")
            putting = asyncio.create_task(
                server.put("edge", "clusters", "c", a_cluster("c"), message="one more", wait_s=DEADLINE_S)
            )
            stream.send(sotw_ack(await received(stream)))
            taken = check_taken(await putting)
            assert taken.progress is not None and taken.progress.synced == 1
            assert [node.id async for node in server.nodes(group="edge")] == ["n1"]
        await server.delete("edge", "clusters", "c")
        assert (await server.rollback("edge", 2)).changes["clusters"].added == ("c",)
        assert (await server.group("edge")).revision == 4

        async def are_gone() -> bool:
            return not [node async for node in server.nodes() if node.connected]

        await until(are_gone, "the client to be gone")
        await server.delete_group("edge")
        assert await groups_of(server) == []


async def test_an_invalid_snapshot_changes_nothing() -> None:
    async with Server(grpc="127.0.0.1:0") as server:
        await server.apply("g", [a_cluster("a")], if_match=0)
        with pytest.raises(InvalidInputError) as caught:
            await server.apply("g", [a_cluster("a"), {**a_cluster("b"), "lb_polcy": 1}])
        assert caught.value.findings[0].index == 1
        with pytest.raises(WriteConflictError):
            await server.apply("g", [], if_match=0)
        with pytest.raises(AbsentError):
            await server.delete("g", "clusters", "x")
        assert (await server.group("g")).revision == 1


async def test_the_program_needs_no_credentials_and_differs_from_other_callers() -> None:
    """The rules are for connections; refusals of the program are in the audit list too."""
    settings = {
        "auth": {"tokens": [{"name": "reader", "sha256": "0" * 64, "scopes": ["read"]}]},
        "server": {"http": {"hosts": ["x.y"]}},
    }
    async with Server(grpc="127.0.0.1:0", http="127.0.0.1:0", settings=settings) as server:
        assert (await server.apply("g", [a_cluster("a")], author="ci")).revision == 1
        with pytest.raises(AbsentError):
            await server.delete("g", "clusters", "x")
        assert [(each.actor, each.action) async for each in server.audit()] == [
            ("program", "push"),
            ("program", "refused"),
        ]
        async with AsyncClient(server.http_url) as client:
            with pytest.raises(AccessError):
                await client.group("g")


async def test_events_end_when_the_server_drains() -> None:
    async def followed(server: Server) -> list[int | None]:
        return [event.revision async for event in server.events(kinds=["push"], after="0") if event.kind == "push"]

    async with Server(grpc="127.0.0.1:0", settings={"server": {"drain_s": 0}}) as server:
        following = asyncio.create_task(followed(server))
        await server.apply("g", [a_cluster("a")])
        await server.apply("g", [a_cluster("b")])
    async with asyncio.timeout(DEADLINE_S):
        assert await following == [1, 2]


async def test_an_answer_that_nobody_reads_to_its_end_is_given_up() -> None:
    async with Server(grpc="127.0.0.1:0") as server:
        await server.apply("g", [a_cluster("a")])
        feed = server.events(after="0")
        await anext(feed)
        await feed.aclose()  # type: ignore[attr-defined]  # of an asynchronous generator
        reading = asyncio.create_task(server.progress("g", 1, wait_s=30.0))
        await asyncio.sleep(0)
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading
        assert (await server.group("g")).revision == 1


def nack(response: Any, words: str) -> bytes:
    request = wire_pb2.DiscoveryRequest.FromString(sotw_ack(response))
    request.version_info = ""
    request.error_detail.code, request.error_detail.message = 3, words
    return request.SerializeToString()


async def test_hooks() -> None:
    told: list[tuple[str, str, int | None]] = []
    events: list[ServerEvent] = []

    def note(what: str) -> Callable[[ServerEvent], None]:
        return lambda event: told.append((what, event.node, event.revision))

    async def refused(event: ServerEvent) -> None:
        await asyncio.sleep(0)
        told.append((event.message, event.node, None))

    def broken(event: ServerEvent) -> None:
        events.append(event)
        raise RuntimeError("a bug of the program")

    hooks = Hooks(note("ack"), note("synced"), refused, note("came"), note("left"), broken)
    async with Server(grpc="127.0.0.1:0", hooks=hooks) as server:
        await server.apply("default", [a_cluster("a")])
        async with client_of(server, sotw(CLUSTER_TYPE, node_id="n1")) as stream:
            stream.send(sotw_ack(await received(stream)))
            await until(lambda: ("synced", "n1", 1) in told, "the ACK")
            await server.apply("default", [a_cluster("b")])
            stream.send(nack(await received(stream), "no b here"))
            await until(lambda: ("no b here", "n1", None) in told, "the NACK")
        await until(lambda: ("left", "n1", None) in told, "the end")
    assert told.index(("came", "n1", None)) < told.index(("ack", "n1", 1)) < told.index(("synced", "n1", 1))
    assert {"push", "nack", "node"} <= {event.kind for event in events}


async def test_acks_are_not_recorded_without_a_hook() -> None:
    async with Server(grpc="127.0.0.1:0") as server:
        assert not server._running.fleet.events.acks_wanted


async def test_a_slow_hook_delays_no_stream() -> None:
    begun, release = asyncio.Event(), asyncio.Event()

    async def slow(event: ServerEvent) -> None:
        begun.set()
        await release.wait()

    async with Server(grpc="127.0.0.1:0", hooks=Hooks(on_connected=slow)) as server:
        await server.apply("default", [a_cluster("a")])
        async with client_of(server, sotw(CLUSTER_TYPE, node_id="n1")) as stream:
            stream.send(sotw_ack(await received(stream)))
            await begun.wait()
            pushing = asyncio.create_task(server.apply("default", [a_cluster("b")], wait_s=DEADLINE_S))
            stream.send(sotw_ack(await received(stream)))
            check_taken(await pushing)
            release.set()


async def test_the_group_of_a_node_is_chosen_by_a_function() -> None:
    teams = {"n1": "blue"}
    threads: list[Node] = []

    def group_of(node: Node) -> str | None:
        threads.append(node)
        if node.id == "odd":
            raise KeyError(node.id)
        return teams.get(node.id)

    async with Server(grpc="127.0.0.1:0", group_of=group_of) as server:
        for group in ("blue", "green", "default"):
            await server.apply(group, [a_cluster(group)])
        async with client_of(server, sotw(CLUSTER_TYPE, node_id="n1")) as stream:
            response = await received(stream)
            assert names(response) == ["blue"]
            stream.send(sotw_ack(response))
            teams["n1"] = "green"
            server.regroup()
            response = await received(stream)
            while names(response) != ["green"]:  # blue goes once nothing can use it
                stream.send(sotw_ack(response))
                if "green" in names(response):
                    break
                response = await received(stream)
            assert await is_in_group(server, "n1", "green")()
        async with client_of(server, sotw(CLUSTER_TYPE, node_id="n2")) as stream:
            assert names(await received(stream)) == ["default"]
        async with client_of(server, sotw(CLUSTER_TYPE, node_id="odd")):
            await until(is_in_group(server, "odd", ""), "the node")
        assert threads[0].cluster == "test"


class Table:
    """A source of instances: what the program puts into it."""

    name, kind = "table", "table"

    def __init__(self) -> None:
        self.changed = asyncio.Event()
        self.services: dict[str, list[Instance]] = {}

    async def run(self, sink: Sink) -> None:
        while True:
            sink.replace(self.services)
            self.changed.clear()
            await self.changed.wait()


async def test_endpoints_come_from_a_source_of_the_program() -> None:
    table = Table()
    table.services["web"] = [Instance("1", "10.0.0.1", 80)]
    settings = {"order": {"endpoint_drain_s": 0.5}}
    async with Server(grpc="127.0.0.1:0", sources=[table], settings=settings) as server:
        eds = {"eds_config": {"ads": {}, "resource_api_version": "V3"}}
        web = {"@type": CLUSTER_TYPE, "name": "web", "type": "EDS", "connect_timeout": "1s", "eds_cluster_config": eds}
        await server.apply("default", [web, {"@type": ENDPOINT_TYPE, "cluster_name": "web"}])
        assert (await server.bind("default", "web", "web")).changed
        async with client_of(server, sotw(ENDPOINT_TYPE, ["web"], node_id="n1")) as stream:

            async def next_with(count: int) -> None:
                response: Any = None
                while response is None or len(_addresses(response)) != count:
                    response = await received(stream)
                    stream.send(sotw_ack(response, ["web"]))

            await next_with(1)
            table.services = {"web": [Instance("1", "10.0.0.1", 80), Instance("2", "10.0.0.2", 80)]}
            table.changed.set()
            await next_with(2)
            await server.unbind("default", "web")
            await next_with(0)


def _addresses(response: Any) -> list[str]:
    from xds.codec import schema

    loads = schema.require("envoy.config.endpoint.v3.ClusterLoadAssignment").FromString(response.resources[0].value)
    found: Any = loads
    return [each.endpoint.address.socket_address.address for part in found.endpoints for each in part.lb_endpoints]


async def test_the_admin_api_of_an_embedded_server_and_its_data(tmp_path: Path) -> None:
    for revision in (1, 2):
        async with Server(grpc="127.0.0.1:0", http="127.0.0.1:0", data=tmp_path / "data") as server:
            await server.apply("g", [a_cluster(f"c{revision}")], message="by the program")
            async with AsyncClient(server.http_url) as client:
                line = await anext(client.history("g"))
                assert (line.revision, line.actor, line.message) == (revision, "program", "by the program")


async def test_two_servers_in_one_program() -> None:
    async with Server(grpc="127.0.0.1:0") as first, Server(grpc="127.0.0.1:0") as second:
        await first.apply("default", [a_cluster("one")])
        await second.apply("default", [a_cluster("two")])
        for server, name in ((first, "one"), (second, "two")):
            async with client_of(server, sotw(CLUSTER_TYPE)) as stream:
                assert names(await received(stream)) == [name]


async def test_an_embedded_server_that_cannot_start_gives_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SettingsError, match="expected HOST:PORT"):
        Server(grpc="18000")
    with pytest.raises(SettingsError, match="reachable from other machines") as exposed:
        Server(grpc="0.0.0.0:0")
    assert "server.insecure: true" in str(exposed.value)
    assert "xds serve" not in str(exposed.value) and "--" not in str(exposed.value), "a program has no command line"
    with pytest.raises(SettingsError, match="drain"):
        Server(settings={"server": {"drain": 1}})
    monkeypatch.setenv("XDS_SERVER__DRAIN_S", "nonsense")  # of some other server
    server = Server(grpc="127.0.0.1:0", settings={"server": {"drain_s": 0}})
    with pytest.raises(RuntimeError, match="async with"):
        await server.group("g")
    async with server:
        taken = str(server.grpc_address)
        with pytest.raises(OSError):
            async with Server(grpc=taken):
                pass
        with pytest.raises(RuntimeError, match="no admin port"):
            _ = server.http_address
        with pytest.raises(RuntimeError, match="no admin port"):
            _ = server.http_url


@pytest.mark.parametrize("host", ["127.0.0.1", "[::1]", "localhost", "0.0.0.0"])
async def test_addresses_as_text_are_targets_of_channels_and_urls(host: str) -> None:
    reached = {"0.0.0.0": "127.0.0.1"}.get(host, host)
    settings = {"server": {"insecure": True, "drain_s": 0}}
    async with Server(grpc=f"{host}:0", http=f"{host}:0", settings=settings) as server:
        assert f"{server.grpc_address}" == str(server.grpc_address) == f"{reached}:{server.grpc_address.port}"
        assert tuple(server.grpc_address) == (reached.strip("[]"), server.grpc_address[1])
        async with grpc.aio.insecure_channel(str(server.grpc_address)) as channel:
            async with asyncio.timeout(DEADLINE_S):
                await channel.channel_ready()
        assert server.http_url == f"http://{reached}:{server.http_address.port}"
        for place in (server.http_url, str(server.http_address)):
            async with AsyncClient(place) as client:
                assert [group async for group in client.groups()] == []


async def test_the_url_of_the_admin_api_with_tls(tmp_path: Path) -> None:
    authority = CertificateAuthority(tmp_path)
    shown = authority.issue("server")
    tls = {"certificate": str(shown.path), "private_key": str(shown.key_path)}
    async with Server(grpc="127.0.0.1:0", http="127.0.0.1:0", settings={"server": {"http": {"tls": tls}}}) as server:
        assert server.http_url == f"https://127.0.0.1:{server.http_address.port}"
        async with AsyncClient(server.http_url, cacert=authority.path) as client:
            assert [group async for group in client.groups()] == []


def test_the_package_is_light_and_has_the_names() -> None:
    heavy = ("grpc", "httpx", "fastapi", "google.protobuf", "xds.embed", "xds.client")
    code = f"import sys, xds; assert not [each for each in {heavy} if each in sys.modules]; assert xds.__version__"
    subprocess.run([sys.executable, "-c", code], check=True)
    assert (xds.Server, xds.AsyncClient) == (Server, AsyncClient)
    assert {"Server", "Client"} <= set(dir(xds))
    with pytest.raises(AttributeError, match="no attribute 'Sever'"):
        vars(xds)["__getattr__"]("Sever")


def test_the_garbage_collector_of_the_program_is_left_alone() -> None:
    code = (
        "import asyncio, gc, sys\nfrom xds.embed import Server\nbefore = gc.get_threshold(), sys.getswitchinterval()\n"
        "async def main():\n    async with Server(grpc='127.0.0.1:0'):\n"
        "        assert (gc.get_threshold(), sys.getswitchinterval()) == before and gc.get_freeze_count() == 0\n"
        "asyncio.run(main())"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
