"""TLS of both ports: PEM files, TLS contexts made from them, and reloading when the files change."""

from __future__ import annotations

import asyncio
import ssl
from dataclasses import dataclass
from pathlib import Path
from stat import S_ISREG

from xds.server.logs import get_logger
from xds.server.options import ServerOptions
from xds.wire.http2.frames import TLS_HANDSHAKE

FOLLOW_EVERY_S = 5.0
_PEM_BYTES = 4 << 20
PLAINTEXT = "the client speaks no TLS, and this port does"
_HTTP1_METHODS = (b"GET ", b"HEAD ", b"POST ", b"PUT ", b"DELETE ", b"PATCH ", b"OPTIONS ")
_HTTP1_ANSWER = (
    b"HTTP/1.1 400 Bad Request\r\ncontent-type: text/plain\r\ncontent-length: 45\r\nconnection: close\r\n\r\n"
    b"this port speaks TLS: use an https:// address"
)
_ALERTS = {
    "UNKNOWN_CA": "the client does not trust the certificate of this server",
    "BAD_CERTIFICATE": "the client refuses the certificate of this server",
    "CERTIFICATE_UNKNOWN": "the client refuses the certificate of this server",
    "CERTIFICATE_EXPIRED": "the client takes the certificate of this server for expired",
}

_log = get_logger("xds.server.tls")
_http_log = get_logger("xds.https")


Stamp = tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class PemFiles:
    """Paths of the certificate, the key, and the authorities of client certificates.

    ``is_optional``: client certificates are requested but not required.
    """

    certificate: Path
    key: Path
    client_ca: Path | None = None
    is_optional: bool = False

    def stamp(self) -> Stamp:
        """A value that changes when a file is written. Raises ``OSError`` if a file is missing, or is none.

        OpenSSL would wait for the writer of a named pipe, and read a device without end.
        """
        files = (path for path in (self.certificate, self.key, self.client_ca) if path is not None)
        stats = [(path, path.stat()) for path in files]
        for path, state in stats:
            if not S_ISREG(state.st_mode) or state.st_size > _PEM_BYTES:
                raise OSError(0, f"not a regular file of at most {_PEM_BYTES} bytes", str(path))
        return tuple((state.st_mtime_ns, state.st_ino) for _, state in stats)


class TlsContexts:
    """TLS contexts of the gRPC port: a new connection gets one made from the current files.

    During an incomplete rotation the last valid context stays in use. TLS sessions do not pass from one context to the
    next, so a client whose authority was removed cannot resume an earlier session.
    """

    def __init__(self, files: PemFiles) -> None:
        self._files = files
        self._stamp = files.stamp()
        self._current = _context(files)

    def current(self) -> ssl.SSLContext:
        """The context for a new connection."""
        try:
            stamp = self._files.stamp()
            if stamp != self._stamp:
                self._current, self._stamp = _context(self._files), stamp
                _log.info("tls.reloaded", certificate=str(self._files.certificate))
        except OSError as error:  # ssl.SSLError included
            _log.warning("tls.reload_failed", error_message=str(error))
        return self._current


def _context(files: PemFiles) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain(files.certificate, files.key)
    context.set_alpn_protocols(["h2"])
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_TICKET  # a ticket cannot be revoked
    context.num_tickets = 0
    if files.client_ca is not None:
        context.load_verify_locations(files.client_ca)
        context.verify_mode = ssl.CERT_OPTIONAL if files.is_optional else ssl.CERT_REQUIRED
    return context


def pem_files(options: ServerOptions) -> PemFiles | None:
    """The files of the gRPC port; None for plaintext. Raises ``ValueError`` for contradicting options."""
    if options.tls_certificate is None and options.tls_key is None:
        if options.client_ca is not None:
            raise ValueError("client certificates need TLS: set tls_certificate and tls_key")
        return None
    if options.tls_certificate is None or options.tls_key is None:
        raise ValueError("TLS needs both tls_certificate and tls_key")
    return PemFiles(options.tls_certificate, options.tls_key, options.client_ca, options.client_cert_optional)


def is_plaintext(data: bytes) -> bool:
    """Whether the first bytes of a connection are not those of a TLS handshake."""
    return data[:1] != TLS_HANDSHAKE


def plaintext_answer(data: bytes) -> bytes:
    """The answer to the first bytes of a client that speaks no TLS: an error for HTTP/1, else nothing."""
    return _HTTP1_ANSWER if data.startswith(_HTTP1_METHODS) else b""


def failure_text(error: ssl.SSLError) -> str:
    """Why a handshake failed, in the words of an operator."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the client certificate is refused: {error.verify_message}"
    reason = error.reason or str(error)
    if reason == "PEER_DID_NOT_RETURN_A_CERTIFICATE":
        return "no client certificate"
    alert = next((text for name, text in _ALERTS.items() if reason.endswith(f"ALERT_{name}")), "")
    return alert or f"the TLS handshake failed: {reason.lower().replace('_', ' ')}"


async def follow(context: ssl.SSLContext, files: PemFiles, every_s: float = FOLLOW_EVERY_S) -> None:
    """Load the files into a context in use whenever they change, for the HTTP port. Runs until cancelled.

    New connections get the new certificate. After an incomplete rotation the files are tried again.
    """
    loaded = files.stamp()
    while True:
        await asyncio.sleep(every_s)
        try:
            stamp = files.stamp()
            if stamp == loaded:
                continue
            await asyncio.to_thread(_load, context, files)
        except OSError as error:  # ssl.SSLError included
            _http_log.warning("tls.reload_failed", error_message=str(error))
            continue
        loaded = stamp
        _http_log.info("tls.reloaded", certificate=str(files.certificate))


def _load(context: ssl.SSLContext, files: PemFiles) -> None:
    # A key that does not match would remove the key of a context in use: the pair is tried on another context first.
    for each in (ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), context):
        each.load_cert_chain(files.certificate, files.key)
    if files.client_ca is not None:
        context.load_verify_locations(files.client_ca)
