"""A sink for attacks: two ports that read as much as they can, and answer no more than an attacker needs to go on.

An attack on the sink beside a server that nobody attacks is the control run: the attacker takes the same CPU and
memory bandwidth of the machine, and what the good client waits for more in the attack itself is the server's.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import re
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.synchronize import Event

from tests.attack.attacks import Ports
from tests.support.process import LOOPBACK, free_port
from xds.wire.http2 import frames as f
from xds.wire.http2.headers import encode

START_S = 60.0
BACKLOG = 4_096
BEGINNING_BYTES = 1_024  # of a connection; a gRPC client has told by then that it is one
GRPC_CLIENT = b"grpc-python/"  # in `user-agent`, which the raw attackers do not send
LARGE_BYTES = 64 << 10
PREFIX_BYTES = 5
CREDIT = f.MAX_WINDOW - f.DEFAULT_WINDOW
GREETING = f.frame(f.SETTINGS, 0, 0, f.SETTING.pack(f.INITIAL_WINDOW_SIZE, f.MAX_WINDOW)) + f.frame(
    f.WINDOW_UPDATE, 0, 0, f.NUMBER.pack(CREDIT)
)
HEAD = encode(((":status", "200"), ("content-type", "application/grpc")))
RESOURCE_EXHAUSTED = encode((("grpc-status", "8"),))
EMPTY_MESSAGE = bytes(PREFIX_BYTES)
LENGTH = re.compile(rb"content-length: (\d+)", re.IGNORECASE)
HTTP_ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"


@contextmanager
def running_sink() -> Iterator[Ports]:
    """A sink in a process of its own while the body runs."""
    spawn = multiprocessing.get_context("spawn")
    ready, ports = spawn.Event(), Ports(free_port(), free_port())
    sink = spawn.Process(target=run, args=(ports, ready), daemon=True)
    sink.start()
    try:
        assert ready.wait(START_S), "the sink did not start"
        yield ports
    finally:
        sink.kill()
        sink.join()


def run(ports: Ports, ready: Event) -> None:
    """The sink's process. Sets ``ready`` when its ports are open."""
    asyncio.run(_serve(ports, ready))


async def _serve(ports: Ports, ready: Event) -> None:
    loop = asyncio.get_running_loop()
    await loop.create_server(GrpcSink, LOOPBACK, ports.grpc, backlog=BACKLOG)
    await loop.create_server(HttpSink, LOOPBACK, ports.http, backlog=BACKLOG)
    ready.set()
    await asyncio.Event().wait()


class Sink(asyncio.Protocol):
    """A connection."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport


class HttpSink(Sink):
    """Answers each request when its body is there, to a client that waits for the answer before its next request."""

    def __init__(self) -> None:
        self._missing = 0  # bytes of the body

    def data_received(self, data: bytes) -> None:
        if self._missing:
            self._missing -= len(data)
        else:
            head, end, body = data.partition(b"\r\n\r\n")
            length = LENGTH.search(head)
            if not end or length is None:
                return
            self._missing = int(length[1]) - len(body)
        if self._missing <= 0:
            self._missing = 0
            self.transport.write(HTTP_ANSWER)


class GrpcSink(Sink):
    """Drops what it reads, unless it comes from a gRPC client: its calls are answered."""

    def __init__(self) -> None:
        self._data = bytearray()  # that is not understood yet
        self._drops = self._answers = False
        self._calls: dict[int, Call] = {}

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.transport.write(GREETING)

    def data_received(self, data: bytes) -> None:
        if self._drops:
            return
        self._data += data
        if self._answers:
            self.transport.write(f.frame(f.WINDOW_UPDATE, 0, 0, f.NUMBER.pack(len(data))) + self._read())
        elif GRPC_CLIENT in self._data:
            self._answers = True
            del self._data[: len(f.PREFACE)]
            self.transport.write(self._read())
        elif len(self._data) > BEGINNING_BYTES:
            self._drops = True
            self._data.clear()

    def _read(self) -> bytes:
        """What the whole frames are answered with."""
        answers, at = b"", 0
        while at + f.FRAME_HEADER_BYTES <= len(self._data):
            length_and_kind, flags, stream_id = f.HEADER.unpack_from(self._data, at)
            start = at + f.FRAME_HEADER_BYTES
            end = start + (length_and_kind >> 8)
            if end > len(self._data):
                break
            answers += self._answer(length_and_kind & 0xFF, flags, stream_id, self._data[start:end])
            at = end
        del self._data[:at]
        return answers

    def _answer(self, kind: int, flags: int, stream_id: int, payload: bytearray) -> bytes:
        if kind in (f.SETTINGS, f.PING) and not flags & f.ACK:
            return f.frame(kind, f.ACK, 0, bytes(payload) if kind == f.PING else b"")
        if kind == f.HEADERS:
            self._calls[stream_id] = Call(stream_id)
            return f.frame(f.HEADERS, f.END_HEADERS, stream_id, HEAD)
        if kind == f.RST_STREAM:
            self._calls.pop(stream_id, None)
        if kind == f.DATA and stream_id in self._calls:
            answer, ends = self._calls[stream_id].read(payload)
            if ends:
                del self._calls[stream_id]
            return answer
        return b""


class Call:
    """A call. Each message is answered with an empty one, but as at the server a first one that is large ends the call,
    and so does one of a byte, which is no request."""

    def __init__(self, stream_id: int) -> None:
        self._stream_id = stream_id
        self._data = bytearray()
        self._is_first = True

    def read(self, payload: bytearray) -> tuple[bytes, bool]:
        """The answer, and whether the call has ended. What comes behind its end is dropped."""
        self._data += payload
        answer = b""
        while len(self._data) >= PREFIX_BYTES:
            size = int.from_bytes(self._data[1:PREFIX_BYTES], "big")
            if len(self._data) < PREFIX_BYTES + size:
                break
            if size == 1 or (self._is_first and size > LARGE_BYTES):
                return answer + self._end(), True
            del self._data[: PREFIX_BYTES + size]
            self._is_first = False
            answer += f.frame(f.DATA, 0, self._stream_id, EMPTY_MESSAGE)
        return answer, False

    def _end(self) -> bytes:
        trailers = f.frame(f.HEADERS, f.END_HEADERS | f.END_STREAM, self._stream_id, RESOURCE_EXHAUSTED)
        return trailers + f.frame(f.RST_STREAM, 0, self._stream_id, f.NUMBER.pack(f.ErrorCode.NO_ERROR))
