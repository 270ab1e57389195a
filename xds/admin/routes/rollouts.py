"""Careful rollouts: those that go on, and what people do with them."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated

import pydantic
from fastapi import Request
from fastapi.responses import JSONResponse, Response

from xds.admin import operations
from xds.admin.answers import JSON_TYPE, Paging, answer_model
from xds.admin.bodies import Body, ContentType, parse_one
from xds.admin.dependencies import Deps
from xds.admin.fleet_progress import rollout_of_all
from xds.admin.middleware import Segment
from xds.admin.models.rollouts import CarefulRollout
from xds.admin.problem import RequestError
from xds.admin.push import MESSAGE_LIMIT
from xds.admin.routing import Calling, api_router, with_model
from xds.admin.server_door import internal_router
from xds.rollouts.rollout import RolloutAction

BODY_BYTES = 64 << 10

router = api_router("rollouts")
internal = internal_router()


class RolloutRequest(pydantic.BaseModel):
    """What to do with the careful rollout of a group.

    * ``action``: ``pause`` keeps it at its wave; ``resume`` lets a paused or held one go on; ``promote`` gives all
      nodes the head now; ``abort`` takes it back;
    * ``message``: why; the rollout and the audit list have it;
    * ``head``: the revision whose rollout is meant: 404 if another one is rolled out by now.
    """

    model_config = pydantic.ConfigDict(extra="forbid")

    action: RolloutAction
    message: Annotated[str, pydantic.Field(max_length=MESSAGE_LIMIT)] = ""
    head: Annotated[int, pydantic.Field(ge=0)] = 0


@router.serve(operations.GET_ROLLOUT)
async def get_rollout(deps: Deps, request: Request, group: Segment) -> Response:
    """The progress of the connected nodes with what each is to have, type by type, and the last careful rollout."""
    return JSONResponse(await rollout_of_all(deps, request, group))


@router.serve(operations.CHANGE_ROLLOUT)
@with_model(RolloutRequest, "What to do, as JSON", media_types=(JSON_TYPE,))
async def change_rollout(
    deps: Deps, group: Segment, by: Calling, body: Body, content_type: ContentType = ""
) -> Response:
    """Pause, resume, promote or abort the careful rollout of a group. 404 if none is going on."""
    value = await parse_one(body, content_type, "what to do", BODY_BYTES)
    try:
        wanted = RolloutRequest.model_validate(value)
    except pydantic.ValidationError:
        detail = f'the body must be {{"action": one of {", ".join(RolloutAction)}, "message": TEXT, "head": REVISION}}'
        raise RequestError(HTTPStatus.BAD_REQUEST, detail) from None
    changed = await deps.publisher.rollouts.change(group, wanted.action, by, wanted.message, wanted.head)
    return answer_model(CarefulRollout.from_domain(changed))


@router.serve(operations.LIST_ROLLOUTS)
async def list_rollouts(deps: Deps, request: Request, paging: Paging) -> Response:
    """The careful rollouts that have not ended, by group."""
    by_group = {each.group: each for each in deps.publisher.rollouts.open()}
    page = await paging.find_items_after(by_group)
    return await paging.answer(
        request, page, lambda group: group, lambda group: CarefulRollout.from_domain(by_group[group])
    )


@internal.get("/groups/{group}/rollout/facts")
async def get_facts(deps: Deps, group: Segment, selector: str = "") -> Response:
    """What this server knows of the nodes of a group, for the decisions about its rollout."""
    return JSONResponse((await deps.publisher.rollout_facts.gather(group, selector)).document())
