"""The history of a group: revisions, progress of pushes, rollback, differences between revisions."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated, Any

import pydantic
from fastapi import Path, Query, Request
from fastapi.responses import JSONResponse, Response

from xds.admin import operations
from xds.admin.answers import JSON_TYPE, Page, Paging, answer_json, answer_model, answer_yaml, etag_header
from xds.admin.bodies import Body, ContentType, accepts_yaml, parse_one
from xds.admin.dependencies import Deps
from xds.admin.fleet_progress import document_of_share, progress_of_all
from xds.admin.middleware import Segment
from xds.admin.models.pushes import ChangedNames
from xds.admin.models.revisions import GroupRevision, ResourceDifference, RevisionDifference, UndoProposal
from xds.admin.models.writing import document_of
from xds.admin.problem import RequestError
from xds.admin.push import RETRY, ROLLOUT, WAIT_LIMIT_S, Pushing, answer
from xds.admin.routes.groups import WithLowered, render_for_reader, snapshot_response
from xds.admin.routing import ShowSecrets, api_router, with_model
from xds.admin.server_door import internal_router
from xds.model.errors import NotFoundError
from xds.push.content import Key, type_label
from xds.push.history import ComparedResources
from xds.push.request import by_type_label
from xds.store.base import RevisionInfo
from xds.tasks.threads import run_sized

REVISION_LIMIT = (1 << 63) - 2  # stores read revisions below the next one, in 64 bits
Revision = Annotated[int, Path(ge=1, le=REVISION_LIMIT)]
BODY_BYTES = 1 << 20

router = api_router("revisions")
internal = internal_router()


class RollbackRequest(pydantic.BaseModel):
    """A rollback of a group.

    * ``to``: the revision whose content is restored;
    * ``keep_endpoints``: keep the present assignments of clusters that exist before and after;
    * ``rollout``: how it is rolled out, as of a push;
    * ``retry``: go to this content although a rollout has taken it back.
    """

    model_config = pydantic.ConfigDict(extra="forbid", strict=True)

    to: int
    keep_endpoints: bool = False
    rollout: dict[str, Any] | str | None = None
    retry: bool = False


@router.serve(operations.LIST_REVISIONS)
async def list_revisions(
    deps: Deps,
    request: Request,
    paging: Paging,
    group: Segment,
    endpoints: Annotated[bool, Query(description="Include revisions that changed only endpoints")] = True,
) -> Response:
    """All revisions of a group, newest first: kind, author, and whether the revision was undone."""
    before = int(paging.after) if paging.after.isdecimal() else None
    lines = await deps.publisher.history.lines(group, before, paging.limit + 1, endpoints)
    rollout = deps.publisher.rollouts.find(group)
    lines_of = {rollout.base: "base", rollout.head: "head"} if rollout is not None and rollout.is_open else {}

    def item(info: RevisionInfo) -> GroupRevision:
        return GroupRevision.from_domain(info, type_label, lines_of.get(info.revision, ""))

    return await paging.answer(request, lines, lambda info: str(info.revision), item)


@router.serve(operations.GET_REVISION)
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


@router.serve(operations.GET_PROGRESS)
async def get_progress(
    deps: Deps,
    request: Request,
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
    progress = await progress_of_all(deps, request, group, revision, wait)
    if progress is None:
        raise NotFoundError(f"revision {revision} of group {group!r} is not a recent push to this server")
    return answer_model(progress)


@internal.get("/groups/{group}/revisions/{revision}/share")
async def get_share(deps: Deps, group: Segment, revision: Revision) -> Response:
    """What the nodes of this server have of a push."""
    return JSONResponse(document_of_share(await deps.publisher.groups.pushes.share(group, revision)))


@router.serve(operations.ROLLBACK)
@with_model(RollbackRequest, "The revision to go back to, as JSON", media_types=(JSON_TYPE,))
async def rollback(pushing: Pushing, group: Segment, body: Body, content_type: ContentType = "") -> Response:
    """Roll back: make a new revision with the content of an earlier one. This also restores a deleted group."""
    value = await parse_one(body, content_type, "the revision to go back to", BODY_BYTES)
    try:
        wanted = RollbackRequest.model_validate(value)
    except pydantic.ValidationError:
        raise RequestError(HTTPStatus.BAD_REQUEST, 'the body must be {"to": REVISION}') from None
    pushing = await pushing.rolled_out({ROLLOUT: wanted.rollout, RETRY: wanted.retry})
    keeps, publisher = wanted.keep_endpoints, pushing.deps.publisher
    return await answer(pushing, await publisher.rollback(group, wanted.to, pushing.options, keeps_endpoints=keeps))


@router.serve(operations.GET_UNDO)
async def get_undo(deps: Deps, group: Segment) -> Response:
    """The plan of undoing the last configuration change of a group. Nothing is changed.

    To undo it, roll back to the revision in `to`, with `etag` as `If-Match`. `to` is the last revision before the
    change
    that was neither undone nor rejected by more than `server.undo_refused_share` of its nodes. It is null if there is
    none: a person has to choose one of the `candidates`. 404 if there is nothing to undo.
    """
    plan = await deps.publisher.undo.plan(group)
    return answer_model(UndoProposal.from_domain(plan, type_label), etag_header(plan.etag))


Json = dict[str, Any]

_KEY_BYTES = 100  # an estimate; more than some hundred keys are sorted in a thread


@router.serve(operations.GET_DIFFERENCE)
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
    max_bytes: Annotated[
        int | None,
        Query(ge=0, description="Leave out the contents of resources that are larger, as protobuf. By default none"),
    ] = None,
) -> Response:
    """The difference between two revisions of a group. A revision that deleted the group has no resources."""
    difference = await deps.publisher.history.compare(group, revision - 1 if base is None else base, revision)
    differences: tuple[ResourceDifference, ...] | None = None
    next_page = ""
    if contents:
        touched = difference.touched()
        page = await run_sized(lambda: _page(paging, touched), bytes=len(touched) * _KEY_BYTES)
        keys: list[Key] = page["items"]
        next_page = page.get("next_page_token", "")
        sides = await deps.publisher.history.compared_resources(difference, keys)
        sizes = {key: _larger_side(key, sides) for key in keys}
        shown = {key for key, size in sizes.items() if max_bytes is None or size <= max_bytes}
        differences = await run_sized(
            lambda: tuple(_difference(key, sides, show_secrets, 0 if key in shown else sizes[key]) for key in keys),
            bytes=2 * sum(sizes[key] for key in shown),
        )
    answered = RevisionDifference(
        group=group,
        base=difference.old,
        to=difference.new,
        changes=ChangedNames.by_type(by_type_label(difference.changes)),
        resources=differences,
        next_page_token=next_page,
    )
    write = answer_yaml if accepts_yaml(request) else answer_json
    return await write(request, document_of(answered))


def _page(paging: Page, touched: list[Key]) -> Json:
    keys = {_list_key(key): key for key in touched}
    return paging.render(paging.items_after(keys), str, lambda text: keys[text])


def _list_key(key: Key) -> str:
    return f"{type_label(key[0])} {key[1]}"


def _larger_side(key: Key, sides: ComparedResources) -> int:
    found = (side.get(key) for side in (sides.before, sides.after))
    return max(len(resource.body) for resource in found if resource is not None)


def _difference(key: Key, sides: ComparedResources, show_secrets: bool, left_out_bytes: int) -> ResourceDifference:
    before, after = sides.before.get(key), sides.after.get(key)
    is_shown = not left_out_bytes
    return ResourceDifference(
        type=type_label(key[0]),
        name=key[1],
        change="added" if before is None else "removed" if after is None else "changed",
        before=render_for_reader(before, show_secrets) if before is not None and is_shown else None,
        after=render_for_reader(after, show_secrets) if after is not None and is_shown else None,
        left_out_bytes=left_out_bytes,
    )
