"""TLS between a socket and a `Connection`.

The TLS of asyncio and uvloop keeps a buffer of the size of the largest read: 200 kB per connection of an Envoy that
repeats its node. This module passes received bytes to OpenSSL in small pieces, and only OpenSSL keeps buffers.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Iterable
from contextlib import suppress
from typing import Any, Protocol, cast

from xds.fleet.refused_streams import RecordRefusal, RefusalReason
from xds.server.identity import peer_name
from xds.server.tls import PLAINTEXT, failure_text, is_plaintext, plaintext_answer

PIECE_BYTES = 4 << 10  # OpenSSL's buffer grows by this much beyond an incomplete record
RECORD_BYTES = 16 << 10  # the largest TLS record


class Inner(Protocol):
    """The protocol of the decrypted bytes."""

    def accepted(self, transport: asyncio.BaseTransport) -> None:
        """The socket is open; the handshake has not begun."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The handshake is complete."""

    def data_received(self, data: bytes) -> None:
        """Decrypted bytes have arrived."""

    def connection_lost(self, exc: Exception | None) -> None:
        """The socket is closed, perhaps before the handshake was complete."""

    def pause_writing(self) -> None:
        """The socket's buffer is full."""

    def resume_writing(self) -> None:
        """The socket's buffer has room."""


class TlsProtocol(asyncio.Protocol):
    """The protocol of the socket, and the transport of ``inner``, which it connects after the handshake.

    ``inner`` bounds the time of the handshake: it can pause, resume and abort its transport from `Inner.accepted` on.
    ``refuse`` records a connection without TLS and a handshake that fails.
    """

    __slots__ = ("_context", "_incoming", "_inner", "_is_established", "_outgoing", "_refuse", "_tls", "_transport")

    def __init__(self, inner: Inner, context: ssl.SSLContext, refuse: RecordRefusal) -> None:
        self._inner = inner
        self._context = context
        self._refuse = refuse
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls: ssl.SSLObject | None = None  # 20 kB, which a client that sends nothing does not get
        self._is_established = False
        self._transport: asyncio.Transport

    # For the socket

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Tell ``inner`` that the socket is open."""
        self._transport = cast(asyncio.Transport, transport)  # uvloop's transports are not subclasses of asyncio's
        self._inner.accepted(cast(asyncio.Transport, self))

    def data_received(self, data: bytes) -> None:
        """Decrypt received bytes and pass them on."""
        if self._tls is None:
            if is_plaintext(data):
                self._end_plaintext(data)
                return
            self._tls = self._context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        plain: list[bytes] = []  # passed on at once: ``inner`` bounds its work per read
        try:
            for at in range(0, len(data), PIECE_BYTES):
                if self._transport.is_closing():
                    return
                self._incoming.write(data[at : at + PIECE_BYTES])
                if self._decrypt(self._tls, plain):
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
        assert self._tls is not None, "the handshake is complete"
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
        if self._tls is not None:
            with suppress(ssl.SSLError):
                self._tls.unwrap()  # raised because it would wait for the client's close_notify
        self._flush()
        self._transport.close()

    def abort(self) -> None:
        """Close the socket at once."""
        self._transport.abort()

    # TLS

    def _decrypt(self, tls: ssl.SSLObject, plain: list[bytes]) -> bool:
        """Continue the handshake, or decrypt. True: the client has sent close_notify. Raises ``ssl.SSLError``."""
        if not self._is_established:
            try:
                tls.do_handshake()
            except ssl.SSLWantReadError:
                self._flush()
                return False
            self._connect()
        try:
            while data := tls.read(RECORD_BYTES):
                plain.append(data)
        except ssl.SSLWantReadError:
            return False
        return True

    def _connect(self) -> None:
        self._is_established = True
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

    def _record(self, message: str) -> None:
        self._refuse(RefusalReason.TLS, message, peer_name(self._transport.get_extra_info("peername")))
