"""The sending side of a connection: outgoing frames, and data that waits for the peer's windows (RFC 9113 5.2)."""

from __future__ import annotations

from collections import OrderedDict
from functools import lru_cache

from xds.wire.http2 import frames, headers
from xds.wire.http2.frames import (
    CONTINUATION,
    DEFAULT_MAX_FRAME,
    DEFAULT_WINDOW,
    END_HEADERS,
    END_STREAM,
    HEADER,
    HEADERS,
    MAX_WINDOW,
    NUMBER,
    RST_STREAM,
    ErrorCode,
    Http2Error,
    frame,
)
from xds.wire.http2.messages import FRAMED_MESSAGE, PREFIX_BYTES, prefix
from xds.wire.http2.stream import (
    Http2Event,
    QueuedData,
    Stream,
    WriteDrained,
)

_EMPTY_TABLE = b"\x20"  # RFC 7541 6.3: a table size update to 0
# At most this much of a longer message is copied, because many streams may send the same message. The limit also
# applies to clients that accept frames of megabytes, such as gRPC's C core.
COPIED_BYTES = DEFAULT_MAX_FRAME
# Longer messages up to this size are framed once for all streams that are sent them: it takes longer than the write.
SHARED_BYTES = 128 << 10
_SHARED_MESSAGES = 4
# WINDOW_UPDATEs that are expected for a message or a new stream; more count as abuse. Clients send two or three;
# Envoy allows its own clients twenty for each DATA frame.
UPDATES = 10
UPDATE_BYTES = 256  # one more is expected for this many bytes of a longer message
UPDATES_LIMIT = 10_000  # the most updates that are expected for long messages


@lru_cache(_SHARED_MESSAGES)
def _in_frames(message: bytes, stream_id: int) -> bytes:
    """A message in the frames that every peer accepts."""
    data = memoryview(prefix(len(message)) + message)
    parts = (data[at : at + DEFAULT_MAX_FRAME] for at in range(0, len(data), DEFAULT_MAX_FRAME))
    return b"".join(HEADER.pack(len(part) << 8, 0, stream_id) + part for part in parts)


