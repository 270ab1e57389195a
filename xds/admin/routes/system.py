"""Version, effective settings, the caller, schemas, the watched directory; liveness, readiness and metrics.

The last three are outside ``/api``, for machines.
"""

from __future__ import annotations

import asyncio
import platform
from http import HTTPStatus
from importlib.metadata import version
from itertools import islice
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from fastapi.responses import JSONResponse, PlainTextResponse, Response
from typing_extensions import TypedDict

from xds.access.authorisation import ANONYMOUS
from xds.admin.answers import answer_json
from xds.admin.middleware import Segment
from xds.admin.routing import (
    ANY,
    api_router,
    grant_of,
    identity_of,
    needs,
)
from xds.admin.services import Deps
from xds.admin.shapes.values import timestamp
from xds.codec.json_schema import SNAPSHOT, resource_schema, snapshot_schema
from xds.model.errors import NotFoundError
from xds.model.resource_type import type_url_of
from xds.push.directory import RefusedFiles
from xds.tasks.lifecycle import Phase
from xds.version import __version__

SCHEMA_TYPE = "application/schema+json"

router = api_router("about")


class VersionItem(TypedDict):
    """The versions of the server and of what it runs on.

    * ``version``: the version of the server;
    * ``python``: the version of Python;
    * ``envoy_data_plane``: the version of ``envoy-data-plane``, the library with Envoy's API.
    """

    version: str
    python: str
    envoy_data_plane: str


class CallerItem(TypedDict):
    """The caller of this request.

    * ``name``: the name of the token, or of the rule for the certificate; empty for none;
    * ``principal``: the first authenticated principal; empty without authentication;
    * ``principals``: all authenticated principals;
    * ``scopes``: the scopes of the caller;
    * ``authenticated``: false if the server asks for no credentials.
    """

    name: str
    principal: str
    principals: list[str]
    scopes: list[str]
    authenticated: bool


@router.get("/version", response_model=VersionItem, openapi_extra=needs(ANY))
async def get_version() -> Response:
    """The versions of the server, of Python, and of the library with Envoy's API."""
    found: VersionItem = {
        "version": __version__,
        "python": platform.python_version(),
        "envoy_data_plane": version("envoy-data-plane"),
    }
    return JSONResponse(found)


@router.get("/whoami", response_model=CallerItem, openapi_extra=needs(ANY))
async def get_caller(request: Request) -> Response:
    """The principals and scopes of the caller."""
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
async def get_config(deps: Deps) -> Response:
    """The settings in effect, without secret values."""
    return JSONResponse(deps.options.config)


@router.get("/schema/{type}", response_model=dict[str, Any], responses={200: {"content": {SCHEMA_TYPE: {}}}})
async def get_schema(request: Request, type: Segment) -> Response:
    """The JSON Schema (2020-12) of a resource type, or of a whole push."""
    found = await asyncio.to_thread(snapshot_schema if type == SNAPSHOT else lambda: resource_schema(type_url_of(type)))
    if found is None:
        raise NotFoundError(f"no such type in Envoy's API: {type[:200]!r}")
    return await answer_json(request, found, media_type=SCHEMA_TYPE)


SHOWN = 1_000

watch_router = api_router("watch")


class RefusedFilesItem(TypedDict):
    """Files of a group that are not applied. The group keeps its configuration.

    * ``group``: the name of the group; empty if the directory itself cannot be read;
    * ``files``: the paths of the files;
    * ``since``: since when they are not applied;
    * ``detail``: the first error;
    * ``source``: its place, as ``FILE:LINE:COLUMN``; empty if it is not known;
    * ``findings``: the number of errors.
    """

    group: str
    files: list[str]
    since: str
    detail: str
    source: str
    findings: int


class WatchAnswer(TypedDict):
    """The watched directory.

    * ``directory``: its path; null if none is watched;
    * ``refused``: the files that are not applied, by group, at most a thousand groups;
    * ``refused_total``: the number of groups with such files.
    """

    directory: str | None
    refused: list[RefusedFilesItem]
    refused_total: int


@watch_router.get("/watch", response_model=WatchAnswer)
async def get_watch(
    deps: Deps, group: Annotated[str, Query(description="Only files of this group; empty: of all groups")] = ""
) -> Response:
    """The watched directory (`serve --watch`), and its files that are not applied."""
    watched = deps.watched()
    found = [each for each in watched.refused if group in ("", each.group)] if watched is not None else []
    answer: WatchAnswer = {
        "directory": str(watched.root) if watched is not None else None,
        "refused": [_item(each) for each in islice(found, SHOWN)],
        "refused_total": len(found),
    }
    return JSONResponse(answer)


def _item(refused: RefusedFiles) -> RefusedFilesItem:
    return {
        "group": refused.group,
        "files": list(refused.files),
        "since": timestamp(refused.since_s),
        "detail": refused.detail,
        "source": refused.source,
        "findings": refused.findings,
    }


METRICS_TYPE = "text/plain; version=1.0.0; charset=utf-8"

health_router = APIRouter(tags=["health"])


class StatusItem(TypedDict):
    """The state of the server.

    * ``status``: of ``/livez`` it is ``ok``; of ``/readyz`` the phase of the server, such as ``ready``.
    """

    status: str


@health_router.get("/livez", response_model=StatusItem)
async def livez() -> Response:
    """Liveness: 200 if the event loop answers."""
    return JSONResponse({"status": "ok"})


@health_router.get("/readyz", response_model=StatusItem, responses={503: {"model": StatusItem}})
async def readyz(deps: Deps) -> Response:
    """Readiness: 200 if the stored state is loaded and the server does not drain, else 503."""
    phase = deps.phase()
    status = HTTPStatus.OK if phase is Phase.READY else HTTPStatus.SERVICE_UNAVAILABLE
    return JSONResponse({"status": phase.value}, status)


@health_router.get("/metrics", response_class=PlainTextResponse)
async def metrics(deps: Deps) -> Response:
    """The metrics of the server in the text format of Prometheus."""
    return Response(await asyncio.to_thread(deps.metrics), media_type=METRICS_TYPE)
