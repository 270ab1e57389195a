"""The admin API with the routes of all features."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fastapi import APIRouter, FastAPI
from starlette.routing import BaseRoute

from xds.admin import app
from xds.admin.dependencies import Dependencies
from xds.admin.examples import ApiTexts
from xds.app.features import FEATURES


def create_app(deps: Dependencies, extra_routes: Sequence[BaseRoute] = ()) -> FastAPI:
    """The application; its routes use ``deps``. ``extra_routes`` are served under their own paths."""
    foreign = [api for feature in FEATURES for api in feature.foreign_apis()]
    return app.create_app(deps, _routers(), extra_routes, _texts(), foreign)


def openapi_document() -> dict[str, Any]:
    """The OpenAPI description that every application serves."""
    return app.openapi_document(_routers(), _texts())


def _routers() -> list[APIRouter]:
    return [router for feature in FEATURES for router in feature.routers()]


def _texts() -> list[ApiTexts]:
    return [text for feature in FEATURES for text in feature.texts()]
