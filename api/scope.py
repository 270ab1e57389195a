"""What happens to every request before a route sees it: its id, its path, its credentials, the server's phase."""

from __future__ import annotations

import hmac
from collections.abc import Callable
from hashlib import sha256
from http import HTTPStatus
from typing import Annotated
from urllib.parse import unquote
from uuid import uuid4

import structlog
from fastapi import Request
from pydantic import BeforeValidator
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.problem import problem
from xds.control.phase import Phase

API_PREFIX = "/api/"
OPEN_PATHS = frozenset({"/livez", "/readyz"})
REQUEST_ID_LIMIT = 128

# A path parameter of the API: captured percent-encoded (see ``RawPath``), handed on decoded.
Segment = Annotated[str, BeforeValidator(unquote)]


class RequestId:
    """Gives each request an id, or keeps the caller's ``X-Request-ID``, in the answer and in the log."""

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
                MutableHeaders(scope=message)["X-Request-ID"] = identifier
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
    """Turns away who has no token, and everybody while there is nothing to answer from."""

    def __init__(self, app: ASGIApp, token_sha256: tuple[str, ...], phase: Callable[[], Phase]) -> None:
        self._app = app
        self._tokens = token_sha256
        self._phase = phase

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] in OPEN_PATHS:
            await self._app(scope, receive, send)
            return
        request = Request(scope)
        if self._tokens and not self._admits(request.headers.get("authorization", "")):
            challenge = {"WWW-Authenticate": "Bearer"}
            answer = problem(request, HTTPStatus.UNAUTHORIZED, "a bearer token is needed", headers=challenge)
            await answer(scope, receive, send)
            return
        if self._phase() is Phase.STARTING and scope["path"] != "/metrics":
            # "The server answers no stream before the stored state is loaded" holds for this door, too.
            retry = {"Retry-After": "1"}
            answer = problem(request, HTTPStatus.SERVICE_UNAVAILABLE, "the server is starting", headers=retry)
            await answer(scope, receive, send)
            return
        await self._app(scope, receive, send)

    def _admits(self, authorization: str) -> bool:
        scheme, _, token = authorization.partition(" ")
        if scheme.lower() != "bearer":
            return False
        digest = sha256(token.strip().encode("latin-1", "replace")).hexdigest()
        # Every comparison is made, each in constant time.
        return sum(hmac.compare_digest(digest, known) for known in self._tokens) > 0
