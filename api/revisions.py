"""A group's history: revisions, how far a push has come, rollback."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated

import pydantic
from fastapi import Path, Query, Request
from fastapi.responses import JSONResponse, Response

from api.answers import etag_header
from api.body import Body
from api.content_types import ContentType, media_of
from api.grants import ShowSecrets
from api.groups import snapshot_response
from api.paging import Paging
from api.problem import RequestError
from api.push import WAIT_LIMIT_S, Pushing, answer, settled
from api.routing import api_router
from api.scope import Segment
from api.services import Here
from api.shapes import (
    ProgressItem,
    PushAnswer,
    RevisionPage,
    RolloutItem,
    SnapshotItem,
    UndoItem,
    progress_item,
    revision_item,
    rollout_item,
    undo_item,
)
from xds.model.errors import NotFoundError

REVISION_LIMIT = (1 << 63) - 2  # stores ask for what is below the next one, in 64 bits
Revision = Annotated[int, Path(ge=1, le=REVISION_LIMIT)]

router = api_router("revisions", "/groups/{group}")


class RollbackRequest(pydantic.BaseModel):
    """``to`` is the revision whose content comes back.

    With ``keep_endpoints``, clusters that are there before and after keep their present assignments.
    """

    model_config = pydantic.ConfigDict(extra="forbid", strict=True)

    to: int
    keep_endpoints: bool = False


@router.get("/revisions", response_model=RevisionPage)
async def list_revisions(
    here: Here,
    request: Request,
    paging: Paging,
    group: Segment,
    endpoints: Annotated[bool, Query(description="With those that changed endpoints alone")] = True,
) -> Response:
    """All revisions, the newest first: what each was, who made it, and whether it was undone since."""
    before = int(paging.after) if paging.after.isdecimal() else None
    found = await here.publisher.history(group, before, paging.limit + 1, endpoints)
    return await paging.answer(request, found, lambda item: str(item.revision), revision_item)


@router.get("/revisions/{revision}", response_model=SnapshotItem)
async def get_revision(
    here: Here, request: Request, group: Segment, revision: Revision, show_secrets: ShowSecrets
) -> Response:
    """The content at a revision, in a form that PUT takes again."""
    content = await here.publisher.content_at(group, revision)
    return await snapshot_response(content, request, show_secrets)


@router.get("/revisions/{revision}/progress", response_model=ProgressItem)
async def get_progress(
    here: Here,
    group: Segment,
    revision: Revision,
    wait: Annotated[float, Query(ge=0, le=WAIT_LIMIT_S, description="Seconds to wait for a decision")] = 0.0,
) -> Response:
    """How far a recent push has come, among the nodes that were connected at its commit."""
    found = await settled(here, group, revision, wait)
    if found is None:
        raise NotFoundError(f"revision {revision} of group {group!r} is no recent push of this server")
    return JSONResponse(progress_item(found))


@router.get("/rollout", response_model=RolloutItem)
async def get_rollout(here: Here, group: Segment) -> Response:
    """How far the connected nodes have come with what the group is served now, type by type."""
    return JSONResponse(rollout_item(await here.publisher.rollout(group)))


@router.post("/rollback", response_model=PushAnswer)
async def rollback(pushing: Pushing, group: Segment, body: Body, content_type: ContentType = "") -> Response:
    """Make a new revision with the content of an earlier one."""
    media_of(content_type)
    try:
        wanted = RollbackRequest.model_validate_json(body)
    except pydantic.ValidationError:
        raise RequestError(HTTPStatus.BAD_REQUEST, 'the body must be {"to": REVISION}') from None
    keeps, publisher = wanted.keep_endpoints, pushing.here.publisher
    return await answer(pushing, await publisher.rollback(group, wanted.to, pushing.options, keeps_endpoints=keeps))


@router.get("/undo", response_model=UndoItem)
async def get_undo(here: Here, group: Segment) -> Response:
    """What taking back the last change of configuration comes to: ask, then roll back to ``to`` with ``If-Match``.

    ``to`` is the last revision before it that was neither undone nor refused; null where there is none: then somebody
    has to choose among the ``candidates``.
    """
    plan = await here.publisher.undo_plan(group)
    return JSONResponse(undo_item(plan), headers=etag_header(plan.etag))
