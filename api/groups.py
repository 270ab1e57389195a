"""Groups, their snapshots and single resources."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated, Any

from fastapi import APIRouter, Header, Request
from fastapi.responses import JSONResponse, Response

from api.body import Body
from api.content_types import accepts_yaml, decode_pushed, decode_single, off_loop, yaml_response
from api.paging import Paging
from api.push import Pushing, answer
from api.scope import Segment
from api.services import Here
from api.shapes import GroupItem, GroupPage, PushAnswer, ResourcePage, ValidationAnswer, group_item
from xds.codec.render import render_resource
from xds.control.content import Content, type_label
from xds.model.errors import NotFoundError
from xds.model.resource import Resource
from xds.model.resource_type import type_url_of

Json = dict[str, Any]

router = APIRouter(tags=["groups"])

ContentType = Annotated[str, Header(description="JSON, YAML or a serialized DiscoveryResponse")]


@router.get("/groups", response_model=GroupPage)
async def list_groups(here: Here, paging: Paging) -> Response:
    """All groups by name."""
    counts = here.fleet.nodes_by_group()
    found = (content for content in here.publisher.groups() if content.group > paging.after)
    return JSONResponse(paging.of(found, lambda item: item.group, lambda item: group_item(item, counts[item.group])))


@router.get("/groups/{group}", response_model=GroupItem)
async def get_group(here: Here, group: Segment) -> Response:
    """One group, without its resources."""
    content = here.publisher.content(group)
    return JSONResponse(group_item(content, len(here.fleet.connected(group))), headers=_etag(content))


@router.delete("/groups/{group}", response_model=PushAnswer)
async def delete_group(pushing: Pushing, group: Segment) -> Response:
    """Delete a group; its nodes fall to the next group that matches, or keep what they have."""
    return await answer(pushing, await pushing.here.publisher.delete_group(group, pushing.options))


@router.get("/groups/{group}/snapshot")
async def get_snapshot(
    here: Here, request: Request, group: Segment, if_none_match: Annotated[str, Header()] = ""
) -> Response:
    """All resources in pushed order, in a form that PUT takes again."""
    content = here.publisher.content(group)
    if content.etag in if_none_match:
        return Response(status_code=HTTPStatus.NOT_MODIFIED, headers=_etag(content))
    return await snapshot_response(content, request)


@router.put("/groups/{group}/snapshot", response_model=PushAnswer)
async def put_snapshot(pushing: Pushing, group: Segment, body: Body, content_type: ContentType = "") -> Response:
    """Replace all resources of a group: ``{"resources": [...], "version"?, "versions"?}``."""
    pushed = await decode_pushed(body, content_type, pushing.here.options.resource_bytes)
    result = await pushing.here.publisher.push(
        group, pushed.resources, label=pushed.label, labels=pushed.labels, options=pushing.options
    )
    return await answer(pushing, result)


@router.delete("/groups/{group}/snapshot", response_model=PushAnswer)
async def delete_snapshot(pushing: Pushing, group: Segment) -> Response:
    """Take all resources out; the group stays, empty."""
    pushing.here.publisher.content(group)
    return await answer(pushing, await pushing.here.publisher.push(group, [], options=pushing.options))


@router.get("/groups/{group}/resources/{type}", response_model=ResourcePage)
async def list_resources(here: Here, paging: Paging, group: Segment, type: Segment) -> Response:
    """The resources of one type, by name."""
    held = here.publisher.content(group).snapshot.get(type_url_of(type)).resources
    names = sorted(name for name in held if name > paging.after)
    return JSONResponse(paging.of((held[name] for name in names), lambda item: item.name, _resource_item))


@router.get("/groups/{group}/resources/{type}/{name:path}")
async def get_resource(here: Here, request: Request, group: Segment, type: Segment, name: Segment) -> Response:
    """One resource, in the form that PUT takes."""
    content = here.publisher.content(group)
    resource = content.get((type_url_of(type), name))
    if resource is None:
        raise NotFoundError(f"group {group!r} has no {type} resource named {name!r}")
    headers = {**_etag(content), "X-Resource-Version": resource.version}
    document = render_resource(resource)
    return yaml_response(document, headers) if accepts_yaml(request) else JSONResponse(document, headers=headers)


@router.put("/groups/{group}/resources/{type}/{name:path}", response_model=PushAnswer)
async def put_resource(
    pushing: Pushing, group: Segment, type: Segment, name: Segment, body: Body, content_type: ContentType = ""
) -> Response:
    """Add or replace one resource; the others stay. ``@type`` may be left out of the body."""
    limit = pushing.here.options.resource_bytes
    resource = await decode_single(body, content_type, type_url_of(type), name, limit)
    return await answer(pushing, await pushing.here.publisher.put(group, resource, pushing.options))


@router.delete("/groups/{group}/resources/{type}/{name:path}", response_model=PushAnswer)
async def delete_resource(pushing: Pushing, group: Segment, type: Segment, name: Segment) -> Response:
    """Take one resource out; the others stay."""
    return await answer(pushing, await pushing.here.publisher.delete(group, (type_url_of(type), name), pushing.options))


@router.post("/validate", response_model=ValidationAnswer)
async def validate(here: Here, body: Body, content_type: ContentType = "") -> Response:
    """Check a snapshot without pushing it; 422 with all findings when it is wrong."""
    pushed = await decode_pushed(body, content_type, here.options.resource_bytes)
    return JSONResponse({"valid": True, "resources": len(pushed.resources), "errors": []})


async def snapshot_response(content: Content, request: Request) -> Response:
    """A content as JSON, or YAML where the client prefers that."""
    size = sum(len(resource.body) for resource in content.resources())
    document = await off_loop(size, lambda: _document(content))
    if accepts_yaml(request):
        return yaml_response(document, _etag(content))
    return JSONResponse(document, headers=_etag(content))


def _document(content: Content) -> Json:
    return {
        "group": content.group,
        "revision": content.revision,
        "etag": content.etag,
        "versions": content.versions(),
        "resources": [render_resource(resource) for resource in content.resources()],
    }


def _resource_item(resource: Resource) -> Json:
    return {
        "type": type_label(resource.type_url),
        "name": resource.name,
        "version": resource.version,
        "resource": render_resource(resource),
    }


def _etag(content: Content) -> dict[str, str]:
    return {"ETag": f'"{content.etag}"'}
