"""Refuses requests that a browser makes for a page of another origin.

Without tokens, every client that reaches the server may do everything. So may every page that is open in a browser on
the operator's machine. Such a page can send requests that need no preflight (CSRF). It can also use a host name of its
own that resolves to this server, so that the browser takes the server for the page's origin (DNS rebinding). Therefore
the host name must be known, and a change must not come from another origin.

REST xDS is for proxies, which send no ``Origin``. Its host name is not checked, because Envoy sends the name of its
cluster there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from time import monotonic
from urllib.parse import urlsplit

import structlog
from fastapi import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from xds.admin.browser_rules import BrowserRules
from xds.admin.middleware import OPEN_PATHS, XDS_PREFIXES, admitted
from xds.admin.problem import problem

SAFE_METHODS = frozenset({"GET", "HEAD"})
OWN_SITE = frozenset({"same-origin", "none"})
LOG_INTERVAL_S = 60.0
_DEFAULT_PORTS = {"http": 80, "https": 443}

_log = structlog.get_logger(logger_name="xds.http")


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a request is refused. ``reason`` is the label of the counter: ``host``, ``origin`` or ``rest_xds``."""

    reason: str
    detail: str
    status: HTTPStatus = HTTPStatus.FORBIDDEN


class BrowserSafety:
    """The middleware that refuses requests of foreign pages; ``refused`` counts by reason."""

    def __init__(
        self, app: ASGIApp, rules: BrowserRules, refused: Counter[str], now: Callable[[], float] = monotonic
    ) -> None:
        self._app = app
        self._rules = rules
        self._refused = refused
        self._now = now
        self._logged_at: float | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] in OPEN_PATHS or admitted(scope) is not None:
            await self._app(scope, receive, send)
            return
        request = Request(scope)
        refusal = _poll_refusal(request) if scope["path"].startswith(XDS_PREFIXES) else self._refusal(request)
        if refusal is not None:
            self._refused[refusal.reason] += 1
            self._log_refusal(request)
        answer = problem(request, refusal.status, refusal.detail) if refusal is not None else self._app
        await answer(scope, receive, send)

    def _refusal(self, request: Request) -> Refusal | None:
        if not self._rules.must_check(has_token="authorization" in request.headers):
            return None
        hosts = request.headers.getlist("host")
        if len(hosts) > 1 or (not hosts and request.scope.get("http_version") == "1.1"):
            # RFC 9112 3.2: "A server MUST respond with a 400 (Bad Request) status code".
            return Refusal("host", "a request must have exactly one Host header", HTTPStatus.BAD_REQUEST)
        if hosts and not self._rules.is_own_host(hosts[0]):
            detail = f"{_shown(hosts[0])} is not a known name of this server; use its address, or set server.http.hosts"
            return Refusal("host", detail)
        if request.method not in SAFE_METHODS and is_foreign(request, hosts[0] if hosts else ""):
            return Refusal("origin", "pages of another origin may not change anything")
        return None

    def _log_refusal(self, request: Request) -> None:
        """Log at most once a minute, because a page can send requests without end."""
        now = self._now()
        if self._logged_at is None or now - self._logged_at >= LOG_INTERVAL_S:
            self._logged_at = now
            _log.warning(
                "http.foreign_refused",
                method=request.method,
                path=request.url.path[:200],
                host=request.headers.get("host", "")[:200],
                origin=request.headers.get("origin", "")[:200],
            )


def _poll_refusal(request: Request) -> Refusal | None:
    """Why a REST xDS request is refused; None if it is not."""
    if "origin" in request.headers or request.headers.get("sec-fetch-site", "none") != "none":
        return Refusal("rest_xds", "xDS requests must not have an Origin: they are for proxies, not pages")
    return None


def is_foreign(request: Request, host: str) -> bool:
    """Whether the browser says that a page of another origin made the request. Other clients send no such header."""
    if any(site not in OWN_SITE for site in request.headers.getlist("sec-fetch-site")):
        return True
    # The scheme is not compared, because TLS may end at a proxy before this server.
    return any(_authority(origin) != _with_port(host, origin) for origin in request.headers.getlist("origin"))


def _authority(origin: str) -> tuple[str, int] | None:
    """Host and port of an origin; None for ``null`` and other values without them."""
    try:
        split = urlsplit(origin)
        port = split.port or _DEFAULT_PORTS.get(split.scheme)
    except ValueError:
        return None
    return (split.hostname, port) if split.hostname and port else None


def _with_port(host: str, origin: str) -> tuple[str, int]:
    """Host and port of the request. A missing port is the default port of the origin's scheme."""
    return _authority(f"{origin.partition('://')[0]}://{host}") or ("", 0)


def _shown(text: str) -> str:
    return repr(text if len(text) <= 100 else f"{text[:100]}...")
