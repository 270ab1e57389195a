"""Header blocks as they come in: a HEADERS frame, and CONTINUATION frames behind it."""

from __future__ import annotations

from xds.http2 import frames
from xds.http2.frames import ErrorCode, Http2Error

HEADER_BLOCK_LIMIT = 16 << 10  # what gRPC's C core takes at most; it takes some 10 ms to read as it is


class HeaderBlock:
    """The block that a HEADERS frame begins; ``data`` is for HPACK when it ``is_whole``."""

    __slots__ = ("data", "ends_stream", "is_whole", "stream_id")

    def __init__(self, flags: int, stream_id: int, payload: bytes) -> None:
        """Raises ``Http2Error`` for a frame that cannot be."""
        if not stream_id % 2:
            raise Http2Error(ErrorCode.PROTOCOL_ERROR, f"headers on stream {stream_id}")
        self.stream_id = stream_id
        self.ends_stream = bool(flags & frames.END_STREAM)
        self.is_whole = bool(flags & frames.END_HEADERS)
        payload = frames.unpadded(payload) if flags & frames.PADDED else payload
        self.data = bytearray(_without_priority(stream_id, payload) if flags & frames.PRIORITY_GIVEN else payload)

    def extend(self, flags: int, stream_id: int, payload: bytes) -> None:
        """A CONTINUATION. Raises ``Http2Error``."""
        if stream_id != self.stream_id:
            raise Http2Error(ErrorCode.PROTOCOL_ERROR, f"CONTINUATION on stream {stream_id}")
        self.is_whole = bool(flags & frames.END_HEADERS)
        if not payload and not self.is_whole:
            raise Http2Error(ErrorCode.ENHANCE_YOUR_CALM, "an empty CONTINUATION")
        self.data += payload
        if len(self.data) > HEADER_BLOCK_LIMIT:
            raise Http2Error(ErrorCode.ENHANCE_YOUR_CALM, "too long a header block")


def _without_priority(stream_id: int, payload: bytes) -> bytes:
    if len(payload) < frames.PRIORITY_BYTES:
        raise Http2Error(ErrorCode.FRAME_SIZE_ERROR, "headers without the priority that they announce")
    if frames.parent_of(payload) == stream_id:
        raise Http2Error(ErrorCode.PROTOCOL_ERROR, f"stream {stream_id} depends on itself")
    return payload[frames.PRIORITY_BYTES :]
