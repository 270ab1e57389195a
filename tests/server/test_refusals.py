"""A refused stream is seen: counter, table, log line and event, by client and reason; a flood of them is bounded."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Iterator
from datetime import timedelta
from hashlib import sha256
from time import thread_time
from typing import Any

import grpc
import pytest
import structlog

from tests.server.conftest import DELTA, SOTW, Harness, RawStream, Start, node, refusal, shown, sotw, tls, until, within
from tests.support.pki import CertificateAuthority
from xds.access.authorisation import Access, ClaimPattern, NodeAuthMode, NodeRule, NodeRules, PrincipalPattern
from xds.access.tokens import Grant, Tokens
from xds.fleet.event_log import EventFilter, EventKind, EventLog, FleetEvent
from xds.fleet.refused_streams import ROWS_LIMIT, RefusalReason, RefusedClient
from xds.proto import wire_pb2
from xds.server.counters import Metrics
from xds.server.options import ASYNCIO, GRPCIO
from xds.server.refusals import REPORTED_BURST, REPORTED_PER_S, RefusalRecorder

LRS = "/envoy.service.load_stats.v3.LoadReportingService/StreamLoadStats"
CSDS = "/envoy.service.status.v3.ClientStatusDiscoveryService/StreamClientStatus"
FETCH = "/envoy.service.cluster.v3.ClusterDiscoveryService/FetchClusters"
GET = "/io.linkerd.proxy.destination.Destination/Get"


def tokens() -> Tokens:
    """The tokens ``read`` and ``xds``, each with the scope of its name."""
    return Tokens((sha256(name.encode()).hexdigest(), Grant(name, frozenset({name}))) for name in ("read", "xds"))


@pytest.fixture(params=[ASYNCIO, GRPCIO])
def transport(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def lines() -> Iterator[list[Any]]:
    with structlog.testing.capture_logs() as found:
        yield found


def rows(server: Harness) -> list[RefusedClient]:
    return list(server.server.refusals.table.clients(0.0))


def events(log: EventLog) -> tuple[FleetEvent, ...]:
    wanted = EventFilter(frozenset({EventKind.AUTH}))
    return tuple(event for event in log.after(0, wanted, 100_000).events if event.action == "refused")


@pytest.mark.parametrize(
    ("authorization", "method", "service", "reason", "message"),
    [
        ("", SOTW, "ADS", RefusalReason.UNAUTHENTICATED, "no token"),
        ("", DELTA, "ADS", RefusalReason.UNAUTHENTICATED, "no token"),
        ("Bearer wrong", SOTW, "ADS", RefusalReason.UNAUTHENTICATED, "an unknown token"),
        ("Bearer read", SOTW, "ADS", RefusalReason.FORBIDDEN, "the token lacks the scope xds"),
        ("", LRS, "LRS", RefusalReason.UNAUTHENTICATED, "no token"),
        ("Bearer xds", CSDS, "CSDS", RefusalReason.FORBIDDEN, "the token lacks the scope read"),
        ("Bearer xds", "/no.such.Service/Stream", "/no.such.Service/Stream", RefusalReason.PROTOCOL, "unknown method"),
    ],
)
async def test_a_refused_stream_is_seen(
    start: Start, authorization: str, method: str, service: str, reason: RefusalReason, message: str
) -> None:
    server = await start(tokens=tokens())
    stream = await server.stream(method, **({"authorization": authorization} if authorization else {}))
    with pytest.raises((grpc.aio.AioRpcError, AssertionError)):
        await stream.request()
        await stream.receive()
    (row,) = rows(server)
    assert (row.last.reason, row.last.message, row.last.service) == (reason, message, service)
    assert (row.last.address, row.count) == ("127.0.0.1", 1)
    assert server.metrics.refused[reason.value] == 1
    (event,) = events(server.fleet.events)
    assert (event.message, event.details["reason"], event.details["count"]) == (message, reason.value, 1)


async def test_a_refused_request_is_seen(start: Start) -> None:
    """A node without an id, on ADS, on a load stream and by Fetch."""
    server = await start()
    for method, data in (
        (SOTW, sotw(node_id="")),
        (LRS, wire_pb2.LoadStatsRequest(node=node("")).SerializeToString()),
    ):
        await refusal(server, data, method)
    channel = await server.channel()
    with pytest.raises(grpc.aio.AioRpcError):
        await within(channel.unary_unary(FETCH)(sotw(node_id="")))
    (row,) = rows(server)
    assert (row.last.reason, row.last.service, row.count) == (RefusalReason.REQUEST, "CDS", 3)
    assert "id" in row.last.message


async def test_a_request_beyond_a_limit_is_seen(start: Start) -> None:
    server = await start(max_receive_bytes=1000)
    await refusal(server, sotw(names=["x" * 1500]), SOTW)
    (row,) = rows(server)
    assert (row.last.reason, row.last.service) == (RefusalReason.LIMIT, "ADS")


async def test_a_refused_node_is_seen_once(start: Start) -> None:
    rule = NodeRule(PrincipalPattern("token:xds"), ClaimPattern("edge-*"))
    server = await start(access=Access(tokens(), nodes=NodeRules(NodeAuthMode.ENFORCE, (rule,))))
    stream = await server.stream(authorization="Bearer xds")
    await stream.request(node_id="core-1")
    await stream.ended()
    (row,) = rows(server)
    assert (row.last.reason, row.last.node, row.last.principal) == (RefusalReason.NODE, "core-1", "token:xds")
    assert row.count == 1


async def test_streams_that_new_rules_refuse_are_seen(start: Start) -> None:
    server = await start(access=Access(tokens()))
    server.push({"c1": "a"})
    stream = await server.stream(authorization="Bearer xds")
    await stream.request()
    await stream.receive()
    server.server.access.assign(Access(Tokens([("0" * 64, Grant("other", frozenset({"xds"})))])))
    assert await server.server.reauthorize() == 1
    (row,) = rows(server)
    assert (row.last.reason, row.last.service) == (RefusalReason.UNAUTHENTICATED, "ADS")


async def test_one_log_line_for_one_client(start: Start, lines: list[Any]) -> None:
    """The line names the client and the reason; the end of the refused stream is no second line."""
    server = await start(tokens=tokens())
    lines.clear()
    for _ in range(20):
        await (await server.stream()).ended()
    (line,) = [each for each in lines if each["log_level"] != "debug"]
    assert (line["event"], line["reason"], line["service"]) == ("stream.refused", "unauthenticated", "ADS")
    assert (line["error_message"], line["refusals_n"]) == ("no token", 1)


async def test_streams_without_a_node_id_are_one_log_line(start: Start, lines: list[Any]) -> None:
    server = await start()
    lines.clear()
    for _ in range(20):
        await refusal(server, sotw(node_id=""), SOTW)
    assert [each["event"] for each in lines if each["log_level"] != "debug"] == ["stream.refused"]


# -- before the first call: only our own transport sees it -------------------------------------------------------------


def connect(port: int, data: bytes) -> bytes:
    """Send bytes on a connection; what comes back until it is closed."""
    with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
        connection.sendall(data)
        received = b""
        try:
            while piece := connection.recv(4096):
                received += piece
        except ConnectionResetError:
            pass
        return received


def handshake(port: int, context: ssl.SSLContext) -> str:
    """A TLS handshake, and what ended it."""
    try:
        connection = socket.create_connection(("127.0.0.1", port), timeout=10)
        with connection, context.wrap_socket(connection, server_hostname="localhost") as wrapped:
            wrapped.recv(1)
    except OSError as error:  # ssl.SSLError included
        return str(error)
    return ""


class TestOwnTransport:
    @pytest.fixture
    def transport(self) -> str:
        return ASYNCIO

    async def one(self, server: Harness) -> tuple[RefusalReason, str]:
        (row,) = await until(lambda: rows(server))
        return row.last.reason, row.last.message

    async def test_tls_on_a_port_without_tls(self, server: Harness, authority: CertificateAuthority) -> None:
        assert await asyncio.to_thread(handshake, server.server.port, authority.client_context())
        assert await self.one(server) == (RefusalReason.PROTOCOL, "the client speaks TLS, and this port does not")

    async def test_http_1_on_the_grpc_port(self, server: Harness) -> None:
        await asyncio.to_thread(connect, server.server.port, b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
        assert await self.one(server) == (RefusalReason.PROTOCOL, "this is not HTTP/2")

    @pytest.mark.parametrize("data", [b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"GET / HTTP/1.1\r\nhost: x\r\n\r\n"])
    async def test_no_tls_on_a_port_with_tls(self, start: Start, authority: CertificateAuthority, data: bytes) -> None:
        server = await tls(start, authority)
        answer = await asyncio.to_thread(connect, server.server.port, data)
        assert await self.one(server) == (RefusalReason.TLS, "the client speaks no TLS, and this port does")
        assert answer.startswith(b"HTTP/1.1 400 ") == data.startswith(b"GET")
        assert (b"this port speaks TLS" in answer) == data.startswith(b"GET")

    async def test_a_client_without_its_certificate(self, start: Start, authority: CertificateAuthority) -> None:
        server = await tls(start, authority)
        await asyncio.to_thread(handshake, server.server.port, authority.client_context())
        assert await self.one(server) == (RefusalReason.TLS, "no client certificate")

    async def test_a_foreign_and_an_expired_certificate(self, start: Start, authority: CertificateAuthority) -> None:
        server = await tls(start, authority)
        expired = authority.issue("late", valid_for=timedelta(hours=-1))
        other = CertificateAuthority(authority.path.parent, "other-ca")
        for certificate, words in ((other.issue("foreign"), "issuer"), (expired, "expired")):
            context = authority.client_context()
            context.load_cert_chain(certificate.path, certificate.key_path)
            await asyncio.to_thread(handshake, server.server.port, context)
            reason, message = await self.one(server)
            assert reason is RefusalReason.TLS
            assert message.startswith("the client certificate is refused: ")
            assert words in message

    async def test_a_client_that_does_not_trust_the_server(self, start: Start, authority: CertificateAuthority) -> None:
        server = await tls(start, authority)
        other = CertificateAuthority(authority.path.parent, "other-ca")
        assert await asyncio.to_thread(handshake, server.server.port, other.client_context())
        message = "the client does not trust the certificate of this server"
        assert await self.one(server) == (RefusalReason.TLS, message)

    async def test_a_message_that_the_transport_does_not_take(self, start: Start) -> None:
        server = await start(max_receive_bytes=1000)
        await refusal(server, sotw(names=["x" * 5000]), SOTW)
        reason, message = await self.one(server)
        assert (reason, "larger" in message or "bytes" in message) == (RefusalReason.REQUEST, True)

    async def test_a_connection_that_says_nothing_is_not_refused(
        self, start: Start, authority: CertificateAuthority
    ) -> None:
        """A health check of a load balancer opens a connection and closes it."""
        server = await tls(start, authority)
        for _ in range(3):
            socket.create_connection(("127.0.0.1", server.server.port)).close()
        channel = await server.channel(shown(authority, authority.issue("edge-1")))
        stream = RawStream(channel)
        await stream.request()
        await stream.receive()
        assert rows(server) == []


# -- a flood -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("addresses", [1, 50_000])
def test_10_000_refusals_a_second_flood_nothing(addresses: int, lines: list[Any]) -> None:
    """Five seconds of it: memory, log lines and events are bounded, and the counter has all."""
    log, metrics, now = EventLog(), Metrics(), [1_000_000.0]
    recorder = RefusalRecorder(log, metrics, lambda: now[0])
    began_s = thread_time()
    for number in range(50_000):
        now[0] += 1 / 10_000
        peer = f"ipv4:10.{number % addresses >> 8}.{number % addresses & 255}.1:{number % 60_000}"
        recorder.record(RefusalReason.UNAUTHENTICATED, "no token " + "x" * 5_000, peer, service="ADS")
    assert (thread_time() - began_s) / 50_000 < 0.000_1, "a core has room for 10,000 a second"
    assert metrics.refused["unauthenticated"] == 50_000
    assert recorder.table.recent(now[0]) == 50_000
    table = list(recorder.table.clients(now[0]))
    assert len(table) == min(addresses, ROWS_LIMIT)
    assert all(len(row.last.message) <= 500 for row in table)
    assert len(lines) == len(events(log)) <= (1 if addresses == 1 else REPORTED_BURST + 5 * REPORTED_PER_S + 1)


async def test_a_flood_of_refused_streams_is_a_few_lines(start: Start, lines: list[Any]) -> None:
    """Through the port: 500 streams of one connection that sends no token."""
    server = await start(tokens=tokens())
    lines.clear()
    channel = await server.channel()
    ends = await asyncio.gather(*(RawStream(channel).ended() for _ in range(500)))
    assert {code for code, _ in ends} == {grpc.StatusCode.UNAUTHENTICATED}
    (row,) = rows(server)
    assert row.count == 500
    assert len([each for each in lines if each["log_level"] != "debug"]) == len(events(server.fleet.events)) == 1
