"""The history of a group: revisions, progress of pushes, rollback, differences between revisions."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated, Any, NotRequired

import pydantic
from fastapi import Path, Query, Request
from fastapi.responses import JSONResponse, Response
from typing_extensions import TypedDict

from xds.admin.answers import Page, Paging, answer_json, answer_yaml, etag_header
from xds.admin.bodies import Body, ContentType, accepts_yaml, media_of
from xds.admin.middleware import Segment
from xds.admin.problem import RequestError
from xds.admin.push import (
    WAIT_LIMIT_S,
    Pushing,
    answer,
)
from xds.admin.routes.groups import WithLowered, render_for_reader, snapshot_response
from xds.admin.routing import ShowSecrets, api_router
from xds.admin.services import Deps
from xds.admin.shapes.groups import (
    ChangeItem,
    ProgressItem,
    PushAnswer,
    RevisionPage,
    RolloutItem,
    SnapshotItem,
    UndoItem,
    change_items,
    progress_item,
    revision_item,
    rollout_item,
    undo_item,
)
from xds.model.errors import NotFoundError
from xds.push.content import Key, type_label
from xds.push.history import ComparedResources
from xds.push.request import by_type_label
from xds.tasks.threads import run_sized

REVISION_LIMIT = (1 << 63) - 2  # stores read revisions below the next one, in 64 bits
Revision = Annotated[int, Path(ge=1, le=REVISION_LIMIT)]

router = api_router("revisions", "/groups/{group}")


class RollbackRequest(pydantic.BaseModel):
    """A rollback of a group.

    * ``to``: the revision whose content is restored;
    * ``keep_endpoints``: keep the present assignments of clusters that exist before and after.
    """

    model_config = pydantic.ConfigDict(extra="forbid", strict=True)

    to: int
    keep_endpoints: bool = False


@router.get("/revisions", response_model=RevisionPage)
async def list_revisions(
    deps: Deps,
    request: Request,
    paging: Paging,
    group: Segment,
    endpoints: Annotated[bool, Query(description="Include revisions that changed only endpoints")] = True,
) -> Response:
    """All revisions of a group, newest first: kind, author, and whether the revision was undone."""
    before = int(paging.after) if paging.after.isdecimal() else None
    found = await deps.publisher.history.lines(group, before, paging.limit + 1, endpoints)
    return await paging.answer(request, found, lambda item: str(item.revision), revision_item)


@router.get("/revisions/{revision}", response_model=SnapshotItem)
async def get_revision(
    deps: Deps,
    request: Request,
    group: Segment,
    revision: Revision,
    show_secrets: ShowSecrets,
    lowered: WithLowered = False,
) -> Response:
    """The pushed resources of a group at a revision, in the form that PUT accepts."""
    content = await deps.publisher.history.content(group, revision)
    return await snapshot_response(content, request, show_secrets, lowered)


@router.get("/revisions/{revision}/progress", response_model=ProgressItem)
async def get_progress(
    deps: Deps,
    group: Segment,
    revision: Revision,
    wait: Annotated[
        float,
        Query(ge=0, le=WAIT_LIMIT_S, description="Seconds to wait until `verdict` is not `pending`; 0: answer at once"),
    ] = 0.0,
) -> Response:
    """The progress of a push among the nodes that were connected at its commit.

    The server keeps the progress of the latest 64 pushes until it stops; 404 for others.
    """
    found = await deps.publisher.groups.pushes.wait_for_verdict(group, revision, wait)
    if found is None:
        raise NotFoundError(f"revision {revision} of group {group!r} is not a recent push to this server")
    return JSONResponse(progress_item(found))


@router.get("/rollout", response_model=RolloutItem)
async def get_rollout(deps: Deps, group: Segment) -> Response:
    """The progress of the connected nodes with the present revision of the group, type by type."""
    return JSONResponse(rollout_item(await deps.publisher.groups.rollout(group)))


@router.post("/rollback", response_model=PushAnswer)
async def rollback(pushing: Pushing, group: Segment, body: Body, content_type: ContentType = "") -> Response:
    """Roll back: make a new revision with the content of an earlier one. This also restores a deleted group."""
    media_of(content_type)
    try:
        wanted = RollbackRequest.model_validate_json(body)
    except pydantic.ValidationError:
        raise RequestError(HTTPStatus.BAD_REQUEST, 'the body must be {"to": REVISION}') from None
    keeps, publisher = wanted.keep_endpoints, pushing.deps.publisher
    return await answer(pushing, await publisher.rollback(group, wanted.to, pushing.options, keeps_endpoints=keeps))


@router.get("/undo", response_model=UndoItem)
async def get_undo(deps: Deps, group: Segment) -> Response:
    """The plan of undoing the last configuration change of a group. Nothing is changed.

    To undo it, roll back to the revision in `to`, with `etag` as `If-Match`. `to` is the last revision before the
    change
    that was neither undone nor rejected by more than `server.undo_refused_share` of its nodes. It is null if there is
    none: a person has to choose one of the `candidates`. 404 if there is nothing to undo.
    """
    plan = await deps.publisher.undo.plan(group)
    return JSONResponse(undo_item(plan), headers=etag_header(plan.etag))


Json = dict[str, Any]

_KEY_BYTES = 100  # an estimate; more than some hundred keys are sorted in a thread


class DifferenceItem(TypedDict):
    """A resource that differs between two revisions. If only redacted values differ, both sides look the same.

    * ``change``: ``added``, ``changed`` or ``removed``;
    * ``before``: the resource at the first revision, as protobuf JSON; null if there is none;
    * ``after``: the resource at the second revision, as protobuf JSON; null if there is none.
    """

    type: str
    name: str
    change: str
    before: dict[str, Any] | None
    after: dict[str, Any] | None


# The call form is needed, because one of the members is a Python keyword.
DifferenceAnswer = TypedDict(
    "DifferenceAnswer",
    {
        "group": str,
        "from": int,
        "to": int,
        "changes": dict[str, ChangeItem],
        "resources": NotRequired[list[DifferenceItem]],
        "next_page_token": NotRequired[str],
    },
)
DifferenceAnswer.__doc__ = """The difference between two revisions of a group.

