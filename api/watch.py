"""The watched directory: what of it cannot be applied."""

from __future__ import annotations

from itertools import islice
from typing import Annotated

from fastapi import Query
from fastapi.responses import JSONResponse, Response
from typing_extensions import TypedDict

from api.routing import api_router
from api.services import Here
from api.timestamps import timestamp
from xds.control.watched_directory import RefusedFiles

SHOWN = 1_000

router = api_router("watch")


class RefusedFilesItem(TypedDict):
    """Files that are not applied; ``group`` is empty where the directory itself cannot be read.

    ``detail`` is the first of ``findings`` reasons, ``source`` its place in a file; the group keeps what it had.
    """

    group: str
    files: list[str]
    since: str
    detail: str
    source: str
    findings: int


class WatchAnswer(TypedDict):
    """``directory`` is null where none is watched; ``refused`` lists some of ``refused_total``."""

    directory: str | None
    refused: list[RefusedFilesItem]
    refused_total: int


@router.get("/watch", response_model=WatchAnswer)
async def get_watch(here: Here, group: Annotated[str, Query(description="Only this group")] = "") -> Response:
    """The directory that is kept applied (``serve --watch``), and what of it cannot be."""
    watched = here.watched()
    found = [each for each in watched.refused if group in ("", each.group)] if watched is not None else []
    answer: WatchAnswer = {
        "directory": str(watched.root) if watched is not None else None,
        "refused": [_item(each) for each in islice(found, SHOWN)],
        "refused_total": len(found),
    }
    return JSONResponse(answer)


def _item(refused: RefusedFiles) -> RefusedFilesItem:
    return {
        "group": refused.group,
        "files": list(refused.files),
        "since": timestamp(refused.since_s),
        "detail": refused.detail,
        "source": refused.source,
        "findings": refused.findings,
    }
