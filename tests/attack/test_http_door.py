"""The limits of a connection to the HTTP port before it is authenticated."""

from __future__ import annotations

import resource
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from functools import partial
from itertools import repeat
from pathlib import Path

import pytest

from tests.attack.attacks import opening
from tests.attack.bystander import GROUP
from tests.attack.conftest import Beside, resident
from tests.attack.raw_http import ask, connect, is_closed, send_until_closed, status
from tests.attack.raw_http2 import HELLO, RawHttp2
from tests.support import resources as r
from tests.support.http import plain_client
from tests.support.pki import CertificateAuthority
from tests.support.process import LOOPBACK, wait_until
from tests.support.server import ServerProcess

KIB, MIB = 1 << 10, 1 << 20
BEGINNING = b"GET /api/v1/groups HTTP/1.1\r\nHost: localhost\r\n"
POST = b"POST /api/v1/validate HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
HEAD_S, BODY_S = 1.0, 1.5
HURRIED = {
    "XDS_LIMITS__HTTP_HEAD_S": str(HEAD_S),
    "XDS_LIMITS__HTTP_BODY_S": str(BODY_S),
    "XDS_LIMITS__HTTP_BODY_BYTES_PER_S": str(64 * KIB),
}
Serve = Callable[..., ServerProcess]


def hits(server: ServerProcess, limit: str) -> float:
    return server.metrics().get(f'xds_server_limit_hits_total{{limit="{limit}"}}', 0.0)


def descriptors(server: ServerProcess) -> int:
    return len(list(Path(f"/proc/{server.process.pid}/fd").iterdir()))


def slowly(data: bytes, pause_s: float) -> Iterator[bytes]:
    """Byte by byte."""
    for byte in data:
        time.sleep(pause_s)
        yield bytes((byte,))


