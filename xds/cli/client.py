"""The client of the admin API.

It uses the HTTP client of the standard library, because every command pays for the import: ``xds nodes`` takes twice as
long to start with httpx (0.41 s instead of 0.20 s).
"""

from __future__ import annotations

import json
import os
import re
import ssl
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from http.client import BadStatusLine, HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from pathlib import Path
from typing import IO, Any
from urllib.parse import quote, urlencode, urlsplit

from xds.cli.errors import CommandError, Exit
from xds.model.node import DEFAULT_GROUP

Json = dict[str, Any]

DEFAULT_SERVER = "http://127.0.0.1:18080"
ADDRESS_VARIABLE = "XDS_ADDR"
TOKEN_VARIABLE = "XDS_TOKEN"  # noqa: S105 - the name of a variable, not a secret
TOKEN_FILE_VARIABLE = "XDS_TOKEN_FILE"  # noqa: S105 - likewise
CA_VARIABLE = "XDS_CACERT"
CERTIFICATE_VARIABLE = "XDS_CERT"
KEY_VARIABLE = "XDS_KEY"
PREFIX = "/api/v1"
TIMEOUT_S = 60.0
CONNECT_TIMEOUT_S = 5.0
UPLOAD_TIMEOUT_S = 600.0
PIECE_BYTES = 1 << 18
TOKEN_LIMIT_BYTES = 64 * 1024
TEXT_LIMIT_BYTES = 200  # of an answer that is no problem document, such as that of a TLS port to plain HTTP

# Where an argument of a command stands in a request: what the server says of it is a usage error.
_ARGUMENT_PLACES = frozenset({"query", "path", "header"})
_EXITS = {
    400: Exit.INVALID,
    401: Exit.AUTH,
    403: Exit.AUTH,
    404: Exit.NOT_FOUND,
    410: Exit.NOT_FOUND,
    409: Exit.CONFLICT,
    412: Exit.CONFLICT,
    413: Exit.INVALID,
    415: Exit.INVALID,
    422: Exit.INVALID,
    428: Exit.CONFLICT,
}
# The options of the command line for parameters of the API that an error names as its override.
_OPTION_HINTS = {
    "allow_empty": "pass --allow-empty to do it anyway",
    "force": "pass --force to do it anyway",
    "if_match": "pass --if-match with the revision that you expect, or 0: it must not exist",
}


WRONG_VERSION = "WRONG_VERSION_NUMBER"  # the reason of `ssl.SSLError` if the server speaks plain HTTP


class RefusedError(CommandError):
    """The server refused a request. ``status`` is the HTTP status; ``problem`` is the RFC 9457 body, or empty.

    ``is_read``: the request has no content, so what is invalid is an argument.
    """

    def __init__(self, status: int, message: str, problem: Json, *, is_read: bool = False) -> None:
        # 5xx and 429 are not about the request: the server cannot answer at the moment.
        code = _EXITS.get(status, Exit.UNREACHABLE)
        is_usage = code is Exit.INVALID and (is_read or _is_about_arguments(status, problem))
        super().__init__(Exit.USAGE if is_usage else code, message)
        self.status = status
        self.problem = problem


def _is_about_arguments(status: int, problem: Json) -> bool:
    """Whether a problem is about parameters or headers. Findings about content have a place in it, or none."""
    found = problem.get("errors", [])
    if not found:
        return status == HTTPStatus.BAD_REQUEST  # findings about content are listed
    return all(each.get("source") in _ARGUMENT_PLACES for each in found)


