"""A client connection: the asyncio shell around `ServerConnection`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from http import HTTPStatus
from sys import intern
from typing import Any, Protocol, cast

import grpc

from xds.access.certificate import Certificate
from xds.fleet.refused_streams import RecordRefusal, RefusalReason
from xds.server.flow.admission import ConnectionThrottle
from xds.server.flow.anonymous import AnonymousConnections, source_of
from xds.server.flow.limits import FlowLimits, RateLimit
from xds.server.grpc.call import Call
from xds.server.identity import peer_certificate, peer_name
from xds.wire.http2.connection import ServerConnection
from xds.wire.http2.frames import ErrorCode, Http2Error
from xds.wire.http2.headers import CONTENT_TYPE, Fields, ShareTable
from xds.wire.http2.stream import (
    Http2Limits,
    MalformedMessage,
    MessageReceived,
    RequestReceived,
    Stream,
    StreamEnded,
    StreamReset,
    WriteDrained,
)


class ConnectionOwner(Protocol):
    """The server of a connection, as the connection uses it."""

    @property
    def limits(self) -> Http2Limits:
        """Limits of each connection."""

    @property
    def share_table(self) -> ShareTable:
        """Shares equal header tables of connections."""

    @property
    def throttle(self) -> ConnectionThrottle:
        """Bounds how many new connections are read."""

    @property
    def anonymous(self) -> AnonymousConnections:
        """The connections without an authenticated call."""

    @property
    def flow(self) -> FlowLimits:
        """Constants of flow control."""

    @property
    def refuse(self) -> RecordRefusal:
        """Records a refused connection or request."""

    def admits(self, call: Call) -> bool:
        """Whether a call has a credential that it needs. Decided by its head alone."""

    def opened(self, connection: Connection) -> None:
        """Add a connection that was made."""

    def lost(self, connection: Connection) -> None:
        """Remove a closed connection, and end its calls later."""

    def open(self, call: Call) -> Coroutine[Any, Any, None]:
        """Add a call; returns the coroutine that handles it."""

    def ended(self, call: Call) -> None:
        """Remove a call that has ended, with all its tasks. Harmless when repeated."""


class Connection(asyncio.Protocol):
    """A connection and the calls on it."""

    __slots__ = (
        "_abuse", "_http2", "_is_admitted", "_is_established", "_is_open", "_is_receiving", "_open_calls", "_owner",
        "_slow", "_transport", "calls_started", "certificate", "is_active", "is_paused", "number", "peer", "read_since",
        "source",
    )  # fmt: skip

    def __init__(self, owner: ConnectionOwner) -> None:
        self.number = 0
        self.peer = ""
        self.certificate: Certificate | None = None  # of the client, verified
        self.calls_started = 0
        self.is_paused = False
        self.is_active = True  # bytes have arrived since the last keepalive check
        self.source = ""
        self.read_since: float | None = None
        self._slow: dict[int, float] | None = None  # since when the messages of streams are known to be incomplete
        self._open_calls: tuple[int, ...] = ()  # streams with calls without a credential; some may have ended
        self._owner = owner
        self._http2 = ServerConnection(owner.limits, owner.share_table)
        self._abuse = RateLimit(owner.flow.abuse_per_s, owner.flow.abuse_burst)
        self._is_open = False
        self._is_established = False
        self._is_admitted = False
        self._is_receiving = False
        self._transport: asyncio.Transport

    @property
    def calls_open(self) -> int:
        """How many calls are open."""
        return len(self._http2.streams)

    # For the server

    def ping(self) -> None:
        """Send a keepalive ping."""
        self._http2.ping()
        self._flush()

    @property
    def is_going_away(self) -> bool:
        """Whether it accepts no more calls."""
        return self._http2.is_going_away

    def go_away(self) -> None:
        """Accept no more calls; close when the last one has ended."""
        if not self._is_established:
            if self._transport.get_extra_info("ssl_object") is not None:
                # A connection without a byte is none of a client that was refused.
                self._owner.refuse(RefusalReason.TLS, "the TLS handshake did not end in time", self.peer)
            self.abort()
            return
        self._http2.go_away()
        self._flush()

    def end_slow_messages(self, now: float) -> None:
        """End the calls whose long message has not arrived in time. Call it every few seconds."""
        flow = self._owner.flow
        long = {stream.id: stream for stream in self._http2.incomplete_messages()}
        known = self._slow or {}
        self._slow = {stream_id: known.get(stream_id, now) for stream_id in long} or None
        for stream_id, began in (self._slow or {}).items():
            stream = long[stream_id]
            if now - began > flow.message_s + stream.precredited / flow.message_bytes_per_s and stream.call is not None:
                stream.call.expire("a message of the request did not arrive in time")

    def abort(self) -> None:
        """Close at once."""
        self._transport.abort()

    def pause_reading(self) -> None:
        """Read nothing until ``resume_reading``."""
        self.read_since = None
        self._transport.pause_reading()

    def resume_reading(self) -> None:
        """Read again."""
        self.read_since = asyncio.get_running_loop().time()
        self.is_active = True
        self._resume()

    def _resume(self) -> None:
        if self._is_open and not self.is_paused and not self._http2.is_behind:
            self._transport.resume_reading()

    def _leave_throttle(self) -> None:
        """Leave the throttle: the first request was consumed, or the connection is closed."""
        if not self._is_admitted:
            self._is_admitted = True
            self._owner.throttle.release(self)

    # asyncio.Protocol

    def accepted(self, transport: asyncio.BaseTransport) -> None:
        """The socket is open. With TLS its handshake has not begun: until then nothing is sent."""
        self._transport = cast(asyncio.Transport, transport)  # uvloop's transports are not subclasses of asyncio's
        self._is_open = True
        address = transport.get_extra_info("peername")
        self.peer, self.source = intern(peer_name(address)), source_of(address)  # its streams have the name as well
        self.read_since = now = asyncio.get_running_loop().time()
        self._owner.throttle.add(self)
        self._owner.anonymous.add(self, now)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The connection is open, and with TLS its handshake is complete."""
        if not self._is_open:
            self.accepted(transport)
        self._is_established = True
        self.certificate = peer_certificate(transport.get_extra_info("ssl_object"))
        self._owner.opened(self)
        # Our SETTINGS are sent with the answer to the client's, which does not wait for ours (RFC 9113 3.4).

    def data_received(self, data: bytes) -> None:
        """Handle received bytes: some frames now, the others in later iterations of the loop."""
        if not self._is_open:
            return  # TLS passes on bytes that arrived before the connection was closed
        single = self._http2.receive_message(data)
        if single is not None:
            self.is_active = True
            stream, message = single
            if stream.call is not None:
                stream.call.on_message(False, message)
            return
        self._receive(data)
        if self._http2.is_behind:
            # A read may hold thousands of frames, and uvloop would read many times before it runs other work.
            self._transport.pause_reading()
            asyncio.get_running_loop().call_soon(self._catch_up)

    def _catch_up(self) -> None:
        """Handle more of the received bytes, after other work has had an iteration of the loop."""
        if not self._is_open:
            return
        self._receive(b"")
        if self._http2.is_behind:
            asyncio.get_running_loop().call_soon(self._catch_up)
        else:
            self._resume()

    def _receive(self, data: bytes) -> None:
        self.is_active = True
        self._is_receiving = True
        try:
            for event in self._http2.receive(data):
                _HANDLERS[type(event)](self, event)
            if self._http2.abuse_score:
                self._limit_abuse()
        except Http2Error as error:
            self._is_receiving = False
            self._fail(error)
            return
        self._is_receiving = False
        self._flush()

    def _fail(self, error: Http2Error) -> None:
        is_abuse = error.code is ErrorCode.ENHANCE_YOUR_CALM
        self._owner.refuse(RefusalReason.LIMIT if is_abuse else RefusalReason.PROTOCOL, error.message, self.peer)
        for event in error.events:
            if type(event) is StreamReset:
                self._closed(event)  # ``end_calls`` does not find its stream
        self._http2.go_away(error.code, error.message)
        self._flush()
        self._close()

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is closed."""
        self._is_open = False
        self._leave_throttle()
        self._owner.anonymous.remove(self)
        self._owner.lost(self)

    def pause_writing(self) -> None:
        """The socket's buffer is full."""
        # A client that does not read is not read either: answers to its pings would accumulate without end.
        self.is_paused = True
        self._transport.pause_reading()

    def resume_writing(self) -> None:
        """The socket's buffer has room."""
        self.is_paused = False
        self.is_active = True  # the client reads
        self._resume()
        for stream in list(self._http2.streams.values()):
            if stream.call is not None:
                stream.call.on_written()

    # For its calls

    def send_head(self, stream: Stream, metadata: Fields) -> None:
        """Send the headers of a response."""
        self._http2.send_head(stream, metadata)
        self._flush()

    def send_message(self, stream: Stream, message: bytes) -> bool:
        """Send or queue a message; False: some of it waits for the client's windows."""
        is_sent = self._http2.send_message(stream, message)
        self._flush()
        return is_sent

    def send_now(self, stream: Stream, message: bytes) -> bool:
        """Send a message if the client's windows and the socket take it at once; False: nothing was sent."""
        if self.is_paused:
            return False
        framed = self._http2.take_frames(stream, message) if self._is_open and not self._is_receiving else None
        if framed is not None:
            self._transport.write(framed)
            return True
        if not self._http2.send_now(stream, message):
            return False
        self._flush()
        return True

    def end(self, stream: Stream, status: int, details: str, metadata: Fields) -> None:
        """Send the final status, behind all queued messages; nothing if the stream was reset."""
        if stream.id in self._http2.streams:
            self._http2.end(stream, status, details, metadata)
            stream.call = (
                None  # stream and call refer to each other: without this, only the cyclic collector frees them
            )
            self._flush()

    def consumed(self, stream: Stream) -> None:
        """Note that a message of the stream was consumed: the client may send more."""
        if not self._is_admitted:
            self._leave_throttle()
        if self._http2.consumed(stream):
            self._flush()

    def ended(self, call: Call) -> None:
        """Note that a call has ended, with all its tasks."""
        self._owner.ended(call)

    def _flush(self) -> None:
        if self._is_receiving:
            return  # `_receive` flushes: one write for all responses to the received bytes
        out = self._http2.outgoing()
        if out and self._is_open:
            if len(out) == 1:
                self._transport.write(out[0])
            else:
                self._transport.writelines(out)
        if self._http2.is_going_away and not self._http2.streams:
            self._close()

    def _close(self) -> None:
        """Close after everything is written."""
        if self._is_open:
            self._is_open = False
            self._transport.close()
            self.end_calls()

    def end_calls(self) -> None:
        """End all calls: the client has left."""
        for stream in list(self._http2.streams.values()):
            self._closed(StreamReset(stream, ErrorCode.CANCEL))
        self._http2.streams.clear()

    def _limit_abuse(self) -> None:
        score, self._http2.abuse_score = self._http2.abuse_score, 0
        if self._abuse.reserve(asyncio.get_running_loop().time(), score):
            raise Http2Error(ErrorCode.ENHANCE_YOUR_CALM, "too many frames that advance no call")

    # Events

    def _opened(self, event: RequestReceived) -> None:
        stream, head = event
        if head.method != "POST":
            self._refuse(stream, HTTPStatus.METHOD_NOT_ALLOWED, f"a {head.method[:20]} request, not a gRPC call")
        elif not _is_grpc(head.content_type):
            self._refuse(stream, HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "the content type is not that of gRPC")
        else:
            self.calls_started += 1
            stream.call = call = Call(self, stream, head)
            if self._owner.admits(call):
                self._trust()
            elif not self._has_room(stream, head.path):
                call.finish(grpc.StatusCode.RESOURCE_EXHAUSTED, "too many calls without a credential")
                return
            call.begin(self._owner.open(call), head.timeout_s)

    def _refuse(self, stream: Stream, status: HTTPStatus, message: str) -> None:
        self._owner.refuse(RefusalReason.PROTOCOL, message, self.peer)
        self._http2.refuse(stream, status.value)

    def _trust(self) -> None:
        """A call has the credential that it needs: the connection is not anonymous any more."""
        if not self._http2.is_trusted:
            self._owner.anonymous.remove(self)
            for event in self._http2.trust():
                _HANDLERS[type(event)](self, event)

    def _has_room(self, stream: Stream, path: str) -> bool:
        """Count an open call without a credential; False if there are too many of them."""
        limits = self._owner.anonymous.limits
        most = limits.calls if path.startswith(self._owner.limits.small_paths) else limits.refused_calls
        if len(self._open_calls) >= most:
            self._open_calls = tuple(each for each in self._open_calls if each in self._http2.streams)
        has_room = len(self._open_calls) < most
        if has_room:
            self._open_calls += (stream.id,)
        return has_room

    def _message(self, event: MessageReceived) -> None:
        if self._slow:
            self._slow.pop(event.stream.id, None)
        if event.stream.call is not None:
            event.stream.call.on_message(*event.message)

    def _half_closed(self, event: StreamEnded) -> None:
        if event.stream.call is not None:
            event.stream.call.half_close()

    def _broken(self, event: MalformedMessage) -> None:
        self._owner.refuse(RefusalReason.REQUEST, str(event.error), self.peer)
        if event.stream.call is not None:
            event.stream.call.fail(event.error)

    def _closed(self, event: StreamReset) -> None:
        call, event.stream.call = event.stream.call, None
        if call is not None:
            call.cancel()

    def _written(self, event: WriteDrained) -> None:
        if event.stream.call is not None:
            event.stream.call.on_written()


def _is_grpc(content_type: str) -> bool:
    """Whether a content type is that of gRPC, with or without a message encoding. gRPC-Web is not."""
    return content_type == CONTENT_TYPE or content_type.startswith((f"{CONTENT_TYPE}+", f"{CONTENT_TYPE};"))


_HANDLERS: dict[type, Callable[[Connection, Any], None]] = {
    RequestReceived: Connection._opened,
    MessageReceived: Connection._message,
    StreamEnded: Connection._half_closed,
    MalformedMessage: Connection._broken,
    StreamReset: Connection._closed,
    WriteDrained: Connection._written,
}
