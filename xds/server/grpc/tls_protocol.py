"""TLS between a socket and a `Connection`.

The TLS of asyncio and uvloop keeps a buffer of the size of the largest read: 200 kB per connection of an Envoy that
repeats its node. This module passes received bytes to OpenSSL in small pieces, and only OpenSSL keeps buffers.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Iterable
from contextlib import suppress
from typing import Any, cast

from xds.fleet.refused_streams import RecordRefusal, RefusalReason
from xds.server.identity import peer_name
from xds.server.tls import PLAINTEXT, failure_text, is_plaintext, plaintext_answer

HANDSHAKE_S = 20.0
PIECE_BYTES = 4 << 10  # OpenSSL's buffer grows by this much beyond an incomplete record
RECORD_BYTES = 16 << 10  # the largest TLS record


class TlsProtocol(asyncio.Protocol):
    """The protocol of the socket, and the transport of ``inner``, which it connects after the handshake.

    ``refuse`` records a connection without TLS and a handshake that fails.
    """

    __slots__ = (
        "_incoming", "_inner", "_is_established", "_is_tls", "_outgoing", "_refuse", "_timer", "_tls", "_transport",
    )  # fmt: skip

    def __init__(self, inner: asyncio.Protocol, context: ssl.SSLContext, refuse: RecordRefusal) -> None:
        self._inner = inner
        self._refuse = refuse
        self._is_tls = False  # the first byte was that of a handshake
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._is_established = False
        self._timer: asyncio.TimerHandle | None = None
        self._transport: asyncio.Transport

    # For the socket

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start the timeout of the handshake."""
        self._transport = cast(asyncio.Transport, transport)  # uvloop's transports are not subclasses of asyncio's
        self._timer = asyncio.get_running_loop().call_later(HANDSHAKE_S, self._time_out)

    def data_received(self, data: bytes) -> None:
        """Decrypt received bytes and pass them on."""
        if not self._is_tls:
            if is_plaintext(data):
                self._end_plaintext(data)
                return
            self._is_tls = True
        plain: list[bytes] = []  # passed on at once: ``inner`` bounds its work per read
        try:
            for at in range(0, len(data), PIECE_BYTES):
                if self._transport.is_closing():
                    return
                self._incoming.write(data[at : at + PIECE_BYTES])
                if self._decrypt(plain):
                    self._pass_on(plain)
                    self.close()
                    return
        except ssl.SSLError as error:
            self._pass_on(plain)
            self._fail(error)
            return
        self._pass_on(plain)

    def _pass_on(self, plain: list[bytes]) -> None:
        if plain:
            self._inner.data_received(b"".join(plain))

    def eof_received(self) -> None:
        """Close the socket, by returning None: gRPC needs both directions."""

    def connection_lost(self, exc: Exception | None) -> None:
        """The socket is closed."""
        if self._timer is not None:
            self._timer.cancel()
        if self._is_established:
            self._inner.connection_lost(exc)

    def pause_writing(self) -> None:
        """The socket's buffer is full."""
        if self._is_established:
            self._inner.pause_writing()

    def resume_writing(self) -> None:
        """The socket's buffer has room."""
        if self._is_established:
            self._inner.resume_writing()

    # For ``inner``

    def get_extra_info(self, name: str) -> Any:
        """As `asyncio.BaseTransport.get_extra_info`."""
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
        """Encrypt and send; small parts share a record."""
        self.write(b"".join(parts))

    def pause_reading(self) -> None:
        """Read nothing from the socket until ``resume_reading``."""
        self._transport.pause_reading()

    def resume_reading(self) -> None:
        """Read from the socket."""
        self._transport.resume_reading()

    def is_closing(self) -> bool:
        """Whether the socket is closed, or about to be."""
        return self._transport.is_closing()

    def close(self) -> None:
        """Send close_notify, and close after everything is written."""
        with suppress(ssl.SSLError):
            self._tls.unwrap()  # raised because it would wait for the client's close_notify
        self._flush()
        self._transport.close()

    def abort(self) -> None:
        """Close the socket at once."""
        self._transport.abort()

    # TLS

    def _decrypt(self, plain: list[bytes]) -> bool:
        """Continue the handshake, or decrypt. True: the client has sent close_notify. Raises ``ssl.SSLError``."""
        if not self._is_established:
            try:
                self._tls.do_handshake()
            except ssl.SSLWantReadError:
                self._flush()
                return False
            self._connect()
        try:
            while data := self._tls.read(RECORD_BYTES):
                plain.append(data)
        except ssl.SSLWantReadError:
            return False
        return True

    def _connect(self) -> None:
        self._is_established = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._flush()
        self._inner.connection_made(cast(asyncio.Transport, self))

    def _flush(self) -> None:
        if self._outgoing.pending and not self._transport.is_closing():
            self._transport.write(self._outgoing.read())

    def _fail(self, error: ssl.SSLError) -> None:
        """Record the error, and send the alert that OpenSSL has made, if any."""
        self._record(failure_text(error))
        self._flush()
        self._transport.close()

    def _end_plaintext(self, data: bytes) -> None:
        self._record(PLAINTEXT)
        self._transport.write(plaintext_answer(data))
        self._transport.close()

    def _time_out(self) -> None:
        if self._is_tls:  # a connection without a byte is none of a client that was refused
            self._record(f"the TLS handshake did not end within {HANDSHAKE_S:g} s")
        self._transport.abort()

    def _record(self, message: str) -> None:
        self._refuse(RefusalReason.TLS, message, peer_name(self._transport.get_extra_info("peername")))
