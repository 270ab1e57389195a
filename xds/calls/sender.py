"""The sender for threads: one request at a time on each connection, and connections that stay open in between.

It uses the HTTP client of the standard library, because every command pays for the import: ``xds nodes`` takes twice as
long to start with httpx.
"""

from __future__ import annotations

import os
import ssl
import time
import zlib
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import partial
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from select import POLLIN, poll
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from xds.calls.access import CONNECT_TIMEOUT_S, TIMEOUT_S, ServerAccess, basic, shown_url
from xds.calls.call import Answer, ApiCall
from xds.calls.failures import UnreachableServerError

IDLE_S = 5.0  # servers close connections that are idle for long
IDLE_LIMIT = 20
PIECE_BYTES = 1 << 18
_GZIP = 31  # the format, for zlib


class BlockingSender:
    """Sends calls to a server. Safe to use from several threads. Proxies are those of the environment."""

    def __init__(self, access: ServerAccess, timeout_s: float = TIMEOUT_S) -> None:
        self.access = access
        self._timeout_s = timeout_s
        self._proxy = _proxy(access.scheme, access.host)
        self._idle: deque[tuple[HTTPConnection, float]] = deque(maxlen=IDLE_LIMIT)  # with the time of the last answer

    def send(self, call: ApiCall[Any], page: str = "") -> Answer:
        """The answer to a call, whatever its status. Raises ``UnreachableServerError``."""
        try:
            return self._exchange(call, page)
        except UnreachableServerError as error:
            if not error.is_lost or not call.is_repeatable:
                raise
        return self._exchange(call, page)

    @contextmanager
    def begun(self, call: ApiCall[Any], quiet_s: float) -> Iterator[LongAnswer]:
        """The answer to a call while it arrives. Raises ``UnreachableServerError``, also after ``quiet_s``."""
        connection = self._connection()
        try:
            self._open(connection)
            with self._reaching(connection):
                response = self._begin(connection, call)
                _set_timeout(connection, quiet_s)
            yield LongAnswer(response, partial(self._reaching, connection))
        finally:
            connection.close()

    def certificate(self) -> Mapping[str, Any]:
        """The certificate that the server presents, in the form of ``ssl``; empty without TLS."""
        connection = self._connection()
        self._open(connection)
        with self._reaching(connection):
            certificate = connection.sock.getpeercert() if isinstance(connection.sock, ssl.SSLSocket) else None
        connection.close()
        return certificate or {}

    def close(self) -> None:
        """Close the connections that are idle."""
        while self._idle:
            self._idle.pop()[0].close()

    def _exchange(self, call: ApiCall[Any], page: str) -> Answer:
        connection = self._idle_connection() or self._connection()
        self._open(connection)
        with self._reaching(connection):
            response = self._begin(connection, call, page, {"Accept-Encoding": "gzip"})
            body = response.read()
            if response.getheader("Content-Encoding") == "gzip":
                body = zlib.decompress(body, _GZIP)
        if response.will_close or connection.sock is None:
            connection.close()
        else:
            self._idle.append((connection, time.monotonic()))
        return Answer(response.status, _headers(response), body, response.reason)

    def _open(self, connection: HTTPConnection) -> None:
        if connection.sock is None:
            with self._reaching(connection, is_begun=False):
                connection.connect()

    def _begin(
        self, connection: HTTPConnection, call: ApiCall[Any], page: str = "", added: Mapping[str, str] | None = None
    ) -> HTTPResponse:
        """Send a call, and read the beginning of the answer."""
        _set_timeout(connection, self._timeout_s + call.wait_s)
        headers = {**(added or {}), **call.sent_headers()}
        if self.access.authorization:
            headers["Authorization"] = self.access.authorization
        target = f"{self.access.path}{call.target(page)}"
        if self._proxy is not None and self.access.tls is None:
            target = f"{self.access.scheme}://{_authority(self.access)}{target}"
            headers.update(self._proxy.headers)
        # A server may refuse a body before its end, and close: its answer says why.
        with suppress(BrokenPipeError, ConnectionResetError):
            connection.request(call.method, target, call.content(), headers)
        return connection.getresponse()

    def _idle_connection(self) -> HTTPConnection | None:
        """A connection that is open and still good."""
        while self._idle:
            connection, used = self._idle.pop()
            if time.monotonic() - used < IDLE_S and not _is_readable(connection):
                return connection
            connection.close()
        return None

    def _connection(self) -> HTTPConnection:
        access, proxy = self.access, self._proxy
        host, port = (proxy.host, proxy.port) if proxy is not None else (access.host, access.port)
        timeout_s = min(CONNECT_TIMEOUT_S, self._timeout_s)
        if access.tls is None:
            return HTTPConnection(host, port, timeout=timeout_s)
        connection = HTTPSConnection(host, port, timeout=timeout_s, context=access.tls)
        if proxy is not None:
            connection.set_tunnel(access.host, access.port, proxy.headers)
        return connection

    @contextmanager
    def _reaching(self, connection: HTTPConnection, *, is_begun: bool = True) -> Iterator[None]:
        """Close the connection after an error; failures of the transport become ``UnreachableServerError``."""
        try:
            yield
        except (OSError, HTTPException, zlib.error) as error:
            is_lost = is_begun and isinstance(error, ConnectionError | HTTPException)
            connection.close()
            raise self.access.failure(error, is_lost=is_lost) from error
        except BaseException:
            connection.close()
            raise


