"""The client's half of one HTTP/2 connection without I/O: bytes in, events and bytes out (RFC 9113).

It does what a server may require of a client: acknowledge SETTINGS and PING, respect the peer's windows and frame size,
update windows, read padding and CONTINUATION. The payload of a DATA frame is passed on as it comes in, as a range of
the received bytes, so that large bodies are neither collected nor copied here.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable

from hpack import Decoder, HPACKError

from bench.load.frames import (
    GENEROUS_WINDOW,
    MAX_HEADER_BLOCK,
    Data,
    Ended,
    Event,
    GoneAway,
    Headers,
    Http2Error,
    unpadded,
)
from xds.wire.http2.frames import (
    ACK,
    CONTINUATION,
    DATA,
    DEFAULT_MAX_FRAME,
    DEFAULT_WINDOW,
    ENABLE_PUSH,
    END_HEADERS,
    END_STREAM,
    FRAME_HEADER_BYTES,
    GOAWAY,
    HEADER,
    HEADERS,
    INITIAL_WINDOW_SIZE,
    MAX_CONCURRENT_STREAMS,
    MAX_FRAME_SIZE,
    MAX_WINDOW,
    NUMBER,
    PADDED,
    PING,
    PREFACE,
    PRIORITY_GIVEN,
    PUSH_PROMISE,
    RST_STREAM,
    SETTING,
    SETTINGS,
    WINDOW_UPDATE,
    frame,
)

WINDOW_UPDATE_HEAD = 4 << 8 | WINDOW_UPDATE


class _Stream:
    __slots__ = ("pending", "received", "send_window")

    def __init__(self, send_window: int) -> None:
        self.send_window = send_window
        self.received = 0  # bytes whose window was not given back yet
        self.pending: list[memoryview] = []


class Connection:
    """One connection. ``receive`` what comes in, ``open`` and ``send``, and write what ``outgoing`` returns."""

    __slots__ = (
        "_block", "_block_flags", "_block_stream", "_blocked", "_data_ends", "_data_left", "_data_stream", "_decoder",
        "_initial_window", "_max_frame", "_next_id", "_out", "_partial", "_received", "_send_window", "_streams",
        "_window", "max_concurrent_streams",
    )  # fmt: skip

    def __init__(self, window: int = GENEROUS_WINDOW) -> None:
        self.max_concurrent_streams: int | None = None
        self._window = window
        self._decoder = Decoder()
        self._streams: dict[int, _Stream] = {}
        self._blocked: dict[int, None] = {}  # streams with pending bytes, longest waiting first
        self._next_id = 1
        self._initial_window = self._send_window = DEFAULT_WINDOW
        self._max_frame = DEFAULT_MAX_FRAME
        self._received = 0
        self._partial = b""
        self._data_left = self._data_stream = 0
        self._data_ends = False
        self._block: bytearray | None = None
        self._block_stream = self._block_flags = 0
        settings = SETTING.pack(ENABLE_PUSH, 0) + SETTING.pack(INITIAL_WINDOW_SIZE, window)
        self._out: list[bytes | memoryview] = [PREFACE, frame(SETTINGS, 0, 0, settings)]
        if window > DEFAULT_WINDOW:
            self._out.append(frame(WINDOW_UPDATE, 0, 0, NUMBER.pack(window - DEFAULT_WINDOW)))

    # Sending

    def open(self, header_block: bytes) -> int:
        """A further stream; its id. ``header_block`` must fit a frame of the smallest size."""
        stream_id = self._next_id
        self._next_id += 2
        self._streams[stream_id] = _Stream(self._initial_window)
        self._out.append(frame(HEADERS, END_HEADERS, stream_id, header_block))
        return stream_id

    def send(self, stream_id: int, data: bytes) -> None:
        """Send as much as the peer's windows allow now, the rest when they grow. Nothing on a stream that has ended."""
        stream = self._streams.get(stream_id)
        if stream is None:
            return
        size = len(data)
        if size <= self._max_frame and size <= stream.send_window and size <= self._send_window and not stream.pending:
            stream.send_window -= size
            self._send_window -= size
            self._out += (HEADER.pack(size << 8, 0, stream_id), data)
        else:
            stream.pending.append(memoryview(data))
            self._pump(stream_id, stream)

    def reset(self, stream_id: int, code: int) -> None:
        """End a stream by RST_STREAM."""
        if self._streams.pop(stream_id, None) is not None:
            self._blocked.pop(stream_id, None)
            self._out.append(frame(RST_STREAM, 0, stream_id, NUMBER.pack(code)))

    def outgoing(self) -> bytes:
        """Take the bytes that are to be written."""
        data = b"".join(self._out)
        self._out = []
        return data

    def _pump(self, stream_id: int, stream: _Stream) -> None:
        while stream.pending:
            head = stream.pending[0]
            size = min(len(head), stream.send_window, self._send_window, self._max_frame)
            if size <= 0 < len(head):
                self._blocked[stream_id] = None
                return
            stream.send_window -= size
            self._send_window -= size
            self._out += (HEADER.pack(size << 8, 0, stream_id), head[:size])
            if size == len(head):
                del stream.pending[0]
            else:
                stream.pending[0] = head[size:]
        self._blocked.pop(stream_id, None)

    # Receiving

    def receive(self, data: bytes) -> list[Event]:
        """What these bytes, cut anywhere, bring. Raises ``Http2Error``."""
        events: list[Event] = []
        if self._partial:
            data = self._partial + data
            self._partial = b""
        at, end = 0, len(data)
        if self._data_left:
            at = self._take_data(events, data, 0, end)
        while end - at >= FRAME_HEADER_BYTES:
            length_and_kind, flags, stream_id = HEADER.unpack_from(data, at)
            size = length_and_kind >> 8
            if size > DEFAULT_MAX_FRAME:
                raise Http2Error(f"a frame of {size} bytes, {DEFAULT_MAX_FRAME} are allowed")
            if length_and_kind & 0xFF == DATA and not flags & PADDED and self._block is None:
                self._begin_data(stream_id & MAX_WINDOW, size, flags)
                at = self._take_data(events, data, at + FRAME_HEADER_BYTES, end)
                continue
            behind = at + FRAME_HEADER_BYTES + size
            if behind > end:
                break
            if length_and_kind == WINDOW_UPDATE_HEAD and self._block is None:
                # Two of these come with every message.
                self._window_update(stream_id & MAX_WINDOW, NUMBER.unpack_from(data, behind - 4)[0] & MAX_WINDOW)
                at = behind
                continue
            payload = data[at + FRAME_HEADER_BYTES : behind]
            self._handle(events, length_and_kind & 0xFF, flags, stream_id & MAX_WINDOW, payload)
            at = behind
        if at < end:
            self._partial = data[at:]
        return events

    def _begin_data(self, stream_id: int, size: int, flags: int) -> None:
        self._data_left, self._data_stream, self._data_ends = size, stream_id, bool(flags & END_STREAM)
        self._received += size
        if self._received * 2 > self._window:
            self._give_back(0, self._received)
            self._received = 0
        stream = self._streams.get(stream_id)
        if stream is not None:
            stream.received += size
            if stream.received * 2 > self._window:
                self._give_back(stream_id, stream.received)
                stream.received = 0

    def _take_data(self, events: list[Event], data: bytes, at: int, end: int) -> int:
        """Hand on what has come of the DATA frame in progress; where the next frame begins."""
        left = self._data_left
        behind = at + left if left <= end - at else end
        stream_id = self._data_stream
        if behind > at and stream_id in self._streams:
            events.append(Data(stream_id, data, at, behind))
        self._data_left = left = left - (behind - at)
        if not left and self._data_ends:
            self._data_ends = False
            self._end(events, stream_id, None)
        return behind

    def _give_back(self, stream_id: int, size: int) -> None:
        self._out.append(frame(WINDOW_UPDATE, 0, stream_id, NUMBER.pack(size)))

    def _end(self, events: list[Event], stream_id: int, reset: int | None) -> None:
        if self._streams.pop(stream_id, None) is not None:
            self._blocked.pop(stream_id, None)
            events.append(Ended(stream_id, reset))

    def _handle(self, events: list[Event], kind: int, flags: int, stream_id: int, payload: bytes) -> None:
        if (kind == CONTINUATION) != (self._block is not None):
            raise Http2Error(f"frame type {kind} where CONTINUATION must{'' if self._block is not None else ' not'} be")
        try:
            if kind == DATA:
                self._padded_data(events, flags, stream_id, payload)
            elif kind in (HEADERS, CONTINUATION):
                self._header_block(events, kind, flags, stream_id, payload)
            elif kind == RST_STREAM:
                self._end(events, stream_id, NUMBER.unpack(payload)[0])
            elif kind == SETTINGS and not flags & ACK:
                self._settings(SETTING.iter_unpack(payload))
            elif kind == PING and not flags & ACK:
                self._out.append(frame(PING, ACK, 0, payload))
            elif kind == WINDOW_UPDATE:
                raise Http2Error(f"WINDOW_UPDATE with {len(payload)} bytes")
            elif kind == GOAWAY:
                last, code = struct.unpack_from(">II", payload)
                events.append(GoneAway(last & MAX_WINDOW, code, payload[8:]))
            elif kind == PUSH_PROMISE:
                raise Http2Error("PUSH_PROMISE, which the settings forbid")
        except (struct.error, IndexError) as error:
            raise Http2Error(f"frame type {kind} with {len(payload)} bytes") from error

    def _padded_data(self, events: list[Event], flags: int, stream_id: int, payload: bytes) -> None:
        self._begin_data(stream_id, len(payload), flags)
        body = unpadded(payload)
        self._data_left = len(body)
        self._take_data(events, body, 0, len(body))

    def _header_block(self, events: list[Event], kind: int, flags: int, stream_id: int, payload: bytes) -> None:
        if kind == HEADERS:
            payload = unpadded(payload) if flags & PADDED else payload
            self._block = bytearray(payload[5:] if flags & PRIORITY_GIVEN else payload)
            self._block_stream, self._block_flags = stream_id, flags
        elif self._block is not None:
            self._block += payload
        block = self._block
        if block is None or stream_id != self._block_stream or len(block) > MAX_HEADER_BLOCK:
            raise Http2Error(f"a header block of another stream than {self._block_stream}, or too long")
        if not flags & END_HEADERS:
            return
        self._block = None
        try:
            fields = {str(name): str(value) for name, value in self._decoder.decode(bytes(block))}
        except HPACKError as error:
            raise Http2Error(f"cannot decode headers: {error}") from error
        if stream_id in self._streams:
            events.append(Headers(stream_id, fields))
        if self._block_flags & END_STREAM:
            self._end(events, stream_id, None)

    def _settings(self, settings: Iterable[tuple[int, int]]) -> None:
        for name, value in settings:
            if name == INITIAL_WINDOW_SIZE:
                for stream in self._streams.values():
                    stream.send_window += value - self._initial_window
                self._initial_window = value
            elif name == MAX_FRAME_SIZE:
                self._max_frame = value
            elif name == MAX_CONCURRENT_STREAMS:
                self.max_concurrent_streams = value
        self._out.append(frame(SETTINGS, ACK, 0, b""))
        self._pump_blocked()

    def _window_update(self, stream_id: int, size: int) -> None:
        if not stream_id:
            self._send_window += size
            if self._blocked:
                self._pump_blocked()
        elif (stream := self._streams.get(stream_id)) is not None:
            stream.send_window += size
            if stream.pending:
                self._pump(stream_id, stream)

    def _pump_blocked(self) -> None:
        for stream_id in list(self._blocked):
            self._pump(stream_id, self._streams[stream_id])
