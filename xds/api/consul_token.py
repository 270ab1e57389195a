"""Consul's clients show their token in a header of their own."""

from __future__ import annotations

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

CONSUL_PREFIX = "/v1/"
TOKEN_HEADER = "x-consul-token"  # noqa: S105 - the name of a header, not a secret
_AUTHORIZATION = b"authorization"


class ConsulToken:
    """Takes ``X-Consul-Token`` of requests under ``/v1`` as a bearer token, before ``Authorization``, as Consul does.

    A browser lets a page of another origin set neither header without a preflight, so both prove the same.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        token = Headers(scope=scope).get(TOKEN_HEADER, "") if is_consul(scope) else ""
        if token:
            others = [(name, value) for name, value in scope["headers"] if name.lower() != _AUTHORIZATION]
            bearer = (_AUTHORIZATION, b"Bearer " + token.encode("latin-1"))
            scope = {**scope, "headers": [*others, bearer]}
        await self._app(scope, receive, send)


def is_consul(scope: Scope) -> bool:
    """True for a request of one of Consul's own paths."""
    return scope["type"] == "http" and str(scope["path"]).startswith(CONSUL_PREFIX)
