"""TLS of the gRPC port: server certificate, optional client certificates, both followed when their files change."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc

from xds.server.logs import get_logger
from xds.server.options import ServerOptions

_log = get_logger("xds.server.tls")


Stamp = tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class PemFiles:
    """Where certificate, key and the authorities of clients are. ``is_optional``: clients may show no certificate."""

    certificate: Path
    key: Path
    client_ca: Path | None = None
    is_optional: bool = False

    def stamp(self) -> Stamp:
        """Differs when one of them was written. Raises ``OSError`` when one is gone."""
        files = (path for path in (self.certificate, self.key, self.client_ca) if path is not None)
        stats = (path.stat() for path in files)
        return tuple((stat.st_mtime_ns, stat.st_ino) for stat in stats)


class GrpcTls:
    """The PEM files, read again when one of them has changed.

    A rotation that is half done (a key that does not fit yet) keeps the old certificate: the new handshake fails in
    the library, and the next one looks again.
    """

    def __init__(self, files: PemFiles) -> None:
        self._files = files
        self._seen = files.stamp()

    def credentials(self) -> Any:
        """Server credentials that follow the files. Raises ``OSError`` when one cannot be read."""
        return grpc.dynamic_ssl_server_credentials(
            self._configuration(), self._changed, require_client_authentication=self._files.client_ca is not None
        )

    def _configuration(self) -> Any:
        pair = (self._files.key.read_bytes(), self._files.certificate.read_bytes())
        roots = self._files.client_ca.read_bytes() if self._files.client_ca is not None else None
        return grpc.ssl_server_certificate_configuration([pair], root_certificates=roots)

    def _changed(self) -> Any:
        """Called by gRPC before each handshake, in its own thread; None means: go on with what you have."""
        try:
            stamp = self._files.stamp()
            if stamp == self._seen:
                return None
            configuration = self._configuration()
        except OSError as error:
            _log.warning("tls.reload_failed", error_message=str(error))
            return None
        self._seen = stamp
        _log.info("tls.reloaded", certificate=str(self._files.certificate))
        return configuration


class TlsContexts:
    """The same PEM files for Python's ``ssl``: each connection gets a context made of the files as they are by then.

    A rotation that is half done keeps the last context that could be made. A session of one context is of no use to
    another: who has lost a certificate's authority cannot go on with one of before.
    """

    def __init__(self, files: PemFiles) -> None:
        self._files = files
        self._seen = files.stamp()
        self._current = _context(files)

    def current(self) -> ssl.SSLContext:
        """The context of a connection that begins now."""
        try:
            stamp = self._files.stamp()
            if stamp != self._seen:
                self._current, self._seen = _context(self._files), stamp
                _log.info("tls.reloaded", certificate=str(self._files.certificate))
        except OSError as error:  # of which ssl.SSLError is one
            _log.warning("tls.reload_failed", error_message=str(error))
        return self._current


def _context(files: PemFiles) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain(files.certificate, files.key)
    context.set_alpn_protocols(["h2"])
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_TICKET  # a ticket cannot be called back
    context.num_tickets = 0
    if files.client_ca is not None:
        context.load_verify_locations(files.client_ca)
        context.verify_mode = ssl.CERT_OPTIONAL if files.is_optional else ssl.CERT_REQUIRED
    return context


def pem_files(options: ServerOptions) -> PemFiles | None:
    """The files of the port; None for plaintext. Raises ``ValueError`` for a certificate without its key."""
    if options.tls_certificate is None and options.tls_key is None:
        if options.client_ca is not None:
            raise ValueError("client certificates need TLS: set tls_certificate and tls_key")
        return None
    if options.tls_certificate is None or options.tls_key is None:
        raise ValueError("TLS needs both tls_certificate and tls_key")
    return PemFiles(options.tls_certificate, options.tls_key, options.client_ca, options.client_cert_optional)
