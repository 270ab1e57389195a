"""Writes that were turned away, for whatever reason: told to the audit list."""

from __future__ import annotations

import re
from urllib.parse import parse_qs, unquote

from fastapi import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.caller import AUTHOR_LIMIT, peer_of
from api.scope import API_PREFIX
from xds.control.audit import AuditLog, Caller
from xds.control.push import GROUP_NAME_LIMIT

READING = frozenset({"GET", "HEAD", "OPTIONS"})
REASON_LIMIT = 300
TRUE = frozenset({"1", "on", "t", "true", "y", "yes"})  # as the routes read it
_GROUP = re.compile(r"/api/v1/groups/([^/]+)(?:/([a-z]{1,20})(/|$))?")
_OTHER = re.compile(r"/api/v1/([a-z]{1,20})(/|$)")
_NO_WRITES = frozenset({"validate", "explain"})


class Refusals:
    """Tells the audit list of every write that was answered with a 4xx.

    What the caller chooses freely (names of resources, queries) is no part of what is told, but the group and the
    claimed author.
    """

    def __init__(self, app: ASGIApp, audit: AuditLog) -> None:
        self._app = app
        self._audit = audit

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] in READING or not scope["path"].startswith(API_PREFIX):
            await self._app(scope, receive, send)
            return

        async def send_and_tell(message: Message) -> None:
            if message["type"] == "http.response.start" and 400 <= message["status"] < 500:
                self._tell(Request(scope), message["status"])
            await send(message)

        await self._app(scope, receive, send_and_tell)

    def _tell(self, request: Request, status: int) -> None:
        group, subject = _place(request)
        query = parse_qs(request.scope["query_string"].decode("latin-1"))
        if not subject or query.get("dry_run", [""])[-1].lower() in TRUE:
            return
        grant, reason = getattr(request.state, "grant", None), getattr(request.state, "refusal", "")
        author = query.get("author", [""])[-1][:AUTHOR_LIMIT]
        caller = Caller(grant.name if grant is not None else "", author, peer_of(request))
        self._audit.refused(caller, f"{request.method} {subject}", group, f"{status} {reason}"[:REASON_LIMIT])


def _place(request: Request) -> tuple[str, str]:
    """The group and the path of a write, without names; an empty path for what is no write of ours."""
    raw = request.scope.get("raw_path") or request.scope["path"].encode()
    path = raw.decode("latin-1").partition("?")[0]
    if (found := _GROUP.match(path)) is not None:
        below = f"/{found[2]}" if found[2] else ""
        return unquote(found[1])[:GROUP_NAME_LIMIT], f"/groups/{{group}}{below}"
    other = _OTHER.match(path)
    return "", f"/{other[1]}" if other is not None and other[1] not in _NO_WRITES else ""
