"""One connection of a client: the asyncio shell around `ServerConnection`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from http import HTTPStatus
from typing import Any, Protocol, cast

from xds.control.certificate import Certificate
from xds.http2.connection import Limits, ServerConnection
from xds.http2.events import Broken, Closed, HalfClosed, Message, Opened, Stream, Written
from xds.http2.frames import ErrorCode, Http2Error
from xds.http2.headers import CONTENT_TYPE, Fields
from xds.server.connections import peer_certificate, peer_name
from xds.server.logs import get_logger
from xds.server.rate import RateLimit
from xds.server.rpc.call import Call
from xds.server.rpc.doorway import Doorway

# Pings, resets and the like of one client. Thousands of streams may come and go at once, a client that measures the
# line pings with each round trip; one that opens and resets streams without end (CVE-2023-44487) is sent away.
NOISE_PER_S, NOISE_BURST = 1_000.0, 20_000.0
_log = get_logger("xds.server.rpc")


class Host(Protocol):
    """The server of a connection, as the connection uses it."""

    @property
    def limits(self) -> Limits: ...
    @property
    def doorway(self) -> Doorway: ...
    def joined(self, connection: Connection) -> None: ...
    def left(self, connection: Connection) -> None: ...
    def start(self, call: Call) -> asyncio.Task[None]: ...


class Connection(asyncio.Protocol):
    """A connection and the calls on it."""

    def __init__(self, host: Host) -> None:
        self.number = 0
        self.peer = ""
        self.certificate: Certificate | None = None  # of the client, verified
        self.calls_started = 0
        self.is_paused = False
        self.is_heard = True  # something came since the server looked last
        self._host = host
        self._http2 = ServerConnection(host.limits)
        self._patience = RateLimit(NOISE_PER_S, NOISE_BURST)
        self._is_open = False
        self._is_greeted = False
        self._is_receiving = False
        self._transport: asyncio.Transport

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
        self._transport.abort()

    def wait_outside(self) -> None:
        """Read nothing yet."""
        self._transport.pause_reading()

    def come_in(self) -> None:
        """Read."""
        self.is_heard = True
        self._read_on()

    def _read_on(self) -> None:
        if self._is_open and not self.is_paused and not self._http2.is_behind:
            self._transport.resume_reading()

    def _be_greeted(self) -> None:
        """Its first request is taken up, or it is gone: somebody else may come in."""
        if not self._is_greeted:
            self._is_greeted = True
            self._host.doorway.leave(self)

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's transports are no subclasses of asyncio's
        self._is_open = True
        self.peer = peer_name(transport.get_extra_info("peername"))
        self.certificate = peer_certificate(transport.get_extra_info("ssl_object"))
        self._host.joined(self)
        self._host.doorway.enter(self)
        # Our SETTINGS go out with the answer to the client's, which it sends without waiting (RFC 9113 3.4).

    def data_received(self, data: bytes) -> None:
        if not self._is_open:
            return  # TLS hands over what came before the end
        self._receive(data)
        if self._http2.is_behind:
            # A read may hold thousands of frames; uvloop would read many times before anybody else has a turn.
            self._transport.pause_reading()
            asyncio.get_running_loop().call_soon(self._catch_up)

    def _catch_up(self) -> None:
        """Go on with what was read; others have had an iteration of the loop."""
        if not self._is_open:
            return
        self._receive(b"")
        if self._http2.is_behind:
            asyncio.get_running_loop().call_soon(self._catch_up)
        else:
            self._read_on()

    def _receive(self, data: bytes) -> None:
        self.is_heard = True
        self._is_receiving = True
        try:
            for event in self._http2.receive(data):
                _HANDLERS[type(event)](self, event)
            if self._http2.noise:
                self._bear_noise()
        except Http2Error as error:
            self._is_receiving = False
            self._fail(error)
            return
        self._is_receiving = False
        self._flush()

    def _fail(self, error: Http2Error) -> None:
        _log.info("rpc.connection_failed", peer=self.peer, error_message=str(error))
        for event in error.events:
            if type(event) is Closed:
                self._closed(event)  # it is in no list of streams any more
        self._http2.go_away(error.code, error.message)
        self._flush()
        self._close()

    def connection_lost(self, exc: Exception | None) -> None:
        self._is_open = False
        self._be_greeted()
        self._host.left(self)

    def pause_writing(self) -> None:
        # A client that does not read is not read either: answers to its pings would pile up without end.
        self.is_paused = True
        self._transport.pause_reading()

    def resume_writing(self) -> None:
        self.is_paused = False
        self.is_heard = True  # it takes what it is sent
        self._read_on()
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

    def send_now(self, stream: Stream, message: bytes) -> bool:
        """Send a message if the client's windows and the socket take it at once; False: nothing was sent."""
        if self.is_paused or not self._http2.send_now(stream, message):
            return False
        self._flush()
        return True

    def end(self, stream: Stream, status: int, details: str, metadata: Fields) -> None:
        if stream.id in self._http2.streams:
            self._http2.end(stream, status, details, metadata)
            stream.call = None  # they refer to each other, and would wait for the collector
            self._flush()

    def taken(self, stream: Stream) -> None:
        self._be_greeted()
        self._http2.taken(stream)
        self._flush()

    def _flush(self) -> None:
        if self._is_receiving:
            return  # one write for all that comes of what was received
        out = self._http2.outgoing()
        if out and self._is_open:
            if len(out) == 1:
                self._transport.write(out[0])
            else:
                self._transport.writelines(out)
        if self._http2.is_going_away and not self._http2.streams:
            self._close()

    def _close(self) -> None:
        """Close when what was written is through."""
        if self._is_open:
            self._is_open = False
            self._transport.close()
            self.leave_calls()

    def leave_calls(self) -> None:
        """End its calls: the client is gone."""
        for stream in list(self._http2.streams.values()):
            self._closed(Closed(stream, ErrorCode.CANCEL))
        self._http2.streams.clear()

    def _bear_noise(self) -> None:
        noise, self._http2.noise = self._http2.noise, 0
        if self._patience.take(asyncio.get_running_loop().time(), noise):
            raise Http2Error(ErrorCode.ENHANCE_YOUR_CALM, "too many frames that serve no call")

    # Events

    def _opened(self, event: Opened) -> None:
        stream, head = event
        if head.method != "POST":
            self._http2.refuse(stream, HTTPStatus.METHOD_NOT_ALLOWED.value)
        elif not _is_grpc(head.content_type):
            self._http2.refuse(stream, HTTPStatus.UNSUPPORTED_MEDIA_TYPE.value)
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
        call, event.stream.call = event.stream.call, None
        if call is not None:
            call.cancel()

    def _written(self, event: Written) -> None:
        if event.stream.call is not None:
            event.stream.call.write_on()


def _is_grpc(content_type: str) -> bool:
    """It may name the encoding of messages; gRPC-Web is something else."""
    return content_type == CONTENT_TYPE or content_type.startswith((f"{CONTENT_TYPE}+", f"{CONTENT_TYPE};"))


_HANDLERS: dict[type, Callable[[Connection, Any], None]] = {
    Opened: Connection._opened,
    Message: Connection._message,
    HalfClosed: Connection._half_closed,
    Broken: Connection._broken,
    Closed: Connection._closed,
    Written: Connection._written,
}