@dataclass(frozen=True, slots=True)
class Answer:
    """A successful answer. ``headers`` have lower-case names."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Json:
        """The body. Raises ``CommandError`` if it is not a JSON object."""
        try:
            document = json.loads(self.body)
        except ValueError:
            document = None
        if not isinstance(document, dict):
            raise CommandError(
                Exit.UNREACHABLE, "this is not the admin API of an xDS server: the answer is not a JSON object"
            )
        return document


class Client:
    """The admin API of one server. Errors become ``CommandError``. Empty arguments are taken from the environment."""

    def __init__(
        self,
        server: str = "",
        token_file: Path | None = None,
        cacert: Path | None = None,
        cert: Path | None = None,
        key: Path | None = None,
    ) -> None:
        url = server or os.environ.get(ADDRESS_VARIABLE) or DEFAULT_SERVER
        self.server = (url if "://" in url else f"http://{url}").rstrip("/")
        self._scheme, self._host, self._port, self._path = _parts(self.server)
        self._token = read_token(token_file)
        self._tls = _tls(cacert, cert, key) if self._scheme == "https" else None
        self._has_certificate = bool(cert or os.environ.get(CERTIFICATE_VARIABLE))
        self._connection: HTTPConnection | None = None

    @property
    def host(self) -> str:
        """The host of the server; IPv6 addresses have brackets."""
        return f"[{self._host}]" if ":" in self._host else self._host

    def call(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        body: object = None,
    ) -> Json:
        """Send one request; returns the JSON of the answer. Raises ``CommandError`` unless the request succeeds."""
        return self.fetch(method, path, query, headers, body).json()

    def fetch(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        body: object = None,
    ) -> Answer:
        """Send one request to a path under ``/api/v1``. Raises as ``call``."""
        return self._request(method, f"{PREFIX}{path}", query, headers, body)

    def probe(self, path: str) -> Answer:
        """GET of a path outside ``/api/v1``, such as ``/readyz``. Raises as ``call``."""
        return self._request("GET", path)

    def items(self, path: str, query: Mapping[str, str] | None = None) -> Iterator[Json]:
        """All items of a list, page by page."""
        token = ""
        while True:
            page = self.call("GET", path, {**(query or {}), **({"page_token": token} if token else {})})
            yield from page["items"]
            token = page.get("next_page_token", "")
            if not token:
                return

    def lines(
        self,
        path: str,
        query: Mapping[str, str],
        headers: Mapping[str, str],
        quiet_s: float,
        on_headers: Callable[[Mapping[str, str]], None],
    ) -> Iterator[str]:
        """The lines of an endless answer as they arrive. Ends when the server ends the answer.

        ``on_headers`` is called with the headers of the answer; their names are in lower case. Raises ``CommandError``,
        also if nothing arrives for ``quiet_s`` seconds.
        """
        connection = self._connect()
        try:
            with self._connection_errors():
                response = self._send(connection, "GET", f"{PREFIX}{path}", query, headers, None)
                if response.status != 200:
                    raise _refused(response.status, response.reason, response.read(), is_read=True)
                _set_timeout(connection, quiet_s)
                on_headers(_headers(response))
                while line := response.readline():
                    yield line.decode("utf-8", "replace").rstrip("\r\n")
        finally:
            connection.close()

    def download(self, path: str, query: Mapping[str, str], on_piece: Callable[[bytes], object]) -> None:
        """GET of an answer that is too large for memory; ``on_piece`` is called with each piece. Raises as ``call``."""
        connection = self._connect()
        try:
            with self._connection_errors():
                response = self._send(connection, "GET", f"{PREFIX}{path}", query, {"Accept": "*/*"}, None)
                if response.status != 200:
                    raise _refused(response.status, response.reason, response.read(), is_read=True)
                while piece := response.read(PIECE_BYTES):
                    on_piece(piece)
        finally:
            connection.close()

    def upload(self, path: str, query: Mapping[str, str], file: IO[bytes], media_type: str) -> Json:
        """POST of a file, with a longer timeout; returns the JSON of the answer. Raises as ``call``."""
        connection = self._connect()
        try:
            with self._connection_errors():
                connection.connect()
                _set_timeout(connection, UPLOAD_TIMEOUT_S)
                size = str(file.seek(0, os.SEEK_END))
                file.seek(0)
                headers = {"Content-Type": media_type, "Content-Length": size}
                response = self._send(connection, "POST", f"{PREFIX}{path}", query, headers, file)
                content = response.read()
                if not 200 <= response.status < 300:
                    raise _refused(response.status, response.reason, content)
                return Answer(response.status, _headers(response), content).json()
        finally:
            connection.close()

    def _request(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        body: object = None,
    ) -> Answer:
        with self._connection_errors():
            reused = self._connection is not None
            try:
                response, content = self._exchange(method, path, query, headers, body)
            except (ConnectionError, HTTPException):
                # The server may close an idle connection at any time. Repeating a read is harmless.
                if not reused or method != "GET":
                    raise
                self.close()
                response, content = self._exchange(method, path, query, headers, body)
        if not 200 <= response.status < 300:
            raise _refused(response.status, response.reason, content, is_read=method == "GET")
        return Answer(response.status, _headers(response), content)

    def _exchange(
        self, method: str, path: str, query: Mapping[str, str] | None, headers: Mapping[str, str] | None, body: object
    ) -> tuple[HTTPResponse, bytes]:
        connection = self._connection = self._connection or self._connect()
        response = self._send(connection, method, path, query, headers, body)
        content = response.read()
        if response.will_close:
            self.close()
        return response, content

    def certificate(self) -> Mapping[str, Any]:
        """The certificate that the server presents, in the form of ``ssl``; empty without TLS."""
        connection = self._connect()
        with self._connection_errors():
            connection.connect()
            certificate = connection.sock.getpeercert() if isinstance(connection.sock, ssl.SSLSocket) else None
        connection.close()
        return certificate or {}

    def close(self) -> None:
        """Close the connection. The next request opens another one."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _send(
        self,
        connection: HTTPConnection,
        method: str,
        path: str,
        query: Mapping[str, str] | None,
        headers: Mapping[str, str] | None,
        body: object,
    ) -> HTTPResponse:
        if connection.sock is None:
            connection.connect()
            _set_timeout(connection, TIMEOUT_S)
        sent = {"Accept": "application/json", **(headers or {})}
        content: Any = body
        if body is not None and not hasattr(body, "read"):
            content = json.dumps(body, ensure_ascii=False).encode("utf-8", "surrogatepass")
            sent["Content-Type"] = "application/json"
        if self._token:
            sent["Authorization"] = f"Bearer {self._token}"
        target = f"{self._path}{path}" + (f"?{urlencode(query)}" if query else "")
        connection.request(method, target, content, sent)
        return connection.getresponse()

    def _connect(self) -> HTTPConnection:
        host, port = self._host, self._port
        proxy = _proxy(self._scheme, host)
        if proxy is not None:
            host, port = proxy
        if self._tls is not None:
            connection: HTTPConnection = HTTPSConnection(host, port, timeout=CONNECT_TIMEOUT_S, context=self._tls)
        else:
            connection = HTTPConnection(host, port, timeout=CONNECT_TIMEOUT_S)
        if proxy is not None:
            connection.set_tunnel(self._host, self._port)
        return connection

    @contextmanager
    def _connection_errors(self) -> Iterator[None]:
        try:
            yield
        except (OSError, HTTPException) as error:
            self.close()
            raise CommandError(
                Exit.UNREACHABLE, f"cannot reach {self.server}: {_reason(error)}{self._certificate_hint(error)}"
            ) from None

    def _certificate_hint(self, error: Exception) -> str:
        """The options that a failed TLS handshake asks for.

        With TLS 1.3 a server closes the connection after the handshake without a client certificate.
        """
        if isinstance(error, ssl.SSLCertVerificationError) and error.verify_code in _UNKNOWN_AUTHORITY:
            return f"; --cacert FILE or {CA_VARIABLE} names the authorities to trust"
        is_plain = getattr(error, "reason", "") == WRONG_VERSION
        is_other = is_plain or isinstance(error, ssl.SSLCertVerificationError | ConnectionRefusedError)
        is_closed = isinstance(error, ssl.SSLError | ConnectionError | HTTPException) and not is_other
        if self._tls is None or self._has_certificate or not is_closed:
            return ""
        return "; the server may ask for a client certificate: --cert, --key"


