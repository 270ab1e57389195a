"""Middleware of all requests: order, request id, path, credentials, readiness, and refused writes for the audit list.

Each request begins in its own iteration of the event loop. The framework takes milliseconds for each, so a burst of
pushes would otherwise block the streams for the sum of all.
"""

from __future__ import annotations

import asyncio
import re
from collections import deque
from collections.abc import Callable
from functools import partial
from http import HTTPStatus
from time import time
from typing import Annotated
from urllib.parse import parse_qs, unquote
from uuid import uuid4

import structlog
from fastapi import Request
from pydantic import BeforeValidator
from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from xds.access.authorisation import ANONYMOUS, Access, Identity, missing_credential
from xds.access.caller import Caller
from xds.access.tokens import HEADER, READ, XDS
from xds.admin.foreign_apis import foreign_api
from xds.admin.problem import problem
from xds.admin.routing import AUTHOR_LIMIT, peer_of
from xds.fleet.refused_streams import RecordRefusal, RefusalReason
from xds.push.audit_log import AuditLog
from xds.push.group_names import GROUP_NAME_LIMIT
from xds.tasks.lifecycle import Phase
from xds.tasks.threads import WAITER, Waiter


class RequestQueue:
    """Begins requests in the order of their arrival. The limit on connections bounds the number of waiting requests."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._busy = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await self._wait_for_turn()
        await self._app(scope, receive, send)

    async def _wait_for_turn(self) -> None:
        loop = asyncio.get_running_loop()
        if not self._busy:
            self._busy = True
            loop.call_soon(self._begin_next)
            return
        turn: asyncio.Future[None] = loop.create_future()
        self._waiting.append(turn)
        await turn

    def _begin_next(self) -> None:
        """Begin the next request: the previous iteration is over."""
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():  # skip requests that were cancelled
                turn.set_result(None)
                asyncio.get_running_loop().call_soon(self._begin_next)
                return
        self._busy = False


API_PREFIX = "/api/"
XDS_PREFIXES = ("/v2/", "/v3/")
REST_LABEL = "REST"  # of refused polls
METRICS_PATH = "/metrics"
OPEN_PATHS = frozenset({"/livez", "/readyz"})
PAGE_PATHS = frozenset({"/", "/docs", "/ui"})
PAGES_PREFIX = "/ui/"
VARY = "Accept, Accept-Encoding, Authorization"
REQUEST_ID_LIMIT = 128

# A path parameter of the API. It is captured percent-encoded (see ``RawPath``) and passed on decoded.
Segment = Annotated[str, BeforeValidator(unquote)]


class RequestId:
    """Gives each request an id, or keeps the caller's ``X-Request-ID``, in the answer and in the log.

    Answers must not be cached: each is the state at one time, for one caller.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        given = Headers(scope=scope).get("x-request-id", "")
        identifier = given if 0 < len(given) <= REQUEST_ID_LIMIT and given.isprintable() else uuid4().hex
        scope.setdefault("state", {})["request_id"] = identifier

        async def send_with_id(message: Message) -> None:
            """Add the headers to the answer."""
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers["X-Request-ID"] = identifier
                headers["Cache-Control"] = "no-store"
                headers["Vary"] = VARY
            await send(message)

        with structlog.contextvars.bound_contextvars(request_id=identifier):
            await self._app(scope, receive, send_with_id)


class RawPath:
    """Routes the paths of the API and of pages undecoded: a name may have any character, ``%2F`` and ``%0A`` too."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        raw = scope.get("raw_path") if scope["type"] == "http" else None
        if raw and raw.startswith((API_PREFIX.encode(), PAGES_PREFIX.encode())):
            scope = {**scope, "path": raw.partition(b"?")[0].decode("latin-1")}
        await self._app(scope, receive, send)


class Waiting:
    """Names the caller of each request to the work that is done for it, and notices when the caller leaves.

    Work is named by its credential, and without one by its address: each has its turn (`run_for_caller`).
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            grant, client = scope.get("state", {}).get("grant"), scope.get("client")
            name = grant.name if grant is not None and grant.name else client[0] if client else ""
            WAITER.set(Waiter(name, partial(_left, receive)))
        await self._app(scope, receive, send)


async def _left(receive: Receive) -> None:
    """Ends when the caller has closed the connection. Its request has been read."""
    while (await receive())["type"] != "http.disconnect":
        pass


