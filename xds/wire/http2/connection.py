"""One idea: the server side of one HTTP/2 connection that carries gRPC, bytes in, events and bytes out.

Messages are assembled here, so that an ACK is one event. While a message is not consumed (`ServerConnection.consumed`),
the window of its stream is not extended, so the client must wait before it sends more.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable

from xds.wire.http2 import frames, headers
from xds.wire.http2.frames import (
    DATA,
    END_STREAM,
    FRAME_HEADER_BYTES,
    HEADER,
    MAX_WINDOW,
    NUMBER,
    PADDED,
    UNRESERVED,
    WINDOW_UPDATE,
    ErrorCode,
    Http2Error,
    frame,
)
from xds.wire.http2.headers import EMPTY_TABLE, HEADER_BLOCK_LIMIT, HeaderBlock, ShareTable, keep_table
from xds.wire.http2.messages import FRAMED_MESSAGE, PREFIX_BYTES, MessageError
from xds.wire.http2.receive_window import PRECREDIT_MESSAGES, ReceiveWindow
from xds.wire.http2.sender import UPDATES, Sender
from xds.wire.http2.stream import (
    DEFAULT_LIMITS,
    STREAM_WINDOW,
    TRUSTED_WINDOW,
    Http2Event,
    Http2Limits,
    MalformedMessage,
    MessageReceived,
    RequestReceived,
    SkippedStreamIds,
    Stream,
    StreamEnded,
    StreamReset,
)

_WINDOW_UPDATE_HEAD = NUMBER.size << 8 | WINDOW_UPDATE  # length and type, as `HEADER` has them
# Frames that advance calls. The other types always raise the abuse score, these only when they are useless.
_CALL_FRAMES = frozenset({DATA, frames.HEADERS, WINDOW_UPDATE})
_STREAMS_PER_ABUSE = 64  # a change of the initial window takes as long for 64 streams as any other frame


class ServerConnection:
    """One connection. Pass received bytes to ``receive``; write what ``outgoing`` returns.

    ``abuse_score`` counts frames that advance no call: pings, settings, resets, frames without content or for closed
    streams, more window updates than sent data explains, errors. A well-behaved client sends few of them; the owner of
    the connection limits them.

    ``share_table`` returns a header table that other connections have, if it can.
    ``is_behind``: more frames have arrived than are handled at once. Call ``receive`` again, with or without bytes.
    """

    __slots__ = (
        "_block", "_has_settings", "_highest_id", "_last_id", "_limits", "_openings_remaining", "_partial", "_sender",
        "_share_table", "_skipped", "_table", "_window", "abuse_score", "is_behind", "is_going_away", "is_trusted",
        "streams",
    )  # fmt: skip

    def __init__(self, limits: Http2Limits = DEFAULT_LIMITS, share_table: ShareTable = keep_table) -> None:
        self.streams: dict[int, Stream] = {}
        self.is_trusted = False
        self.is_behind = False
        self.is_going_away = False
        self.abuse_score = 0
        self._limits = limits
        self._sender = Sender(self.streams)
        self._share_table = share_table
        self._table = EMPTY_TABLE  # of the request headers
        self._window = ReceiveWindow(self._sender)
        self._partial = b""
        self._last_id = 0  # the last stream that was accepted
        self._highest_id = 0  # the last stream that the client opened
        self._openings_remaining = 0  # streams that may still be opened in this call of `receive`
        self._skipped = SkippedStreamIds()
        self._has_settings: bool | None = None  # None before the preface, True after the first SETTINGS of the peer
        self._block: HeaderBlock | None = None  # the incomplete header block, if any
        settings = ((frames.MAX_CONCURRENT_STREAMS, limits.streams), (frames.MAX_HEADER_LIST_SIZE, HEADER_BLOCK_LIMIT))
        self._sender.out.append(frame(frames.SETTINGS, 0, 0, b"".join(frames.SETTING.pack(*each) for each in settings)))

    def incomplete_messages(self) -> Iterable[Stream]:
        """The streams with an incomplete message that is longer than the windows."""
        streams = self.streams.values() if self._window.precredited else ()
        return [each for each in streams if each.precredited and each.assembler.is_incomplete]

    def trust(self) -> list[Http2Event]:
        """Let the client send long messages: more than 64 KiB before something of it is consumed. Call it once."""
        events: list[Http2Event] = []
        self.is_trusted = True
        self._window.widen()
        for stream in [each for each in self.streams.values() if each.is_waiting]:
            self._credit_early(events, stream)
        return events

    # Sending

    def outgoing(self) -> list[bytes | memoryview]:
        """Return the bytes to write, and remove them."""
        out, self._sender.out = self._sender.out, []
        return out

    def send_head(self, stream: Stream, metadata: headers.Fields = ()) -> None:
        """Send the headers of a response, before its first message."""
        self._sender.send_head(stream, metadata)

    def send_message(self, stream: Stream, message: bytes) -> bool:
        """Send a message. True if all of it is in ``outgoing``; otherwise `WriteDrained` follows when it is."""
        return self._sender.send_message(stream, message)

    def send_now(self, stream: Stream, message: bytes) -> bool:
        """Send a message if the peer's windows have room for all of it; False: nothing was sent."""
        return self._sender.send_now(stream, message)

    def take_frames(self, stream: Stream, message: bytes) -> bytes | None:
        """As `send_now`, but return the bytes, for the caller to write at once. None: use the other methods."""
        sender = self._sender
        return sender.take_frames(stream, message) if stream.head_sent and not sender.out else None

    def end(self, stream: Stream, status: int, message: str = "", metadata: headers.Fields = ()) -> None:
        """End the call after everything that was sent before."""
        self._stop_receiving(stream)
        self._sender.end_stream(stream, headers.trailers(status, message, metadata, only=not stream.head_sent))

    def refuse(self, stream: Stream, http_status: int) -> None:
        """Answer a stream that is not a gRPC call with an HTTP status, and end it."""
        self._stop_receiving(stream)
        self._sender.end_stream(stream, headers.encode(((":status", str(http_status)),)))

    def reset(self, stream: Stream, code: ErrorCode) -> None:
        """End a stream at once; its queued data is dropped."""
        if self._forget(stream):
            self._sender.send_reset(stream.id, code)

    def ping(self) -> None:
        """Send a PING."""
        self._sender.out.append(frame(frames.PING, 0, 0, bytes(8)))

    def go_away(self, code: ErrorCode = ErrorCode.NO_ERROR, reason: str = "") -> None:
        """Accept no more streams; those that are open continue."""
        if not self.is_going_away or code:
            payload = frames.LAST_AND_CODE.pack(self._last_id, code) + reason.encode()
            self._sender.out.append(frame(frames.GOAWAY, 0, 0, payload))
        self.is_going_away = True

    def consumed(self, stream: Stream) -> bool:
        """Note that a message of the stream was consumed. After the last one the client may send more.

        True if there is something in ``outgoing``.
        """
        stream.unread -= 1
        if not stream.unread:
            if stream.precredited:
                self._window.precredited -= stream.precredited
                stream.precredited = 0
            self._credit_stream(stream)
        return bool(self._sender.out)

    def _stop_receiving(self, stream: Stream) -> None:
        stream.discards_data = True
        self._release(stream)

    def _release(self, stream: Stream) -> None:
        """Return the bytes received on the stream, consumed or not, to the connection's window."""
        self._window.precredited -= stream.precredited
        uncredited, stream.uncredited, stream.precredited = stream.uncredited, 0, 0
        self._window.credit(uncredited)

    def _forget(self, stream: Stream) -> bool:
        self._sender.drop(stream)
        self._release(stream)
        return self.streams.pop(stream.id, None) is not None

    def _credit_stream(self, stream: Stream) -> None:
        """Extend the stream's window by the consumed bytes."""
        if not stream.half_closed and stream.window * 2 <= STREAM_WINDOW and stream.id in self.streams:
            # By small steps within a long message: its time grows with them.
            size = TRUSTED_WINDOW if self.is_trusted and not stream.precredited else STREAM_WINDOW
            self._sender.out.append(frame(WINDOW_UPDATE, 0, stream.id, NUMBER.pack(size - stream.window)))
            stream.window = size
        uncredited, stream.uncredited = stream.uncredited, 0
        self._window.credit(uncredited)

    # Receiving

    def receive_message(self, data: bytes) -> tuple[Stream, bytes] | None:
        """The message of received bytes that are one frame with one whole message, as those of most ACKs.

        None for all others: pass these bytes to `receive`, which has the same effect.
        """
        if self._partial or self._block is not None or len(data) < FRAMED_MESSAGE.size:
            return None
        length_and_kind, flags, stream_id, compressed, size = FRAMED_MESSAGE.unpack_from(data)
        framed = size + PREFIX_BYTES
        if length_and_kind != framed << 8 | DATA or flags or compressed or size != len(data) - FRAMED_MESSAGE.size:
            return None
        stream, window = self.streams.get(stream_id), self._window
        if stream is None or not stream.takes_message(size) or framed > stream.window or framed > window.remaining:
            return None
        if framed > frames.DEFAULT_MAX_FRAME:
            return None
        window.remaining -= framed
        stream.window -= framed
        stream.uncredited += framed
        stream.unread += 1
        return stream, data[FRAMED_MESSAGE.size :]

    def receive(self, data: bytes) -> list[Http2Event]:
        """The events of received bytes, which may end within a frame. Raises ``Http2Error``: `go_away`, then close."""
        if self._partial:
            data, self._partial = self._partial + data, b""
            self.is_behind = False
        at, end = 0, len(data)
        if self._has_settings is None:
            at = self._read_preface(data)
            if not at:
                self._partial = data
                return []
        events: list[Http2Event] = []
        remaining = self._limits.frames_at_once
        self._openings_remaining = self._limits.streams_at_once
        try:
            while end - at >= FRAME_HEADER_BYTES and remaining and self._openings_remaining:
                length_and_kind, flags, stream_id = HEADER.unpack_from(data, at)
                start = at + FRAME_HEADER_BYTES
                after = start + (length_and_kind >> 8)
                if after - start > frames.DEFAULT_MAX_FRAME:
                    raise Http2Error(ErrorCode.FRAME_SIZE_ERROR, f"a frame of {after - start} bytes")
                if after > end:
                    break
                at = after
                remaining -= 1
                stream_id &= UNRESERVED
                if length_and_kind == _WINDOW_UPDATE_HEAD and self._has_settings and self._block is None:
                    # Two of these arrive with every message.
                    self._window_update(events, stream_id, NUMBER.unpack_from(data, start)[0] & UNRESERVED)
                elif (
                    length_and_kind & 0xFF == DATA and not flags & PADDED and self._has_settings and self._block is None
                ):
                    self._data(events, stream_id, flags, after - start, data, start, after)
                else:
                    self._handle(events, length_and_kind & 0xFF, flags, stream_id, data[start:after])
        except Http2Error as error:
            error.events = events
            raise
        if at < end:
            self._partial = data[at:]
            self.is_behind = not remaining or not self._openings_remaining
        return events

    def _read_preface(self, data: bytes) -> int:
        if data[: len(frames.PREFACE)] != frames.PREFACE[: len(data)]:
            is_tls = data[:1] == frames.TLS_HANDSHAKE
            raise Http2Error(ErrorCode.PROTOCOL_ERROR, frames.SPEAKS_TLS if is_tls else "this is not HTTP/2")
        if len(data) < len(frames.PREFACE):
            return 0
        self._has_settings = False
        return len(frames.PREFACE)

    def _handle(self, events: list[Http2Event], kind: int, flags: int, stream_id: int, payload: bytes) -> None:
        if not self._has_settings and kind != frames.SETTINGS:
            raise Http2Error(ErrorCode.PROTOCOL_ERROR, "SETTINGS must come first")
        if (kind == frames.CONTINUATION) != (self._block is not None):
            raise Http2Error(ErrorCode.PROTOCOL_ERROR, f"frame type {kind} within, or without, a header block")
        if kind not in _CALL_FRAMES:
            self.abuse_score += 1
        handle = _HANDLERS.get(kind)
        if handle is None:
            return  # RFC 9113 4.1: "Implementations MUST ignore and discard frames of unknown types."
        try:
            handle(self, events, flags, stream_id, payload)
        except struct.error as error:
            raise Http2Error(ErrorCode.FRAME_SIZE_ERROR, f"frame type {kind} with {len(payload)} bytes") from error

    # Data

    def _data(
        self, events: list[Http2Event], stream_id: int, flags: int, size: int, data: bytes, start: int, end: int
    ) -> None:
        """``size`` counts for the windows; ``data[start:end]`` is the frame's content without padding."""
        self._window.take(size)
        stream = self.streams.get(stream_id)
        if stream is None:
            self._check_known(stream_id)  # a known stream has ended; the client did not know yet
            self.abuse_score += 1
            self._window.credit(size)
            return
        stream.window -= size
        stream.uncredited += size
        if stream.half_closed or stream.discards_data or stream.window < 0:
            self._drop_data(events, stream, flags)
            return
        if stream.content_remaining is not None and stream.exceeds(end - start):
            self._fail_stream(events, stream, ErrorCode.PROTOCOL_ERROR)
            return
        try:
            messages = stream.assembler.feed(data, start, end)
        except MessageError as error:
            self._stop_receiving(stream)
            stream.half_closed = bool(flags & END_STREAM)
            events.append(MalformedMessage(stream, error))
            return
        for message in messages:
            stream.unread += 1
            events.append(MessageReceived(stream, message))
        if flags & END_STREAM:
            self._half_close(events, stream)
        elif start == end:
            self.abuse_score += 1
        elif not stream.unread and (stream.window * 2 <= STREAM_WINDOW or self._window.is_half_used):
            self._credit_early(events, stream)

    def _drop_data(self, events: list[Http2Event], stream: Stream, flags: int) -> None:
        if stream.half_closed:
            self._fail_stream(events, stream, ErrorCode.STREAM_CLOSED)
        elif stream.window < 0:
            self._fail_stream(events, stream, ErrorCode.FLOW_CONTROL_ERROR)
        else:
            self.abuse_score += 1
            self._release(stream)
            stream.half_closed = bool(flags & END_STREAM)

    def _padded_data(self, events: list[Http2Event], flags: int, stream_id: int, payload: bytes) -> None:
        """DATA with padding. DATA without it is handled in `receive`, which does not copy the payload."""
        body = frames.unpadded(payload)
        self._data(events, stream_id, flags, len(payload), body, 0, len(body))

    def _credit_early(self, events: list[Http2Event], stream: Stream) -> None:
        """Extend windows before a message is complete: if it is longer than its stream's window, or if the connection's
        window may be too small for all incomplete messages."""
        is_long = stream.assembler.missing > stream.window
        if not self.is_trusted or not (is_long or self._window.is_half_used):
            return
        stream.precredited += stream.uncredited
        self._window.precredited += stream.uncredited
        if self._window.precredited > PRECREDIT_MESSAGES * self._limits.message_bytes:
            self._fail_stream(events, stream, ErrorCode.ENHANCE_YOUR_CALM)
        elif is_long:
            self._credit_stream(stream)
        else:
            uncredited, stream.uncredited = stream.uncredited, 0
            self._window.credit(uncredited)

    def _half_close(self, events: list[Http2Event], stream: Stream) -> None:
        stream.half_closed = True
        if stream.discards_data:
            return
        if stream.content_remaining:
            # RFC 9113 8.1.1: the content-length must "equal the sum of the DATA frame payload lengths".
            self._fail_stream(events, stream, ErrorCode.PROTOCOL_ERROR)
        elif stream.assembler.is_incomplete:
            self._stop_receiving(stream)
            events.append(MalformedMessage(stream, MessageError("an incomplete message")))
        else:
            events.append(StreamEnded(stream))

    def _fail_stream(self, events: list[Http2Event], stream: Stream, code: ErrorCode) -> None:
        self.abuse_score += 1
        self.reset(stream, code)
        events.append(StreamReset(stream, code))

    # Headers

    def _begin_block(self, events: list[Http2Event], flags: int, stream_id: int, payload: bytes) -> None:
        self._end_block(events, HeaderBlock(flags, stream_id, payload))

    def _continue_block(self, events: list[Http2Event], flags: int, stream_id: int, payload: bytes) -> None:
        assert self._block is not None  # checked by `_handle`
        self._block.extend(flags, stream_id, payload)
        self._end_block(events, self._block)

    def _end_block(self, events: list[Http2Event], block: HeaderBlock) -> None:
        self._block = None if block.is_complete else block
        if not block.is_complete:
            return
        fields, table = headers.decode(self._table, bytes(block.data))
        self._table = self._share_table(table)
        stream_id, ends = block.stream_id, block.ends_stream
        if stream_id in self.streams:
            self._end_request(events, self.streams[stream_id], fields, ends)
        elif stream_id > self._highest_id:
            self._open(events, stream_id, fields, ends)
        elif stream_id in self._skipped:
            # RFC 9113 5.1.1: "an unexpected stream identifier MUST [be answered] with a connection error".
            raise Http2Error(ErrorCode.PROTOCOL_ERROR, f"stream {stream_id} was skipped")
        else:
            # The stream has ended; the client did not know yet.
            self._reset_unknown(stream_id, ErrorCode.STREAM_CLOSED)

    def _open(self, events: list[Http2Event], stream_id: int, fields: list[tuple[str, str]], ends: bool) -> None:
        self._skipped.note_opened(self._highest_id, stream_id)
        self._highest_id = stream_id
        if self.is_going_away:
            self.abuse_score += 1  # GOAWAY has announced that new streams are not accepted
            return
        self._last_id = stream_id
        try:
            if len(self.streams) >= self._limits.streams:
                raise frames.StreamError(ErrorCode.REFUSED_STREAM, "too many streams")
            head = headers.read_request(fields)
        except frames.StreamError as error:
            self._reset_unknown(stream_id, error.code)
            return
        limit = self._limits.message_bytes_of(head.path)
        stream = Stream(stream_id, self._sender.initial_window, limit, head.content_length)
        self.streams[stream_id] = stream
        self._openings_remaining -= 1
        self._sender.expected_updates += UPDATES
        events.append(RequestReceived(stream, head))
        if ends:
            self._half_close(events, stream)

    def _end_request(self, events: list[Http2Event], stream: Stream, fields: list[tuple[str, str]], ends: bool) -> None:
        """Trailers of a request. gRPC clients send none."""
        try:
            if stream.half_closed:
                raise frames.StreamError(ErrorCode.STREAM_CLOSED, "headers after the end of the stream")
            if not ends:
                raise frames.StreamError(ErrorCode.PROTOCOL_ERROR, "trailers that do not end the stream")
            headers.check_trailers(fields)
        except frames.StreamError as error:
            self._fail_stream(events, stream, error.code)
        else:
            self._half_close(events, stream)

    # Control

    def _priority(self, events: list[Http2Event], flags: int, stream_id: int, payload: bytes) -> None:
        """RFC 9113 5.3.2: priorities are deprecated; malformed ones are still errors."""
        frames.check_stream(stream_id)
        frames.check_size(payload, frames.PRIORITY_BYTES)
        if frames.parent_of(payload) == stream_id:
            self._stream_error(events, stream_id, ErrorCode.PROTOCOL_ERROR)

    def _rst_stream(self, events: list[Http2Event], flags: int, stream_id: int, payload: bytes) -> None:
        frames.check_stream(stream_id)
        frames.check_size(payload, NUMBER.size)
        self._check_known(stream_id)
        stream = self.streams.get(stream_id)
        if stream is not None and self._forget(stream):
            events.append(StreamReset(stream, NUMBER.unpack(payload)[0]))

    def _settings(self, events: list[Http2Event], flags: int, stream_id: int, payload: bytes) -> None:
        frames.check_connection(stream_id)
        if flags & frames.ACK:
            frames.check_size(payload, 0)
            return
        if len(payload) % frames.SETTING.size:
            raise Http2Error(ErrorCode.FRAME_SIZE_ERROR, f"SETTINGS of {len(payload)} bytes")
        self._has_settings = True
        for name, value in frames.SETTING.iter_unpack(payload):
            self._sender.apply_setting(name, value)
        # The ACK precedes data that the new windows allow: the client applies its settings from the ACK on.
        self._sender.out.append(frame(frames.SETTINGS, frames.ACK, 0))
        window = dict(frames.SETTING.iter_unpack(payload)).get(frames.INITIAL_WINDOW_SIZE)  # the last value counts
        if window is not None and window != self._sender.initial_window:
            self.abuse_score += len(self.streams) // _STREAMS_PER_ABUSE
            self._sender.set_initial_window(window, events)

    def _push_promise(self, events: list[Http2Event], flags: int, stream_id: int, payload: bytes) -> None:
        raise Http2Error(ErrorCode.PROTOCOL_ERROR, "PUSH_PROMISE from a client")

    def _ping(self, events: list[Http2Event], flags: int, stream_id: int, payload: bytes) -> None:
        frames.check_connection(stream_id)
        frames.check_size(payload, 8)
        if not flags & frames.ACK:
            self._sender.out.append(frame(frames.PING, frames.ACK, 0, payload))

    def _goaway(self, events: list[Http2Event], flags: int, stream_id: int, payload: bytes) -> None:
        """The peer opens no more streams, and closes the connection itself."""
        frames.check_connection(stream_id)
        frames.LAST_AND_CODE.unpack_from(payload)  # raises ``struct.error`` for `_handle` if it is too short

    def _odd_window_update(self, events: list[Http2Event], flags: int, stream_id: int, payload: bytes) -> None:
        """WINDOW_UPDATE of a wrong size. `receive` handles those of the right size."""
        frames.check_size(payload, NUMBER.size)

    def _window_update(self, events: list[Http2Event], stream_id: int, size: int) -> None:
        if self._sender.expected_updates:
            self._sender.expected_updates -= 1
        else:
            self.abuse_score += 1
        if not stream_id:
            if not size:
                raise Http2Error(ErrorCode.PROTOCOL_ERROR, "a window update of 0")
            self._sender.extend_window(size, events)
            return
        stream = self.streams.get(stream_id)
        if stream is None:
            self._check_known(stream_id)
        elif not size:
            self._fail_stream(events, stream, ErrorCode.PROTOCOL_ERROR)
        elif stream.send_window + size > MAX_WINDOW:
            self._fail_stream(events, stream, ErrorCode.FLOW_CONTROL_ERROR)
        else:
            self._sender.extend_stream_window(stream, size, events)

    def _check_known(self, stream_id: int) -> None:
        if stream_id > self._highest_id or not stream_id % 2:
            raise Http2Error(ErrorCode.PROTOCOL_ERROR, f"stream {stream_id} was never opened")

    def _stream_error(self, events: list[Http2Event], stream_id: int, code: ErrorCode) -> None:
        stream = self.streams.get(stream_id)
        if stream is not None:
            self._fail_stream(events, stream, code)
        else:
            self._reset_unknown(stream_id, code)

    def _reset_unknown(self, stream_id: int, code: ErrorCode) -> None:
        self.abuse_score += 1
        self._sender.send_reset(stream_id, code)


_Handler = Callable[[ServerConnection, list[Http2Event], int, int, bytes], None]
_HANDLERS: dict[int, _Handler] = {
    DATA: ServerConnection._padded_data,
    frames.HEADERS: ServerConnection._begin_block,
    frames.PRIORITY: ServerConnection._priority,
    frames.RST_STREAM: ServerConnection._rst_stream,
    frames.SETTINGS: ServerConnection._settings,
    frames.PUSH_PROMISE: ServerConnection._push_promise,
    frames.PING: ServerConnection._ping,
    frames.GOAWAY: ServerConnection._goaway,
    WINDOW_UPDATE: ServerConnection._odd_window_update,
    frames.CONTINUATION: ServerConnection._continue_block,
}
