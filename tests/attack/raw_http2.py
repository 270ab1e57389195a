"""Sockets to the gRPC port, for what no HTTP/2 client sends."""

from __future__ import annotations

import socket
from collections.abc import Iterable
from contextlib import suppress
from threading import Thread
from types import TracebackType
from typing import Self

from tests.attack.raw_http import TIMEOUT_S
from tests.support.process import LOOPBACK, wait_until
from tests.wire.http2.talk import Frame
from xds.wire.http2 import frames as f
from xds.wire.http2.frames import ErrorCode
from xds.wire.http2.headers import encode

HELLO = f.PREFACE + f.frame(f.SETTINGS, 0, 0)
ADS = "/envoy.service.discovery.v3.AggregatedDiscoveryService/StreamAggregatedResources"


def head(path: str = ADS, *fields: tuple[str, str]) -> bytes:
    """The header block of a call."""
    pseudo = ((":method", "POST"), (":scheme", "http"), (":path", path), (":authority", "localhost"))
    return encode((*pseudo, ("content-type", "application/grpc"), ("te", "trailers"), *fields))


class RawHttp2:
    """A connection that has sent its preface; what comes back is read beside, or never."""

    def __init__(self, port: int, hello: bytes = HELLO, reads: bool = True) -> None:
        self.received = bytearray()
        self.is_over = False
        self._socket = socket.create_connection((LOOPBACK, port), TIMEOUT_S)
        self._thread = Thread(target=self._read, daemon=True)
        if reads:
            self._thread.start()
        self.send(hello)

    def send(self, data: bytes) -> bool:
        """False once the server has closed the connection."""
        try:
            self._socket.sendall(data)
        except OSError:
            return False
        return not self.is_over

    def flood(self, batches: Iterable[bytes]) -> int:
        """Send until there is no more, or the server has had enough; how many batches went out."""
        sent = 0
        for batch in batches:
            if not self.send(batch):
                break
            sent += 1
        return sent

    def frames(self) -> list[Frame]:
        """The whole frames that came so far."""
        found, at, data = [], 0, bytes(self.received)
        while at + f.FRAME_HEADER_BYTES <= len(data):
            length_and_kind, flags, stream_id = f.HEADER.unpack_from(data, at)
            start = at + f.FRAME_HEADER_BYTES
            at = start + (length_and_kind >> 8)
            if at <= len(data):
                found.append(Frame(length_and_kind & 0xFF, flags, stream_id, data[start:at]))
        return found

    def goaway(self) -> ErrorCode:
        """Wait for the end of the connection; why the server ended it."""
        wait_until(lambda: self.is_over, "the connection ends")
        last = [frame for frame in self.frames() if frame.kind == f.GOAWAY]
        assert last, "closed without a GOAWAY"
        return ErrorCode(f.LAST_AND_CODE.unpack_from(last[-1].payload)[1])

    def reset(self, stream_id: int) -> ErrorCode:
        """Wait for the reset of a stream; its code."""
        found = wait_until(
            lambda: [each for each in self.frames() if each.kind == f.RST_STREAM and each.stream_id == stream_id],
            f"stream {stream_id} is reset",
        )
        return ErrorCode(found[0].number)

    def close(self) -> None:
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        if self._thread.ident is not None:
            self._thread.join()
        self._socket.close()

    def _read(self) -> None:
        with suppress(OSError):
            while data := self._socket.recv(1 << 16):
                self.received += data
        self.is_over = True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()
