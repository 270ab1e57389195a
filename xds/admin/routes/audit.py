"""The audit list: all writes and refused writes, with actor, time and address."""

from __future__ import annotations

import json
from http import HTTPStatus
from typing import Annotated

from fastapi import Query
from fastapi.responses import Response

from xds.admin import operations
from xds.admin.answers import answer_model
from xds.admin.dependencies import Deps
from xds.admin.models.audit import AuditedWrite, AuditedWrites
from xds.admin.models.copying import copied
from xds.admin.models.values import time_of
from xds.admin.problem import RequestError
from xds.admin.routes.fleet import point_in_time
from xds.admin.routing import api_router
from xds.store.audit_entries import AuditEntry, AuditFilter, AuditLane, AuditPage
from xds.tasks.threads import run_sized

DEFAULT_LIMIT = 100
LIMIT = 1_000
CURSOR_LIMIT = 100

router = api_router("audit")


@router.serve(operations.LIST_AUDIT)
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
    newest: Annotated[
        bool, Query(description="The newest entries, newest first, in one page; `cursor` is then behind all entries")
    ] = False,
) -> Response:
    """The audit list: all writes and all refused writes, oldest first."""
    lanes = {
        None: frozenset(AuditLane),
        True: frozenset({AuditLane.REFUSED}),
        False: frozenset(AuditLane) - {AuditLane.REFUSED},
    }[refused]
    wanted = AuditFilter(group, actor, action, point_in_time(since) or 0.0, lanes, newest)
    try:
        page = await deps.publisher.audit.read(page_token or cursor, limit, wanted)
    except ValueError as error:
        raise RequestError(HTTPStatus.BAD_REQUEST, str(error)) from None
    return await run_sized(lambda: answer_model(_writes(page)), resources=len(page.entries))


def _writes(page: AuditPage) -> AuditedWrites:
    next_page = page.cursor if page.more else ""
    items = tuple(map(_write, page.entries))
    return AuditedWrites(items=items, cursor=page.cursor, lagged=page.lagged, next_page_token=next_page)


def _write(entry: AuditEntry) -> AuditedWrite:
    note = entry.note
    return copied(
        AuditedWrite,
        note,
        id=str(entry.id),
        time=time_of(note.time_s),
        first_time=time_of(entry.first_s),
        count=entry.count,
        refused=note.lane is AuditLane.REFUSED,
        revision=note.revision or None,
        old=json.loads(note.old) if note.old else None,
        new=json.loads(note.new) if note.new else None,
    )
