"""gRPC messages from the bytes of one stream, of which only the three fields that an ACK needs are read.

A response of a megabyte is mostly resources, which are not read: they are skipped by their lengths while the bytes come
in, so that a reader holds no more than the beginning of a field. Streams of one fleet are sent the same resources. The
first stream finds where these end, and the others skip all of them in one step.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import NamedTuple

from bench.load.encode import GRPC_PREFIX_BYTES

VERSION_TAG, RESOURCES_TAG, TYPE_URL_TAG, NONCE_TAG = 0x0A, 0x12, 0x22, 0x2A
KEPT_TAGS = (VERSION_TAG, TYPE_URL_TAG, NONCE_TAG)
VERSION_BYTE = bytes([VERSION_TAG])
MAX_KEPT_BYTES = 64 << 10
WORTH_LEARNING_BYTES = 512
HEAD_BYTES = 100  # with the prefix
MAX_LEARNT = 512
FIXED_BYTES = {1: 8, 5: 4}

_PREFIX = struct.Struct(">BI")


class MessageError(Exception):
    """The bytes are no gRPC message, or no discovery response."""


class Response(NamedTuple):
    """A DiscoveryResponse or a DeltaDiscoveryResponse, which agree on these fields; ``size`` is that of all of it."""

    version: bytes
    type_url: bytes
    nonce: bytes
    size: int


class _Layout:
    """Where the resources of responses that begin alike end, and what such responses ended with."""

    __slots__ = ("end", "tails")

    def __init__(self, end: int) -> None:
        self.end = end
        self.tails: dict[bytes, Response] = {}


class Layouts:
    """What readers learnt from responses, by their length and version: the resources may stand in any order."""

    def __init__(self) -> None:
        self._by_head: dict[bytes, _Layout] = {}

    def learn(self, head: bytes, end: int) -> None:
        """Keep where the resources of a response that was read to its end stopped."""
        if len(self._by_head) >= MAX_LEARNT:
            self._by_head.clear()
        self._by_head[head] = _Layout(end)

    def end(self, head: bytes) -> int:
        """0 when it is not known."""
        layout = self._by_head.get(head)
        return layout.end if layout is not None else 0

    def recall(self, data: bytes, at: int, end: int) -> Response | None:
        """The response that stands at ``at``, if all of it has come and one that begins and ends alike was read."""
        layout = self._by_head.get(_head(data, at))
        if layout is None:
            return None
        stop = at + GRPC_PREFIX_BYTES + int.from_bytes(data[at + 1 : at + GRPC_PREFIX_BYTES], "big")
        return layout.tails.get(data[at + layout.end : stop]) if stop <= end else None

    def remember(self, data: bytes, at: int, stop: int, response: Response) -> None:
        """Keep a response that stood at ``at`` until ``stop``, for `recall`."""
        layout = self._by_head.get(_head(data, at))
        if layout is not None:
            if len(layout.tails) >= MAX_LEARNT:
                layout.tails.clear()
            layout.tails[data[at + layout.end : stop]] = response


class MessageReader:
    """``feed`` it the stream's bytes, cut anywhere."""

    __slots__ = ("_at", "_fields", "_head", "_known_end", "_layouts", "_resources_end", "_rest", "_size", "_skip")

    def __init__(self, layouts: Layouts) -> None:
        self._layouts = layouts
        self._rest = b""  # an incomplete prefix or field, of bounded size
        self._size = -1  # of the message in progress, -1 between messages
        self._at = self._skip = 0  # how much of it was read; how much of what follows is of no interest
        self._resources_end = self._known_end = 0
        self._head: bytes | None = None
        self._fields: dict[int, bytes] = {}

    def feed(self, data: bytes, at: int, end: int) -> list[Response]:
        """The responses that ``data[at:end]`` completes. Raises ``MessageError``."""
        if self._skip > end - at:
            self._skip -= end - at
            self._at += end - at
            return []
        if self._rest:
            data = self._rest + data[at:end]
            self._rest, at, end = b"", 0, len(data)
        found: list[Response] = []
        began = -1  # where the message in progress does, if here
        while at < end:
            if self._size < 0:
                if end - at < GRPC_PREFIX_BYTES:
                    self._rest = data[at:end]
                    break
                if (response := self._layouts.recall(data, at, end)) is not None:
                    found.append(response)
                    at += GRPC_PREFIX_BYTES + response.size
                    continue
                self._begin(data, at, end)
                began = at
                at += GRPC_PREFIX_BYTES
            stop = min(end, at + self._size - self._at)
            behind = self._read(data, at, stop)
            self._at += behind - at
            at = behind
            if self._at == self._size:
                found.append(self._finish(data, began, at))
                began = -1
            elif at < stop:
                if self._at + stop - at == self._size:
                    raise MessageError("a field that goes beyond its message")
                self._rest = data[at:end]
                break
        return found

    def _begin(self, data: bytes, at: int, end: int) -> None:
        compressed, size = _PREFIX.unpack_from(data, at)
        if compressed:
            raise MessageError("a compressed message, which was not asked for")
        self._size = size + GRPC_PREFIX_BYTES
        self._at = GRPC_PREFIX_BYTES
        self._skip = self._resources_end = self._known_end = 0
        if size >= WORTH_LEARNING_BYTES and end - at >= HEAD_BYTES:
            self._head = head = _head(data, at)
            self._known_end = self._layouts.end(head)
        else:
            self._head = None

    def _finish(self, data: bytes, began: int, at: int) -> Response:
        if self._skip:
            raise MessageError("a field that goes beyond its message")
        if self._head is not None and not self._known_end and self._resources_end:
            self._layouts.learn(self._head, self._resources_end)
        fields, size = self._fields, self._size - GRPC_PREFIX_BYTES
        self._size = -1
        self._fields = {}
        version, type_url, nonce = (fields.get(tag, b"") for tag in KEPT_TAGS)
        response = Response(version, type_url, nonce, size)
        if self._head is not None and began >= 0:
            self._layouts.remember(data, began, at, response)
        return response

    def _read(self, data: bytes, at: int, stop: int) -> int:
        """Read whole fields up to ``stop``; where the first one begins that has not come entirely."""
        base = self._at - at
        if self._skip:
            at = self._skip_to(at + self._skip, stop)
        try:
            while at < stop:
                tag = data[at]
                if tag == RESOURCES_TAG:
                    behind = self._behind_resources(data, at, stop, base)
                elif tag in KEPT_TAGS:
                    behind = self._keep(tag, data, at, stop)
                else:
                    behind = _behind(data, at, stop)
                if not behind:
                    return at
                at = self._skip_to(behind, stop)
        except IndexError:
            return at
        return at

    def _skip_to(self, behind: int, stop: int) -> int:
        self._skip = max(behind - stop, 0)
        return min(behind, stop)

    def _behind_resources(self, data: bytes, at: int, stop: int, base: int) -> int:
        """Where this resource ends, or all of them where that is known; 0 when its length has not come yet."""
        if self._known_end:
            if self._resources_end or self._known_end <= base + at:
                raise MessageError("other resources than in a response that begins alike")
            self._resources_end = self._known_end
            return self._known_end - base
        if self._resources_end not in (0, base + at):
            self._head = None  # they do not stand together: nothing to learn
        behind = _behind(data, at, stop)
        if behind:
            self._resources_end = base + behind
        return behind

    def _keep(self, tag: int, data: bytes, at: int, stop: int) -> int:
        size, begin = _varint(data, at + 1)
        behind = begin + size
        if size > MAX_KEPT_BYTES:
            raise MessageError(f"a version, type or nonce of {size} bytes")
        if behind > stop:
            return 0
        self._fields[tag] = data[begin:behind]
        return behind


