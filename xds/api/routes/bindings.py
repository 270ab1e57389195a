"""Bindings: which assignment of a group follows which service of the catalog."""

from __future__ import annotations

import asyncio
from typing import Annotated

from fastapi import Depends, Query, Request
from fastapi.responses import JSONResponse, Response

from xds.api.answers import Paging, answer_json, etag_header
from xds.api.bodies import Body, ContentType, parse_one
from xds.api.middleware import Segment
from xds.api.push import DrainTime, Strict, expected_etag
from xds.api.routing import Calling, api_router
from xds.api.services import Here, Services
from xds.api.shapes.services import BindingDeleted, BindingItem, BindingPage, binding_item
from xds.catalog.binding import read_binding
from xds.control.binding_review import check_assignment, review_binding
from xds.control.bindings import BoundAssignment
from xds.control.policies import Key
from xds.control.push import PushOptions
from xds.model.errors import Violation

router = api_router("bindings")

BINDING_BYTES = 16 * 1024

DryRun = Annotated[
    bool, Query(description="Check the request; a PUT shows the binding that it would make. Change nothing")
]
Expected = Annotated[str, Depends(expected_etag("b", "succeed only if there is no binding"))]


@router.get("/groups/{group}/bindings", response_model=BindingPage)
async def list_bindings(here: Here, request: Request, paging: Paging, group: Segment) -> Response:
    """The bindings of a group by assignment, with their state."""
    here.publisher.check_group(group)
    found = await paging.following(here.bindings.of(group), lambda bound: bound.key[1])
    return await paging.answer(request, found, lambda bound: bound.key[1], lambda bound: _item(here, bound))


@router.get("/groups/{group}/bindings/{assignment}", response_model=BindingItem)
async def get_binding(here: Here, request: Request, group: Segment, assignment: Segment) -> Response:
    """The binding of an assignment, with its state."""
    item = _item(here, here.bindings.get((group, assignment)))
    return await answer_json(request, item, etag_header(item["etag"]))


@router.put("/groups/{group}/bindings/{assignment}", response_model=BindingItem)
async def put_binding(
    here: Here,
    group: Segment,
    assignment: Segment,
    body: Body,
    expected: Expected,
    by: Calling,
    content_type: ContentType = "",
    dry_run: DryRun = False,
    strict: Strict = False,
) -> Response:
    """Let an assignment follow a service: its endpoints are the instances of the service from now on.

    This makes no revision and changes no pushed resource. It is refused (409) if the assignment is set by hand or
    belongs
    to an upstream.
    """
    here.publisher.check_group(group)
    document = await parse_one(body, content_type, "a binding", BINDING_BYTES)
    binding = await asyncio.to_thread(read_binding, document)
    key = (group, assignment)
    check_assignment(here.publisher.find_content(group), assignment)
    bound = here.bindings.draft(key, binding)
    PushOptions(strict=strict).check_warnings(_warnings(here, bound, len(here.bindings.selected(bound))))
    if dry_run:
        here.bindings.check(key, binding, expected)
        return JSONResponse({**_item(here, bound), "dry_run": True})
    changed = await here.bindings.put(key, binding, expected, by)
    item = _item(here, here.bindings.get(key))
    return JSONResponse({**item, "changed": changed}, headers=etag_header(item["etag"]))


@router.delete("/groups/{group}/bindings/{assignment}", response_model=BindingDeleted)
async def delete_binding(
    here: Here,
    group: Segment,
    assignment: Segment,
    expected: Expected,
    by: Calling,
    drain_s: DrainTime = None,
    dry_run: DryRun = False,
) -> Response:
    """End a binding. The pushed assignment is served again, together with the draining endpoints of the binding."""
    key: Key = (group, assignment)
    if dry_run:
        here.bindings.get(key)
        here.bindings.check(key, None, expected)
    else:
        await here.bindings.delete(key, expected, by, drain_s)
    return JSONResponse({"group": group, "assignment": assignment, **({"dry_run": True} if dry_run else {})})


def _item(here: Services, bound: BoundAssignment) -> BindingItem:
    owner = here.publisher.live.owner(*bound.key)
    selected = len(here.bindings.selected(bound))
    return binding_item(bound, owner, selected, _warnings(here, bound, selected))


def _warnings(here: Services, bound: BoundAssignment, selected: int) -> list[Violation]:
    return review_binding(bound, here.by_hand.is_used(bound.key), selected, here.catalog)
