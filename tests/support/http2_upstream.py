"""An HTTP/2 upstream that ends every stream with RST_STREAM."""

from __future__ import annotations

import asyncio
import struct
from typing import cast

from tests.support.background import Background
from tests.support.process import LOOPBACK

_PREFACE_BYTES = 24
_HEAD_BYTES = 9
_HEADERS, _RST_STREAM, _SETTINGS, _PING = 1, 3, 4, 6
_ACK = 1
_INTERNAL_ERROR = 2


class ResettingUpstream:
    """It listens on a free loopback port; ``requests`` counts the streams that it has reset."""

    def __init__(self, background: Background) -> None:
        self.requests = 0
        self._background = background
        self._transports: list[asyncio.WriteTransport] = []
        self._server = background.run(self._listen())
        self.port: int = self._server.sockets[0].getsockname()[1]

    async def _listen(self) -> asyncio.Server:
        return await asyncio.get_running_loop().create_server(lambda: _Connection(self), LOOPBACK, 0)

    def connected(self, transport: asyncio.WriteTransport) -> None:
        """Note a connection, so that close() can drop it."""
        self._transports.append(transport)

    def close(self) -> None:
        """Stop listening and drop all connections."""
        self._background.run(self._close())

    async def _close(self) -> None:
        self._server.close()
        for transport in self._transports:
            transport.abort()


class _Connection(asyncio.Protocol):
    def __init__(self, upstream: ResettingUpstream) -> None:
        self._upstream = upstream
        self._received = b""
        self._is_begun = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.WriteTransport, transport)
        self._upstream.connected(self._transport)
        self._write(_SETTINGS, 0, 0)

    def data_received(self, data: bytes) -> None:
        self._received += data
        if not self._is_begun and len(self._received) >= _PREFACE_BYTES:
            self._received, self._is_begun = self._received[_PREFACE_BYTES:], True
        while self._is_begun and len(self._received) >= _HEAD_BYTES:
            length = int.from_bytes(self._received[:3], "big")
            if len(self._received) < _HEAD_BYTES + length:
                return
            kind, flags, stream = struct.unpack(">BBI", self._received[3:_HEAD_BYTES])
            payload = self._received[_HEAD_BYTES : _HEAD_BYTES + length]
            self._received = self._received[_HEAD_BYTES + length :]
            self._take(kind, flags, stream, payload)

    def _take(self, kind: int, flags: int, stream: int, payload: bytes) -> None:
        if kind == _HEADERS:
            self._upstream.requests += 1
            self._write(_RST_STREAM, 0, stream, struct.pack(">I", _INTERNAL_ERROR))
        elif kind in {_SETTINGS, _PING} and not flags & _ACK:
            self._write(kind, _ACK, 0, payload if kind == _PING else b"")

    def _write(self, kind: int, flags: int, stream: int, payload: bytes = b"") -> None:
        self._transport.write(len(payload).to_bytes(3, "big") + struct.pack(">BBI", kind, flags, stream) + payload)