class HeadRequests:
    """Answers HEAD as GET outside of the API: probes, metrics, pages. uvicorn leaves the body out.

    Load balancers and monitors probe with HEAD. Some answers of the API do not end, so its paths take no HEAD.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["method"] == "HEAD" and _is_outside_api(scope["path"]):
            scope = {**scope, "method": "GET"}
        await self._app(scope, receive, send)


def _is_outside_api(path: str) -> bool:
    return path == METRICS_PATH or path in OPEN_PATHS | PAGE_PATHS or path.startswith(PAGES_PREFIX)


def admitted(scope: Scope) -> Identity | None:
    """The identity of a caller who was admitted before the middleware; no HTTP server sets one.

    That is the program that the server runs in, which asks without a connection, and the caller of another server.
    """
    identity: Identity | None = scope.get("state", {}).get("identity")
    return identity


class Authentication:
    """Refuses requests without a valid credential, and all requests before the stored state is loaded.

    The caller is put into ``request.state.identity`` and its scopes into ``request.state.grant``, which
    ``xds.admin.routing`` checks for the routes of the API. A client certificate is expected in
    ``request.state.certificate``, where the HTTP server puts it. With ``wants_certificates`` every request needs a
    credential. ``refuse`` records refused polls of proxies.
    """

    def __init__(
        self,
        app: ASGIApp,
        access: Access,
        phase: Callable[[], Phase],
        refuse: RecordRefusal,
        *,
        wants_certificates: bool = False,
    ) -> None:
        self._app = app
        self._access = access
        self._phase = phase
        self._refuse = refuse
        self._wants_certificates = wants_certificates

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] in OPEN_PATHS or self._is_page(scope):
            await self._app(scope, receive, send)
            return
        app = self._refusal(Request(scope)) or self._app
        await app(scope, receive, send)

    def _is_page(self, scope: Scope) -> bool:
        """Whether the request is for a page or an asset. They hold no data, and a browser sends no token for them.

        A browser does send a certificate. So pages need one where every request does.
        """
        path = scope["path"]
        return not self._wants_certificates and (path in PAGE_PATHS or path.startswith(PAGES_PREFIX))

    def _refusal(self, request: Request) -> Response | None:
        """The answer to a request that is refused; None admits it."""
        path = request.scope["path"]
        identity = self._identity(request)
        if identity is None or identity.is_over(time()):
            challenge = {"WWW-Authenticate": "Bearer"}
            what = "a valid bearer token is required" if identity is None else "the client certificate has expired"
            detail = missing_credential(request.headers.get(HEADER, ""))
            if identity is not None:
                challenge["Connection"] = "close"  # another certificate needs another connection
                detail = what
            self._record(request, RefusalReason.UNAUTHENTICATED, detail)
            return problem(request, HTTPStatus.UNAUTHORIZED, what, headers=challenge)
        grant = identity.grant
        needed = XDS if path.startswith(XDS_PREFIXES) else READ if path == METRICS_PATH else ""
        if needed and not grant.allows(needed):
            challenge = {"WWW-Authenticate": f'Bearer error="insufficient_scope", scope="{needed}"'}
            whose = "the token" if identity.credential else "the certificate"
            detail, members = f"{whose} lacks the scope {needed}", {"missing_scope": needed}
            self._record(request, RefusalReason.FORBIDDEN, detail, identity)
            return problem(request, HTTPStatus.FORBIDDEN, detail, headers=challenge, members=members)
        if self._phase() is Phase.STARTING and path != METRICS_PATH:
            # Before the stored state is loaded, every answer would be wrong.
            retry = {"Retry-After": "1"}
            return problem(request, HTTPStatus.SERVICE_UNAVAILABLE, "the server is starting", headers=retry)
        request.state.identity, request.state.grant = identity, grant
        return None

    def _record(self, request: Request, reason: RefusalReason, message: str, identity: Identity = ANONYMOUS) -> None:
        if request.scope["path"].startswith(XDS_PREFIXES):
            self._refuse(reason, message, peer_of(request), service=REST_LABEL, principal=identity.principal)

    def _identity(self, request: Request) -> Identity | None:
        if (given := admitted(request.scope)) is not None:
            return given
        certificate = getattr(request.state, "certificate", None)
        authorization = request.headers.get(HEADER, "")
        return self._access.admit(authorization, certificate, wants_certificate=self._wants_certificates)


READING = frozenset({"GET", "HEAD", "OPTIONS"})
REASON_LIMIT = 300
TRUE = frozenset({"1", "on", "t", "true", "y", "yes"})  # the values that the routes read as true
_GROUP = re.compile(r"/api/v1/groups/([^/]+)(?:/([a-z]{1,20})(/|$))?")
_OTHER = re.compile(r"/api/v1/([a-z-]{1,20})(/|$)")
_NO_WRITES = frozenset({"validate", "explain"})


class RefusedWrites:
    """Reports every refused write to the audit list.

    It records the group and the claimed author, but no other value that the caller chooses freely, such as the name
    of a resource.
    """

    def __init__(self, app: ASGIApp, audit: AuditLog) -> None:
        self._app = app
        self._audit = audit

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_of_api = scope["type"] == "http" and (scope["path"].startswith(API_PREFIX) or foreign_api(scope) is not None)
        if not is_of_api or scope["method"] in READING:
            await self._app(scope, receive, send)
            return

        async def send_and_report(message: Message) -> None:
            """Report a refusal and pass it on."""
            if message["type"] == "http.response.start":
                request = Request(scope)
                # An API of another product may answer 500 for what breaks a rule.
                if 400 <= message["status"] < 500 or getattr(request.state, "is_refused_write", False):
                    self._report(request, message["status"])
            await send(message)

        await self._app(scope, receive, send_and_report)

    def _report(self, request: Request, status: int) -> None:
        group, subject = _subject_of(request)
        query = parse_qs(request.scope["query_string"].decode("latin-1"))
        if not subject or query.get("dry_run", [""])[-1].lower() in TRUE:
            return
        grant, reason = getattr(request.state, "grant", None), getattr(request.state, "refusal", "")
        author = query.get("author", [""])[-1][:AUTHOR_LIMIT]
        caller = Caller(grant.name if grant is not None else "", author, peer_of(request))
        self._audit.refused(caller, f"{request.method} {subject}", group, f"{status} {reason}"[:REASON_LIMIT])


def _subject_of(request: Request) -> tuple[str, str]:
    """The group and the path of a write, without names. The path is empty if the request is not a write."""
    raw = request.scope.get("raw_path") or request.scope["path"].encode()
    path = raw.decode("latin-1").partition("?")[0]
    if (matched := _GROUP.match(path)) is not None:
        below = f"/{matched[2]}" if matched[2] else ""
        return unquote(matched[1])[:GROUP_NAME_LIMIT], f"/groups/{{group}}{below}"
    if (foreign := foreign_api(request.scope)) is not None:
        written = foreign.writes.match(path)
        return "", written[1] if written is not None else ""
    other = _OTHER.match(path)
    return "", f"/{other[1]}" if other is not None and other[1] not in _NO_WRITES else ""
