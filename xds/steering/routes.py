"""Traffic assignment: the policies of a group, one per cluster, and their decisions."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Annotated

from fastapi import Body as JsonBody
from fastapi import Depends, Query, Request
from fastapi.responses import JSONResponse, Response

from xds.admin.answers import Paging, answer_json, answer_model, etag_header
from xds.admin.bodies import Body, ContentType, parse_one
from xds.admin.dependencies import Deps
from xds.admin.gathering import answer_of_lease_holder
from xds.admin.middleware import Segment
from xds.admin.models.writing import document_of
from xds.admin.push import Strict, etag_precondition
from xds.admin.routing import Calling, api_router, with_body
from xds.admin.server_door import internal_router
from xds.push.request import PushOptions
from xds.steering import operations
from xds.steering.core.policy_document import parse_policy
from xds.steering.demand_of_others import DEMAND_PATH, POLICIES_LIMIT, WantedDemand, write_answer
from xds.steering.models import ChangedShares, PolicyDeleted, PolicyState
from xds.steering.policies import etag_of
from xds.steering.policy_schema import POLICY_SCHEMA
from xds.steering.served import ServedSteering
from xds.store.document_keys import Key

router = api_router("assignments")
internal = internal_router()

POLICY_BYTES = 256 * 1024

DryRun = Annotated[bool, Query(description="Check the request; a PUT shows what would be decided. Change nothing")]


async def _served(deps: Deps) -> ServedSteering:
    return deps.feature(ServedSteering, "traffic assignment")


Served = Annotated[ServedSteering, Depends(_served)]
Expected = Annotated[str, Depends(etag_precondition("p", "succeed only if there is no policy"))]


@router.serve(operations.LIST_ASSIGNMENTS)
async def list_assignments(
    deps: Deps,
    steering: Served,
    request: Request,
    paging: Paging,
    group: Segment,
    cluster: Annotated[str | None, Query(description="Only the policy of this cluster, if there is one")] = None,
) -> Response:
    """The traffic assignment policies of a group by cluster, each with its latest decision."""
    deps.publisher.groups.check(group)
    decided = await answer_of_lease_holder(deps, request)
    if decided is not None:
        return decided
    policies = (each for each in steering.policies.of(group) if cluster in (None, each))
    items = await paging.find_items_after(policies)
    return await paging.answer(request, items, str, lambda cluster: _item(steering, (group, cluster)))


@router.serve(operations.GET_ASSIGNMENT)
async def get_assignment(deps: Deps, steering: Served, request: Request, group: Segment, cluster: Segment) -> Response:
    """The policy of a cluster, its latest decision, the measurements behind it, and the reasons."""
    decided = await answer_of_lease_holder(deps, request)
    if decided is not None:
        return decided
    found = _item(steering, (group, cluster))
    return await answer_json(request, document_of(found), etag_header(found.etag))


@router.serve(operations.GET_ASSIGNMENT_HISTORY)
async def get_assignment_history(
    deps: Deps, steering: Served, request: Request, paging: Paging, group: Segment, cluster: Segment
) -> Response:
    """The latest changes of the shares of a cluster, newest first: time, reasons, and the shares before and after.

    The server keeps at most 128 changes of a cluster.
    """
    decided = await answer_of_lease_holder(deps, request)
    if decided is not None:
        return decided
    history = steering.assignments.get((group, cluster)).history
    before = int(paging.after) if paging.after.isdecimal() else None
    changes = history.latest(before)
    return await paging.answer(request, changes, lambda change: str(change.number), ChangedShares.from_domain)


@router.serve(operations.PUT_ASSIGNMENT)
@with_body(POLICY_SCHEMA, "The policy, as JSON or YAML")
async def put_assignment(
    deps: Deps,
    steering: Served,
    group: Segment,
    cluster: Segment,
    body: Body,
    expected: Expected,
    by: Calling,
    content_type: ContentType = "",
    dry_run: DryRun = False,
    strict: Strict = False,
) -> Response:
    """Set the traffic assignment policy of a cluster. The first decision follows at once.

    This makes no revision and changes no pushed resource: nodes are served other weights.
    """
    deps.publisher.groups.check(group)
    policy = parse_policy(await parse_one(body, content_type, "a policy", POLICY_BYTES), cluster)
    key = (group, cluster)
    PushOptions(strict=strict).check_warnings(steering.assignments.warnings(key, policy))
    if dry_run:
        steering.policies.check(key, expected)
        active = await steering.assignments.preview(key, policy)
        item = PolicyState.from_domain(active, etag_of(active.policy), steering.assignments.warnings(key, policy))
        return answer_model(replace(item, dry_run=True))
    await steering.assignments.put(key, policy, expected, by)
    found = _item(steering, key)
    return answer_model(found, etag_header(found.etag))


@router.serve(operations.DELETE_ASSIGNMENT)
async def delete_assignment(
    steering: Served, group: Segment, cluster: Segment, expected: Expected, by: Calling, dry_run: DryRun = False
) -> Response:
    """Delete the traffic assignment policy of a cluster. Nodes are served the pushed assignment at once."""
    key = (group, cluster)
    if dry_run:
        steering.policies.get(key)
        steering.policies.check(key, expected)
    else:
        await steering.assignments.delete(key, expected, by)
    return answer_model(PolicyDeleted(group=group, cluster=cluster, dry_run=dry_run))


def _item(steering: ServedSteering, key: Key) -> PolicyState:
    active = steering.assignments.get(key)
    return PolicyState.from_domain(active, etag_of(active.policy), steering.assignments.warnings(key, active.policy))


@internal.post(DEMAND_PATH)
async def get_demand(
    served: Served, wanted: Annotated[list[WantedDemand], JsonBody(embed=True, max_length=POLICIES_LIMIT)]
) -> Response:
    """What this server has measured of clusters, for the server that decides."""
    found = {}
    for each in wanted:
        found[each.key] = served.assignments.measured(each)
        await asyncio.sleep(0)  # let other tasks run
    return JSONResponse(await asyncio.to_thread(write_answer, found))
