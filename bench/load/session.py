"""A connection of a worker and the streams on it: the asyncio shell around `http2`, `messages` and `client`.

A connection or a stream that ends without being cut by the bench is counted, and opened again after a while, as clients
do; the time until its first answer is counted from the first attempt.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import struct
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import cast

from bench.load.client import UnexpectedResponseError, XdsStream
from bench.load.frames import Data, Ended, Event, GoneAway, Headers, Http2Error
from bench.load.http2 import Connection
from bench.load.messages import Layouts, MessageError, MessageReader, WholeReader
from bench.load.tally import Tally

RETRY_AFTER_S = 0.5
CONNECT_TIMEOUT_S = 20.0
CANCEL = 0x8

Reader = MessageReader | WholeReader


@dataclass(slots=True, frozen=True)
class Target:
    """Where sessions connect to, and what they share."""

    host: str
    port: int
    tls: ssl.SSLContext | None
    header_block: bytes
    tally: Tally
    layouts: Layouts


class _Line:
    """One stream of a session: its client, and where it stands on the wire."""

    __slots__ = ("client", "is_answered", "opened_at", "reader", "stream_id")

    def __init__(self, client: XdsStream) -> None:
        self.client = client
        self.reader: Reader | None = None
        self.stream_id = 0
        self.opened_at = 0.0
        self.is_answered = False


class Session(asyncio.Protocol):
    """``connect`` it, ``cut`` it and ``connect`` it again: it keeps its clients."""

    def __init__(self, target: Target, clients: Sequence[XdsStream], make_reader: Callable[[], Reader]) -> None:
        self._target = target
        self._tally = target.tally
        self._lines = [_Line(client) for client in clients]
        self._make_reader = make_reader
        self._by_stream: dict[int, _Line] = {}
        self._http2 = Connection()
        self._transport: asyncio.Transport | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._lost = asyncio.Event()
        self._lost.set()
        self._is_gone_away = False
        self._is_wanted = False
        self._is_paused = False

    # Life

    async def connect(self) -> None:
        """Connect and open all streams; tries again until it succeeds or the session is cut.

        Raises ``ssl.SSLCertVerificationError``.
        """
        self._is_wanted = True
        now = time.monotonic()
        for line in self._lines:
            line.opened_at, line.is_answered = now, False
        self._tally.expect(len(self._lines))
        self._connecting = asyncio.create_task(self._connect(0.0))
        await asyncio.wait([self._connecting])
        if not self._connecting.cancelled():
            self._connecting.result()

    async def _connect(self, after_s: float) -> None:
        loop = asyncio.get_running_loop()
        target = self._target
        name = target.host if target.tls else None
        while True:
            await asyncio.sleep(after_s)
            connecting = loop.create_connection(
                lambda: self, target.host, target.port, ssl=target.tls, server_hostname=name
            )
            try:
                await asyncio.wait_for(connecting, CONNECT_TIMEOUT_S)
            except OSError as error:
                self._tally.errors[f"connect: {type(error).__name__}"] += 1
                if isinstance(error, ssl.SSLCertVerificationError):
                    raise  # it will not be another one
                after_s = RETRY_AFTER_S
            else:
                return

    def cut(self) -> None:
        """Close at once, by a TCP reset; await `closed` before the next `connect`."""
        self._is_wanted = False
        self._tally.expect(-sum(not line.is_answered for line in self._lines))
        if self._connecting is not None:
            self._connecting.cancel()
        if self._transport is not None:
            self._abort(self._transport)

    async def closed(self) -> None:
        """After `cut`: no connection is left."""
        if self._connecting is not None:
            await asyncio.wait([self._connecting])
        await self._lost.wait()

    def forget(self) -> None:
        """Let the clients hold nothing."""
        for line in self._lines:
            line.client.forget()

    def pause(self) -> None:
        """Read nothing more from the socket."""
        self._is_paused = True
        if self._transport is not None:
            self._transport.pause_reading()

    def resume(self) -> None:
        """Read again."""
        self._is_paused = False
        if self._transport is not None:
            self._transport.resume_reading()

    def _abort(self, transport: asyncio.Transport) -> None:
        # Lingering for no time makes it a reset, which leaves no socket behind to wait for late packets.
        transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        transport.abort()

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are no subclasses of asyncio's.
        self._transport = transport = cast(asyncio.Transport, transport)
        self._lost.clear()
        if not self._is_wanted:
            self._abort(transport)
            return
        if self._is_paused:
            transport.pause_reading()
        self._is_gone_away = False
        self._http2 = Connection()
        self._by_stream = {}
        for line in self._lines:
            self._open(line)
        self._flush(transport)

    def data_received(self, data: bytes) -> None:
        transport = self._transport
        if transport is None or not self._is_wanted:
            return
        self._tally.bytes_in += len(data)
        try:
            for event in self._http2.receive(data):
                if type(event) is Data:
                    self._take(event)
                else:
                    self._handle(event)
        except (Http2Error, MessageError, UnexpectedResponseError) as error:
            self._tally.errors[f"{type(error).__name__}: {error}"] += 1
            self._abort(transport)
            return
        self._flush(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._by_stream = {}
        self._lost.set()
        if self._is_wanted:
            self._tally.errors["connection lost"] += 1
            self._connecting = asyncio.create_task(self._connect(RETRY_AFTER_S))

    # Streams

    def _open(self, line: _Line) -> None:
        line.stream_id = self._http2.open(self._target.header_block)
        line.reader = self._make_reader()
        self._by_stream[line.stream_id] = line
        for request in line.client.first_requests():
            self._http2.send(line.stream_id, request)
        self._note_answered(line, time.monotonic())

    def _note_answered(self, line: _Line, now: float) -> None:
        if not line.is_answered and line.client.is_answered:
            line.is_answered = True
            self._tally.note_answered(now - line.opened_at)

    def _take(self, event: Data) -> None:
        stream_id, data, start, end = event
        line = self._by_stream.get(stream_id)
        if line is None or line.reader is None:
            return
        for response in line.reader.feed(data, start, end):
            tally = self._tally
            tally.messages += 1
            self._http2.send(stream_id, line.client.answer(response))
            now = time.monotonic()
            if not line.is_answered:
                self._note_answered(line, now)
            tally.note_ack(now, response.type_url, response.version, line.client.index)

    def _handle(self, event: Event) -> None:
        if isinstance(event, Headers):
            status = event.fields.get("grpc-status")
            if status is not None:
                self._tally.errors[f"grpc-status {status}: {event.fields.get('grpc-message', '')}"] += 1
        elif isinstance(event, Ended):
            self._tally.errors["stream ended" if event.reset is None else f"stream reset: {event.reset}"] += 1
            self._end(event.stream_id)
        elif isinstance(event, GoneAway):
            self._tally.errors[f"GOAWAY {event.code}"] += 1
            self._is_gone_away = True
            for stream_id in [each for each in self._by_stream if each > event.last_stream_id]:
                self._http2.reset(stream_id, CANCEL)
                self._end(stream_id)

    def _end(self, stream_id: int) -> None:
        line = self._by_stream.pop(stream_id, None)
        if line is not None and not self._is_gone_away:
            asyncio.get_running_loop().call_later(RETRY_AFTER_S, self._reopen, line, self._http2)
        elif not self._by_stream and self._transport is not None:
            self._abort(self._transport)

    def _reopen(self, line: _Line, http2: Connection) -> None:
        if self._http2 is http2 and self._transport is not None and self._is_wanted:
            self._open(line)
            self._flush(self._transport)

    def _flush(self, transport: asyncio.Transport) -> None:
        data = self._http2.outgoing()
        if data:
            self._tally.bytes_out += len(data)
            transport.write(data)
