"""Clients without a credential get little memory, few calls and little time; a fleet notices nothing of it."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from hashlib import sha256
from pathlib import Path

import grpc
import pytest

from tests.attack.anonymous import CHECK, Crowd, Windows, name_requests, unfinished_messages, watching
from tests.attack.attacks import MIB, WHOLE
from tests.attack.bystander import GROUP
from tests.attack.conftest import Beside, resident
from tests.attack.raw_http2 import ADS, HELLO, RawHttp2, head
from tests.attack.test_http_door import descriptors, hits
from tests.support import resources as r
from tests.support.grpc_stream import GrpcStream, open_channel, sotw
from tests.support.pki import CertificateAuthority
from tests.support.process import LOOPBACK, wait_until
from tests.support.server import ServerProcess
from tests.wire.http2.talk import message
from xds.model.resource_type import CLUSTER
from xds.wire.http2 import frames as f

TOKEN = "secret"
BEARER = ("authorization", f"Bearer {TOKEN}")
GUARDED = {"XDS_AUTH__TOKEN_SHA256": f'["{sha256(TOKEN.encode()).hexdigest()}"]'}
SHORT_S = 1.0
FILES = 256
FLEET = 3_000
ELSEWHERE = "127.0.0.2"
Serve = Callable[..., ServerProcess]


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A server that wants a token."""
    folder = tmp_path_factory.mktemp("guarded")
    with ServerProcess(folder, ["--store", "memory"], GUARDED, token=TOKEN) as server:
        server.push(GROUP, [r.static_cluster("served")])
        yield server


@pytest.fixture
def hurried(tmp_path: Path, running: ExitStack) -> Serve:
    """Starts such a server on which a connection may be anonymous for a second only."""

    def start(*flags: str, prefix: tuple[str, ...] = ()) -> ServerProcess:
        environment = {**GUARDED, "XDS_LIMITS__ANONYMOUS_S": str(SHORT_S)}
        started = ServerProcess(tmp_path, ["--store", "memory", *flags], environment, token=TOKEN, prefix=prefix)
        server = running.enter_context(started)
        server.push(GROUP, [r.static_cluster("served")])
        return server

    return start


class TestMemory:
    def test_health_checks_of_16_mb_are_refused_at_their_first_bytes(
        self, guarded: ServerProcess, beside: Beside
    ) -> None:
        """8 such calls held 128 MB for as long as their connection liked."""
        server = guarded
        before = resident(server)
        with beside(server, token=TOKEN), closing(unfinished_messages(server.grpc_port, CHECK)) as attacker:
            wait_until(lambda: statuses(attacker) == [8] * 8, "all are refused", detail=lambda: statuses(attacker))
        assert resident(server) - before < 8 * MIB

    @pytest.mark.parametrize(
        "path",
        [
            ADS,
            "/envoy.service.cluster.v3.ClusterDiscoveryService/FetchClusters",
            "/envoy.service.status.v3.ClientStatusDiscoveryService/FetchClientStatus",
            "/io.linkerd.proxy.destination.Destination/Get",
            "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
            "/grpc.channelz.v1.Channelz/GetServers",
            "/no.such.Service/Method",
        ],
    )
    @pytest.mark.parametrize("fields", [(), (("authorization", "Bearer wrong"),)], ids=["no token", "a wrong one"])
    def test_a_message_without_a_credential_gets_64_kb_of_window(
        self, guarded: ServerProcess, path: str, fields: tuple[tuple[str, str], ...]
    ) -> None:
        with closing(unfinished_messages(guarded.grpc_port, path, 8, *fields)) as attacker:
            windows, sent = Windows(attacker, 8), 0
            while more := windows.fill():
                sent += more
            wait_until(
                lambda: len(statuses(attacker)) == 8 or attacker.is_over or windows.fill() == 0, "it may send no more"
            )
            assert sent <= 64 * 1024
            assert not [each for each in attacker.frames() if each.kind == f.WINDOW_UPDATE and each.number > 1 << 19]


