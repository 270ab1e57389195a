"""Sockets to the HTTP port, for what no HTTP client sends."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterable
from contextlib import suppress

from tests.support.process import LOOPBACK

TIMEOUT_S = 20.0


def connect(port: int, tls: ssl.SSLContext | None = None) -> socket.socket:
    """A connection; with ``tls`` its handshake is done."""
    plain = socket.create_connection((LOOPBACK, port), TIMEOUT_S)
    return tls.wrap_socket(plain, server_hostname="localhost") if tls is not None else plain


def status(connection: socket.socket) -> int:
    """Of the next answer; 0 when the connection is closed without one."""
    head = b""
    with suppress(ConnectionError):
        while b"\r\n\r\n" not in head:
            received = connection.recv(4096)
            if not received:
                break
            head += received
    return int(head.split(maxsplit=2)[1]) if head else 0


def is_closed(connection: socket.socket) -> bool:
    """Whether the server has closed it, without waiting; what it said before is dropped."""
    connection.setblocking(False)
    try:
        while connection.recv(65536):
            continue
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True


def send_until_closed(connection: socket.socket, pieces: Iterable[bytes]) -> int:
    """Send until there is no more, or the server has had enough; how many bytes went out."""
    sent = 0
    with suppress(ConnectionError):
        for piece in pieces:
            connection.sendall(piece)
            sent += len(piece)
    return sent


def ask(port: int, request: bytes) -> int:
    """The status of one request on a connection of its own."""
    with connect(port) as connection:
        connection.sendall(request)
        return status(connection)
