"""The admin application. REST xDS and other routes are mounted beside it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fastapi import APIRouter, FastAPI
from starlette.routing import BaseRoute

from xds.admin import problem
from xds.admin.browser_safety import BrowserSafety
from xds.admin.dependencies import Dependencies
from xds.admin.description import describe
from xds.admin.examples import ApiTexts
from xds.admin.foreign_apis import ForeignApi, ForeignApis
from xds.admin.middleware import (
    Authentication,
    HeadRequests,
    RawPath,
    RefusedWrites,
    RequestId,
    RequestQueue,
    Waiting,
)
from xds.admin.operations import PREFIX
from xds.admin.routes import (
    access,
    audit,
    backups,
    certificates,
    check,
    endpoints,
    events,
    explain,
    fleet,
    groups,
    holdings,
    load,
    members,
    pages,
    revisions,
    rollouts,
    streams,
    system,
    timeline,
)
from xds.admin.routing import operation_id
from xds.admin.server_door import ServerDoor
from xds.version import __version__

OPENAPI_PATH = f"{PREFIX}/openapi.json"


def create_app(
    deps: Dependencies,
    routers: Sequence[APIRouter] = (),
    extra_routes: Sequence[BaseRoute] = (),
    texts: Sequence[ApiTexts] = (),
    foreign_apis: Sequence[ForeignApi] = (),
) -> FastAPI:
    """The application; its routes use ``deps``.

    ``routers``, ``texts`` and ``foreign_apis`` are those of features. ``extra_routes`` are served under their own
    paths, without a description.
    """
    app = _described_app(routers, texts)
    app.state.dependencies = deps
    app.router.routes.extend(extra_routes)
    app.add_middleware(RawPath)  # innermost: the middleware that is added last runs first
    app.add_middleware(Waiting)
    options = deps.options
    app.add_middleware(
        Authentication,
        access=options.accepted(),
        phase=deps.phase,
        refuse=deps.refuse,
        wants_certificates=options.wants_certificates,
    )
    app.add_middleware(BrowserSafety, rules=options.browser, refused=deps.foreign_refused)
    app.add_middleware(ServerDoor, accepts=deps.accepts)
    app.add_middleware(RefusedWrites, audit=deps.publisher.audit)
    app.add_middleware(ForeignApis, apis=foreign_apis)
    app.add_middleware(RequestId)
    app.add_middleware(HeadRequests)
    app.add_middleware(RequestQueue)
    return app


def openapi_document(routers: Sequence[APIRouter], texts: Sequence[ApiTexts]) -> dict[str, Any]:
    """The OpenAPI description that an application with these ``routers`` serves under ``OPENAPI_PATH``."""
    return _described_app(routers, texts).openapi()


def _described_app(routers: Sequence[APIRouter], texts: Sequence[ApiTexts]) -> FastAPI:
    """The routes of the API with their description."""
    app = FastAPI(
        title="xds-server",
        version=__version__,
        openapi_url=OPENAPI_PATH,
        docs_url=None,
        redoc_url=None,
        generate_unique_id_function=operation_id,
    )
    problem.install(app)
    for router in (
        groups.router,  # the first ones are found soonest: pushes
        *routers,
        groups.internal,
        certificates.router,
        endpoints.router,
        revisions.internal,
        revisions.router,
        rollouts.internal,
        rollouts.router,
        holdings.router,
        timeline.internal,
        timeline.router,
        explain.router,  # before the route of a node, whose id may contain anything
        fleet.internal,
        fleet.router,
        streams.router,
        load.router,
        events.router,
        audit.router,
        check.router,
        members.router,
        system.watch_router,
        access.router,
        system.router,
        backups.router,
        system.health_router,
    ):
        app.router.routes.extend(router.routes)
    app.include_router(pages.router)
    describe(app, PREFIX, texts)
    return app
