"""The connection's window for received data, and what of it was returned to the client."""

from __future__ import annotations

from xds.wire.http2.frames import DEFAULT_WINDOW, NUMBER, WINDOW_UPDATE, ErrorCode, Http2Error, frame
from xds.wire.http2.sender import Sender

CONNECTION_WINDOW = 1 << 20  # bytes that wait to be consumed, over all streams
PRECREDIT_MESSAGES = 8  # messages of the largest size that may be incomplete at once, over all streams


class ReceiveWindow:
    """It has the size that HTTP/2 begins with (64 KiB) until ``widen``."""

    __slots__ = ("_sender", "_size", "_uncredited", "precredited", "remaining")

    def __init__(self, sender: Sender) -> None:
        self.precredited = 0  # bytes returned before their message was consumed, over all streams
        self.remaining = self._size = DEFAULT_WINDOW  # bytes that the client may still send
        self._sender = sender
        self._uncredited = 0  # bytes received and not yet returned

    @property
    def is_half_used(self) -> bool:
        """Whether half of the window or less is left."""
        return self.remaining * 2 <= self._size

    def widen(self) -> None:
        """Extend the window to its full size."""
        increment, self._size = CONNECTION_WINDOW - self._size, CONNECTION_WINDOW
        self._extend(increment)

    def take(self, size: int) -> None:
        """Count received bytes. Raises ``Http2Error`` for more than the window allows."""
        self.remaining -= size
        if self.remaining < 0:
            raise Http2Error(ErrorCode.FLOW_CONTROL_ERROR, "more data than the connection's window allows")

    def credit(self, size: int) -> None:
        """Return bytes to the client: now, or with later ones."""
        self._uncredited += size
        if self._uncredited and (self._uncredited * 2 >= self._size or self.remaining * 4 <= self._size):
            self._extend(self._uncredited)
            self._uncredited = 0

    def _extend(self, increment: int) -> None:
        self._sender.out.append(frame(WINDOW_UPDATE, 0, 0, NUMBER.pack(increment)))
        self.remaining += increment
