"""Ending by hand what lingers (DESIGN 3.2, Removals)."""

from __future__ import annotations

import time
from collections.abc import Iterable

from fastapi import Request
from fastapi.responses import JSONResponse, Response

from api.caller import Calling
from api.fleet_shapes import ReleaseItem
from api.grants import ANY, demand, needs
from api.routing import api_router
from api.scope import Segment
from api.services import Here, Services
from xds.control.audit import Caller
from xds.control.tokens import ADMIN, write_scope
from xds.fleet.order_state import ClientOrderState, lingering_names
from xds.model.errors import NotFoundError

router = api_router("fleet")


# Whoever may push to its group may say that what was removed is not needed any more.
@router.post("/nodes/{id}/release", response_model=ReleaseItem, openapi_extra=needs(ANY))
async def release_node(here: Here, request: Request, id: Segment, by: Calling) -> Response:
    """A node lets go of what pushes removed and it keeps for a while; connections of before may lose requests."""
    node = here.fleet.node(id)
    demand(request, write_scope(node.group) if node is not None else ADMIN)
    if node is None or not node.connected:
        raise NotFoundError(f"no node {id!r} is connected")
    return JSONResponse(await _release(here, (id,), node.group, id, by))


@router.post("/groups/{group}/release", response_model=ReleaseItem)
async def release_group(here: Here, group: Segment, by: Calling) -> Response:
    """All connected nodes of a group let go of what lingers, as one does."""
    publisher = here.publisher
    if publisher.held(group) is None and group not in publisher.settings:
        raise NotFoundError(f"no such group: {group!r}")
    nodes = here.fleet.connected(group)
    return JSONResponse(await _release(here, nodes, group, "", by))


async def _release(here: Services, nodes: Iterable[str], group: str, node: str, by: Caller) -> ReleaseItem:
    """What is let go; audited where that is anything."""
    lingering = {each: clients for each in nodes if (clients := _lingering(here, each))}
    names = lingering_names(facts for clients in lingering.values() for facts in clients)
    released = {alias: len(found) for alias, found in sorted(names.items())}
    if lingering:
        told = {"nodes": len(lingering), "released": released}
        await here.publisher.audit.record(by.note("released", group=group, subject=node, new=told))
        here.publisher.journal.released(group, node, len(lingering), released, by, time.time())
        await here.let_go(lingering.keys())
    return {"nodes": len(lingering), "clients": sum(map(len, lingering.values())), "released": released}


def _lingering(here: Services, node: str) -> list[ClientOrderState]:
    return [facts for facts in here.fleet.clients(node).values() if facts.lingering]
