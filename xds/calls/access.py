"""How to reach a server: its URL, credentials and proxy, from arguments or the environment; and why it failed."""

from __future__ import annotations

import os
import re
import ssl
from base64 import b64encode
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import unquote, urlsplit

from xds.calls.failures import UnreachableServerError

DEFAULT_SERVER = "http://127.0.0.1:18080"
ADDRESS_VARIABLE = "XDS_ADDR"
TOKEN_VARIABLE = "XDS_TOKEN"  # noqa: S105 - the name of a variable, not a secret
TOKEN_FILE_VARIABLE = "XDS_TOKEN_FILE"  # noqa: S105 - likewise
CA_VARIABLE = "XDS_CACERT"
CERTIFICATE_VARIABLE = "XDS_CERT"
KEY_VARIABLE = "XDS_KEY"
TIMEOUT_S = 60.0
CONNECT_TIMEOUT_S = 5.0
QUIET_S = 45.0  # of the event feed: the server sends an empty line every 15 s
TOKEN_LIMIT_BYTES = 64 * 1024


class ServerAccess:
    """The URL of a server, and what opens it. Empty arguments are taken from ``environment``, by default the real one.

    Raises ``ValueError`` for what is no URL of a server, and for unusable credentials.
    """

    def __init__(
        self,
        server: str = "",
        token: str = "",
        token_file: str | Path = "",
        cacert: str | Path = "",
        cert: str | Path = "",
        key: str | Path = "",
        environment: Mapping[str, str] = os.environ,
    ) -> None:
        given = server or environment.get(ADDRESS_VARIABLE) or DEFAULT_SERVER
        self.url = (given if "://" in given else f"http://{given}").rstrip("/")
        try:
            parts = urlsplit(self.url)
            port = parts.port
        except ValueError as error:
            raise ValueError(f"{shown_url(self.url)}: {error}") from None
        if parts.scheme not in {"http", "https"} or not parts.hostname or parts.query or parts.fragment:
            raise ValueError(f"not a server URL: {shown_url(self.url)!r} (such as {DEFAULT_SERVER})")
        self.scheme, self.host, self.path = parts.scheme, parts.hostname, parts.path
        self.port = port or (443 if self.scheme == "https" else 80)
        self.authorization = _authorization(read_token(token, token_file, environment), parts.username, parts.password)
        certificate = str(cert) or environment.get(CERTIFICATE_VARIABLE, "")
        authorities, own_key = (
            str(each) or environment.get(name, "") for each, name in ((cacert, CA_VARIABLE), (key, KEY_VARIABLE))
        )
        self.has_certificate = bool(certificate)
        # Loading authorities takes 50 ms: only where they are needed.
        self.tls = _tls(authorities, certificate, own_key) if self.scheme == "https" else None

    def failure(self, error: Exception, *, is_lost: bool = False) -> UnreachableServerError:
        """The error of a request that got no answer, from the error of the transport."""
        root = _root_of(error)
        url = shown_url(self.url)
        if isinstance(root, TimeoutError):
            return UnreachableServerError(f"{url} did not answer in time")
        reason = f"cannot reach {url}: {_reason(root)}"
        return UnreachableServerError(reason, is_lost=is_lost, wants=self._wanted(root))

    def _wanted(self, error: BaseException) -> str:
        """The argument that a failed TLS handshake asks for.

        With TLS 1.3 a server closes the connection after the handshake without a client certificate.
        """
        if isinstance(error, ssl.SSLCertVerificationError):
            return "cacert" if error.verify_code in _UNKNOWN_AUTHORITY else ""
        is_other = _is_plain(error) or isinstance(error, ConnectionRefusedError)
        is_closed = isinstance(error, ssl.SSLError | ConnectionError) or type(error).__name__ in _CLOSED
        return "" if self.tls is None or self.has_certificate or is_other or not is_closed else "cert"


# Codes of X509_verify_cert: no certificate of an authority that is trusted.
_UNKNOWN_AUTHORITY = frozenset({18, 19, 20, 21})
# Errors of HTTP libraries about a connection that was closed before its answer.
_CLOSED = frozenset({"RemoteDisconnected", "IncompleteRead", "BadStatusLine", "RemoteProtocolError", "EndOfStream"})
# The beginning of the answer of an HTTP/2 server, as errors of HTTP libraries show it: a SETTINGS frame.
_HTTP2_ANSWER = re.compile(r"(\x00|\\x00){2}.{1,4}(\x04|\\x04)(\x00|\\x00)", re.DOTALL)


def _root_of(error: BaseException) -> BaseException:
    """The error that another one was raised for."""
    while error.__cause__ is not None:
        error = error.__cause__
    return error


def _is_plain(error: BaseException) -> bool:
    """Whether the server answered the TLS handshake in plain HTTP."""
    return getattr(error, "reason", "") == "WRONG_VERSION_NUMBER"  # of `ssl.SSLError`


def _reason(error: BaseException) -> str:
    text = getattr(error, "strerror", None) or str(error) or type(error).__name__
    if _HTTP2_ANSWER.search(text):
        return f"this is a gRPC port (HTTP/2), perhaps that of xDS; the admin API is at {DEFAULT_SERVER} by default"
    return "the server speaks plain HTTP there; use http://" if _is_plain(error) else text


def shown_url(url: str) -> str:
    """A URL for messages, without a password."""
    return re.sub(r"[^/@]*@", "...@", url)


def read_token(token: str = "", file: str | Path = "", environment: Mapping[str, str] = os.environ) -> str:
    """The bearer token, from a value or a file; empty if there is none. Raises ``ValueError``."""
    if not token and not file:
        token, file = environment.get(TOKEN_VARIABLE, ""), environment.get(TOKEN_FILE_VARIABLE, "")
    if not token:
        return read_token_file(Path(file)) if file else ""
    if not token.strip().isprintable():
        raise ValueError("the token has characters that no token has")
    return token.strip()


def read_token_file(file: Path) -> str:
    """The bearer token in a file. Raises ``ValueError``."""
    try:
        with file.open(encoding="ascii") as stream:
            token = stream.read(TOKEN_LIMIT_BYTES).strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"{file}: {getattr(error, 'strerror', None) or 'not a token'}") from None
    if not token or not token.isprintable():
        raise ValueError(f"{file}: not a token")
    return token


def _authorization(token: str, user: str | None, password: str | None) -> str:
    """The value of the header; a URL may have a name and a password instead of a token."""
    return f"Bearer {token}" if token else basic(user, password)


def basic(user: str | None, password: str | None) -> str:
    """The credentials in a URL as the value of a header; empty if there are none."""
    if not user and not password:
        return ""
    both = f"{unquote(user or '')}:{unquote(password or '')}"
    return f"Basic {b64encode(both.encode()).decode('ascii')}"


def _tls(cacert: str, certificate: str, key: str) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=cacert or None)
        if certificate:
            context.load_cert_chain(certificate, key or None)
    except OSError as error:
        files = ", ".join(filter(None, (cacert, certificate)))
        raise ValueError(f"{files}: {error.strerror or error}") from None
    return context
