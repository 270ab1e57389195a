"""Attacks by clients that have shown no credential, or only one: what they take grows with what they are given."""

from __future__ import annotations

import selectors
import socket
from collections.abc import Iterator
from contextlib import suppress
from itertools import takewhile
from types import TracebackType
from typing import Self

from tests.attack.attacks import BATCH, MIB, WHOLE, Attack, Over, Ports, batches
from tests.attack.raw_http2 import HELLO, RawHttp2, head
from tests.support.grpc_stream import GrpcStream, sotw
from tests.support.process import LOOPBACK
from tests.wire.http2.talk import message
from xds.wire.http2 import frames as f

CHECK, WATCH = "/grpc.health.v1.Health/Check", "/grpc.health.v1.Health/Watch"
ANNOUNCED, KEPT_BACK = 16 * MIB, 1_000  # bytes of a message, and how many never come
PIECE = bytes(f.DEFAULT_MAX_FRAME)
PONG = f.frame(f.PING, f.ACK, 0, bytes(8))
PING_HEAD = f.HEADER.pack(8 << 8 | f.PING, 0, 0)
TURN_S = 0.05


def unfinished_messages(port: int, path: str, streams: int = 8, *fields: tuple[str, str]) -> RawHttp2:
    """A connection with so many calls, each with a message of 16 MB that lacks its last bytes. It sends as fast as its
    windows allow, at most what the message needs."""
    attacker = RawHttp2(port)
    attacker.send(f.frame(f.WINDOW_UPDATE, 0, 0, f.NUMBER.pack(1 << 20)))
    begun = b"\0" + (ANNOUNCED).to_bytes(4, "big")
    for number in range(streams):
        stream_id = 2 * number + 1
        attacker.send(f.frame(f.HEADERS, WHOLE, stream_id, head(path, *fields)) + f.frame(f.DATA, 0, stream_id, begun))
    return attacker


class Windows:
    """What an attacker that respects flow control may still send, by the frames that it has received."""

    def __init__(self, attacker: RawHttp2, streams: int) -> None:
        self._attacker = attacker
        self._connection = f.DEFAULT_WINDOW - 5 * streams
        self._left = {2 * number + 1: ANNOUNCED - KEPT_BACK for number in range(streams)}
        self._windows = dict.fromkeys(self._left, f.DEFAULT_WINDOW - 5)
        self._read = 0

    def fill(self) -> int:
        """Send what may be sent now; returns the number of bytes."""
        self._update()
        sent = 0
        for stream_id, left in self._left.items():
            size = min(left, self._windows[stream_id], self._connection, len(PIECE))
            if size > 0 and self._attacker.send(f.frame(f.DATA, 0, stream_id, PIECE[:size])):
                self._left[stream_id] -= size
                self._windows[stream_id] -= size
                self._connection -= size
                sent += size
        return sent

    def _update(self) -> None:
        found = self._attacker.frames()
        for frame in found[self._read :]:
            if frame.kind == f.WINDOW_UPDATE and not frame.stream_id:
                self._connection += frame.number
            elif frame.kind == f.WINDOW_UPDATE and frame.stream_id in self._windows:
                self._windows[frame.stream_id] += frame.number
            elif frame.kind in (f.RST_STREAM, f.HEADERS):
                self._left[frame.stream_id] = 0  # the call has ended
        self._read = len(found)


def large_health_checks(connections: int) -> Attack:
    """So many connections with 8 health checks of 16 MB each, which never end; one that is closed comes back."""

    def run(ports: Ports, over: Over) -> None:
        held: list[tuple[RawHttp2, Windows]] = []
        while not over.is_set():
            held = [each for each in held if not each[0].is_over]
            while len(held) < connections:
                attacker = unfinished_messages(ports.grpc, CHECK)
                held.append((attacker, Windows(attacker, 8)))
            if not sum(windows.fill() for _, windows in held):
                over.wait(TURN_S)
        for attacker, _ in held:
            attacker.close()

    return run


def watching(stream_id: int) -> bytes:
    """The head and the request of a `Health/Watch`."""
    return f.frame(f.HEADERS, WHOLE, stream_id, head(WATCH)) + f.frame(f.DATA, f.END_STREAM, stream_id, message(b""))


def health_watches(ports: Ports, over: Over) -> None:
    """100,000 watches of the health on a connection, then on the next one."""
    while not over.is_set():
        with RawHttp2(ports.grpc) as attacker:
            opened = batches(lambda number: watching(2 * number + 1), 100 * BATCH)
            attacker.flood(takewhile(lambda _: not over.is_set(), opened))
            while not (over.is_set() or attacker.is_over):
                over.wait(TURN_S)


class Crowd:
    """Many connections that say ``said`` and answer pings. ``source`` is the address that they come from."""

    def __init__(self, port: int, said: bytes = HELLO, source: str = LOOPBACK) -> None:
        self._port = port
        self._said = said
        self._source = source
        self._open = selectors.DefaultSelector()

    def __len__(self) -> int:
        return len(self._open.get_map())

    def connect(self, number: int) -> None:
        """Open so many more."""
        for _ in range(number):
            with suppress(OSError):
                made = socket.create_connection((LOOPBACK, self._port), 5, (self._source, 0))
                made.setblocking(False)
                self._open.register(made, selectors.EVENT_READ)
                made.sendall(self._said)

    def turn(self, wait_s: float = TURN_S) -> int:
        """Answer what has come; returns how many connections were closed."""
        return sum(map(self._answer, [key.fileobj for key, _ in self._open.select(wait_s)]))

    def _answer(self, connection: object) -> bool:
        assert isinstance(connection, socket.socket)
        with suppress(OSError):
            received = connection.recv(1 << 16)
            if received:
                connection.sendall(PONG * received.count(PING_HEAD))
                return False
        self._open.unregister(connection)
        connection.close()
        return True

    def close(self) -> None:
        for key in list(self._open.get_map().values()):
            assert isinstance(key.fileobj, socket.socket)
            key.fileobj.close()
        self._open.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


def pinging_connections(connections: int) -> Attack:
    """So many connections that only answer pings; those that are closed come back."""

    def run(ports: Ports, over: Over) -> None:
        with Crowd(ports.grpc) as crowd:
            while not over.is_set():
                crowd.connect(connections - len(crowd))
                crowd.turn()

    return run


def name_requests(types: int, names: int, characters: int) -> Iterator[bytes]:
    """Requests of one stream, each for another type and so many names of no resource."""
    for number in range(types):
        invented = (f"{each:08d}".ljust(characters, "n") for each in range(names))
        yield sotw(f"type.googleapis.com/example.T{number}", invented, "inventor")


def invented_names(ports: Ports, over: Over) -> None:
    """Streams that ask for 15,000 names of 400 characters, of each of 64 types, until they are ended."""
    requests = list(name_requests(64, 15_000, 400))
    while not over.is_set():
        with GrpcStream(ports.grpc) as stream:
            for request in takewhile(lambda _: not over.is_set(), requests):
                stream.send(request)
            stream.refusal()


ANONYMOUS_ATTACKS: dict[str, Attack] = {
    "large-health-checks": large_health_checks(4),
    "100000-health-watches": health_watches,
    "64-types-of-15000-names": invented_names,
    "2000-connections-that-ping": pinging_connections(2_000),
}
