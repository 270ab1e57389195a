"""The resources that one node holds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import Annotated, Any

from fastapi import Depends, Query, Request
from fastapi.responses import Response

from xds.admin import operations
from xds.admin.answers import Page, Paging, answer_json
from xds.admin.dependencies import Dependencies, Deps
from xds.admin.gathering import answer_of_holder
from xds.admin.middleware import Segment
from xds.admin.models.holdings import HeldResource
from xds.admin.models.values import time_of
from xds.admin.models.writing import document_of
from xds.admin.routing import api_router, secrets_shown
from xds.codec.redaction import redact
from xds.codec.render import render_resource
from xds.fleet.node_records import Holding
from xds.fleet.order_state import lingering_until
from xds.model.errors import NotFoundError
from xds.model.resource import Resource
from xds.model.resource_type import alias_of, type_url_of
from xds.model.snapshot import ResourceSet
from xds.snapshots.leftover import Leftover
from xds.tasks.threads import run_sized

Json = dict[str, Any]
Render = Callable[[Resource], Json]
LingeringEnds = Mapping[str, Mapping[str, float | None]]  # ends of lingering by type URL and name
HeldSet = tuple[Holding, ResourceSet | None]

router = api_router("fleet")

MISSING = "missing"
_NAME_LIMIT = 4096
_RESOURCE_BYTES = 300  # an estimate; a document of more than some hundred resources is made in a thread


class Side(StrEnum):
    """``acked``: what the node ACKed; ``sent``: what it was sent last; ``served``: what its group has for it."""

    ACKED = "acked"
    SENT = "sent"
    SERVED = "served"


@router.serve(operations.LIST_HELD)
async def list_held(
    deps: Deps,
    request: Request,
    paging: Paging,
    id: Segment,
    type: Annotated[str, Query(description="Only this type: an alias or a type URL; empty: all types")] = "",
    name: Annotated[
        str,
        Query(max_length=_NAME_LIMIT, description="Only names that match this glob, such as `web-*`; empty: all names"),
    ] = "",
    side: Annotated[
        Side, Query(description="Which resources: those that the node ACKed, was sent, or is served")
    ] = Side.ACKED,
    contents: Annotated[bool, Query(description="Include the resources themselves")] = False,
    secrets: Annotated[bool, Depends(secrets_shown)] = False,
) -> Response:
    """The resources of a connected node by type and name: those that it ACKed, was sent last, or is served."""
    node = deps.fleet.node(id)
    held = await answer_of_holder(deps, request, id, node, needs_stream=True)
    if held.relayed is not None:
        return held.relayed
    if node is None or not node.connected:
        raise NotFoundError(f"no node {id!r} has an open stream")
    chosen = [
        (holding, _side_of(deps, holding, side, id))
        for holding in deps.fleet.holdings(id)
        if not type or type_url_of(type) in {holding.type_url, type_url_of(holding.type)}
    ]
    render = (render_resource if secrets else _redacted) if contents else None
    lingering = lingering_until(deps.fleet.clients(id)) if side is not Side.SERVED else {}
    size = sum(len(side_set) for _, side_set in chosen if side_set is not None) * _RESOURCE_BYTES
    return await answer_json(
        request, await run_sized(lambda: _page(paging, chosen, name, render, lingering), bytes=size)
    )


def _page(paging: Page, chosen: list[HeldSet], glob: str, render: Render | None, lingering: LingeringEnds) -> Json:
    items = {
        f"{holding.type} {name}": (holding, resources, name)
        for holding, resources in chosen
        for name in _names(holding, resources)
        if not glob or fnmatchcase(name, glob)
    }
    page = paging.render(paging.items_after(items), lambda key: key, lambda key: _item(*items[key], render, lingering))
    document: Json = document_of(page)
    return document


def _side_of(deps: Dependencies, holding: Holding, side: Side, node_id: str) -> ResourceSet | None:
    if side is Side.ACKED:
        return holding.acked
    if side is Side.SENT:
        return holding.sent
    served = deps.publisher.views.served(node_id)
    return served.get(type_url_of(holding.type)) if served is not None else None


def _names(holding: Holding, chosen: ResourceSet | None) -> Iterator[str]:
    if chosen is not None:
        yield from holding.interest.select(chosen)
        yield from holding.interest.missing(chosen)
    else:
        yield from sorted(holding.interest.names)


def _item(
    holding: Holding, chosen: ResourceSet | None, name: str, render: Render | None, lingering: LingeringEnds
) -> HeldResource:
    resource = _resource(chosen, name)
    overlay: tuple[str, ...] = ()
    pushed_version = ""
    if chosen is not None:
        pushed_version = chosen.observed.get(name) or chosen.overlaid.get(name) or ""
        overlay = tuple(
            word for word, overlaid in (("live", chosen.observed), ("assignment", chosen.overlaid)) if name in overlaid
        )
    ends = lingering.get(holding.type_url, {}) if resource is not None else {}
    until = ends.get(name)
    known = None if isinstance(resource, Leftover) else resource
    return HeldResource(
        type=alias_of(holding.type_url),
        type_url=holding.type_url,
        name=name,
        state=str(holding.state) if resource is not None else MISSING,
        version=resource.version if resource is not None else "",
        version_info=chosen.version_info if chosen is not None else "",
        pushed_version=pushed_version,
        overlay=overlay,
        lingers=name in ends,
        until=time_of(until) if until is not None else None,
        resource=render(known) if render is not None and known is not None else None,
    )


def _redacted(resource: Resource) -> Json:
    return redact(render_resource(resource))


def _resource(chosen: ResourceSet | None, name: str) -> Resource | None:
    if chosen is None:
        return None
    return chosen.resources.get(name)