class WholeReader:
    """As `MessageReader`, but keeps each message whole and hands it to ``keep`` first."""

    def __init__(self, layouts: Layouts, keep: Callable[[bytes], None]) -> None:
        self._reader = MessageReader(layouts)
        self._keep = keep
        self._held = bytearray()

    def feed(self, data: bytes, at: int, end: int) -> list[Response]:
        """The responses that ``data[at:end]`` completes. Raises ``MessageError``."""
        self._held += data[at:end]
        found = self._reader.feed(data, at, end)
        for response in found:
            behind = GRPC_PREFIX_BYTES + response.size
            self._keep(bytes(self._held[GRPC_PREFIX_BYTES:behind]))
            del self._held[:behind]
        return found


def _head(data: bytes, at: int) -> bytes:
    """What a response begins with, up to its resources: Go's come in another order on each stream."""
    version = at + GRPC_PREFIX_BYTES
    if data[version : version + 1] != VERSION_BYTE:
        return data[at : at + HEAD_BYTES]
    return data[at : version + 2 + int.from_bytes(data[version + 1 : version + 2])]


def _behind(data: bytes, at: int, stop: int) -> int:
    """Where the field at ``at`` ends; 0 when too little of it has come to tell."""
    tag, begin = _varint(data, at)
    wire_type = tag & 7
    if wire_type == 0:
        begin = _varint(data, begin)[1]
        return begin if begin <= stop else 0
    if wire_type == 2:
        size, begin = _varint(data, begin)
        return begin + size if begin <= stop else 0
    if wire_type in FIXED_BYTES:
        return begin + FIXED_BYTES[wire_type]
    raise MessageError(f"a field of wire type {wire_type}")


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """A number and where it ends; raises ``IndexError`` where the bytes end before."""
    value = data[at]
    if value <= 0x7F:
        return value, at + 1
    value &= 0x7F
    shift = 7
    while shift < 70:
        at += 1
        byte = data[at]
        value |= (byte & 0x7F) << shift
        if byte <= 0x7F:
            return value, at + 1
        shift += 7
    raise MessageError("a number of more than ten bytes")
