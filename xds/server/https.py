"""TLS of the HTTP port: its certificate is followed when the files change, and requests know their client's."""

from __future__ import annotations

import asyncio
import ssl

import structlog
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from xds.server.connections import peer_certificate
from xds.server.tls import PemFiles

LOOK_EVERY_S = 5.0

_log = structlog.get_logger(logger_name="xds.https")


class CertificateProtocol(HttpToolsProtocol):
    """uvicorn's protocol; requests find the verified certificate of their client in ``request.state.certificate``."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        certificate = peer_certificate(transport.get_extra_info("ssl_object"))
        if certificate is not None:
            self.app_state = {**self.app_state, "certificate": certificate}


async def follow(context: ssl.SSLContext, files: PemFiles, every_s: float = LOOK_EVERY_S) -> None:
    """Load the files into a context in use whenever they change; new connections are shown the new certificate."""
    seen = files.stamp()
    while True:
        await asyncio.sleep(every_s)
        try:
            stamp = files.stamp()
            if stamp == seen:
                continue
            await asyncio.to_thread(_load, context, files)
        except OSError as error:  # of which ssl.SSLError is one; a half-done rotation is looked at again
            _log.warning("tls.reload_failed", error_message=str(error))
            continue
        seen = stamp
        _log.info("tls.reloaded", certificate=str(files.certificate))


def _load(context: ssl.SSLContext, files: PemFiles) -> None:
    # A pair that does not fit would take the key from a context in use: it is tried on another one.
    for each in (ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), context):
        each.load_cert_chain(files.certificate, files.key)
    if files.client_ca is not None:
        context.load_verify_locations(files.client_ca)
