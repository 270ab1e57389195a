"""The server's half of one HTTP/2 connection that carries gRPC: bytes in, events and bytes out.

The messages of a stream are put together here, so that an ACK is one event. While a message waits to be taken
(`ServerConnection.taken`) its stream's window stays as it is: what a client sends beyond it waits with the client.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import NamedTuple

from hpack import Decoder

from xds.http2 import frames, headers
from xds.http2.blocks import HEADER_BLOCK_LIMIT, HeaderBlock
from xds.http2.events import STREAM_WINDOW, Broken, Closed, Event, HalfClosed, Message, Opened, Stream
from xds.http2.frames import (
    ACK,
    CONTINUATION,
    DATA,
    DEFAULT_MAX_FRAME,
    DEFAULT_WINDOW,
    END_STREAM,
    FRAME_HEADER_BYTES,
    HEADER,
    HEADERS,
    MAX_WINDOW,
    NUMBER,
    PADDED,
    SETTING,
    UNRESERVED,
    WINDOW_UPDATE,
    ErrorCode,
    Http2Error,
    StreamError,
    frame,
)
from xds.http2.gaps import Gaps
from xds.http2.messages import MessageError
from xds.http2.sender import UPDATES, Sender

CONNECTION_WINDOW = 1 << 20  # what waits to be read, over all its streams
LENT_LIMIT = 8  # messages of the largest size that nobody has taken yet, over all streams
_WINDOW_UPDATE_HEAD = NUMBER.size << 8 | WINDOW_UPDATE  # length and type, as `HEADER` has them
FRAMES_AT_ONCE = 500  # that `receive` reads: some milliseconds, of whatever kind they are
_BUSY = frozenset({DATA, HEADERS, WINDOW_UPDATE})  # what calls are made of: is noise for cause only
_STREAMS_PER_NOISE = 64  # that a change of the initial window goes through in the time of another frame


class Limits(NamedTuple):
    """What a client may ask for: streams at a time, bytes of one message."""

    streams: int = 100_000
    message_bytes: int = 4 << 20


DEFAULT_LIMITS = Limits()


class ServerConnection:
    """One connection. ``receive`` what comes in; write what ``outgoing`` returns.

    ``noise`` counts what came and brought no call further: pings, settings, resets, frames without content or for
    streams that are over, windows that grow although little was sent, faults. An honest client makes little of it;
    whoever owns the connection bounds it.

    ``is_behind``: more has come than was read at once; ``receive`` again, with nothing if nothing has come.
    """

    __slots__ = (
        "_block", "_decoder", "_gaps", "_last_id", "_lent", "_limits", "_owed", "_partial", "_seen_id", "_sender",
        "_settled", "_window", "is_behind", "is_going_away", "noise", "streams",
    )  # fmt: skip

    def __init__(self, limits: Limits = DEFAULT_LIMITS) -> None:
        self.streams: dict[int, Stream] = {}
        self.is_behind = False
        self.is_going_away = False
        self.noise = 0
        self._limits = limits
        self._sender = Sender(self.streams)
        self._decoder = Decoder(HEADER_BLOCK_LIMIT)
        self._window = CONNECTION_WINDOW
        self._owed = 0  # received, and not given back to the connection's window
        self._partial = b""
        self._lent = 0  # over all streams
        self._last_id = 0  # taken up
        self._seen_id = 0  # opened by the client
        self._gaps = Gaps()
        self._settled: bool | None = None  # None: before the preface; True: the peer's SETTINGS are known
        self._block: HeaderBlock | None = None  # one that is not whole yet
        settings = ((frames.MAX_CONCURRENT_STREAMS, limits.streams), (frames.MAX_HEADER_LIST_SIZE, HEADER_BLOCK_LIMIT))
        self._sender.out += (
            frame(frames.SETTINGS, 0, 0, b"".join(SETTING.pack(*each) for each in settings)),
            frame(WINDOW_UPDATE, 0, 0, NUMBER.pack(CONNECTION_WINDOW - DEFAULT_WINDOW)),
        )

    # Sending

    def outgoing(self) -> list[bytes | memoryview]:
        """Take the bytes that are to be written."""
        out, self._sender.out = self._sender.out, []
        return out

    def send_head(self, stream: Stream, metadata: headers.Fields = ()) -> None:
        """The head of a response, before its first message."""
        self._sender.head(stream, metadata)

    def send_message(self, stream: Stream, message: bytes) -> bool:
        """Send a message; True when all of it is on its way, else `Written` tells when it is."""
        return self._sender.message(stream, message)

    def send_now(self, stream: Stream, message: bytes) -> bool:
        """Send a message that fits a frame and the peer's windows; False: nothing was sent."""
        return self._sender.message_now(stream, message)

    def end(self, stream: Stream, status: int, message: str = "", metadata: headers.Fields = ()) -> None:
        """End the call, once all that was sent before is through."""
        self._hear_no_more(stream)
        self._sender.last(stream, headers.trailers(status, message, metadata, only=not stream.head_sent))

    def refuse(self, stream: Stream, http_status: int) -> None:
        """End a stream that is no call of gRPC's."""
        self._hear_no_more(stream)
        self._sender.last(stream, headers.encode(((":status", str(http_status)),)))

    def reset(self, stream: Stream, code: ErrorCode) -> None:
        """End a stream at once; what waits on it is dropped."""
        if self._forget(stream):
            self._sender.reset(stream.id, code)

    def ping(self) -> None:
        """Ask whether the peer lives."""
        self._sender.out.append(frame(frames.PING, 0, 0, bytes(8)))

    def go_away(self, code: ErrorCode = ErrorCode.NO_ERROR, reason: str = "") -> None:
        """No more streams are taken; those that are open go on."""
        if not self.is_going_away or code:
            payload = frames.LAST_AND_CODE.pack(self._last_id, code) + reason.encode()
            self._sender.out.append(frame(frames.GOAWAY, 0, 0, payload))
        self.is_going_away = True

    def taken(self, stream: Stream) -> None:
        """A message of the stream was taken: when it was the last that waits, more may come."""
        stream.unread -= 1
        if not stream.unread:
            if stream.lent:
                self._lent -= stream.lent
                stream.lent = 0
            self._give_back(stream)

    def _hear_no_more(self, stream: Stream) -> None:
        stream.is_over = True
        self._release(stream)

    def _release(self, stream: Stream) -> None:
        """What came on it, read or not, holds up the other streams no longer."""
        self._lent -= stream.lent
        owed, stream.owed, stream.lent = stream.owed, 0, 0
        self._return_to_connection(owed)

    def _forget(self, stream: Stream) -> bool:
        self._sender.drop(stream)
        self._release(stream)
        return self.streams.pop(stream.id, None) is not None

    def _give_back(self, stream: Stream) -> None:
        """Let the client send as much again as was read."""
        if not stream.half_closed and stream.window * 2 <= STREAM_WINDOW and stream.id in self.streams:
            grown = STREAM_WINDOW - stream.window
            self._sender.out.append(frame(WINDOW_UPDATE, 0, stream.id, NUMBER.pack(grown)))
            stream.window = STREAM_WINDOW
        owed, stream.owed = stream.owed, 0
        self._return_to_connection(owed)

    def _return_to_connection(self, size: int) -> None:
        self._owed += size
        if self._owed and (self._owed * 2 >= CONNECTION_WINDOW or self._window * 4 <= CONNECTION_WINDOW):
            self._sender.out.append(frame(WINDOW_UPDATE, 0, 0, NUMBER.pack(self._owed)))
            self._window += self._owed
            self._owed = 0

    # Receiving

    def receive(self, data: bytes) -> list[Event]:
        """What these bytes, cut anywhere, bring. Raises ``Http2Error``: `go_away` with its code is all that is left."""
        if self._partial:
            data, self._partial = self._partial + data, b""
            self.is_behind = False
        at, end = 0, len(data)
        if self._settled is None:
            at = self._take_preface(data)
            if not at:
                self._partial = data
                return []
        events: list[Event] = []
        left = FRAMES_AT_ONCE
        try:
            while end - at >= FRAME_HEADER_BYTES and left:
                length_and_kind, flags, stream_id = HEADER.unpack_from(data, at)
                start = at + FRAME_HEADER_BYTES
                behind = start + (length_and_kind >> 8)
                if behind - start > DEFAULT_MAX_FRAME:
                    raise Http2Error(ErrorCode.FRAME_SIZE_ERROR, f"a frame of {behind - start} bytes")
                if behind > end:
                    break
                at = behind
                left -= 1
                stream_id &= UNRESERVED
                if length_and_kind == _WINDOW_UPDATE_HEAD and self._settled and self._block is None:
                    # Two of these come with every message.
                    self._window_update(events, stream_id, NUMBER.unpack_from(data, start)[0] & UNRESERVED)
                elif length_and_kind & 0xFF == DATA and not flags & PADDED and self._settled and self._block is None:
                    self._data(events, stream_id, flags, behind - start, data, start, behind)
                else:
                    self._handle(events, length_and_kind & 0xFF, flags, stream_id, data[start:behind])
        except Http2Error as error:
            error.events = events
            raise
        if at < end:
            self._partial = data[at:]
            self.is_behind = not left
        return events

    def _take_preface(self, data: bytes) -> int:
        if data[: len(frames.PREFACE)] != frames.PREFACE[: len(data)]:
            raise Http2Error(ErrorCode.PROTOCOL_ERROR, "this is no HTTP/2")
        if len(data) < len(frames.PREFACE):
            return 0
        self._settled = False
        return len(frames.PREFACE)

    def _handle(self, events: list[Event], kind: int, flags: int, stream_id: int, payload: bytes) -> None:
        if not self._settled and kind != frames.SETTINGS:
            raise Http2Error(ErrorCode.PROTOCOL_ERROR, "SETTINGS must come first")
        if (kind == CONTINUATION) != (self._block is not None):
            raise Http2Error(ErrorCode.PROTOCOL_ERROR, f"frame type {kind} amid, or without, a header block")
        if kind not in _BUSY:
            self.noise += 1
        handle = _HANDLERS.get(kind)
        if handle is None:
            return  # RFC 9113 4.1: "Implementations MUST ignore and discard frames of unknown types."
        try:
            handle(self, events, flags, stream_id, payload)
        except struct.error as error:
            raise Http2Error(ErrorCode.FRAME_SIZE_ERROR, f"frame type {kind} with {len(payload)} bytes") from error

    # Data

    def _data(
        self, events: list[Event], stream_id: int, flags: int, size: int, data: bytes, start: int, end: int
    ) -> None:
        """``size`` counts for the windows, ``data[start:end]`` is what the frame says."""
        self._window -= size
        if self._window < 0:
            raise Http2Error(ErrorCode.FLOW_CONTROL_ERROR, "more data than the connection's window allows")
        stream = self.streams.get(stream_id)
        if stream is None:
            self._check_known(stream_id)  # else it has ended here, and the client could not know
            self.noise += 1
            self._return_to_connection(size)
            return
        stream.window -= size
        stream.owed += size
        if stream.half_closed or stream.is_over or stream.window < 0:
            self._drop_data(events, stream, flags)
            return
        if stream.announced is not None and stream.exceeds(end - start):
            self._break(events, stream, ErrorCode.PROTOCOL_ERROR)
            return
        try:
            pieces = stream.assembler.feed(data, start, end)
        except MessageError as error:
            self._hear_no_more(stream)
            stream.half_closed = bool(flags & END_STREAM)
            events.append(Broken(stream, error))
            return
        for piece in pieces:
            stream.unread += 1
            events.append(Message(stream, piece))
        if flags & END_STREAM:
            self._half_close(events, stream)
        elif start == end:
            self.noise += 1
        elif not stream.unread and (stream.window * 2 <= STREAM_WINDOW or self._window * 2 <= CONNECTION_WINDOW):
            self._make_room(events, stream)

    def _drop_data(self, events: list[Event], stream: Stream, flags: int) -> None:
        if stream.half_closed:
            self._break(events, stream, ErrorCode.STREAM_CLOSED)
        elif stream.window < 0:
            self._break(events, stream, ErrorCode.FLOW_CONTROL_ERROR)
        else:
            self.noise += 1
            self._release(stream)
            stream.half_closed = bool(flags & END_STREAM)

    def _padded_data(self, events: list[Event], flags: int, stream_id: int, payload: bytes) -> None:
        """DATA without padding does not come here: `receive` cuts no payload out of it."""
        body = frames.unpadded(payload)
        self._data(events, stream_id, flags, len(payload), body, 0, len(body))

    def _make_room(self, events: list[Event], stream: Stream) -> None:
        """Let a message come in that nobody can read before it is whole: one that is longer than its stream's window,
        or one of so many that have begun that the connection's window might do for none of them."""
        is_long = stream.assembler.missing > stream.window
        if not is_long and self._window * 2 > CONNECTION_WINDOW:
            return
        stream.lent += stream.owed
        self._lent += stream.owed
        if self._lent > LENT_LIMIT * self._limits.message_bytes:
            self._break(events, stream, ErrorCode.ENHANCE_YOUR_CALM)
        elif is_long:
            self._give_back(stream)
        else:
            owed, stream.owed = stream.owed, 0
            self._return_to_connection(owed)

    def _half_close(self, events: list[Event], stream: Stream) -> None:
        stream.half_closed = True
        if stream.is_over:
            return
        if stream.announced:
            # RFC 9113 8.1.1: the content-length must "equal the sum of the DATA frame payload lengths".
            self._break(events, stream, ErrorCode.PROTOCOL_ERROR)
        elif stream.assembler.is_amid:
            self._hear_no_more(stream)
            events.append(Broken(stream, MessageError("a message that ends too early")))
        else:
            events.append(HalfClosed(stream))

    def _break(self, events: list[Event], stream: Stream, code: ErrorCode) -> None:
        self.noise += 1
        self.reset(stream, code)
        events.append(Closed(stream, code))

    # Headers

    def _begin_block(self, events: list[Event], flags: int, stream_id: int, payload: bytes) -> None:
        self._take_block(events, HeaderBlock(flags, stream_id, payload))

    def _continue_block(self, events: list[Event], flags: int, stream_id: int, payload: bytes) -> None:
        assert self._block is not None  # `_handle` has seen to it
        self._block.extend(flags, stream_id, payload)
        self._take_block(events, self._block)

    def _take_block(self, events: list[Event], block: HeaderBlock) -> None:
        self._block = None if block.is_whole else block
        if not block.is_whole:
            return
        fields = headers.decode(self._decoder, bytes(block.data))
        stream_id, ends = block.stream_id, block.ends_stream
        if stream_id in self.streams:
            self._end_request(events, self.streams[stream_id], fields, ends)
        elif stream_id > self._seen_id:
            self._open(events, stream_id, fields, ends)
        elif stream_id in self._gaps:
            # RFC 9113 5.1.1: "an unexpected stream identifier MUST [be answered] with a connection error".
            raise Http2Error(ErrorCode.PROTOCOL_ERROR, f"stream {stream_id} was passed over")
        else:
            # It has ended here, and the client could not know.
            self._reset_unknown(stream_id, ErrorCode.STREAM_CLOSED)

    def _open(self, events: list[Event], stream_id: int, fields: list[tuple[str, str]], ends: bool) -> None:
        self._gaps.opened(self._seen_id, stream_id)
        self._seen_id = stream_id
        if self.is_going_away:
            self.noise += 1  # GOAWAY has told the client that it is not taken up
            return
        self._last_id = stream_id
        try:
            if len(self.streams) >= self._limits.streams:
                raise StreamError(ErrorCode.REFUSED_STREAM, "too many streams")
            head = headers.read_request(fields)
        except StreamError as error:
            self._reset_unknown(stream_id, error.code)
            return
        stream = Stream(stream_id, self._sender.initial_window, self._limits.message_bytes, head.content_length)
        self.streams[stream_id] = stream
        self._sender.updates_due += UPDATES
        events.append(Opened(stream, head))
        if ends:
            self._half_close(events, stream)

    def _end_request(self, events: list[Event], stream: Stream, fields: list[tuple[str, str]], ends: bool) -> None:
        """Trailers: gRPC's clients send none."""
        try:
            if stream.half_closed:
                raise StreamError(ErrorCode.STREAM_CLOSED, "headers behind the end")
            if not ends:
                raise StreamError(ErrorCode.PROTOCOL_ERROR, "trailers that do not end the stream")
            headers.check_trailers(fields)
        except StreamError as error:
            self._break(events, stream, error.code)
        else:
            self._half_close(events, stream)

    # Control

    def _priority(self, events: list[Event], flags: int, stream_id: int, payload: bytes) -> None:
        """RFC 9113 5.3.2: priorities mean nothing any more; what cannot be is still refused."""
        frames.check_stream(stream_id)
        frames.check_size(payload, frames.PRIORITY_BYTES)
        if frames.parent_of(payload) == stream_id:
            self._stream_error(events, stream_id, ErrorCode.PROTOCOL_ERROR)

    def _rst_stream(self, events: list[Event], flags: int, stream_id: int, payload: bytes) -> None:
        frames.check_stream(stream_id)
        frames.check_size(payload, NUMBER.size)
        self._check_known(stream_id)
        stream = self.streams.get(stream_id)
        if stream is not None and self._forget(stream):
            events.append(Closed(stream, NUMBER.unpack(payload)[0]))

    def _settings(self, events: list[Event], flags: int, stream_id: int, payload: bytes) -> None:
        frames.check_connection(stream_id)
        if flags & ACK:
            frames.check_size(payload, 0)
            return
        if len(payload) % SETTING.size:
            raise Http2Error(ErrorCode.FRAME_SIZE_ERROR, f"SETTINGS of {len(payload)} bytes")
        self._settled = True
        for name, value in SETTING.iter_unpack(payload):
            self._sender.set(name, value)
        # Before what the new windows let through: the client counts with them from here on.
        self._sender.out.append(frame(frames.SETTINGS, ACK, 0))
        window = dict(SETTING.iter_unpack(payload)).get(frames.INITIAL_WINDOW_SIZE)  # the last counts
        if window is not None and window != self._sender.initial_window:
            self.noise += len(self.streams) // _STREAMS_PER_NOISE
            self._sender.set_initial_window(window, events)

    def _push_promise(self, events: list[Event], flags: int, stream_id: int, payload: bytes) -> None:
        raise Http2Error(ErrorCode.PROTOCOL_ERROR, "PUSH_PROMISE of a client")

    def _ping(self, events: list[Event], flags: int, stream_id: int, payload: bytes) -> None:
        frames.check_connection(stream_id)
        frames.check_size(payload, 8)
        if not flags & ACK:
            self._sender.out.append(frame(frames.PING, ACK, 0, payload))

    def _goaway(self, events: list[Event], flags: int, stream_id: int, payload: bytes) -> None:
        """The peer opens no more streams, and closes the connection when it needs it no more."""
        frames.check_connection(stream_id)
        frames.LAST_AND_CODE.unpack_from(payload)  # or `_handle` tells that it is too short

    def _odd_window_update(self, events: list[Event], flags: int, stream_id: int, payload: bytes) -> None:
        """One of the right size does not come here: `receive` reads it in place."""
        frames.check_size(payload, NUMBER.size)

    def _window_update(self, events: list[Event], stream_id: int, size: int) -> None:
        if self._sender.updates_due:
            self._sender.updates_due -= 1
        else:
            self.noise += 1
        if not stream_id:
            if not size:
                raise Http2Error(ErrorCode.PROTOCOL_ERROR, "a window that grows by nothing")
            self._sender.grow(size, events)
            return
        stream = self.streams.get(stream_id)
        if stream is None:
            self._check_known(stream_id)
        elif not size:
            self._break(events, stream, ErrorCode.PROTOCOL_ERROR)
        elif stream.send_window + size > MAX_WINDOW:
            self._break(events, stream, ErrorCode.FLOW_CONTROL_ERROR)
        else:
            self._sender.grow_stream(stream, size, events)

    def _check_known(self, stream_id: int) -> None:
        if stream_id > self._seen_id or not stream_id % 2:
            raise Http2Error(ErrorCode.PROTOCOL_ERROR, f"stream {stream_id} was never opened")

    def _stream_error(self, events: list[Event], stream_id: int, code: ErrorCode) -> None:
        stream = self.streams.get(stream_id)
        if stream is not None:
            self._break(events, stream, code)
        else:
            self._reset_unknown(stream_id, code)

    def _reset_unknown(self, stream_id: int, code: ErrorCode) -> None:
        self.noise += 1
        self._sender.reset(stream_id, code)


_Handler = Callable[[ServerConnection, list[Event], int, int, bytes], None]
_HANDLERS: dict[int, _Handler] = {
    DATA: ServerConnection._padded_data,
    HEADERS: ServerConnection._begin_block,
    frames.PRIORITY: ServerConnection._priority,
    frames.RST_STREAM: ServerConnection._rst_stream,
    frames.SETTINGS: ServerConnection._settings,
    frames.PUSH_PROMISE: ServerConnection._push_promise,
    frames.PING: ServerConnection._ping,
    frames.GOAWAY: ServerConnection._goaway,
    WINDOW_UPDATE: ServerConnection._odd_window_update,
    CONTINUATION: ServerConnection._continue_block,
}
