"""Sources of instances, and the state of each."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, Request
from fastapi.responses import Response

from xds.admin.answers import Page, answer_model, page
from xds.admin.dependencies import Deps
from xds.admin.middleware import Segment
from xds.admin.routing import api_router
from xds.model.errors import NotFoundError
from xds.services import operations
from xds.services.served import served
from xds.services.source_states import shown_sources, source_state

router = api_router("sources")


@router.serve(operations.LIST_SOURCES)
async def list_sources(request: Request, deps: Deps, page: Annotated[Page, Depends(page)]) -> Response:
    """All sources of instances by name, with their state."""
    services = served(deps)
    items = await page.find_items_after(shown_sources(services.catalog, services.sources), lambda each: each.name)
    return await page.answer(request, items, lambda each: each.name, source_state)


@router.serve(operations.GET_SOURCE)
async def get_source(deps: Deps, name: Segment) -> Response:
    """One source of instances, with its state."""
    for each in shown_sources(served(deps).catalog, served(deps).sources):
        if each.name == name:
            return answer_model(source_state(each))
    raise NotFoundError(f"there is no source named {name[:200]!r}")