class TestNames:
    @pytest.mark.parametrize("streams", [1, 8])
    def test_names_of_no_resource_are_bounded(self, guarded: ServerProcess, beside: Beside, streams: int) -> None:
        """64 types of 100,000 names of 400 characters would have taken gigabytes; this is a tenth of it."""
        before, counted = resident(guarded), hits(guarded, "unknown_name_bytes")
        requests = list(name_requests(64 // streams, 9_000, 400))
        with beside(guarded, token=TOKEN), ExitStack() as stack:
            channel = stack.enter_context(open_channel(guarded.grpc_port))
            held = [
                stack.enter_context(GrpcStream(guarded.grpc_port, channel=channel, metadata=(BEARER,)))
                for _ in range(streams)
            ]
            for stream in held:
                stream.send(*requests)
            code, told = held[-1].refusal()
            assert (code, "names that no resource has" in told) == (grpc.StatusCode.RESOURCE_EXHAUSTED, True)
        assert hits(guarded, "unknown_name_bytes") > counted
        assert resident(guarded) - before < 160 * MIB

    def test_a_name_of_a_megabyte(self, guarded: ServerProcess, beside: Beside) -> None:
        with beside(guarded, token=TOKEN), GrpcStream(guarded.grpc_port, metadata=(BEARER,)) as stream:
            code, told = stream.send(sotw(CLUSTER, ["x" * MIB])).refusal()
        assert code is grpc.StatusCode.RESOURCE_EXHAUSTED and f"a name of {MIB} characters" in told


class TestCalls:
    def test_a_hundred_watches_of_the_health(self, guarded: ServerProcess, beside: Beside) -> None:
        server = guarded
        before = resident(server)
        with beside(server, token=TOKEN), RawHttp2(server.grpc_port) as attacker:
            attacker.flood(b"".join(map(watching, range(at, at + 2_000, 2))) for at in range(1, 20_000, 2_000))
            wait_until(lambda: len(statuses(attacker)) >= 9_900 or attacker.is_over, "the others are refused")
            assert set(statuses(attacker)) == {grpc.StatusCode.RESOURCE_EXHAUSTED.value[0]}
        assert resident(server) - before < 16 * MIB

    def test_the_hundred_are_not_for_ever(self, guarded: ServerProcess) -> None:
        """Those that have ended make room."""
        server = guarded
        with RawHttp2(server.grpc_port) as client:
            for number in range(300):
                stream_id = 2 * number + 1
                client.send(
                    f.frame(f.HEADERS, WHOLE, stream_id, head(CHECK))
                    + f.frame(f.DATA, f.END_STREAM, stream_id, message(b""))
                )
                wait_until(lambda: len(statuses(client)) == number + 1, "answered")  # noqa: B023 - called at once
            assert set(statuses(client)) == {0}


class TestTime:
    def test_connections_that_only_answer_pings_give_their_descriptors_back(
        self, hurried: Serve, beside: Beside
    ) -> None:
        """231 of 256 descriptors were held for good."""
        server = hurried(prefix=("prlimit", f"--nofile={FILES}:{FILES}"))
        before = descriptors(server)
        with Crowd(server.grpc_port, source=ELSEWHERE) as crowd, beside(server, token=TOKEN):
            crowd.connect(231)
            wait_empty(crowd)
            for _ in range(50):  # it goes on, and takes what others of its own address could have
                crowd.connect(FILES - len(crowd))
                crowd.turn()
        wait_until(lambda: descriptors(server) <= before, "descriptors are back")

    def test_a_client_that_checks_the_health_is_asked_to_come_again(self, hurried: Serve) -> None:
        server = hurried()
        with RawHttp2(server.grpc_port) as client:
            client.send(watching(1))
            assert client.goaway() is f.ErrorCode.NO_ERROR
        assert hits(server, "anonymous_seconds") == 1, "the watch did not end by itself"

    def test_a_client_with_a_credential_stays(self, hurried: Serve) -> None:
        """Its connection stays when its call has ended."""
        server = hurried()
        with RawHttp2(server.grpc_port) as client, GrpcStream(server.grpc_port, metadata=(BEARER,)) as stream:
            assert stream.send(sotw(CLUSTER)).receive().resources
            client.send(asking(1))
            wait_until(lambda: any(each.kind == f.DATA for each in client.frames()), "answered")
            client.send(f.frame(f.RST_STREAM, 0, 1, f.NUMBER.pack(8)))
            with RawHttp2(server.grpc_port) as silent:
                wait_until(lambda: silent.is_over, "the one without is closed")
            assert not client.is_over
            server.push(GROUP, [r.static_cluster("another")])
            assert stream.receive().resources

    @pytest.mark.parametrize("transport", ["asyncio", pytest.param("grpcio", marks=pytest.mark.soak)])
    def test_tls_handshakes_that_never_end(self, hurried: Serve, tmp_path: Path, transport: str) -> None:
        certificate = CertificateAuthority(tmp_path).issue("server")
        config = tmp_path / "xds.yaml"
        tls = f"{{certificate: {certificate.path}, private_key: {certificate.key_path}}}"
        config.write_text(f"server: {{grpc: {{transport: {transport}, tls: {tls}}}}}")
        server = hurried("--config", str(config))
        before = descriptors(server)
        for said in (b"", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"):
            with Crowd(server.grpc_port, said) as crowd:
                crowd.connect(100)
                wait_empty(crowd)
        wait_until(lambda: descriptors(server) <= before, "descriptors are back")


class TestFleets:
    @pytest.mark.parametrize("is_slow", [False, True], ids=["at once", "connections first"])
    def test_a_fleet_behind_one_address_is_not_refused(self, guarded: ServerProcess, is_slow: bool) -> None:
        """Thousands reconnect at once, more than may be anonymous, beside an attacker behind the same address."""
        server = guarded
        with Crowd(server.grpc_port) as crowd, ExitStack() as stack:
            crowd.connect(500)
            fleet: list[socket.socket] = []
            for number in range(FLEET):
                proxy = stack.enter_context(socket.create_connection((LOOPBACK, server.grpc_port), 60))
                fleet.append(proxy)
                if not is_slow:
                    proxy.sendall(HELLO + asking(1, f"fleet-{number}"))
            for number, proxy in enumerate(fleet if is_slow else ()):
                proxy.sendall(HELLO + asking(1, f"fleet-{number}"))
            assert all(map(is_answered, fleet))


def wait_empty(crowd: Crowd) -> None:
    """Wait until the server has closed all of them."""

    def is_empty() -> bool:
        crowd.turn()
        return not len(crowd)

    wait_until(is_empty, "all are closed", detail=lambda: len(crowd))


def statuses(client: RawHttp2) -> list[int]:
    """The gRPC statuses of the calls that have ended."""
    ends = [each.payload for each in client.frames() if each.kind == f.HEADERS and b"grpc-status" in each.payload]
    values = [payload.partition(b"grpc-status")[2] for payload in ends]
    return [int(value[1 : 1 + value[0]]) for value in values]


def asking(stream_id: int, node_id: str = "raw") -> bytes:
    """A call that shows the token and asks for clusters."""
    request = f.frame(f.DATA, 0, stream_id, message(sotw(CLUSTER, node_id=node_id)))
    return f.frame(f.HEADERS, WHOLE, stream_id, head(ADS, BEARER)) + request


def is_answered(proxy: socket.socket) -> bool:
    """Whether the server answers, and does not close the connection."""
    received = b""
    while b"served" not in received:
        more = proxy.recv(1 << 16)
        if not more:
            return False
        received += more
    return True
