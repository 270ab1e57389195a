"""What a connection tells, and the stream that it tells it of."""

from __future__ import annotations

from typing import Any, NamedTuple

from xds.http2.frames import DEFAULT_WINDOW
from xds.http2.headers import RequestHead
from xds.http2.messages import Assembler, MessageError, Piece

STREAM_WINDOW = DEFAULT_WINDOW


class Waiting(NamedTuple):
    """What waits for the peer's windows: data, or the header block that ends the stream."""

    data: memoryview
    is_last: bool


class Stream:
    """One stream as its connection sees it. ``call`` is the shell's."""

    __slots__ = (
        "announced", "assembler", "call", "half_closed", "head_sent", "id", "is_over", "lent", "owed", "pending",
        "send_window", "unread", "window",
    )  # fmt: skip

    def __init__(self, stream_id: int, send_window: int, message_bytes: int, content_length: int | None = None) -> None:
        self.id = stream_id
        self.announced = content_length  # of which so much has not come; None: nothing was said of it
        self.call: Any = None
        self.send_window = send_window
        self.pending: list[Waiting] = []
        self.head_sent = False
        self.window = STREAM_WINDOW  # what the client may still send
        self.owed = 0  # received, and not given back to the connection's window
        self.lent = 0  # of what came: given back to the window although nobody has taken it
        self.unread = 0  # messages that nobody has taken yet
        self.half_closed = False
        self.is_over = False  # we need no more of the request: what still comes is dropped
        self.assembler = Assembler(message_bytes)

    def exceeds(self, size: int) -> bool:
        """So much came, of an announced length: whether that is more than was announced."""
        self.announced = (self.announced or 0) - size
        return self.announced < 0


class Opened(NamedTuple):
    """A request has begun."""

    stream: Stream
    head: RequestHead


class Message(NamedTuple):
    """A message of a request."""

    stream: Stream
    piece: Piece


class HalfClosed(NamedTuple):
    """No more messages come; they can be answered."""

    stream: Stream


class Broken(NamedTuple):
    """What came on the stream is no message; the client can be told."""

    stream: Stream
    error: MessageError


class Closed(NamedTuple):
    """The client has reset the stream, or broken its rules: nothing can be sent any more."""

    stream: Stream
    code: int


class Written(NamedTuple):
    """All that was sent on the stream has passed the peer's windows."""

    stream: Stream


Event = Opened | Message | HalfClosed | Broken | Closed | Written
