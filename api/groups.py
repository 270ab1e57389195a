"""Groups, their snapshots and single resources."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Query, Request
from fastapi.responses import JSONResponse, Response

from api.answers import answer_json, answer_yaml, etag_header, not_modified, unchanged
from api.body import Body
from api.content_types import ContentType, accepts_yaml, decode_one, decode_pushed, off_loop
from api.deep_check import ask_envoy, envoy_binary
from api.grants import ShowSecrets, needs
from api.group_settings import item_of
from api.paging import Paging
from api.problem import finding_item
from api.push import Pushing, Strict, answer
from api.routing import api_router
from api.scope import Segment
from api.services import Here
from api.shapes import GroupItem, GroupPage, PushAnswer, ResourcePage, SnapshotItem, ValidationAnswer
from xds.codec.crosscheck import check_references
from xds.codec.redaction import redact
from xds.codec.render import render_resource
from xds.control.content import Content, type_label
from xds.control.push import PushOptions
from xds.control.tokens import READ
from xds.model.errors import ERROR, NotFoundError, ValidationError
from xds.model.resource import Resource
from xds.model.resource_type import type_url_of

Json = dict[str, Any]

router = api_router("groups")


@router.get("/groups", response_model=GroupPage)
async def list_groups(here: Here, request: Request, paging: Paging) -> Response:
    """All groups by name, those included that have settings and no snapshot yet."""
    counts = here.fleet.nodes_by_group()
    found = (group for group in here.publisher.group_names() if group > paging.after)
    return await paging.answer(
        request, found, lambda group: group, lambda group: item_of(here, group, nodes=counts[group])
    )


@router.get("/groups/{group}", response_model=GroupItem)
async def get_group(here: Here, request: Request, group: Segment) -> Response:
    """One group with its settings, without its resources."""
    item = item_of(here, group)
    return JSONResponse(item, headers=etag_header(item["etag"]) if item["etag"] else {})


@router.delete("/groups/{group}", response_model=PushAnswer)
async def delete_group(pushing: Pushing, group: Segment) -> Response:
    """Delete a group with its settings; its nodes fall to the next group that matches, or keep what they have."""
    return await answer(pushing, await pushing.here.publisher.delete_group(group, pushing.options))


@router.get("/groups/{group}/snapshot", response_model=SnapshotItem)
async def get_snapshot(here: Here, request: Request, group: Segment, show_secrets: ShowSecrets) -> Response:
    """All resources in pushed order, in a form that PUT takes again (with ``show_secrets`` where it has secrets)."""
    return await snapshot_response(here.publisher.content(group), request, show_secrets)


@router.put("/groups/{group}/snapshot", response_model=PushAnswer)
async def put_snapshot(pushing: Pushing, group: Segment, body: Body, content_type: ContentType = "") -> Response:
    """Replace all resources of a group: ``{"resources": [...], "version"?, "versions"?}``."""
    pushed = await decode_pushed(body, content_type, pushing.here.options.decoder)
    pushing.options.heed(pushed.warnings)
    result = await pushing.here.publisher.push(
        group, pushed.resources, label=pushed.label, labels=pushed.labels, options=pushing.options
    )
    return await answer(pushing, result, pushed.warnings)


@router.delete("/groups/{group}/snapshot", response_model=PushAnswer)
async def delete_snapshot(pushing: Pushing, group: Segment) -> Response:
    """Take all resources out; the group stays, empty."""
    pushing.here.publisher.content(group)
    return await answer(pushing, await pushing.here.publisher.push(group, [], options=pushing.options))


@router.get("/groups/{group}/resources/{type}", response_model=ResourcePage)
async def list_resources(
    here: Here, request: Request, paging: Paging, group: Segment, type: Segment, show_secrets: ShowSecrets
) -> Response:
    """The resources of one type, by name."""
    held = here.publisher.content(group).snapshot.get(type_url_of(type)).resources
    found = (held[name] for name in sorted(name for name in held if name > paging.after))
    return await paging.answer(request, found, lambda item: item.name, lambda item: _item(item, show_secrets))


@router.get("/groups/{group}/resources/{type}/{name:path}", response_model=Json)
async def get_resource(
    here: Here, request: Request, group: Segment, type: Segment, name: Segment, show_secrets: ShowSecrets
) -> Response:
    """One resource, in the form that PUT takes."""
    content = here.publisher.content(group)
    resource = content.get((type_url_of(type), name))
    if resource is None:
        raise NotFoundError(f"group {group!r} has no {type} resource named {name!r}")
    if not_modified(request, content.etag):
        return unchanged(content.etag)
    headers = {**etag_header(content.etag), "X-Resource-Version": resource.version}
    write = answer_yaml if accepts_yaml(request) else answer_json
    return await write(request, shown(resource, show_secrets), headers)


@router.put("/groups/{group}/resources/{type}/{name:path}", response_model=PushAnswer)
async def put_resource(
    pushing: Pushing, group: Segment, type: Segment, name: Segment, body: Body, content_type: ContentType = ""
) -> Response:
    """Add or replace one resource; the others stay. ``@type`` may be left out of the body."""
    decoder = pushing.here.options.decoder
    pushed = await decode_one(body, content_type, type_url_of(type), name, decoder)
    pushing.options.heed(pushed.warnings)
    (resource,) = pushed.resources
    return await answer(pushing, await pushing.here.publisher.put(group, resource, pushing.options), pushed.warnings)


@router.delete("/groups/{group}/resources/{type}/{name:path}", response_model=PushAnswer)
async def delete_resource(pushing: Pushing, group: Segment, type: Segment, name: Segment) -> Response:
    """Take one resource out; the others stay."""
    return await answer(pushing, await pushing.here.publisher.delete(group, (type_url_of(type), name), pushing.options))


@router.post("/validate", response_model=ValidationAnswer, openapi_extra=needs(READ))
async def validate(
    here: Here,
    request: Request,
    body: Body,
    content_type: ContentType = "",
    strict: Strict = False,
    envoy: Annotated[
        bool, Query(description="Ask a real Envoy too; needs `codec.envoy` and the scope `admin`")
    ] = False,
) -> Response:
    """Check a snapshot without pushing it; 422 with all findings when it is wrong."""
    binary = envoy_binary(here, request) if envoy else None
    pushed = await decode_pushed(body, content_type, here.options.decoder)
    found = await off_loop(len(body), lambda: check_references(pushed.resources))
    if binary is not None:
        found += await ask_envoy(pushed.resources, binary)
    errors = [finding for finding in found if finding.severity == ERROR]
    if errors:
        raise ValidationError(errors)
    warnings = [*pushed.warnings, *found]
    PushOptions(strict=strict).heed(warnings)
    shown = [finding_item(warning) for warning in warnings]
    return JSONResponse({"valid": True, "resources": len(pushed.resources), "errors": [], "warnings": shown})


async def snapshot_response(content: Content, request: Request, show_secrets: bool) -> Response:
    """A content as JSON, or YAML where the client prefers that; 304 when it holds it already."""
    if not_modified(request, content.etag):
        return unchanged(content.etag)
    size = sum(len(resource.body) for resource in content.resources())
    document = await off_loop(size, lambda: _document(content, show_secrets))
    write = answer_yaml if accepts_yaml(request) else answer_json
    return await write(request, document, etag_header(content.etag))


def shown(resource: Resource, show_secrets: bool) -> Json:
    """A resource as its readers get it."""
    document = render_resource(resource)
    return document if show_secrets else redact(document)


def _document(content: Content, show_secrets: bool) -> Json:
    return {
        "group": content.group,
        "revision": content.revision,
        "etag": content.etag,
        "versions": content.versions(),
        "resources": [shown(resource, show_secrets) for resource in content.resources()],
    }


def _item(resource: Resource, show_secrets: bool) -> Json:
    return {
        "type": type_label(resource.type_url),
        "name": resource.name,
        "version": resource.version,
        "resource": shown(resource, show_secrets),
    }
