"""The audit list: all writes and refused writes, with actor, time and address."""

from __future__ import annotations

import json
from http import HTTPStatus
from typing import Annotated, Any, NotRequired

from fastapi import Query
from fastapi.responses import JSONResponse, Response
from typing_extensions import TypedDict

from xds.admin.problem import RequestError
from xds.admin.routes.fleet import point_in_time
from xds.admin.routing import api_router
from xds.admin.services import Deps
from xds.admin.shapes.values import timestamp
from xds.store.audit_entries import AuditEntry, AuditFilter, AuditLane, AuditPage
from xds.tasks.threads import run_sized

DEFAULT_LIMIT = 100
LIMIT = 1_000
CURSOR_LIMIT = 100

router = api_router("audit")


class AuditItem(TypedDict):
    """One write or refused write; or several equal ones. An entry whose ``count`` has grown appears again with the
    same ``id``.

    * ``id``: its id; opaque;
    * ``time``: when it happened; the last time of several;
    * ``first_time``: the first time of several;
    * ``count``: how often it happened;
    * ``peer``: the address of the client, as ``HOST:PORT``; empty for the server itself;
    * ``action``: what was done, such as ``push`` or ``group.configured``; ``refused`` for a refused write;
    * ``refused``: true for a refused write;
    * ``group``: present if it is about a group: its name;
    * ``subject``: present if the write is about one object: its name; of a refused write, its method and path;
    * ``revision``: present if it made one;
    * ``message``: present with a message;
    * ``reason``: present for a refused write: the status, and why;
    * ``request_id``: present if it is known: the id of the request;
    * ``old``: present for some actions: the value before, as the action has it;
    * ``new``: present for some actions: the value after.
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
    """Entries of the audit list, oldest first.

    * ``items``: the entries;
    * ``cursor``: the position after these entries, for the parameter ``cursor``;
    * ``lagged``: true if retention deleted entries between the given cursor and these;
    * ``next_page_token``: present if there are more entries: the same as ``cursor``.
    """

    items: list[AuditItem]
    cursor: str
    lagged: bool
    next_page_token: NotRequired[str]


@router.get("/audit", response_model=AuditAnswer)
async def list_audit(
    deps: Deps,
    limit: Annotated[int, Query(ge=1, le=LIMIT, description="The largest number of entries")] = DEFAULT_LIMIT,
    cursor: Annotated[
        str, Query(max_length=CURSOR_LIMIT, description="`cursor` of an earlier answer: the entries after it")
    ] = "",
    page_token: Annotated[str, Query(max_length=CURSOR_LIMIT, description="As `cursor`, but takes precedence")] = "",
    since: Annotated[
        str | None, Query(description="Only entries since then: an age such as `15m`, or an RFC 3339 time")
    ] = None,
    group: Annotated[str, Query(description="Only entries of this group; empty: all")] = "",
    actor: Annotated[str, Query(description="Only entries of this actor; empty: all")] = "",
    action: Annotated[
        str,
        Query(
            description="Only entries with this action, such as `push`, `rollback` or `group.configured`; empty: all"
        ),
    ] = "",
    refused: Annotated[
        bool | None, Query(description="true: only refused writes; false: only writes that were not refused")
    ] = None,
) -> Response:
    """The audit list: all writes and all refused writes, oldest first."""
    lanes = {
        None: frozenset(AuditLane),
        True: frozenset({AuditLane.REFUSED}),
        False: frozenset(AuditLane) - {AuditLane.REFUSED},
    }[refused]
    wanted = AuditFilter(group, actor, action, point_in_time(since) or 0.0, lanes)
    try:
        page = await deps.publisher.audit.read(page_token or cursor, limit, wanted)
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
