"""Reads gRPC messages from one direction of an HTTP/2 connection, as an observer."""

from __future__ import annotations

from collections.abc import Iterator

PREFACE_BYTES = 24
HEAD_BYTES = 9
DATA, RST_STREAM = 0, 3
END_STREAM, PADDED = 1, 8
PREFIX_BYTES = 5  # of a message: whether it is compressed, and its length


class GrpcMessages:
    """Takes bytes as they come; no compression, and headers are passed over."""

    def __init__(self, from_client: bool = False) -> None:
        self._left = bytearray()
        self._preface = PREFACE_BYTES if from_client else 0
        self._begun: dict[int, bytearray] = {}

    def feed(self, data: bytes) -> Iterator[bytes]:
        """The messages that these bytes complete."""
        self._left += data
        at = self._preface
        while len(self._left) - at >= HEAD_BYTES:
            end = at + HEAD_BYTES + int.from_bytes(self._left[at : at + 3])
            if len(self._left) < end:
                break
            head = self._left[at : at + HEAD_BYTES]
            stream = int.from_bytes(head[5:9]) & 0x7FFFFFFF
            if head[3] == DATA:
                yield from self._messages(stream, _unpadded(self._left[at + HEAD_BYTES : end], head[4]))
            if head[3] == RST_STREAM or (head[3] == DATA and head[4] & END_STREAM):
                self._begun.pop(stream, None)
            at = end
        if at > self._preface:
            del self._left[:at]
            self._preface = 0

    def _messages(self, stream: int, data: bytearray) -> Iterator[bytes]:
        begun = self._begun.setdefault(stream, bytearray())
        begun += data
        while len(begun) >= PREFIX_BYTES:
            end = PREFIX_BYTES + int.from_bytes(begun[1:PREFIX_BYTES])
            if len(begun) < end:
                return
            yield bytes(begun[PREFIX_BYTES:end])
            del begun[:end]


def _unpadded(payload: bytearray, flags: int) -> bytearray:
    return payload[1 : len(payload) - payload[0]] if flags & PADDED else payload
