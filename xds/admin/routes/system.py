"""Version, effective settings, the caller, schemas, the watched directory; liveness, readiness and metrics.

The last three are outside ``/api``, for machines.
"""

from __future__ import annotations

import asyncio
import platform
from http import HTTPStatus
from importlib.metadata import version
from itertools import islice
from typing import Annotated

from fastapi import Query, Request
from fastapi.responses import JSONResponse, PlainTextResponse, Response

from xds.access.authorisation import ANONYMOUS
from xds.admin import operations
from xds.admin.answers import JSON_TYPE, answer_json, answer_model
from xds.admin.dependencies import Deps
from xds.admin.middleware import Segment
from xds.admin.models.copying import copied
from xds.admin.models.server import CallerIdentity, ServerStatus, ServerVersions, UnappliedFiles, WatchedFiles
from xds.admin.models.values import time_of
from xds.admin.routing import ApiRouter, api_router, grant_of, identity_of
from xds.codec.json_schema import SNAPSHOT, resource_schema, snapshot_schema
from xds.model.errors import NotFoundError
from xds.model.resource_type import type_url_of
from xds.tasks.lifecycle import Phase
from xds.version import __version__

SCHEMA_TYPE = "application/schema+json"

router = api_router("about")


@router.serve(operations.GET_VERSION)
async def get_version() -> Response:
    """The versions of the server, of Python, and of the library with Envoy's API."""
    versions = ServerVersions(
        version=__version__,
        python=platform.python_version(),
        envoy_data_plane=version("envoy-data-plane"),
        rollouts=True,
    )
    return answer_model(versions)


@router.serve(operations.GET_CALLER)
async def get_caller(request: Request) -> Response:
    """The principals and scopes of the caller."""
    grant, identity = grant_of(request), identity_of(request)
    caller = CallerIdentity(
        name=grant.name,
        principal=identity.principal,
        principals=tuple(map(str, identity.principals)),
        scopes=tuple(sorted(grant.scopes)),
        authenticated=identity != ANONYMOUS,
    )
    return answer_model(caller)


@router.serve(operations.GET_CONFIG)
async def get_config(deps: Deps) -> Response:
    """The settings in effect, without secret values."""
    return JSONResponse(deps.options.config)


@router.serve(operations.GET_SCHEMA, responses={200: {"content": {SCHEMA_TYPE: {}}}})
async def get_schema(request: Request, type: Segment) -> Response:
    """The JSON Schema (2020-12) of a resource type, or of a whole push."""
    schema = await asyncio.to_thread(
        snapshot_schema if type == SNAPSHOT else lambda: resource_schema(type_url_of(type))
    )
    if schema is None:
        raise NotFoundError(f"no such type in Envoy's API: {type[:200]!r}")
    return await answer_json(request, schema, media_type=SCHEMA_TYPE)


SHOWN = 1_000

watch_router = api_router("watch")


@watch_router.serve(operations.GET_WATCH)
async def get_watch(
    deps: Deps, group: Annotated[str, Query(description="Only files of this group; empty: of all groups")] = ""
) -> Response:
    """The watched directory (`serve --watch`), and its files that are not applied."""
    watched = deps.watched()
    refused = [each for each in watched.refused if group in ("", each.group)] if watched is not None else []
    answer = WatchedFiles(
        directory=str(watched.root) if watched is not None else None,
        refused=tuple(copied(UnappliedFiles, each, since=time_of(each.since_s)) for each in islice(refused, SHOWN)),
        refused_total=len(refused),
    )
    return answer_model(answer)


METRICS_TYPE = "text/plain; version=1.0.0; charset=utf-8"

health_router = ApiRouter("health")
_STATUS = f"#/components/schemas/{ServerStatus.schema_name}"


@health_router.serve(operations.LIVEZ)
async def livez() -> Response:
    """Liveness: 200 if the event loop answers."""
    return answer_model(ServerStatus(status="ok", detail=""))


@health_router.serve(operations.READYZ, responses={503: {"content": {JSON_TYPE: {"schema": {"$ref": _STATUS}}}}})
async def readyz(deps: Deps) -> Response:
    """Readiness: 200 if the stored state is loaded and the server does not drain, else 503.

    A server that serves without its database is ready too: ``detail`` tells why, and since when.
    """
    phase, condition = deps.phase(), deps.condition()
    status = HTTPStatus.OK if phase is Phase.READY else HTTPStatus.SERVICE_UNAVAILABLE
    wrong = condition.wrong or (str(deps.publisher.following.lag()) if phase is Phase.READY else "")
    return answer_model(ServerStatus(status=phase.value, detail=wrong), status=status)


@health_router.serve(operations.METRICS, response_class=PlainTextResponse)
async def metrics(deps: Deps) -> Response:
    """The metrics of the server in the text format of Prometheus."""
    return Response(await asyncio.to_thread(deps.metrics), media_type=METRICS_TYPE)
