"""Ending by hand what lingers (DESIGN 3.2, Removals)."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Annotated

from fastapi import Query, Request
from fastapi.responses import JSONResponse, Response

from api.fleet_shapes import ReleaseItem
from api.grants import ANY, demand, grant_of, needs
from api.push import AUTHOR_LIMIT
from api.routing import api_router
from api.scope import Segment
from api.services import Here, Services
from xds.control.tokens import ADMIN, write_scope
from xds.fleet.ordering import ClientFacts, lingering_names
from xds.model.errors import NotFoundError

router = api_router("fleet")

Author = Annotated[str, Query(max_length=AUTHOR_LIMIT, description="By default the name of the token")]


# Whoever may push to its group may say that what was removed is not needed any more.
@router.post("/nodes/{id}/release", response_model=ReleaseItem, openapi_extra=needs(ANY))
async def release_node(here: Here, request: Request, id: Segment, author: Author = "") -> Response:
    """A node lets go of what pushes removed and it keeps for a while; connections of before may lose requests."""
    node = here.fleet.node(id)
    demand(request, write_scope(node.group) if node is not None else ADMIN)
    if node is None or not node.connected:
        raise NotFoundError(f"no node {id!r} is connected")
    return JSONResponse(await _release(here, (id,), node.group, id, author or grant_of(request).name))


@router.post("/groups/{group}/release", response_model=ReleaseItem)
async def release_group(here: Here, request: Request, group: Segment, author: Author = "") -> Response:
    """All connected nodes of a group let go of what lingers, as one does."""
    publisher = here.publisher
    if publisher.held(group) is None and group not in publisher.settings:
        raise NotFoundError(f"no such group: {group!r}")
    nodes = here.fleet.connected(group)
    return JSONResponse(await _release(here, nodes, group, "", author or grant_of(request).name))


async def _release(here: Services, nodes: Iterable[str], group: str, node: str, author: str) -> ReleaseItem:
    """What is let go; audited where that is anything."""
    lingering = {each: clients for each in nodes if (clients := _lingering(here, each))}
    names = lingering_names(facts for clients in lingering.values() for facts in clients)
    released = {alias: len(found) for alias, found in sorted(names.items())}
    if lingering:
        here.publisher.journal.let_go(group, node, len(lingering), released, author, time.time())
        await here.let_go(lingering.keys())
    return {"nodes": len(lingering), "clients": sum(map(len, lingering.values())), "released": released}


def _lingering(here: Services, node: str) -> list[ClientFacts]:
    return [facts for facts in here.fleet.clients(node).values() if facts.lingering]
