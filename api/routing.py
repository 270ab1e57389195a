"""How the routes of the API are put together."""

from __future__ import annotations

from fastapi import APIRouter, Depends
from fastapi.routing import APIRoute

from api.grants import authorize

API_PREFIX = "/api/v1"


def api_router(tag: str, prefix: str = "") -> APIRouter:
    """A router whose routes lie under the API's prefix and look at the caller's scopes, complete as they are defined.

    A router that an application has to complete is built anew for each application, within its first request: with
    hundreds of models that takes some tenths of a second, in which the event loop is held.
    """
    return APIRouter(
        prefix=f"{API_PREFIX}{prefix}",
        tags=[tag],
        dependencies=[Depends(authorize)],
        generate_unique_id_function=operation_id,
    )


def operation_id(route: APIRoute) -> str:
    """The name of the function that answers, as generators of clients want it."""
    return route.name
