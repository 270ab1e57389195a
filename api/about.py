"""What runs here, how it is set up, who asks, and what may be pushed."""

from __future__ import annotations

import asyncio
import platform
from importlib.metadata import version
from typing import Any

from fastapi import Request
from fastapi.responses import JSONResponse, Response
from typing_extensions import TypedDict

import xds
from api.answers import answer_json
from api.grants import ANY, grant_of, identity_of, needs
from api.routing import api_router
from api.scope import Segment
from api.services import Here
from xds.codec.json_schema import SNAPSHOT, resource_schema, snapshot_schema
from xds.control.access import ANONYMOUS
from xds.model.errors import NotFoundError
from xds.model.resource_type import type_url_of

SCHEMA_TYPE = "application/schema+json"

router = api_router("about")


class VersionItem(TypedDict):
    """``envoy_data_plane`` is the library that Envoy's API comes from."""

    version: str
    python: str
    envoy_data_plane: str


class CallerItem(TypedDict):
    """``name`` is the token's or that of the certificate's rule, empty where it has none.

    ``principal`` is the first name that the connection has proved, ``principals`` are all. ``authenticated`` is false
    where the server asks for no credentials.
    """

    name: str
    principal: str
    principals: list[str]
    scopes: list[str]
    authenticated: bool


@router.get("/version", response_model=VersionItem, openapi_extra=needs(ANY))
async def get_version() -> Response:
    """What is running."""
    found: VersionItem = {
        "version": xds.__version__,
        "python": platform.python_version(),
        "envoy_data_plane": version("envoy-data-plane"),
    }
    return JSONResponse(found)


@router.get("/whoami", response_model=CallerItem, openapi_extra=needs(ANY))
async def get_caller(request: Request) -> Response:
    """What this caller may do."""
    grant, identity = grant_of(request), identity_of(request)
    found: CallerItem = {
        "name": grant.name,
        "principal": identity.principal,
        "principals": list(map(str, identity.principals)),
        "scopes": sorted(grant.scopes),
        "authenticated": identity != ANONYMOUS,
    }
    return JSONResponse(found)


@router.get("/config", response_model=dict[str, Any])
async def get_config(here: Here) -> Response:
    """The effective settings, without secrets."""
    return JSONResponse(here.options.config)


@router.get("/schema/{type}", response_model=dict[str, Any], responses={200: {"content": {SCHEMA_TYPE: {}}}})
async def get_schema(request: Request, type: Segment) -> Response:
    """JSON Schema 2020-12 of a resource type (alias, type URL or message name), or of a whole push: ``snapshot``."""
    found = await asyncio.to_thread(snapshot_schema if type == SNAPSHOT else lambda: resource_schema(type_url_of(type)))
    if found is None:
        raise NotFoundError(f"no such type in Envoy's API: {type[:200]!r}")
    return await answer_json(request, found, media_type=SCHEMA_TYPE)