class Sender:
    """The sender of one connection. The caller takes the bytes in ``out`` and writes them."""

    __slots__ = (
        "_blocked",
        "_initial_window",
        "_max_frame",
        "_streams",
        "_table",
        "_window",
        "expected_updates",
        "out",
    )

    def __init__(self, streams: dict[int, Stream]) -> None:
        self.out: list[bytes | memoryview] = []
        self.expected_updates = UPDATES  # WINDOW_UPDATEs that may still arrive for data that was sent
        self._streams = streams
        # Streams that wait only for the connection's window, in the order in which they began to wait; None: none yet.
        self._blocked: OrderedDict[int, Stream] | None = None
        self._window = self._initial_window = DEFAULT_WINDOW
        self._max_frame = DEFAULT_MAX_FRAME
        self._table: bytes | None = None  # the next table size update; None: not needed so far; empty: sent

    @property
    def initial_window(self) -> int:
        """The send window of a new stream."""
        return self._initial_window

    # Sending

    def send_head(self, stream: Stream, metadata: headers.Fields = ()) -> None:
        """Send the headers of a response, before its first message."""
        stream.head_sent = True
        self._send_block(stream.id, headers.RESPONSE_HEAD + (headers.encode(metadata) if metadata else b""), 0)

    def send_message(self, stream: Stream, message: bytes) -> bool:
        """Send as much of a message as the windows allow, and queue the rest. True if nothing is queued."""
        if self.send_now(stream, message):
            return True
        self._queue(stream, message)
        return self._pump(stream)

    def _queue(self, stream: Stream, message: bytes) -> None:
        # The prefix shares a frame with the beginning of the message.
        first = memoryview(prefix(len(message)) + message[: COPIED_BYTES - PREFIX_BYTES])
        rest = memoryview(message)[len(first) - PREFIX_BYTES :]
        stream.pending += (QueuedData(first, False), QueuedData(rest, False)) if rest else (QueuedData(first, False),)

    def send_now(self, stream: Stream, message: bytes) -> bool:
        """Send a message if the windows have room for all of it; False: nothing was sent."""
        if not stream.head_sent:
            self.send_head(stream)
        framed = self.take_frames(stream, message)
        if framed is not None:
            self.out.append(framed)
            return True
        if stream.pending or len(message) + PREFIX_BYTES > min(stream.send_window, self._window):
            return False
        self._queue(stream, message)
        return self._pump(stream)

    def take_frames(self, stream: Stream, message: bytes) -> bytes | None:
        """As `send_now`, but return the frames of a message. The headers are sent, and ``out`` is empty."""
        size = len(message) + PREFIX_BYTES
        if size > SHARED_BYTES or size > stream.send_window or size > self._window or stream.pending:
            return None
        stream.send_window -= size
        self._window -= size
        self.expected_updates += UPDATES
        if size > DEFAULT_MAX_FRAME:
            if self.expected_updates < UPDATES_LIMIT:
                self.expected_updates += size // UPDATE_BYTES
            return _in_frames(message, stream.id)
        return FRAMED_MESSAGE.pack(size << 8, 0, stream.id, 0, size - PREFIX_BYTES) + message

    def end_stream(self, stream: Stream, block: bytes) -> None:
        """Send the header block that ends the stream, behind all queued data."""
        stream.pending.append(QueuedData(memoryview(block), True))
        self._pump(stream)

    def send_reset(self, stream_id: int, code: ErrorCode) -> None:
        """Send RST_STREAM."""
        self.out.append(frame(RST_STREAM, 0, stream_id, NUMBER.pack(code)))

    def drop(self, stream: Stream) -> None:
        """Drop the queued data of a stream."""
        stream.pending.clear()
        self._unblock(stream)

    def _unblock(self, stream: Stream) -> None:
        if self._blocked:
            self._blocked.pop(stream.id, None)

    # Windows and settings of the peer

    def apply_setting(self, name: int, value: int) -> None:
        """Apply a setting of the peer, except for the effect of INITIAL_WINDOW_SIZE. Raises ``Http2Error``."""
        if name == frames.INITIAL_WINDOW_SIZE and value > MAX_WINDOW:
            raise Http2Error(ErrorCode.FLOW_CONTROL_ERROR, f"an initial window of {value}")
        if name == frames.HEADER_TABLE_SIZE and value < frames.DEFAULT_HEADER_TABLE and self._table is None:
            self._table = _EMPTY_TABLE  # we use no table, but strict decoders expect an update (RFC 7541 4.2)
        elif name == frames.MAX_FRAME_SIZE:
            if not DEFAULT_MAX_FRAME <= value <= frames.LARGEST_MAX_FRAME:
                raise Http2Error(ErrorCode.PROTOCOL_ERROR, f"frames of {value} bytes")
            self._max_frame = value
        elif name == frames.ENABLE_PUSH and value > 1:
            raise Http2Error(ErrorCode.PROTOCOL_ERROR, f"ENABLE_PUSH {value}")

    def set_initial_window(self, size: int, events: list[Http2Event]) -> None:
        """Apply INITIAL_WINDOW_SIZE: the windows of open streams change by the difference. Raises ``Http2Error``."""
        growth, self._initial_window = size - self._initial_window, size
        for stream in list(self._streams.values()):
            if stream.send_window + growth > MAX_WINDOW:
                raise Http2Error(
                    ErrorCode.FLOW_CONTROL_ERROR, "an initial window that makes the windows of streams too large"
                )
            self.extend_stream_window(stream, growth, events)

    def extend_window(self, size: int, events: list[Http2Event]) -> None:
        """Extend the connection's window. Raises ``Http2Error``."""
        self._window += size
        if self._window > MAX_WINDOW:
            raise Http2Error(ErrorCode.FLOW_CONTROL_ERROR, f"a window update of {size}")
        if self._blocked:
            self._pump_blocked(events)

    def extend_stream_window(self, stream: Stream, size: int, events: list[Http2Event]) -> None:
        """Extend a stream's window. The caller has checked the size."""
        stream.send_window += size
        if stream.pending and self._pump(stream):
            events.append(WriteDrained(stream))

    def _pump_blocked(self, events: list[Http2Event]) -> None:
        while self._blocked and self._window > 0:
            stream = next(iter(self._blocked.values()))
            if self._pump(stream):
                events.append(WriteDrained(stream))

    def _pump(self, stream: Stream) -> bool:
        """Send the queued data that the windows allow; True if nothing is queued afterwards."""
        while stream.pending:
            data, is_last = stream.pending[0]
            if is_last:
                self._end(stream, data)
                return True
            size = min(len(data), stream.send_window, self._window, self._max_frame)
            if size <= 0 < len(data):
                if stream.send_window > 0:
                    self._blocked = self._blocked or OrderedDict()
                    self._blocked[stream.id] = stream
                else:
                    self._unblock(stream)  # it continues after an update of its own window
                return False
            stream.send_window -= size
            self._window -= size
            if self.expected_updates < UPDATES_LIMIT:
                self.expected_updates += size // UPDATE_BYTES
            self.out += (HEADER.pack(size << 8, 0, stream.id), data[:size])
            if size == len(data):
                self.expected_updates += UPDATES
                del stream.pending[0]
            else:
                stream.pending[0] = QueuedData(data[size:], False)
        self._unblock(stream)
        return True

    def _end(self, stream: Stream, block: memoryview) -> None:
        self._send_block(stream.id, block, END_STREAM)
        # RFC 9113 8.1: a server that does not need the rest of a request sends RST_STREAM with NO_ERROR.
        if not stream.half_closed:
            self.send_reset(stream.id, ErrorCode.NO_ERROR)
        self.drop(stream)
        self._streams.pop(stream.id, None)

    def _send_block(self, stream_id: int, block: bytes | memoryview, flags: int) -> None:
        if self._table:
            block, self._table = self._table + block, b""
        kind, at, size = HEADERS, 0, len(block)
        while size - at > self._max_frame:
            self.out += (HEADER.pack(self._max_frame << 8 | kind, flags, stream_id), block[at : at + self._max_frame])
            kind, flags, at = CONTINUATION, 0, at + self._max_frame
        self.out += (HEADER.pack(size - at << 8 | kind, flags | END_HEADERS, stream_id), block[at:])
