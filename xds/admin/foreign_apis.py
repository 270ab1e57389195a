"""APIs of other products that features serve, so that the clients of those products can be used here."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

_AUTHORIZATION = b"authorization"
_STATE = "foreign_api"


@dataclass(frozen=True, slots=True)
class ForeignApi:
    """An API of another product: all paths below ``prefix``. Its errors are texts.

    ``token_header`` has a token that counts before that of ``Authorization``. Refused writes to paths that ``writes``
    matches are listed, under the matched path.
    """

    prefix: str
    token_header: str
    writes: re.Pattern[str]


class ForeignApis:
    """Marks the requests for paths of other products' APIs, and reads their tokens as bearer tokens.

    A page of another origin can set neither header without a preflight, so both prove the same.
    """

    def __init__(self, app: ASGIApp, apis: Iterable[ForeignApi]) -> None:
        self._app = app
        self._apis = tuple(dict.fromkeys(apis))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            for api in self._apis:
                if scope["path"].startswith(api.prefix):
                    scope = _marked(scope, api)
        await self._app(scope, receive, send)


def _marked(scope: Scope, api: ForeignApi) -> Scope:
    scope.setdefault("state", {})[_STATE] = api
    token = Headers(scope=scope).get(api.token_header, "")
    if not token:
        return scope
    others = [(name, value) for name, value in scope["headers"] if name.lower() != _AUTHORIZATION]
    return {**scope, "headers": [*others, (_AUTHORIZATION, b"Bearer " + token.encode("latin-1"))]}


def foreign_api(scope: Scope) -> ForeignApi | None:
    """The API of another product that the request is for; None for the server's own API."""
    found: ForeignApi | None = scope.get("state", {}).get(_STATE)
    return found
