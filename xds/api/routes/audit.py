"""The audit list: all writes and refused writes, with actor, time and address."""

from __future__ import annotations

import json
from http import HTTPStatus
from typing import Annotated, Any, NotRequired

from fastapi import Query
from fastapi.responses import JSONResponse, Response
from typing_extensions import TypedDict

from xds.api.problem import RequestError
from xds.api.routes.fleet import point_in_time
from xds.api.routing import api_router
from xds.api.services import Here
from xds.api.shapes.values import timestamp
from xds.control.threads import run_sized
from xds.store.audit_entries import AuditEntry, AuditFilter, AuditLane, AuditPage

DEFAULT_LIMIT = 100
LIMIT = 1_000
CURSOR_LIMIT = 100

router = api_router("audit")


class AuditItem(TypedDict):
    """One write, or several equal ones in one entry (``count``, ``first_time`` to ``time``).

    ``actor`` was authenticated; ``author`` is what the client said. ``old`` and ``new`` depend on the action. An entry
    with a count appears again with the same ``id`` when the count has grown.
    """

    id: str
    time: str
    first_time: str
    count: int
    actor: str
    author: str
    peer: str
    action: str
    refused: bool
    group: NotRequired[str]
    subject: NotRequired[str]
    revision: NotRequired[int]
    message: NotRequired[str]
    reason: NotRequired[str]
    request_id: NotRequired[str]
    old: NotRequired[Any]
    new: NotRequired[Any]


class AuditAnswer(TypedDict):
    """The oldest first. Continue after ``cursor``; ``next_page_token`` is present if there are more.

    ``lagged``: retention deleted some entries after the given cursor.
    """

    items: list[AuditItem]
    cursor: str
    lagged: bool
    next_page_token: NotRequired[str]


@router.get("/audit", response_model=AuditAnswer)
async def list_audit(
    here: Here,
    limit: Annotated[int, Query(ge=1, le=LIMIT)] = DEFAULT_LIMIT,
    cursor: Annotated[
        str, Query(max_length=CURSOR_LIMIT, description="Continue after this cursor of an earlier answer")
    ] = "",
    page_token: Annotated[str, Query(max_length=CURSOR_LIMIT, description="The same")] = "",
    since: Annotated[str | None, Query(description="An age (`15m`) or an RFC 3339 time")] = None,
    group: Annotated[str, Query()] = "",
    actor: Annotated[str, Query()] = "",
    action: Annotated[str, Query(description="Such as push, rollback, group.configured, refused")] = "",
    refused: Annotated[bool | None, Query(description="Only refused requests, or only others")] = None,
) -> Response:
    """All writes: pushes, settings, policies, deletions, releases; and all refused writes."""
    lanes = {
        None: frozenset(AuditLane),
        True: frozenset({AuditLane.REFUSED}),
        False: frozenset(AuditLane) - {AuditLane.REFUSED},
    }[refused]
    wanted = AuditFilter(group, actor, action, point_in_time(since) or 0.0, lanes)
    try:
        page = await here.publisher.audit.read(page_token or cursor, limit, wanted)
    except ValueError as error:
        raise RequestError(HTTPStatus.BAD_REQUEST, str(error)) from None
    return await run_sized(lambda: JSONResponse(_answer(page)), resources=len(page.entries))


def _answer(page: AuditPage) -> AuditAnswer:
    answer: AuditAnswer = {
        "items": [_item(entry) for entry in page.entries],
        "cursor": page.cursor,
        "lagged": page.lagged,
    }
    return {**answer, "next_page_token": page.cursor} if page.more else answer


def _item(entry: AuditEntry) -> AuditItem:
    note = entry.note
    item: AuditItem = {
        "id": str(entry.id),
        "time": timestamp(note.time_s),
        "first_time": timestamp(entry.first_s),
        "count": entry.count,
        "actor": note.actor,
        "author": note.author,
        "peer": note.peer,
        "action": note.action,
        "refused": note.lane is AuditLane.REFUSED,
    }
    if note.group:
        item["group"] = note.group
    if note.subject:
        item["subject"] = note.subject
    if note.revision:
        item["revision"] = note.revision
    if note.message:
        item["message"] = note.message
    if note.reason:
        item["reason"] = note.reason
    if note.request_id:
        item["request_id"] = note.request_id
    if note.old:
        item["old"] = json.loads(note.old)
    if note.new:
        item["new"] = json.loads(note.new)
    return item
