"""The door for the other servers of an installation: paths below ``/internal/``, which only the cluster secret opens.

A path of the API below the prefix is answered by the route of the API, with what this server itself knows. Only those
in ``_SHARED`` can be asked for, and the paths that have routes of their own there (`internal_router`). A token or a
certificate opens none of them.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from http import HTTPStatus

from fastapi import APIRouter, Depends, Request
from fastapi.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from xds.access.tokens import HEADER
from xds.admin.gathering import CALLER_HEADER, OF_SERVER, caller_of, is_of_server
from xds.admin.operations import PREFIX
from xds.admin.other_servers import ALIVE_PATH, INTERNAL_PREFIX
from xds.admin.problem import RequestError, problem
from xds.admin.routing import operation_id

INTERNAL = "/internal/"
BODY_BYTES = 4 << 20
ANSWER_S = 60.0  # without the event stream
# What may be asked for, as method and path.
_SHARED = re.compile(
    r"GET /(nodes(/.+)?|nacks|streams/refused|check|members|events|groups/[^/]+/rollout|load(/[^/]+(/series)?)?"
    r"|groups/[^/]+/assignments(/.+)?)"
    r"|DELETE /nodes/.+"
    r"|POST /(nodes|groups)/[^/]+/release"
)


class ServerDoor:
    """The middleware that admits other servers. ``accepts`` says whether a secret is that of the cluster."""

    def __init__(self, app: ASGIApp, accepts: Callable[[str], bool]) -> None:
        self._app = app
        self._accepts = accepts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not scope["path"].startswith(INTERNAL):
            await self._app(scope, receive, send)
            return
        request = Request(scope)
        if not self._is_open(request.headers.get(HEADER, "")):
            challenge = {"WWW-Authenticate": "Bearer"}
            answer = problem(request, HTTPStatus.UNAUTHORIZED, "only servers of this installation", headers=challenge)
            await answer(scope, receive, send)
            return
        if scope["path"] == f"{INTERNAL_PREFIX}{ALIVE_PATH}":
            await Response(status_code=HTTPStatus.NO_CONTENT)(scope, receive, send)
            return
        try:
            identity, peer = caller_of(request.headers.get(CALLER_HEADER, ""))
        except ValueError as error:
            await problem(request, HTTPStatus.BAD_REQUEST, str(error))(scope, receive, send)
            return
        if int(request.headers.get("content-length", "0")) > BODY_BYTES:
            answer = problem(request, HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"a body has at most {BODY_BYTES} bytes")
            await answer(scope, receive, send)
            return
        inner = _inner(scope)
        inner["client"] = peer
        inner["state"] = {**scope.get("state", {}), "identity": identity, OF_SERVER: True}
        is_endless = f"{scope['method']} {inner['path']}" == f"GET {PREFIX}/events"
        async with asyncio.timeout(None if is_endless else ANSWER_S):
            await self._app(inner, _bounded(receive), send)

    def _is_open(self, authorization: str) -> bool:
        scheme, _, shown = authorization.partition(" ")
        return scheme.lower() == "bearer" and self._accepts(shown.strip())


def _inner(scope: Scope) -> Scope:
    """The scope of a request for a path of the API; of another one as it is."""
    raw = (scope.get("raw_path") or scope["path"].encode()).partition(b"?")[0].decode("latin-1")
    below = raw.removeprefix(INTERNAL_PREFIX)
    if below == raw or _SHARED.fullmatch(f"{scope['method']} {below}") is None:
        return {**scope, "path": raw}  # undecoded, as `RawPath` leaves those of the API
    path = f"{PREFIX}{below}"
    return {**scope, "path": path, "raw_path": path.encode("latin-1")}


def _bounded(receive: Receive) -> Receive:
    """Receives a body of at most ``BODY_BYTES``. Raises ``RequestError`` (413)."""
    received = 0

    async def receive_bounded() -> Message:
        nonlocal received
        message = await receive()
        received += len(message.get("body", b""))
        if received > BODY_BYTES:
            raise RequestError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"a body has at most {BODY_BYTES} bytes")
        return message

    return receive_bounded


async def check_of_server(request: Request) -> None:
    """A dependency of all internal routes. Raises ``RequestError`` (404)."""
    if not is_of_server(request.scope):
        raise RequestError(HTTPStatus.NOT_FOUND, "Not Found")


def internal_router() -> APIRouter:
    """A router of paths that only other servers may ask for, which the description leaves out."""
    return APIRouter(
        prefix=INTERNAL_PREFIX,
        dependencies=[Depends(check_of_server)],
        include_in_schema=False,
        generate_unique_id_function=operation_id,
    )