# Codes of X509_verify_cert: no certificate of an authority that is trusted.
_UNKNOWN_AUTHORITY = frozenset({18, 19, 20, 21})
# The beginning of the answer of an HTTP/2 server: a SETTINGS frame.
_HTTP2_ANSWER = re.compile(r"\x00\x00[\x00-\xff]\x04\x00")


def _reason(error: OSError | HTTPException) -> str:
    if isinstance(error, BadStatusLine) and _HTTP2_ANSWER.match(str(error.args[0])):
        return f"this is a gRPC port (HTTP/2), perhaps that of xDS; the admin API is at {DEFAULT_SERVER} by default"
    if getattr(error, "reason", "") == WRONG_VERSION:  # of `ssl.SSLError`
        return "the server speaks plain HTTP there; use http://"
    return getattr(error, "strerror", None) or str(error) or type(error).__name__


def _headers(response: HTTPResponse) -> dict[str, str]:
    return {name.lower(): value for name, value in response.getheaders()}


def _set_timeout(connection: HTTPConnection, timeout_s: float) -> None:
    if connection.sock is not None:  # None if this was the last answer on the connection
        connection.sock.settimeout(timeout_s)


def group_path(group: str, rest: str = "") -> str:
    """The path of a group, or of an object below it."""
    return f"/groups/{quote(group, safe='')}{rest}"


