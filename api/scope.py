"""What happens to every request before a route sees it: its id, its path, its credentials, the server's phase."""

from __future__ import annotations

from collections.abc import Callable
from http import HTTPStatus
from time import time
from typing import Annotated
from urllib.parse import unquote
from uuid import uuid4

import structlog
from fastapi import Request
from pydantic import BeforeValidator
from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.problem import problem
from xds.control.access import Access, Identity
from xds.control.lifecycle import Phase
from xds.control.tokens import HEADER, READ, XDS

API_PREFIX = "/api/"
XDS_PREFIX = "/v3/"
METRICS_PATH = "/metrics"
OPEN_PATHS = frozenset({"/livez", "/readyz"})
VARY = "Accept, Accept-Encoding, Authorization"
REQUEST_ID_LIMIT = 128

# A path parameter of the API: captured percent-encoded (see ``RawPath``), handed on decoded.
Segment = Annotated[str, BeforeValidator(unquote)]


class RequestId:
    """Gives each request an id, or keeps the caller's ``X-Request-ID``, in the answer and in the log.

    No answer may be kept by a cache: each is the state of a moment, seen by one caller.
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
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers["X-Request-ID"] = identifier
                headers["Cache-Control"] = "no-store"
                headers["Vary"] = VARY
            await send(message)

        with structlog.contextvars.bound_contextvars(request_id=identifier):
            await self._app(scope, receive, send_with_id)


class RawPath:
    """Routes the API's paths as they were sent: ``%2F`` belongs to a name or type URL, it does not divide segments."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        raw = scope.get("raw_path") if scope["type"] == "http" else None
        if raw and raw.startswith(API_PREFIX.encode()):
            scope = {**scope, "path": raw.partition(b"?")[0].decode("latin-1")}
        await self._app(scope, receive, send)


class Door:
    """Turns away who has no credential, and everybody while there is nothing to answer from.

    Who asks is put into ``request.state.identity``, and what that may do into ``request.state.grant``; ``api.grants``
    judges the routes of the API by it. A client certificate is expected in ``request.state.certificate``, where the
    HTTP server puts it; with ``wants_certificates`` nobody comes in without a credential.
    """

    def __init__(
        self, app: ASGIApp, access: Access, phase: Callable[[], Phase], *, wants_certificates: bool = False
    ) -> None:
        self._app = app
        self._access = access
        self._phase = phase
        self._wants_certificates = wants_certificates

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] in OPEN_PATHS:
            await self._app(scope, receive, send)
            return
        app = self._refusal(Request(scope)) or self._app
        await app(scope, receive, send)

    def _refusal(self, request: Request) -> Response | None:
        """The answer to who may not come in; None opens the door."""
        path = request.scope["path"]
        identity = self._identity(request)
        if identity is None or identity.is_over(time()):
            challenge = {"WWW-Authenticate": "Bearer"}
            what = "a valid bearer token is needed" if identity is None else "the client certificate has expired"
            if identity is not None:
                challenge["Connection"] = "close"  # another one is shown on another connection only
            return problem(request, HTTPStatus.UNAUTHORIZED, what, headers=challenge)
        grant = identity.grant
        needed = XDS if path.startswith(XDS_PREFIX) else READ if path == METRICS_PATH else ""
        if needed and not grant.allows(needed):
            challenge = {"WWW-Authenticate": f'Bearer error="insufficient_scope", scope="{needed}"'}
            whose = "the token" if identity.credential else "the certificate"
            detail, members = f"{whose} lacks the scope {needed}", {"missing_scope": needed}
            return problem(request, HTTPStatus.FORBIDDEN, detail, headers=challenge, members=members)
        if self._phase() is Phase.STARTING and path != METRICS_PATH:
            # "The server answers no stream before the stored state is loaded" holds for this door, too.
            retry = {"Retry-After": "1"}
            return problem(request, HTTPStatus.SERVICE_UNAVAILABLE, "the server is starting", headers=retry)
        request.state.identity, request.state.grant = identity, grant
        return None

    def _identity(self, request: Request) -> Identity | None:
        certificate = getattr(request.state, "certificate", None)
        authorization = request.headers.get(HEADER, "")
        return self._access.admit(authorization, certificate, wants_certificate=self._wants_certificates)
