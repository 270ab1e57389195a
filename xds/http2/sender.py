"""The sending side of a connection: what goes out, and what waits for the peer's windows (RFC 9113 5.2)."""

from __future__ import annotations

from collections import OrderedDict

from xds.http2 import frames, headers
from xds.http2.events import Event, Stream, Waiting, Written
from xds.http2.frames import (
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
from xds.http2.messages import PREFIX_BYTES, prefix

_EMPTY_TABLE = b"\x20"  # RFC 7541 6.3: from now on the sender's table holds nothing
# Of a longer message, which many streams may be sent, no more than this is copied, even if the client takes frames of
# megabytes, as gRPC's C core does.
COPIED_BYTES = DEFAULT_MAX_FRAME
# WINDOW_UPDATEs that a message, or a new stream, may bring before more of them are noise. Clients send two or three;
# Envoy allows its own twenty for each frame of DATA.
UPDATES = 10
UPDATE_BYTES = 256  # of a longer message, that one more may come for: growing a window by less is noise
UPDATES_AHEAD = 10_000  # and no more than so many are saved up by long messages


class Sender:
    """What one connection sends; take ``out`` and write it."""

    __slots__ = ("_blocked", "_initial_window", "_max_frame", "_streams", "_table", "_window", "out", "updates_due")

    def __init__(self, streams: dict[int, Stream]) -> None:
        self.out: list[bytes | memoryview] = []
        self.updates_due = UPDATES  # that the client may send for what was sent to it
        self._streams = streams
        # Streams that wait for the connection's window alone, longest waiting first.
        self._blocked: OrderedDict[int, Stream] = OrderedDict()
        self._window = self._initial_window = DEFAULT_WINDOW
        self._max_frame = DEFAULT_MAX_FRAME
        self._table: bytes | None = None  # what the next header block tells of our table, once; None: nothing yet

    @property
    def initial_window(self) -> int:
        """The window of a new stream."""
        return self._initial_window

    # What is sent

    def head(self, stream: Stream, metadata: headers.Fields = ()) -> None:
        """The head of a response, before its first message."""
        stream.head_sent = True
        self._send_block(stream.id, headers.RESPONSE_HEAD + (headers.encode(metadata) if metadata else b""), 0)

    def message(self, stream: Stream, message: bytes) -> bool:
        """A message: as much of it as the windows allow, the rest when they grow. True when nothing waits."""
        if self.message_now(stream, message):
            return True
        # The prefix shares a frame with what it tells of.
        first = memoryview(prefix(len(message)) + message[: COPIED_BYTES - PREFIX_BYTES])
        rest = memoryview(message)[len(first) - PREFIX_BYTES :]
        stream.pending += (Waiting(first, False), Waiting(rest, False)) if rest else (Waiting(first, False),)
        return self._pump(stream)

    def message_now(self, stream: Stream, message: bytes) -> bool:
        """A message that fits a frame of the smallest size, and the windows; False: nothing is sent."""
        if not stream.head_sent:
            self.head(stream)
        size = len(message) + PREFIX_BYTES
        if size > COPIED_BYTES or size > stream.send_window or size > self._window or stream.pending:
            return False
        stream.send_window -= size
        self._window -= size
        self.updates_due += UPDATES
        self.out.append(HEADER.pack(size << 8, 0, stream.id) + prefix(size - PREFIX_BYTES) + message)
        return True

    def last(self, stream: Stream, block: bytes) -> None:
        """The header block that ends the stream, behind all that waits."""
        stream.pending.append(Waiting(memoryview(block), True))
        self._pump(stream)

    def reset(self, stream_id: int, code: ErrorCode) -> None:
        self.out.append(frame(RST_STREAM, 0, stream_id, NUMBER.pack(code)))

    def drop(self, stream: Stream) -> None:
        """Nothing more is sent on it."""
        stream.pending.clear()
        self._blocked.pop(stream.id, None)

    # What the peer allows

    def set(self, name: int, value: int) -> None:
        """A setting of the peer's. Raises ``Http2Error``. See ``set_initial_window`` for what follows of that one."""
        if name == frames.INITIAL_WINDOW_SIZE and value > MAX_WINDOW:
            raise Http2Error(ErrorCode.FLOW_CONTROL_ERROR, f"an initial window of {value}")
        if name == frames.HEADER_TABLE_SIZE and value < frames.DEFAULT_HEADER_TABLE and self._table is None:
            self._table = _EMPTY_TABLE  # we use none, but strict decoders want to be told (RFC 7541 4.2)
        elif name == frames.MAX_FRAME_SIZE:
            if not DEFAULT_MAX_FRAME <= value <= frames.LARGEST_MAX_FRAME:
                raise Http2Error(ErrorCode.PROTOCOL_ERROR, f"frames of {value} bytes")
            self._max_frame = value
        elif name == frames.ENABLE_PUSH and value > 1:
            raise Http2Error(ErrorCode.PROTOCOL_ERROR, f"ENABLE_PUSH {value}")

    def set_initial_window(self, size: int, events: list[Event]) -> None:
        """SETTINGS_INITIAL_WINDOW_SIZE: open streams are given, or lose, the difference. Raises ``Http2Error``."""
        grown, self._initial_window = size - self._initial_window, size
        for stream in list(self._streams.values()):
            if stream.send_window + grown > MAX_WINDOW:
                raise Http2Error(ErrorCode.FLOW_CONTROL_ERROR, "an initial window that makes others too large")
            self.grow_stream(stream, grown, events)

    def grow(self, size: int, events: list[Event]) -> None:
        """The connection's window grows. Raises ``Http2Error``."""
        self._window += size
        if self._window > MAX_WINDOW:
            raise Http2Error(ErrorCode.FLOW_CONTROL_ERROR, f"a window that grows by {size}")
        if self._blocked:
            self._pump_blocked(events)

    def grow_stream(self, stream: Stream, size: int, events: list[Event]) -> None:
        """A stream's window grows. The caller has checked it."""
        stream.send_window += size
        if stream.pending and self._pump(stream):
            events.append(Written(stream))

    def _pump_blocked(self, events: list[Event]) -> None:
        while self._blocked and self._window > 0:
            stream = next(iter(self._blocked.values()))
            if self._pump(stream):
                events.append(Written(stream))

    def _pump(self, stream: Stream) -> bool:
        """Send what the windows allow of what waits; True when nothing waits any more."""
        while stream.pending:
            data, is_last = stream.pending[0]
            if is_last:
                self._end(stream, data)
                return True
            size = min(len(data), stream.send_window, self._window, self._max_frame)
            if size <= 0 < len(data):
                if stream.send_window > 0:
                    self._blocked[stream.id] = stream
                else:
                    self._blocked.pop(stream.id, None)  # its own window tells when to go on
                return False
            stream.send_window -= size
            self._window -= size
            if self.updates_due < UPDATES_AHEAD:
                self.updates_due += size // UPDATE_BYTES
            self.out += (HEADER.pack(size << 8, 0, stream.id), data[:size])
            if size == len(data):
                self.updates_due += UPDATES
                del stream.pending[0]
            else:
                stream.pending[0] = Waiting(data[size:], False)
        self._blocked.pop(stream.id, None)
        return True

    def _end(self, stream: Stream, block: memoryview) -> None:
        self._send_block(stream.id, block, END_STREAM)
        # RFC 9113 8.1: a server that needs no more of a request says so by RST_STREAM with NO_ERROR.
        if not stream.half_closed:
            self.reset(stream.id, ErrorCode.NO_ERROR)
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