class TestHeads:
    @pytest.mark.parametrize(
        "piece",
        [b"x" * 64 * KIB, b"a: b\r\n" * 10_000, b"a:" + b" " * 32 * KIB],
        ids=["one header without end", "headers without end", "a header of blanks"],
    )
    def test_a_head_without_end_is_answered_431_and_takes_no_memory(
        self, victim: ServerProcess, beside: Beside, piece: bytes
    ) -> None:
        before, counted = resident(victim), hits(victim, "http_head_bytes")
        with beside(victim), connect(victim.http_port) as connection:
            sent = send_until_closed(connection, [BEGINNING, b"x: ", *repeat(piece, 300 * MIB // len(piece))])
            assert sent < 10 * MIB
            assert resident(victim) - before < 30 * MIB
        assert hits(victim, "http_head_bytes") == counted + 1

    def test_the_answer_says_why(self, victim: ServerProcess) -> None:
        with connect(victim.http_port) as connection:
            connection.sendall(BEGINNING + b"x: " + b"y" * 64 * KIB)
            assert status(connection) == 431
            wait_until(lambda: is_closed(connection), "closed")

    def test_an_endless_target(self, victim: ServerProcess) -> None:
        with connect(victim.http_port) as connection:
            connection.sendall(b"GET /" + b"a" * 64 * KIB)
            assert status(connection) == 431

    def test_a_large_head_that_is_within_the_limit_is_read(self, victim: ServerProcess) -> None:
        assert ask(victim.http_port, BEGINNING + b"x: " + b"y" * 60 * KIB + b"\r\n\r\n") == 200

    def test_each_request_of_a_connection_has_the_full_limit(self, victim: ServerProcess) -> None:
        with connect(victim.http_port) as connection:
            for _ in range(4):
                connection.sendall(BEGINNING + b"x: " + b"y" * 40 * KIB + b"\r\n\r\n")
                with connection.makefile("rb") as answer:
                    head = list(iter(answer.readline, b"\r\n"))
                    assert head[0].split()[1] == b"200"
                    answer.read(int(next(line for line in head if line.startswith(b"content-length"))[16:]))
            connection.sendall(BEGINNING + b"x: " + b"y" * 80 * KIB)
            assert status(connection) == 431


@pytest.fixture(scope="module")
def hurried(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A server that is as impatient as tests are."""
    with ServerProcess(tmp_path_factory.mktemp("hurried"), ["--store", "memory"], HURRIED) as server:
        server.push(GROUP, [r.static_cluster("served")])
        yield server


class TestTime:
    def test_an_incomplete_head_is_dropped(self, hurried: ServerProcess, beside: Beside) -> None:
        counted = hits(hurried, "http_head_seconds")
        with ExitStack() as stack, beside(hurried):
            slow = [stack.enter_context(connect(hurried.http_port)) for _ in range(100)]
            for connection in slow:
                connection.sendall(BEGINNING)
            wait_until(lambda: all(map(is_closed, slow)), "all are closed", HEAD_S + 10)
        assert hits(hurried, "http_head_seconds") == counted + 100

    def test_a_head_byte_by_byte_has_no_longer(self, hurried: ServerProcess) -> None:
        with connect(hurried.http_port) as connection:
            began = time.monotonic()
            send_until_closed(connection, slowly(BEGINNING * 10, 0.05))
            assert HEAD_S * 0.8 < time.monotonic() - began < HEAD_S + 15

    def test_silence_and_empty_lines_are_dropped(self, hurried: ServerProcess) -> None:
        with (
            connect(hurried.http_port) as silent,
            connect(hurried.http_port) as blank,
            connect(hurried.http_port) as late,
        ):
            late.sendall(BEGINNING + b"\r\n")
            assert status(late) == 200
            late.sendall(b"\r\n")  # the time that it could stay without a request is no longer running
            blank.sendall(b"\r\n")
            for connection in (silent, blank, late):
                wait_until(partial(is_closed, connection), "closed", HEAD_S + 5)

    def test_a_connection_between_two_requests_may_stay(self, hurried: ServerProcess) -> None:
        url = f"http://{LOOPBACK}:{hurried.http_port}/api/v1/events"
        with plain_client() as client, client.stream("GET", url) as events:
            assert events.status_code == 200
            time.sleep(max(HEAD_S, BODY_S) + 0.5)
            lines = events.iter_lines()
            hurried.push(GROUP, [r.static_cluster("pushed")])
            assert any("snapshot" in line or "commit" in line for line in lines if line.startswith(("event", "data")))
        with connect(hurried.http_port) as connection:
            for _ in range(2):
                connection.sendall(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n")
                assert status(connection) == 200
                time.sleep(HEAD_S + 0.5)

    @pytest.mark.parametrize("body", [b"{", b"10\r\n{"], ids=["announced", "chunked"])
    def test_an_incomplete_body_is_dropped(self, hurried: ServerProcess, beside: Beside, body: bytes) -> None:
        length = b"Transfer-Encoding: chunked" if b"\r\n" in body else b"Content-Length: 1000"
        counted = hits(hurried, "http_body_seconds")
        with ExitStack() as stack, beside(hurried):
            slow = [stack.enter_context(connect(hurried.http_port)) for _ in range(50)]
            for connection in slow:
                connection.sendall(POST + length + b"\r\n\r\n" + body)
            assert status(slow[0]) == 408
            wait_until(lambda: all(map(is_closed, slow)), "all are closed", BODY_S + 10)
        assert hits(hurried, "http_body_seconds") == counted + 50

    def test_a_body_that_comes_fast_enough_has_longer(self, hurried: ServerProcess) -> None:
        body = b'{"resources": []' + b" " * 600 * KIB + b"}"
        with connect(hurried.http_port) as connection:
            connection.sendall(POST + f"Content-Length: {len(body)}\r\n\r\n".encode())
            for at in range(0, len(body), 100 * KIB):
                connection.sendall(body[at : at + 100 * KIB])
                time.sleep(0.4)
            assert status(connection) in {200, 422}


class TestNumber:
    def test_connections_beyond_the_cap_are_turned_away_and_counted(self, serve: Serve, beside: Beside) -> None:
        server = serve(environment={"XDS_LIMITS__HTTP_CONNECTIONS": "20"})
        with beside(server):
            with ExitStack() as stack:
                many = [stack.enter_context(connect(server.http_port)) for _ in range(60)]
                wait_until(lambda: sum(map(is_closed, many)) >= 40, "those beyond the cap are closed")
                assert sum(map(is_closed, many)) <= 41  # the harness keeps one
            wait_until(lambda: server.request("GET", "/livez").status_code == 200, "room again")
        assert hits(server, "http_connections") >= 40
        assert "http.full" in server.process.log()

    def test_a_quarter_of_the_descriptors_at_most(self, serve: Serve, beside: Beside) -> None:
        server = serve(prefix=["prlimit", "--nofile=256:256"])
        with ExitStack() as stack, beside(server):
            many = [stack.enter_context(connect(server.http_port)) for _ in range(300)]
            for connection in many:
                send_until_closed(connection, [BEGINNING])
            wait_until(lambda: sum(map(is_closed, many)) >= 230, "those beyond the cap are closed")
            assert descriptors(server) < 200

    def test_connections_that_never_shake_hands_count_as_well(
        self, serve: Serve, beside: Beside, tmp_path: Path
    ) -> None:
        ca = CertificateAuthority(tmp_path)
        own = ca.issue("server")
        server = serve(
            environment={
                "XDS_SERVER__HTTP__TLS__CERTIFICATE": str(own.path),
                "XDS_SERVER__HTTP__TLS__PRIVATE_KEY": str(own.key_path),
                "XDS_LIMITS__HTTP_CONNECTIONS": "20",
                **HURRIED,
            },
            tls=ca.client_context(),
        )
        with beside(server):
            with ExitStack() as stack:
                many = [stack.enter_context(connect(server.http_port)) for _ in range(60)]
                wait_until(lambda: sum(map(is_closed, many)) >= 40, "those beyond the cap are closed")
            with connect(server.http_port) as plain:
                plain.sendall(BEGINNING + b"\r\n")  # no TLS
                wait_until(lambda: is_closed(plain), "closed")
            wait_until(lambda: server.request("GET", "/livez").status_code == 200, "room again")


def connected(server: ServerProcess) -> socket.socket:
    """A connection without a byte."""
    return connect(server.grpc_port)


def opened(server: ServerProcess) -> RawHttp2:
    """A connection with a call, without a message."""
    return RawHttp2(server.grpc_port, HELLO + opening(1), reads=False)


@pytest.mark.parametrize(
    ("client", "exhausts"),
    [
        pytest.param(connected, False, id="silent"),
        pytest.param(opened, True, id="with a call", marks=pytest.mark.soak),
    ],
)
def test_an_operator_gets_in_beside_more_clients_than_there_are_descriptors(
    serve: Serve, client: Callable[[ServerProcess], AbstractContextManager[object]], exhausts: bool
) -> None:
    """Connections without a call have half of the descriptors. If there are none left, it is told once a minute."""
    server = serve(prefix=["prlimit", "--nofile=128:128"])
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert hard > 400
    with ExitStack() as stack:
        for _ in range(200):
            stack.enter_context(client(server))
        with plain_client(base_url=f"http://{LOOPBACK}:{server.http_port}") as operator:
            for _ in range(10):
                assert operator.get("/readyz").status_code == 200
                time.sleep(0.2)
        assert exhausts or descriptors(server) < 128
        assert server.process.log().count("files.exhausted") == exhausts
    wait_until(lambda: descriptors(server) < 100, "the connections are gone")
    seen = server.metrics()["xds_server_files_exhausted_total"]
    assert (seen > 0) == exhausts
    time.sleep(2.2)
    assert server.metrics()["xds_server_files_exhausted_total"] == seen
