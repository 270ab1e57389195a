"""TLS between a socket and a `Connection`.

asyncio's own, and uvloop's, keep what the largest read took: 200 kB of each stream whose node comes with its requests.
Here what is received is handed to OpenSSL in small pieces, and nothing is kept but what it keeps itself.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Iterable
from contextlib import suppress
from typing import Any, cast

from xds.server.connections import peer_name
from xds.server.logs import get_logger

HANDSHAKE_S = 20.0
PIECE_BYTES = 4 << 10  # what OpenSSL's buffer grows by, beyond the record that is not whole yet
RECORD_BYTES = 16 << 10  # the most that a record holds

_log = get_logger("xds.server.rpc.secured")


class Secured(asyncio.Protocol):
    """A protocol to the socket, a transport to ``inner``, which is connected when the handshake is done."""

    __slots__ = ("_incoming", "_inner", "_is_shaken", "_outgoing", "_timer", "_tls", "_transport")

    def __init__(self, inner: asyncio.Protocol, context: ssl.SSLContext) -> None:
        self._inner = inner
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._is_shaken = False
        self._timer: asyncio.TimerHandle | None = None
        self._transport: asyncio.Transport

    # As the socket sees it

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's transports are no subclasses of asyncio's
        self._timer = asyncio.get_running_loop().call_later(HANDSHAKE_S, self._transport.abort)

    def data_received(self, data: bytes) -> None:
        heard: list[bytes] = []  # handed on at once: ``inner`` bounds what it does of one read
        try:
            for at in range(0, len(data), PIECE_BYTES):
                if self._transport.is_closing():
                    return
                self._incoming.write(data[at : at + PIECE_BYTES])
                if self._take(heard):
                    self._hand_on(heard)
                    self.close()
                    return
        except ssl.SSLError as error:
            self._hand_on(heard)
            self._fail(error)
            return
        self._hand_on(heard)

    def _hand_on(self, heard: list[bytes]) -> None:
        if heard:
            self._inner.data_received(b"".join(heard))

    def eof_received(self) -> None:
        """The socket is closed then: gRPC has no use for a half of it."""

    def connection_lost(self, exc: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._is_shaken:
            self._inner.connection_lost(exc)

    def pause_writing(self) -> None:
        if self._is_shaken:
            self._inner.pause_writing()

    def resume_writing(self) -> None:
        if self._is_shaken:
            self._inner.resume_writing()

    # As ``inner`` sees it

    def get_extra_info(self, name: str) -> Any:
        return self._tls if name == "ssl_object" else self._transport.get_extra_info(name)

    def write(self, data: bytes | memoryview) -> None:
        """Encrypt and send."""
        if self._transport.is_closing():
            return
        rest = memoryview(data)
        sealed: list[bytes] = []
        try:
            while rest:
                rest = rest[self._tls.write(rest) :]
                sealed.append(self._outgoing.read())
        except ssl.SSLError as error:
            self._fail(error)
            return
        self._transport.writelines(sealed)

    def writelines(self, parts: Iterable[bytes | memoryview]) -> None:
        """Encrypt and send; what is small shares a record."""
        self.write(b"".join(parts))

    def pause_reading(self) -> None:
        self._transport.pause_reading()

    def resume_reading(self) -> None:
        self._transport.resume_reading()

    def is_closing(self) -> bool:
        return self._transport.is_closing()

    def close(self) -> None:
        """Say goodbye, and close when all is written."""
        with suppress(ssl.SSLError):
            self._tls.unwrap()  # it would wait for the client's goodbye, which we do not
        self._flush()
        self._transport.close()

    def abort(self) -> None:
        self._transport.abort()

    # TLS

    def _take(self, heard: list[bytes]) -> bool:
        """Shake hands, or decrypt what has come; True: the client has said goodbye. Raises ``ssl.SSLError``."""
        if not self._is_shaken:
            try:
                self._tls.do_handshake()
            except ssl.SSLWantReadError:
                self._flush()
                return False
            self._begin()
        try:
            while data := self._tls.read(RECORD_BYTES):
                heard.append(data)
        except ssl.SSLWantReadError:
            return False
        return True

    def _begin(self) -> None:
        self._is_shaken = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._flush()
        self._inner.connection_made(cast(asyncio.Transport, self))

    def _flush(self) -> None:
        if self._outgoing.pending and not self._transport.is_closing():
            self._transport.write(self._outgoing.read())

    def _fail(self, error: ssl.SSLError) -> None:
        """The client is told by an alert, as far as OpenSSL has made one."""
        peer = peer_name(self._transport.get_extra_info("peername"))
        _log.info("tls.failed", peer=peer, error_message=error.reason or str(error))
        self._flush()
        self._transport.close()
