"""The admin application (DESIGN 5.2); REST xDS and other routes are mounted beside it."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import version

from fastapi import FastAPI
from starlette.routing import BaseRoute

from api import (
    about,
    access,
    assignments,
    audit,
    backups,
    comparison,
    events,
    explain,
    fleet,
    group_settings,
    groups,
    health,
    holdings,
    load,
    problem,
    release,
    revisions,
    transactions,
    watch,
)
from api.browser_safety import BrowserSafety
from api.description import describe
from api.queue import Queue
from api.refusals import Refusals
from api.routing import API_PREFIX, operation_id
from api.scope import Door, RawPath, RequestId
from api.services import Services

OPENAPI_PATH = f"{API_PREFIX}/openapi.json"


def create_app(services: Services, extra_routes: Sequence[BaseRoute] = ()) -> FastAPI:
    """The application around its collaborators. ``extra_routes`` are served under their own paths."""
    app = FastAPI(
        title="xds-server",
        version=version("xds-server"),
        openapi_url=OPENAPI_PATH,
        docs_url=None,
        redoc_url=None,
        generate_unique_id_function=operation_id,
    )
    app.state.services = services
    problem.install(app)
    for router in (
        groups.router,
        group_settings.router,
        assignments.router,
        transactions.router,
        revisions.router,
        comparison.router,
        holdings.router,
        explain.router,  # before the route of a node, whose id may hold anything
        release.router,
        fleet.router,
        load.router,
        events.router,
        audit.router,
        watch.router,
        access.router,
        about.router,
        backups.router,
    ):
        app.router.routes.extend(router.routes)
    app.include_router(health.router)
    app.router.routes.extend(extra_routes)
    describe(app, API_PREFIX)
    app.add_middleware(RawPath)  # innermost: what was added last is reached first
    options = services.options
    app.add_middleware(
        Door, access=options.accepted(), phase=services.phase, wants_certificates=options.wants_certificates
    )
    app.add_middleware(BrowserSafety, rules=options.browser, refused=services.foreign_refused)
    app.add_middleware(Refusals, audit=services.publisher.audit)
    app.add_middleware(RequestId)
    app.add_middleware(Queue)
    return app
