"""Groups: their snapshots, single resources and settings; validation by a real Envoy if one is configured."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from http import HTTPStatus
from pathlib import Path
from typing import Annotated, Any

from fastapi import Body as JsonBody
from fastapi import Depends, Query, Request
from fastapi.responses import JSONResponse, Response

from xds.access.tokens import ADMIN
from xds.admin import operations
from xds.admin.answers import (
    LIMIT,
    Paging,
    answer_json,
    answer_model,
    answer_not_modified,
    answer_yaml,
    etag_header,
    is_not_modified,
)
from xds.admin.bodies import (
    Body,
    ContentType,
    accepts_yaml,
    decode_one,
    decode_pushed,
    parse_one,
)
from xds.admin.dependencies import Dependencies, Deps
from xds.admin.gathering import gather, marks
from xds.admin.middleware import Segment
from xds.admin.models.endpoints import AssignmentOwner
from xds.admin.models.findings import Finding
from xds.admin.models.groups import (
    GroupSnapshot,
    GroupState,
    LoweredOrigin,
    PushedResource,
    ValidationOutcome,
)
from xds.admin.models.writing import document_of
from xds.admin.problem import RequestError
from xds.admin.push import RETRY, ROLLOUT, Force, Pushing, Strict, answer, etag_precondition
from xds.admin.request_bodies import PUSH, PUSHED_TYPES, RESOURCE, SETTINGS
from xds.admin.routing import Calling, ShowSecrets, api_router, demand, grant_of, with_body
from xds.admin.server_door import internal_router
from xds.codec.crosscheck import check_references
from xds.codec.redaction import redact
from xds.codec.render import render_resource
from xds.envoy.envoy_check import deep_check
from xds.live.owners import Owner
from xds.model.errors import ERROR, NotFoundError, ValidationError, Violation
from xds.model.resource import Resource
from xds.model.resource_type import ENDPOINT, type_url_of
from xds.push.content import GroupContent, type_label
from xds.push.groups import GroupSettings, read_settings, settings_etag
from xds.push.request import PushOptions
from xds.store.etags import NO_ETAG
from xds.tasks.threads import run_for_caller, run_sized

Json = dict[str, Any]

router = api_router("groups")
internal = internal_router()

CONNECTED_PATH = "/connected"  # of an internal route

WithLowered = Annotated[
    bool,
    Query(
        description="Include the resources that are lowered from the upstreams of the group. PUT does not accept them"
    ),
]


@router.serve(operations.LIST_GROUPS)
async def list_groups(deps: Deps, request: Request, paging: Paging) -> Response:
    """All groups by name, also those that have settings and no snapshot yet."""
    groups = await paging.find_items_after(deps.publisher.groups.names())
    connected, partial = await _count_connected(deps, request, groups[: paging.limit])
    return await paging.answer(
        request,
        groups,
        lambda group: group,
        lambda group: _state_of(deps, group, connected[group]),
        deps.publisher.groups.is_group,
        marks(partial),
    )


@router.serve(operations.GET_GROUP)
async def get_group(deps: Deps, request: Request, group: Segment) -> Response:
    """One group with its settings, without its resources."""
    deps.publisher.groups.check(group)
    return await _answer_state(deps, request, group)


@internal.post(CONNECTED_PATH)
async def count_connected(deps: Deps, groups: Annotated[list[str], JsonBody(embed=True, max_length=LIMIT)]) -> Response:
    """How many nodes of some groups are connected to this server."""
    counts = deps.fleet.nodes_by_group()
    return JSONResponse({"nodes": {group: counts[group] for group in groups if group in counts}})


@router.serve(operations.DELETE_GROUP)
async def delete_group(pushing: Pushing, group: Segment) -> Response:
    """Delete a group with its settings, upstreams, policies and bindings. The history stays.

    Its connected nodes move to the next group that matches. It is refused (409) if a node would match no group, or
    move
    to an empty one. With `allow_empty` nodes without a group keep their configuration and get no more updates.
    """
    if pushing.options.rollout is not None:
        raise RequestError(HTTPStatus.BAD_REQUEST, "a group is deleted at once: leave out rollout")
    return await answer(pushing, await pushing.deps.publisher.delete_group(group, pushing.options))


@router.serve(operations.GET_SNAPSHOT)
async def get_snapshot(
    deps: Deps, request: Request, group: Segment, show_secrets: ShowSecrets, lowered: WithLowered = False
) -> Response:
    """All pushed resources of a group in their order, in the form that PUT accepts.

    PUT refuses redacted values: to copy secrets, use `show_secrets`.
    """
    return await snapshot_response(deps.publisher.groups.content(group), request, show_secrets, lowered)


@router.serve(operations.PUT_SNAPSHOT)
@with_body(PUSH, "The resources, as JSON, as YAML, or as a serialized DiscoveryResponse", PUSHED_TYPES)
async def put_snapshot(pushing: Pushing, group: Segment, body: Body, content_type: ContentType = "") -> Response:
    """Replace all resources of a group. It is created if it does not exist.

    Resources that are left out are removed. All resources are validated before anything is changed. A push that
    changes
    nothing makes no revision.
    """
    pushed = await decode_pushed(body, content_type, pushing.deps.options.decoder, (ROLLOUT, RETRY))
    pushing = await pushing.rolled_out(pushed.members)
    pushing.options.check_warnings(pushed.warnings)
    result = await pushing.deps.publisher.push(
        group, pushed.resources, label=pushed.label, labels=pushed.labels, options=pushing.options
    )
    return await answer(pushing, result, pushed.warnings)


@router.serve(operations.DELETE_SNAPSHOT)
async def delete_snapshot(pushing: Pushing, group: Segment) -> Response:
    """Remove all pushed resources of a group. The group remains, empty."""
    pushing.deps.publisher.groups.content(group)
    return await answer(pushing, await pushing.deps.publisher.push(group, [], options=pushing.options))


@router.serve(operations.LIST_RESOURCES)
async def list_resources(
    deps: Deps, request: Request, paging: Paging, group: Segment, type: Segment, show_secrets: ShowSecrets
) -> Response:
    """The resources of one type, by name."""
    resources = deps.publisher.groups.content(group).snapshot.get(type_url_of(type)).resources
    page = (resources[name] for name in await paging.find_items_after(resources))
    owners = deps.publisher.live.owners(group) if type_url_of(type) == ENDPOINT else {}
    content = deps.publisher.derived.content(group)

    def item(resource: Resource) -> PushedResource:
        origin = LoweredOrigin.find(content, (resource.type_url, resource.name))
        return _item(resource, show_secrets, owners.get(resource.name), origin)

    return await paging.answer(request, page, lambda each: each.name, item)


@router.serve(operations.GET_RESOURCE)
async def get_resource(
    deps: Deps, request: Request, group: Segment, type: Segment, name: Segment, show_secrets: ShowSecrets
) -> Response:
    """One resource, in the form that PUT accepts. Its etag is that of the group."""
    content = deps.publisher.groups.content(group)
    resource = content.get((type_url_of(type), name))
    if resource is None:
        detail = f"group {group!r} has no {type} resource named {name!r}"
        live = deps.publisher.live.owners(group) if type_url_of(type) == ENDPOINT else {}
        where = f"; `xds endpoints show {name} -g {group}` shows what is served" if name in live else ""
        raise NotFoundError(f"{detail}{where}")
    if is_not_modified(request, content.etag):
        return answer_not_modified(content.etag)
    headers = {**etag_header(content.etag), "X-Resource-Version": resource.version}
    write = answer_yaml if accepts_yaml(request) else answer_json
    return await write(request, render_for_reader(resource, show_secrets), headers)


@router.serve(operations.PUT_RESOURCE)
@with_body(
    RESOURCE, "The resource, as JSON, as YAML, or as its serialized message. `@type` may be left out", PUSHED_TYPES
)
async def put_resource(
    pushing: Pushing, group: Segment, type: Segment, name: Segment, body: Body, content_type: ContentType = ""
) -> Response:
    """Add or replace one resource and keep the others. The group is created if it does not exist.

    `If-Match` is about the group.
    """
    decoder = pushing.deps.options.decoder
    pushed = await decode_one(body, content_type, type_url_of(type), name, decoder)
    pushing.options.check_warnings(pushed.warnings)
    (resource,) = pushed.resources
    return await answer(pushing, await pushing.deps.publisher.put(group, resource, pushing.options), pushed.warnings)


@router.serve(operations.DELETE_RESOURCE)
async def delete_resource(
    pushing: Pushing, group: Segment, type: Segment, name: Segment, force: Force = False
) -> Response:
    """Remove one resource and keep the others. `If-Match` is about the group."""
    options = replace(pushing.options, force=force)
    return await answer(pushing, await pushing.deps.publisher.delete(group, (type_url_of(type), name), options))


@router.serve(operations.VALIDATE)
@with_body(PUSH, "The resources, as JSON, as YAML, or as a serialized DiscoveryResponse", PUSHED_TYPES)
async def validate(
    deps: Deps,
    request: Request,
    body: Body,
    content_type: ContentType = "",
    strict: Strict = False,
    envoy: Annotated[
        bool,
        Query(
            description="Also validate with the Envoy of `codec.envoy` (400 if it is not set). Needs the scope `admin`"
        ),
    ] = False,
) -> Response:
    """Check a snapshot without pushing it. 422 with all findings if it is invalid."""
    binary = envoy_binary(deps, request) if envoy else None
    pushed = await decode_pushed(body, content_type, deps.options.decoder)
    violations = await run_for_caller(check_references, pushed.resources)
    if binary is not None:
        violations += await ask_envoy(pushed.resources, binary)
    errors = [finding for finding in violations if finding.severity == ERROR]
    if errors:
        raise ValidationError(errors)
    warnings = [*pushed.warnings, *violations]
    PushOptions(strict=strict).check_warnings(warnings)
    shown = tuple(map(Finding.from_domain, warnings))
    return answer_model(ValidationOutcome(valid=True, resources=len(pushed.resources), errors=(), warnings=shown))


async def snapshot_response(
    content: GroupContent, request: Request, show_secrets: bool, lowered: bool = False
) -> Response:
    """The content as JSON or YAML; 304 if the client has this version."""
    if is_not_modified(request, content.etag):
        return answer_not_modified(content.etag)
    size = sum(len(resource.body) for resource in content.resources())
    document = await run_sized(lambda: _document(content, show_secrets, lowered), bytes=size)
    write = answer_yaml if accepts_yaml(request) else answer_json
    return await write(request, document, etag_header(content.etag))


def render_for_reader(resource: Resource, show_secrets: bool) -> Json:
    """A resource as JSON, with its secret values redacted unless ``show_secrets``."""
    document = render_resource(resource)
    return document if show_secrets else redact(document)


def _document(content: GroupContent, show_secrets: bool, lowered: bool) -> Json:
    resources = list(content.resources())
    listed = resources if lowered else [each for each in resources if not each.is_lowered]
    snapshot = GroupSnapshot(
        group=content.group,
        revision=content.revision,
        etag=content.etag,
        versions=content.versions(),
        lowered=sum(each.is_lowered for each in resources),
        resources=tuple(render_for_reader(resource, show_secrets) for resource in listed),
    )
    document: Json = document_of(snapshot)
    return document


def _item(resource: Resource, show_secrets: bool, owner: Owner | None, origin: LoweredOrigin | None) -> PushedResource:
    return PushedResource(
        type=type_label(resource.type_url),
        name=resource.name,
        version=resource.version,
        resource=render_for_reader(resource, show_secrets),
        live=AssignmentOwner.from_domain(owner) if owner is not None else None,
        lowered=origin,
    )


SETTINGS_BYTES = 64 * 1024


@router.serve(operations.PUT_GROUP)
@with_body(SETTINGS, "The settings, as JSON or YAML")
async def put_group(
    deps: Deps,
    request: Request,
    group: Segment,
    body: Body,
    by: Calling,
    etag: Annotated[
        str,
        Depends(
            etag_precondition(
                "s",
                "succeed only if the group has no settings",
                shown="Succeed only if the present `settings_etag` is this one, such as",
            )
        ),
    ],
    content_type: ContentType = "",
    dry_run: Annotated[
        bool, Query(description="Check the settings, and show the group with them; change nothing")
    ] = False,
    allow_empty: Annotated[
        bool,
        Query(description="Permit a selector for an empty group: nodes lose their whole configuration. Otherwise 409"),
    ] = False,
) -> Response:
    """Create a group, or set all its settings. Settings that are left out are reset. This makes no revision.

    Nodes join a group only once it has a snapshot. `If-Match` takes the `settings_etag` of the group. An invalid
    selector
    is answered with 422 and the column of the error. Another selector or priority needs the scope `admin`.
    """
    document = await parse_one(body, content_type, "the settings of a group", SETTINGS_BYTES)
    settings = await run_for_caller(read_settings, document)
    if not grant_of(request).allows(ADMIN):
        etag = _own_settings_etag(deps, request, group, settings, etag)
    await deps.publisher.configure(group, settings, etag=etag, dry_run=dry_run, allow_empty=allow_empty, by=by)
    return await _answer_state(deps, request, group, settings)


def _own_settings_etag(deps: Dependencies, request: Request, group: str, settings: GroupSettings, etag: str) -> str:
    """The etag that the settings must still have when they are written by who may write this group only.

    Selector and priority of a group decide over the nodes of other groups: they must stay as they are. Raises
    ``RequestError`` (403), and ``ConflictError`` if ``etag`` is another one already.
    """
    table = deps.publisher.settings
    present = table.get(group)
    if (settings.selector, settings.priority) != (present.selector, present.priority):
        demand(request, ADMIN)
    table.check(group, etag)
    return table.etag(group)


async def _count_connected(
    deps: Dependencies, request: Request, groups: Sequence[str]
) -> tuple[Counter[str], tuple[str, ...]]:
    """How many nodes of each group are connected, and the servers that did not answer, whose nodes are missing."""
    counts = deps.fleet.nodes_by_group()
    body = {"groups": list(groups)}
    others = await gather(deps, request, CONNECTED_PATH, "", "POST", body, _read_connected)
    for each in others.documents.values():
        counts.update(each)
    return counts, others.partial


def _read_connected(document: Json) -> dict[str, int]:
    return {group: int(nodes_n) for group, nodes_n in document["nodes"].items()}


def _state_of(
    deps: Dependencies,
    group: str,
    nodes: int,
    settings: GroupSettings | None = None,
    partial: tuple[str, ...] = (),
) -> GroupState:
    """The state of a group; ``settings`` replace the present ones."""
    table = deps.publisher.settings
    etag = settings_etag(settings) if settings is not None else table.etag(group)
    return GroupState.from_domain(
        group,
        deps.publisher.groups.find(group),
        nodes,
        settings or table.get(group),
        etag if etag != NO_ETAG else "",
        table.failures(group),
        partial,
    )


async def _answer_state(
    deps: Dependencies, request: Request, group: str, settings: GroupSettings | None = None
) -> Response:
    connected, partial = await _count_connected(deps, request, (group,))
    state = _state_of(deps, group, connected[group], settings, partial)
    return answer_model(state, etag_header(state.etag) if state.etag else {})


def envoy_binary(deps: Dependencies, request: Request) -> Path:
    """The Envoy binary for validation.

    Raises ``RequestError`` if there is none (400) or the caller may not use it (403).

    Envoy opens the files that a configuration names, log files for writing, so not every caller may run it.
    """
    demand(request, ADMIN)
    if deps.options.envoy is None:
        raise RequestError(HTTPStatus.BAD_REQUEST, "this server has no Envoy for validation: codec.envoy is not set")
    return deps.options.envoy


async def ask_envoy(resources: Sequence[Resource], envoy: Path) -> list[Violation]:
    """The errors that Envoy reports for resources. Raises ``RequestError`` (503) if Envoy cannot be started."""
    try:
        return await deep_check(resources, envoy)
    except OSError as error:
        detail = f"the Envoy of codec.envoy cannot be started: {error.strerror}"
        raise RequestError(HTTPStatus.SERVICE_UNAVAILABLE, detail) from None
