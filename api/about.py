"""What runs here, how it is set up, and who asks."""

from __future__ import annotations

import platform
from importlib.metadata import version
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response
from typing_extensions import TypedDict

import xds
from api.grants import ANY, grant_of, needs
from api.services import Here

router = APIRouter(tags=["about"])


class VersionItem(TypedDict):
    """``envoy_data_plane`` is the library that Envoy's API comes from."""

    version: str
    python: str
    envoy_data_plane: str


class CallerItem(TypedDict):
    """``name`` is the token's, empty where it has none; ``authenticated`` is false where no tokens are set up."""

    name: str
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
async def get_caller(here: Here, request: Request) -> Response:
    """What this caller may do."""
    grant = grant_of(request)
    found: CallerItem = {
        "name": grant.name,
        "scopes": sorted(grant.scopes),
        "authenticated": bool(here.options.tokens),
    }
    return JSONResponse(found)


@router.get("/config", response_model=dict[str, Any])
async def get_config(here: Here) -> Response:
    """The effective settings, without secrets."""
    return JSONResponse(here.options.config)
