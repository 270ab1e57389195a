"""One connection of a client: the asyncio shell around `ServerConnection`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Protocol, cast

from xds.http2.connection import Limits, ServerConnection
from xds.http2.events import Broken, Closed, HalfClosed, Message, Opened, Stream, Written
from xds.http2.frames import Http2Error
from xds.http2.headers import Fields
from xds.server.connections import peer_name
from xds.server.rpc.call import Call

CONTENT_TYPE = "application/grpc"
UNSUPPORTED_MEDIA_TYPE, METHOD_NOT_ALLOWED = 415, 405


class Host(Protocol):
    """The server of a connection, as the connection uses it."""

    @property
    def limits(self) -> Limits: ...
    def joined(self, connection: Connection) -> None: ...
    def left(self, connection: Connection) -> None: ...
    def start(self, call: Call) -> asyncio.Task[None]: ...


class Connection(asyncio.Protocol):
    """A connection and the calls on it."""

    def __init__(self, host: Host) -> None:
        self.number = 0
        self.peer = ""
        self.calls_started = 0
        self.is_paused = False
        self.is_heard = True  # something came since the server looked last
        self._host = host
        self._http2 = ServerConnection(host.limits)
        self._transport: asyncio.Transport | None = None

    @property
    def message_bytes(self) -> int:
        """The largest message that is read."""
        return self._host.limits.message_bytes

    @property
    def calls_open(self) -> int:
        return len(self._http2.streams)

    # As the server sees it

    def ping(self) -> None:
        """Ask whether the client is there."""
        self._http2.ping()
        self._flush()

    def go_away(self) -> None:
        """Take no more calls; close when the last one has ended."""
        self._http2.go_away()
        self._flush()

    def abort(self) -> None:
        """Close at once."""
        if self._transport is not None:
            self._transport.abort()

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's transports are no subclasses of asyncio's
        self.peer = peer_name(transport.get_extra_info("peername"))
        self._host.joined(self)
        self._flush()

    def data_received(self, data: bytes) -> None:
        self.is_heard = True
        try:
            for event in self._http2.receive(data):
                _HANDLERS[type(event)](self, event)
        except Http2Error as error:
            self._http2.go_away(error.code, error.message)
            self._flush()
            if self._transport is not None:
                self._transport.close()
            return
        self._flush()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._host.left(self)
        for stream in list(self._http2.streams.values()):
            if stream.call is not None:
                stream.call.cancel()
        self._http2.streams.clear()

    def pause_writing(self) -> None:
        # A client that does not read is not read either: answers to its pings would pile up without end.
        self.is_paused = True
        if self._transport is not None:
            self._transport.pause_reading()

    def resume_writing(self) -> None:
        self.is_paused = False
        if self._transport is not None:
            self._transport.resume_reading()
        for stream in list(self._http2.streams.values()):
            if stream.call is not None:
                stream.call.write_on()

    # As its calls see it

    def send_head(self, stream: Stream, metadata: Fields) -> None:
        self._http2.send_head(stream, metadata)
        self._flush()

    def send_message(self, stream: Stream, message: bytes) -> bool:
        is_through = self._http2.send_message(stream, message)
        self._flush()
        return is_through

    def end(self, stream: Stream, status: int, details: str, metadata: Fields) -> None:
        if stream.id in self._http2.streams:
            self._http2.end(stream, status, details, metadata)
            self._flush()

    def taken(self, stream: Stream) -> None:
        self._http2.taken(stream)
        self._flush()

    def _flush(self) -> None:
        out = self._http2.outgoing()
        if out and self._transport is not None:
            if len(out) == 1:
                self._transport.write(out[0])
            else:
                self._transport.writelines(out)
        if self._http2.is_going_away and not self._http2.streams and self._transport is not None:
            self._transport.close()

    # Events

    def _opened(self, event: Opened) -> None:
        stream, head = event
        if head.method != "POST":
            self._http2.refuse(stream, METHOD_NOT_ALLOWED)
        elif not head.content_type.startswith(CONTENT_TYPE):
            self._http2.refuse(stream, UNSUPPORTED_MEDIA_TYPE)
        else:
            self.calls_started += 1
            stream.call = call = Call(self, stream, head)
            call.begin(self._host.start(call), head.timeout_s)

    def _message(self, event: Message) -> None:
        if event.stream.call is not None:
            event.stream.call.hear(event.piece)

    def _half_closed(self, event: HalfClosed) -> None:
        if event.stream.call is not None:
            event.stream.call.half_close()

    def _broken(self, event: Broken) -> None:
        if event.stream.call is not None:
            event.stream.call.fail(event.error)

    def _closed(self, event: Closed) -> None:
        if event.stream.call is not None:
            event.stream.call.cancel()

    def _written(self, event: Written) -> None:
        if event.stream.call is not None:
            event.stream.call.write_on()


_HANDLERS: dict[type, Callable[[Connection, Any], None]] = {
    Opened: Connection._opened,
    Message: Connection._message,
    HalfClosed: Connection._half_closed,
    Broken: Connection._broken,
    Closed: Connection._closed,
    Written: Connection._written,
}