class LongAnswer:
    """An answer that is read while it arrives."""

    def __init__(self, response: HTTPResponse, reaching: Callable[[], AbstractContextManager[None]]) -> None:
        self._response = response
        self._reaching = reaching
        self.headers = _headers(response)

    @property
    def is_success(self) -> bool:
        """Whether the request is carried out."""
        return 200 <= self._response.status < 300

    def whole(self) -> Answer:
        """All of it."""
        with self._reaching():
            body = self._response.read()
        return Answer(self._response.status, self.headers, body, self._response.reason)

    def lines(self) -> Iterator[str]:
        """Its lines, without their ends."""
        while line := self._read(self._response.readline):
            yield line.decode("utf-8", "replace").rstrip("\r\n")

    def pieces(self) -> Iterator[bytes]:
        """Its bytes, in pieces."""
        while piece := self._read(partial(self._response.read, PIECE_BYTES)):
            yield piece

    def _read(self, read: Callable[[], bytes]) -> bytes:
        with self._reaching():
            return read()


class _Proxy(NamedTuple):
    """A proxy, and the headers that it asks for."""

    host: str
    port: int
    headers: dict[str, str]


def _proxy(scheme: str, host: str) -> _Proxy | None:
    """The proxy that the environment names for a host. Raises ``ValueError`` for one of another kind."""
    if not any(name.lower().endswith("_proxy") for name in os.environ):
        return None
    from urllib.request import getproxies, proxy_bypass

    url = getproxies().get(scheme) or getproxies().get("all")
    if not url or proxy_bypass(host):
        return None
    parts = urlsplit(url if "://" in url else f"http://{url}")
    if parts.scheme != "http" or not parts.hostname:
        raise ValueError(f"not an HTTP proxy: {shown_url(url)!r} (such as http://proxy:3128)")
    authorization = basic(parts.username, parts.password)
    return _Proxy(parts.hostname, parts.port or 80, {"Proxy-Authorization": authorization} if authorization else {})


def _authority(access: ServerAccess) -> str:
    host = f"[{access.host}]" if ":" in access.host else access.host
    return f"{host}:{access.port}"


def _is_readable(connection: HTTPConnection) -> bool:
    """Whether something arrived after the last answer: the server has closed the connection."""
    polled = poll()
    polled.register(connection.sock, POLLIN)
    return bool(polled.poll(0))


def _headers(response: HTTPResponse) -> dict[str, str]:
    return {name.lower(): value for name, value in response.getheaders()}


def _set_timeout(connection: HTTPConnection, timeout_s: float) -> None:
    if connection.sock is not None:  # None if this was the last answer on the connection
        connection.sock.settimeout(timeout_s)
