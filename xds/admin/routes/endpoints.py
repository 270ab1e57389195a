"""Live endpoints: assignments that replace pushed ones of a group, set by hand or bound to a service."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import Depends, Query, Request
from fastapi.responses import Response

from xds.admin import operations
from xds.admin.answers import Paging, answer_json, etag_header
from xds.admin.bodies import Body, ContentType, decode_one, parse_one
from xds.admin.dependencies import Dependencies, Deps
from xds.admin.middleware import Segment
from xds.admin.models.endpoints import (
    AssignedEndpoint,
    AssignmentOwner,
    AssignmentSummary,
    ChangedAssignment,
    ServedAssignment,
)
from xds.admin.models.findings import Finding
from xds.admin.models.writing import document_of
from xds.admin.push import DrainTime, Strict, etag_precondition
from xds.admin.request_bodies import ASSIGNMENT, PATCH
from xds.admin.routing import Calling, api_router, with_body
from xds.codec.render import render_resource
from xds.live.assignment_edits import check_priorities
from xds.live.by_hand import EditResult, HandChange, WriteOptions
from xds.live.draining import endpoint_states
from xds.live.endpoint_patch import read_patch
from xds.live.hand_assignment import HandAssignment
from xds.live.owners import Owner
from xds.model.errors import NotFoundError, Violation
from xds.model.resource import Resource
from xds.model.resource_type import ENDPOINT
from xds.push.request import PushOptions
from xds.store.document_keys import Key
from xds.store.etags import NO_ETAG
from xds.tasks.threads import run_sized

router = api_router("endpoints")

PATCH_BYTES = 1 << 20


async def write_options(
    etag: Annotated[str, Depends(etag_precondition("e", "succeed only if nothing is set by hand"))],
    by: Calling,
    drain_s: DrainTime = None,
    dry_run: Annotated[bool, Query(description="Validate, and show what would be set; change nothing")] = False,
    allow_empty: Annotated[
        bool,
        Query(description="Permit that an assignment in use loses its last serving endpoint; otherwise 409"),
    ] = False,
) -> WriteOptions:
    """The options of a write, from its headers and query."""
    return WriteOptions(etag, drain_s, dry_run, by, allow_empty)


Options = Annotated[WriteOptions, Depends(write_options)]


@router.serve(operations.LIST_ENDPOINTS)
async def list_endpoints(
    deps: Deps,
    request: Request,
    paging: Paging,
    group: Segment,
    live: Annotated[bool, Query(description="Only live assignments, which replace pushed ones")] = False,
) -> Response:
    """The assignments of a group by name, pushed and live ones, each with its owner."""
    deps.publisher.groups.check(group)
    names = set(deps.publisher.live.owners(group))
    if not live:
        names |= deps.by_hand.served(group).keys()
    return await paging.answer(
        request,
        await paging.find_items_after(names),
        str,
        lambda name: AssignmentSummary(**_summary(_state_of(deps, (group, name)))),
    )


@router.serve(operations.GET_ENDPOINTS)
async def get_endpoints(deps: Deps, request: Request, group: Segment, name: Segment) -> Response:
    """One assignment as it is served: its owner, and its endpoints with their health and weight."""
    deps.publisher.groups.check(group)
    key = (group, name)
    if deps.publisher.live.owner(group, name) is None and name not in deps.by_hand.served(group):
        raise NotFoundError(f"group {group!r} has no assignment named {name!r}")
    parts = await _rendered(_state_of(deps, key))
    return await _answer_model(request, ServedAssignment(**parts))


@router.serve(operations.PUT_ENDPOINTS)
@with_body(ASSIGNMENT, "The assignment, as JSON or YAML")
async def put_endpoints(
    deps: Deps,
    request: Request,
    group: Segment,
    name: Segment,
    body: Body,
    options: Options,
    content_type: ContentType = "",
    strict: Strict = False,
) -> Response:
    """Set an assignment by hand: it replaces the pushed one, without a revision.

    Endpoints that it lacks drain first. It is refused (409) if the assignment follows a service.
    """
    decoded = await decode_one(body, content_type, ENDPOINT, name, deps.options.decoder)
    (wanted,) = decoded.resources
    check_priorities(wanted)
    PushOptions(strict=strict).check_warnings(decoded.warnings)
    change = await deps.by_hand.edit((group, wanted.name), lambda _present, _draining: EditResult(wanted), options)
    return await _answer(request, deps, (group, wanted.name), change, options, decoded.warnings)


@router.serve(operations.PATCH_ENDPOINTS)
@with_body(PATCH, "The changes, as JSON or YAML")
async def patch_endpoints(
    deps: Deps,
    request: Request,
    group: Segment,
    name: Segment,
    body: Body,
    options: Options,
    content_type: ContentType = "",
    strict: Strict = False,
) -> Response:
    """Add, change and remove some endpoints of an assignment. If none is set by hand, start from the pushed one.

    A new endpoint joins the only locality, unless it names one. A removed endpoint drains first. A draining endpoint
    that
    is put again stays. It is refused (409) if the assignment follows a service.
    """
    patch = read_patch(await parse_one(body, content_type, "a change of endpoints", PATCH_BYTES))
    if strict:
        dry = WriteOptions(options.etag, options.drain_s, True, options.by)
        planned = await deps.by_hand.edit((group, name), lambda *now: patch.apply(name, *now), dry)
        PushOptions(strict=True).check_warnings(_warnings(deps, (group, name), planned))
    change = await deps.by_hand.edit((group, name), lambda *now: patch.apply(name, *now), options)
    return await _answer(request, deps, (group, name), change, options)


@router.serve(operations.DELETE_ENDPOINTS)
async def delete_endpoints(deps: Deps, request: Request, group: Segment, name: Segment, options: Options) -> Response:
    """Delete an assignment that was set by hand. The pushed one is served, together with the draining endpoints."""
    change = await deps.by_hand.delete((group, name), options)
    return await _answer(request, deps, (group, name), change, options)


async def _answer(
    request: Request,
    deps: Dependencies,
    key: Key,
    change: HandChange,
    options: WriteOptions,
    warnings: tuple[Violation, ...] = (),
) -> Response:
    parts = await _rendered(_state_of(deps, key, change.after if options.dry_run else None))
    findings = tuple(map(Finding.from_domain, (*warnings, *_warnings(deps, key, change))))
    changed = ChangedAssignment(**parts, changed=change.changed, warnings=findings, dry_run=options.dry_run)
    return await _answer_model(request, changed)


async def _answer_model(request: Request, assignment: ServedAssignment) -> Response:
    return await answer_json(request, document_of(assignment), etag_header(assignment.etag) if assignment.etag else {})


def _warnings(deps: Dependencies, key: Key, change: HandChange) -> list[Violation]:
    warnings = [_absent_warning(key[1], address) for address in change.absent]
    if change.after is not None and not change.after.leaving and not deps.by_hand.is_used(key):
        warnings.append(_unused_warning(*key))
    return warnings


def _unused_warning(group: str, name: str) -> Violation:
    """The warning about an assignment that no cluster of its group refers to."""
    detail = f"no cluster of group {group!r} takes its endpoints from an assignment of this name"
    hint = "the name is that of the cluster, or its eds_cluster_config.service_name"
    return Violation("unused_assignment", detail, resource=f"endpoints/{name}", severity="warning", hint=hint)


def _absent_warning(name: str, address: str) -> Violation:
    """The warning about an address that was to be removed and is not there."""
    detail = f"there is no endpoint {address}: nothing to remove"
    return Violation("absent_endpoint", detail, resource=f"endpoints/{name}", severity="warning", pointer="/remove")


@dataclass(frozen=True, slots=True)
class _AssignmentState:
    """An assignment. ``held`` is None unless it is set by hand, ``served`` is None while nothing is served."""

    key: Key
    owner: Owner | None
    held: HandAssignment | None
    served: Resource | None


def _state_of(deps: Dependencies, key: Key, planned: HandAssignment | None = None) -> _AssignmentState:
    group, name = key
    held = planned or deps.by_hand.find(key)
    owner = held.owner() if held is not None else deps.publisher.live.owner(group, name)
    return _AssignmentState(
        key, owner, held, held.served() if held is not None else deps.by_hand.served(group).get(name)
    )


def _summary(state: _AssignmentState) -> dict[str, Any]:
    held, served = state.held, state.served
    states = endpoint_states(served) if served is not None else []
    etag = held.etag if held is not None else NO_ETAG
    return {
        "group": state.key[0],
        "name": state.key[1],
        "owner": AssignmentOwner.from_domain(state.owner, held),
        "etag": etag if etag != NO_ETAG else "",
        "version": served.version if served is not None else "",
        "endpoints_n": len(states),
        "draining_n": sum(state.health == "DRAINING" for state in states),
        "leaving": held.leaving if held is not None else False,
    }


def _served(state: _AssignmentState) -> dict[str, Any]:
    held, served = state.held, state.served
    wanted = held.wanted if held is not None else served
    states = endpoint_states(served, held.draining if held is not None else ()) if served is not None else []
    return {
        **_summary(state),
        "endpoints": tuple(map(AssignedEndpoint.from_domain, states)),
        "assignment": render_resource(wanted) if wanted is not None else {},
    }


async def _rendered(state: _AssignmentState) -> dict[str, Any]:
    size = len(state.served.body) if state.served is not None else 0
    return await run_sized(_served, state, bytes=4 * size)
