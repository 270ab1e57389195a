"""A stream of an HTTP/2 connection, and the events that a connection returns."""

from __future__ import annotations

from typing import Any, NamedTuple

from xds.wire.http2.frames import DEFAULT_WINDOW
from xds.wire.http2.headers import RequestHead
from xds.wire.http2.messages import GrpcMessage, MessageAssembler, MessageError

STREAM_WINDOW = DEFAULT_WINDOW
# Of a stream of a trusted connection, once a message has used up half of the first window. Envoy's node takes 61 KB in
# each request: the frame that extends the window is written once for four of them.
TRUSTED_WINDOW = 4 * STREAM_WINDOW


class QueuedData(NamedTuple):
    """Data that waits for the peer's windows, or the header block that ends the stream."""

    data: memoryview
    is_last: bool


class Stream:
    """The state of one stream. ``call`` is for the owner of the connection."""

    __slots__ = (
        "assembler", "call", "content_remaining", "discards_data", "half_closed", "head_sent", "id", "pending",
        "precredited", "send_window", "uncredited", "unread", "window",
    )  # fmt: skip

    def __init__(self, stream_id: int, send_window: int, message_bytes: int, content_length: int | None = None) -> None:
        self.id = stream_id
        self.content_remaining = (
            content_length  # bytes of the content-length that have not arrived; None without the header
        )
        self.call: Any = None
        self.send_window = send_window
        self.pending: list[QueuedData] = []
        self.head_sent = False
        self.window = STREAM_WINDOW  # bytes that the client may still send
        self.uncredited = 0  # bytes received and not yet returned to the connection's window
        self.precredited = 0  # bytes returned to a window before their message was consumed
        self.unread = 0  # messages not yet consumed
        self.half_closed = False
        self.discards_data = False  # True: further data of the request is not needed
        self.assembler = MessageAssembler(message_bytes)

    @property
    def is_waiting(self) -> bool:
        """Whether a message is incomplete, and none waits to be consumed."""
        return self.assembler.is_incomplete and not self.unread and not self.discards_data

    def takes_message(self, size: int) -> bool:
        """Whether a whole message of ``size`` bytes may arrive now, of a request whose length is not announced."""
        assembler = self.assembler
        is_open = not self.half_closed and not self.discards_data and self.content_remaining is None
        return is_open and assembler.partial is None and size <= assembler.limit

    def exceeds(self, size: int) -> bool:
        """Count ``size`` bytes of content; True if they exceed the content-length."""
        self.content_remaining = (self.content_remaining or 0) - size
        return self.content_remaining < 0


class RequestReceived(NamedTuple):
    """The headers of a request have arrived."""

    stream: Stream
    head: RequestHead


class MessageReceived(NamedTuple):
    """A message of a request has arrived."""

    stream: Stream
    message: GrpcMessage


class StreamEnded(NamedTuple):
    """The client has ended its side of the stream; the server can still send."""

    stream: Stream


class MalformedMessage(NamedTuple):
    """The data of the stream is not a gRPC message; a status can still be sent."""

    stream: Stream
    error: MessageError


class StreamReset(NamedTuple):
    """The client has reset the stream or violated the protocol on it; nothing more can be sent."""

    stream: Stream
    code: int


class WriteDrained(NamedTuple):
    """Everything sent on the stream has passed the peer's windows."""

    stream: Stream


Http2Event = RequestReceived | MessageReceived | StreamEnded | MalformedMessage | StreamReset | WriteDrained


SKIPPED_RANGES_KEPT = 64  # ordinary clients skip no ids


class SkippedStreamIds:
    """Stream ids below the last one that were never opened: the latest ``SKIPPED_RANGES_KEPT`` ranges."""

    __slots__ = ("_gaps",)

    def __init__(self) -> None:
        self._gaps: tuple[tuple[int, int], ...] = ()  # nearly always empty

    def note_opened(self, last: int, number: int) -> None:
        """Note that stream ``number`` was opened after stream ``last``."""
        if number > last + 2:
            self._gaps = (*self._gaps, (last, number))[-SKIPPED_RANGES_KEPT:]

    def __contains__(self, number: int) -> bool:
        return any(last < number < opened for last, opened in self._gaps)


class Http2Limits(NamedTuple):
    """Limits of a connection: open streams, bytes of one message, frames and new streams in one call of ``receive``.

    Messages of methods that begin with one of ``small_paths`` have at most ``small_message_bytes``.
    """

    streams: int = 100_000
    message_bytes: int = 4 << 20
    frames_at_once: int = 500
    streams_at_once: int = 8
    small_paths: tuple[str, ...] = ()
    small_message_bytes: int = 4 << 10

    def message_bytes_of(self, path: str) -> int:
        """The largest message of a method."""
        return self.small_message_bytes if path.startswith(self.small_paths) else self.message_bytes


DEFAULT_LIMITS = Http2Limits()
