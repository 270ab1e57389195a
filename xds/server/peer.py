"""The other end of a connection: its address and its certificate."""

from __future__ import annotations

from typing import Any

from xds.control.certificate import Certificate, read_der

_MAPPED = "::ffff:"  # an IPv4 client on a socket for both versions


def peer_name(address: Any) -> str:
    """The address as gRPC writes it, ``ipv4:10.0.0.1:4711``; empty for a connection that is not of IP."""
    if not isinstance(address, tuple) or len(address) < 2:
        return ""
    host, port = address[:2]
    if ":" not in host:
        return f"ipv4:{host}:{port}"
    if host.startswith(_MAPPED):
        return f"ipv4:{host.removeprefix(_MAPPED)}:{port}"
    return f"ipv6:[{host}]:{port}"


def peer_certificate(tls: Any) -> Certificate | None:
    """The client certificate of a TLS connection, verified by OpenSSL; None without TLS or certificate.

    ``tls`` is an ``SSLObject``. A certificate that cannot be read has no names and so no rights.
    """
    data = tls.getpeercert(binary_form=True) if tls is not None else None
    if not data:
        return None
    try:
        return read_der(data)
    except ValueError:
        return Certificate()
