"""HTTP for both clients: the URL of the server, credentials, timeouts, and how answers are read."""

from __future__ import annotations

import json
import os
import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import httpx

from xds.client.calls import ApiCall
from xds.client.failures import AdminApiError, UnexpectedAnswerError, UnreachableServerError, failure_of
from xds.client.reading import ShapeError

T = TypeVar("T")

DEFAULT_SERVER = "http://127.0.0.1:18080"
CONNECT_TIMEOUT_S = 5.0
QUIET_S = 45.0  # the server sends an empty line every 15 s
_NO_HTTP_1 = "illegal"  # the beginning of h11's error about a first line that is not HTTP/1
RECONNECT_S = (0.1, 0.5, 1.0, 2.0, 5.0, *(10.0,) * 5)  # a minute in all, in which a server can restart


@dataclass(frozen=True, slots=True)
class ServerAccess:
    """How to reach a server. Empty values are taken from the environment, as the ``xds`` command does."""

    server: str = ""
    token: str = ""
    cacert: str | Path = ""
    cert: str | Path = ""
    key: str | Path = ""
    timeout_s: float = 60.0

    @property
    def url(self) -> str:
        """The URL of the server. Raises ``ValueError`` for anything else."""
        given = self.server or os.environ.get("XDS_ADDR") or DEFAULT_SERVER
        url = (given if "://" in given else f"http://{given}").rstrip("/")
        parts = httpx.URL(url)
        if parts.scheme not in {"http", "https"} or not parts.host or parts.query:
            raise ValueError(f"not a server URL: {given!r} (such as {DEFAULT_SERVER})")
        return url

    def arguments(self) -> dict[str, Any]:
        """The arguments of an HTTP client. Raises ``ValueError`` or ``OSError`` for unusable credentials."""
        url, token = self.url, self._token()
        headers = {"Accept": "application/json", **({"Authorization": f"Bearer {token}"} if token else {})}
        timeout = httpx.Timeout(self.timeout_s, connect=min(CONNECT_TIMEOUT_S, self.timeout_s))
        # Loading authorities takes 50 ms: only where they are needed.
        verify = self._tls() if url.startswith("https:") else False
        return {"base_url": url, "headers": headers, "timeout": timeout, "verify": verify}

    def _token(self) -> str:
        token = self.token or os.environ.get("XDS_TOKEN", "")
        file = os.environ.get("XDS_TOKEN_FILE", "")
        if not token and file:
            token = Path(file).read_text(encoding="ascii")
        if not token.strip().isprintable():
            raise ValueError("the token has characters that no token has")
        return token.strip()

    def _tls(self) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=str(self.cacert) or os.environ.get("XDS_CACERT") or None)
        certificate = str(self.cert) or os.environ.get("XDS_CERT")
        if certificate:
            context.load_cert_chain(certificate, str(self.key) or os.environ.get("XDS_KEY") or None)
        return context


def request_arguments(call: ApiCall[T], timeout_s: float, token: str = "") -> dict[str, Any]:
    """The arguments of one HTTP request; ``token`` is the token of a page."""
    arguments: dict[str, Any] = {
        "method": call.method,
        "url": call.path,
        "params": {**call.query, **({"page_token": token} if token else {})},
        "headers": dict(call.headers),
        "timeout": httpx.Timeout(timeout_s + call.wait_s, connect=min(CONNECT_TIMEOUT_S, timeout_s)),
    }
    if call.body is not None:
        arguments["content"] = json.dumps(call.body, ensure_ascii=False).encode("utf-8", "surrogatepass")
        arguments["headers"]["Content-Type"] = "application/json"
    return arguments


def result_of(call: ApiCall[T], response: httpx.Response) -> T:
    """The result of a call. Raises ``AdminApiError``."""
    return read_document(call, document_of(response))


def read_document(call: ApiCall[T], document: Mapping[str, Any]) -> T:
    """The result in a document. Raises ``UnexpectedAnswerError``."""
    try:
        return call.read(document)
    except (ShapeError, KeyError, TypeError, ValueError) as error:
        raise UnexpectedAnswerError(f"{call.method} {call.path}: the answer cannot be read: {error}") from None


def document_of(response: httpx.Response) -> Mapping[str, Any]:
    """The JSON object of an answer. Raises ``AdminApiError`` if the request failed."""
    document = _object(response)
    if not response.is_success:
        raise failure_of(response.status_code, document)
    if document is None:
        raise failure_of(response.status_code, None)
    return document


def _object(response: httpx.Response) -> Mapping[str, Any] | None:
    try:
        document = response.json()
    except ValueError:
        return None
    return document if isinstance(document, dict) else None


@contextmanager
def reaching(url: str) -> Iterator[None]:
    """Turns failures of the transport into ``UnreachableServerError``."""
    try:
        yield
    except httpx.TimeoutException as error:
        raise UnreachableServerError(f"{url} did not answer in time ({type(error).__name__})") from error
    except httpx.HTTPError as error:
        raise UnreachableServerError(f"cannot reach {url}: {_reason(error)}") from error


def _reason(error: httpx.HTTPError) -> str:
    text = str(error) or type(error).__name__
    if "WRONG_VERSION_NUMBER" in text:
        return "the server speaks plain HTTP there; use http://"
    if isinstance(error, httpx.RemoteProtocolError) and text.startswith(_NO_HTTP_1):
        return f"not an HTTP/1 server: perhaps a gRPC port; the admin API is at {DEFAULT_SERVER} by default"
    return text


def may_repeat(call: ApiCall[Any], error: AdminApiError, attempt: int) -> bool:
    """Whether to send a call once more: the server may close an idle connection at any time."""
    return (
        attempt == 0 and call.is_repeatable and isinstance(error.__cause__, httpx.RemoteProtocolError | httpx.ReadError)
    )
