"""Backup and restore of all desired state as one archive; the condition of the store."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncGenerator
from contextlib import aclosing
from datetime import UTC, datetime
from http import HTTPStatus
from typing import IO, Annotated, cast

from fastapi import Query, Request
from fastapi.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from xds.admin import operations
from xds.admin.answers import STALLED_S, StreamedAnswer, answer_model
from xds.admin.dependencies import Dependencies, Deps
from xds.admin.models.backups import RestoredBackup, StoreState
from xds.admin.models.values import time_of
from xds.admin.problem import RequestError
from xds.admin.routing import Calling, api_router, with_body
from xds.backup.backups import BackupOptions, RestoreResult

TAR_TYPE = "application/x-tar"
BYTES_TYPE = "application/octet-stream"

router = api_router("backups")


class Download(StreamedAnswer):
    """A download, whose source is closed at its end: the store keeps old content meanwhile."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with aclosing(cast(AsyncGenerator[bytes, None], self.body_iterator)):
            await super().__call__(scope, receive, send)


@router.serve(operations.GET_STORE)
async def get_store(deps: Deps) -> Response:
    """The condition of the store: whether it keeps what is pushed."""
    condition = deps.condition()
    problems = (
        ("lost", condition.lost),
        ("read_only", condition.read_only),
        ("full", condition.full),
        ("behind", condition.behind),
    )
    state, detail = next(((name, text) for name, text in problems if text), ("ok", ""))
    return answer_model(StoreState(state=state, detail=detail))


@router.serve(
    operations.GET_BACKUP,
    responses={200: {"description": "A tar archive", "content": {TAR_TYPE: {"schema": {"type": "string"}}}}},
    response_class=StreamingResponse,
)
async def get_backup(
    deps: Deps,
    history: Annotated[bool, Query(description="Include earlier revisions; false: only what is in effect")] = True,
    redact: Annotated[
        bool, Query(description="Leave out secret values; such a backup is for reading and cannot be restored")
    ] = False,
) -> Response:
    """A backup as a tar archive: all snapshots, settings and policies as of one moment, with private keys.

    Pushes continue meanwhile. One backup or restore runs at a time. The last member of the archive lists all others,
    so a
    restore refuses an incomplete archive.
    """
    stream = deps.backups.stream(BackupOptions(history, redact))
    first = await anext(stream)  # an error before the first byte becomes a problem document
    name = datetime.now(UTC).strftime("xds-backup-%Y%m%dT%H%M%SZ.tar")
    return Download(
        _rest(first, stream), media_type=TAR_TYPE, headers={"Content-Disposition": f'attachment; filename="{name}"'}
    )


@router.serve(operations.RESTORE)
@with_body({}, "The tar archive of a backup", (TAR_TYPE, BYTES_TYPE))
async def restore(
    deps: Deps,
    request: Request,
    by: Calling,
    replace: Annotated[
        bool,
        Query(
            description="Replace everything that the server has. Without this the server must be empty (otherwise 412)"
        ),
    ] = False,
    dry_run: Annotated[bool, Query(description="Verify the archive; change nothing")] = False,
) -> Response:
    """Replace everything by a backup and serve it: all or nothing.

    Revisions and versions are those of the backup. The archive is verified before anything is changed. Its audit list
    is
    added to that of the server, with an entry for the restore. Files of a watched directory are applied again soon
    after: `watched` names their groups.
    """
    with tempfile.TemporaryFile(dir=deps.options.spool) as file:
        await _receive(request, deps, file)
        result = await deps.backups.restore(file, replace=replace, dry_run=dry_run, by=by)
    return answer_model(_item(result, restored=not dry_run))


async def _rest(first: bytes, stream: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
    async with aclosing(stream):
        yield first
        async for chunk in stream:
            yield chunk


async def _receive(request: Request, deps: Dependencies, file: IO[bytes]) -> None:
    """Write the body to a file.

    Raises ``RequestError`` above the limit, and if the client sends nothing for too long.
    """
    limit, size = deps.options.archive_bytes, 0
    chunks = request.stream()
    while True:
        try:
            chunk = await asyncio.wait_for(anext(chunks), STALLED_S)
        except StopAsyncIteration:
            return
        except TimeoutError:
            close = {"Connection": "close"}
            raise RequestError(
                HTTPStatus.REQUEST_TIMEOUT, f"the client sent no data of the archive for {STALLED_S:g} seconds", close
            ) from None
        size += len(chunk)
        if size > limit:
            deps.limit_hits["archive_bytes"] += 1
            detail = f"the archive is larger than {limit} bytes (limits.archive_bytes)"
            raise RequestError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, detail, {"Connection": "close"})
        try:
            await asyncio.to_thread(file.write, chunk)
        except OSError as error:
            detail = f"the archive cannot be written to disk: {error.strerror}"
            raise RequestError(HTTPStatus.INSUFFICIENT_STORAGE, detail, {"Connection": "close"}) from None


def _item(result: RestoreResult, *, restored: bool) -> RestoredBackup:
    about, counts = result.checked.about, result.checked.counts
    return RestoredBackup(
        restored=restored,
        release=about.release,
        time=time_of(about.time_s),
        history=about.history,
        groups=counts["groups"],
        revisions=counts["revisions"],
        documents=counts["documents"],
        resources=counts["blobs"],
        watched=tuple(result.watched),
    )