def group_option(group: str) -> str:
    """The option for this group, for messages that name a command; empty for the default group."""
    return "" if group == DEFAULT_GROUP else f" -g {group}"


def _shown(url: str) -> str:
    """A URL for messages, without a password."""
    return re.sub(r"[^/@]*@", "...@", url)


def _parts(url: str) -> tuple[str, str, int, str]:
    """Scheme, host, port and path. Raises ``CommandError``."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise CommandError(Exit.USAGE, f"{_shown(url)}: {error}") from None
    if parts.scheme not in {"http", "https"} or not parts.hostname or parts.query or parts.fragment:
        raise CommandError(Exit.USAGE, f"not a server URL: {_shown(url)!r} (such as {DEFAULT_SERVER})")
    return parts.scheme, parts.hostname, port or (443 if parts.scheme == "https" else 80), parts.path


def read_token(file: Path | None) -> str:
    """The bearer token; empty if there is none. An option overrides the environment."""
    given = str(file) if file is not None else os.environ.get(TOKEN_FILE_VARIABLE, "")
    if file is None and os.environ.get(TOKEN_VARIABLE):
        return os.environ[TOKEN_VARIABLE].strip()
    return read_token_file(Path(given)) if given else ""


def read_token_file(file: Path) -> str:
    """The bearer token in a file. Raises ``CommandError``."""
    try:
        with file.open(encoding="ascii") as stream:
            token = stream.read(TOKEN_LIMIT_BYTES).strip()
    except (OSError, UnicodeDecodeError) as error:
        raise CommandError(Exit.USAGE, f"{file}: {getattr(error, 'strerror', None) or 'not a token'}") from None
    if not token or not token.isprintable():
        raise CommandError(Exit.USAGE, f"{file}: not a token")
    return token


def _tls(cacert: Path | None, cert: Path | None, key: Path | None) -> ssl.SSLContext:
    authorities = str(cacert or "") or os.environ.get(CA_VARIABLE) or None
    certificate = str(cert or "") or os.environ.get(CERTIFICATE_VARIABLE)
    try:
        context = ssl.create_default_context(cafile=authorities)
        if certificate:
            context.load_cert_chain(certificate, str(key or "") or os.environ.get(KEY_VARIABLE) or None)
    except OSError as error:
        files = ", ".join(filter(None, (authorities, certificate)))
        raise CommandError(Exit.USAGE, f"{files}: {error.strerror or error}") from None
    return context


def _proxy(scheme: str, host: str) -> tuple[str, int] | None:
    """Host and port of the proxy that the environment names for a host."""
    if not any(name.lower().endswith("_proxy") for name in os.environ):
        return None
    from urllib.request import getproxies, proxy_bypass

    url = getproxies().get(scheme) or getproxies().get("all")
    if not url or proxy_bypass(host):
        return None
    parts = urlsplit(url if "://" in url else f"http://{url}")
    return (parts.hostname, parts.port or 80) if parts.hostname else None


def _refused(status: int, reason: str, content: bytes, *, is_read: bool = False) -> RefusedError:
    try:
        problem = json.loads(content)
    except ValueError:
        problem = None
    if not isinstance(problem, dict):
        line = content[:TEXT_LIMIT_BYTES].decode("utf-8", "replace").partition("\n")[0].strip()
        is_text = bool(line) and not line.startswith("<")
        message = f"{status} {reason}: {line}" if is_text else f"{status} {reason}"
        return RefusedError(status, message, {}, is_read=is_read)
    return RefusedError(status, problem_text(problem) or reason, problem, is_read=is_read)


def problem_text(problem: Json) -> str:
    """The detail of a problem document, with the option of this command that resolves it."""
    lines = [finding_line(error) for error in problem.get("errors", [])]
    hint = _OPTION_HINTS.get(str(problem.get("override")))
    text = "\n".join(lines) or str((hint and problem.get("reason")) or problem.get("detail") or "")
    return f"{text}; {hint}" if hint else text


def finding_line(finding: Mapping[str, Any]) -> str:
    """One finding of the server on a line: place, detail and hint."""
    place = " ".join(part for part in (finding.get("source"), finding.get("resource"), finding.get("pointer")) if part)
    hint = f" ({finding['hint']})" if finding.get("hint") else ""
    return f"{place}: {finding.get('detail')}{hint}" if place else f"{finding.get('detail')}{hint}"
