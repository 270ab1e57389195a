"""Connections of this process, by force: gRPC has no way to end a call whose write is stuck.

Once a message waits for the client's flow control, cancelling its handler leaves it where it is, and a status would
wait behind it. What ends it, and frees it, is the end of the connection.
"""

from __future__ import annotations

import socket
from collections.abc import Collection
from pathlib import Path
from typing import Any

from xds.control.certificate import Certificate, read_der

_OPEN_FILES = Path("/dev/fd")
_MAPPED = "::ffff:"  # an IPv4 client of a socket for both


def cut(peers: Collection[str]) -> int:
    """Shut down the connections to these peers (as gRPC names them: ``ipv4:10.0.0.1:4711``); how many there were.

    Looks at every open file of the process: call it from a thread.
    """
    return sum(_cut(int(file.name), peers) for file in _OPEN_FILES.iterdir())


def _cut(descriptor: int, peers: Collection[str]) -> bool:
    try:
        # Not a copy of it: closing one would release the locks that the store has on its files.
        connection = socket.socket(fileno=descriptor)
    except OSError:
        return False
    try:
        if peer_name(connection.getpeername()) not in peers:
            return False
        connection.shutdown(socket.SHUT_RDWR)
    except OSError:
        return False
    finally:
        connection.detach()
    return True


def peer_name(address: Any) -> str:
    """How gRPC names the peer of a connection; empty for one that is no IP address."""
    if not isinstance(address, tuple) or len(address) < 2:
        return ""
    host, port = address[:2]
    if ":" not in host:
        return f"ipv4:{host}:{port}"
    if host.startswith(_MAPPED):
        return f"ipv4:{host.removeprefix(_MAPPED)}:{port}"
    return f"ipv6:[{host}]:{port}"


def peer_certificate(tls: Any) -> Certificate | None:
    """What the client of a TLS connection has shown and OpenSSL has verified; None for nothing, or without TLS.

    ``tls`` is an ``SSLObject``. One that cannot be read has no names; it is good for nothing, but is not overlooked.
    """
    data = tls.getpeercert(binary_form=True) if tls is not None else None
    if not data:
        return None
    try:
        return read_der(data)
    except ValueError:
        return Certificate()