* ``from``: the first revision; 0: no resources;
* ``to``: the second revision;
* ``changes``: the names of all resources that differ, by type alias;
* ``resources``: present with ``contents``: one page of these resources, before and after.
"""


@router.get("/revisions/{revision}/diff", response_model=DifferenceAnswer)
async def get_difference(
    deps: Deps,
    request: Request,
    paging: Paging,
    group: Segment,
    revision: Revision,
    show_secrets: ShowSecrets,
    base: Annotated[
        int | None,
        Query(
            alias="from",
            ge=0,
            le=REVISION_LIMIT,
            description="The revision to compare with; 0: no resources. By default the revision before",
        ),
    ] = None,
    contents: Annotated[
        bool, Query(description="Include each resource before and after, page by page; false: names only")
    ] = True,
) -> Response:
    """The difference between two revisions of a group. A revision that deleted the group has no resources."""
    found = await deps.publisher.history.compare(group, revision - 1 if base is None else base, revision)
    document: Json = {
        "group": group,
        "from": found.old,
        "to": found.new,
        "changes": change_items(by_type_label(found.changes)),
    }
    if contents:
        touched = found.touched()
        page = await run_sized(lambda: _page(paging, touched), bytes=len(touched) * _KEY_BYTES)
        keys: list[Key] = page.pop("items")
        sides = await deps.publisher.history.compared_resources(found, keys)
        size = sum(len(resource.body) for side in (sides.before, sides.after) for resource in side.values())
        document["resources"] = await run_sized(lambda: _items(keys, sides, show_secrets), bytes=size)
        document.update(page)
    write = answer_yaml if accepts_yaml(request) else answer_json
    return await write(request, document)


def _page(paging: Page, touched: list[Key]) -> Json:
    keys = {_list_key(key): key for key in touched}
    return paging.render(paging.items_after(keys), str, lambda text: keys[text])


def _list_key(key: Key) -> str:
    return f"{type_label(key[0])} {key[1]}"


def _items(keys: list[Key], sides: ComparedResources, show_secrets: bool) -> list[DifferenceItem]:
    return [_item(key, sides, show_secrets) for key in keys]


def _item(key: Key, sides: ComparedResources, show_secrets: bool) -> DifferenceItem:
    before, after = sides.before.get(key), sides.after.get(key)
    return {
        "type": type_label(key[0]),
        "name": key[1],
        "change": "added" if before is None else "removed" if after is None else "changed",
        "before": render_for_reader(before, show_secrets) if before is not None else None,
        "after": render_for_reader(after, show_secrets) if after is not None else None,
    }
