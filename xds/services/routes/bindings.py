"""Bindings: which assignment of a group follows which service of the catalog."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

from fastapi import Depends, Query, Request
from fastapi.responses import Response

from xds.admin.answers import Paging, answer_model, etag_header
from xds.admin.bodies import Body, ContentType, parse_one
from xds.admin.dependencies import Dependencies, Deps
from xds.admin.middleware import Segment
from xds.admin.push import DrainTime, Strict, etag_precondition
from xds.admin.routing import Calling, api_router, with_body
from xds.model.errors import Violation
from xds.push.request import PushOptions
from xds.services import operations
from xds.services.binding_review import check_assignment, review_binding
from xds.services.bindings import BoundAssignment
from xds.services.core.binding import read_binding
from xds.services.models.services import BindingDeleted, BindingState
from xds.services.served import served
from xds.services.texts import BINDING
from xds.store.document_keys import Key
from xds.tasks.threads import run_for_caller

router = api_router("bindings")

BINDING_BYTES = 16 * 1024

DryRun = Annotated[
    bool, Query(description="Check the request; a PUT shows the binding that it would make. Change nothing")
]
Expected = Annotated[str, Depends(etag_precondition("b", "succeed only if there is no binding"))]


@router.serve(operations.LIST_BINDINGS)
async def list_bindings(deps: Deps, request: Request, paging: Paging, group: Segment) -> Response:
    """The bindings of a group by assignment, with their state."""
    deps.publisher.groups.check(group)
    items = await paging.find_items_after(served(deps).bindings.of(group), lambda bound: bound.key[1])
    return await paging.answer(request, items, lambda bound: bound.key[1], lambda bound: _item(deps, bound))


@router.serve(operations.GET_BINDING)
async def get_binding(deps: Deps, request: Request, group: Segment, assignment: Segment) -> Response:
    """The binding of an assignment, with its state."""
    found = _item(deps, served(deps).bindings.get((group, assignment)))
    return answer_model(found, etag_header(found.etag))


@router.serve(operations.PUT_BINDING)
@with_body(BINDING, "The binding, as JSON or YAML")
async def put_binding(
    deps: Deps,
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
    deps.publisher.groups.check(group)
    document = await parse_one(body, content_type, "a binding", BINDING_BYTES)
    binding = await run_for_caller(read_binding, document)
    key = (group, assignment)
    check_assignment(deps.publisher.groups.find(group), assignment)
    bound = served(deps).bindings.draft(key, binding)
    PushOptions(strict=strict).check_warnings(_warnings(deps, bound, len(served(deps).bindings.selected(bound))))
    if dry_run:
        served(deps).bindings.check(key, binding, expected)
        return answer_model(replace(_item(deps, bound), dry_run=True))
    changed = await served(deps).bindings.put(key, binding, expected, by)
    found = replace(_item(deps, served(deps).bindings.get(key)), changed=changed)
    return answer_model(found, etag_header(found.etag))


@router.serve(operations.DELETE_BINDING)
async def delete_binding(
    deps: Deps,
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
        served(deps).bindings.get(key)
        served(deps).bindings.check(key, None, expected)
    else:
        await served(deps).bindings.delete(key, expected, by, drain_s)
    return answer_model(BindingDeleted(group=group, assignment=assignment, dry_run=dry_run))


def _item(deps: Dependencies, bound: BoundAssignment) -> BindingState:
    owner = deps.publisher.live.owner(*bound.key)
    selected = len(served(deps).bindings.selected(bound))
    return BindingState.from_domain(bound, owner, selected, _warnings(deps, bound, selected))


def _warnings(deps: Dependencies, bound: BoundAssignment, selected: int) -> list[Violation]:
    return list(review_binding(bound, deps.by_hand.is_used(bound.key), selected, served(deps).catalog))
