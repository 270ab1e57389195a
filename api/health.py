"""Liveness, readiness, metrics: outside ``/api``, for machines."""

from __future__ import annotations

import asyncio
from http import HTTPStatus

from fastapi import APIRouter
from fastapi.responses import JSONResponse, PlainTextResponse, Response
from typing_extensions import TypedDict

from api.services import Here
from xds.control.lifecycle import Phase

METRICS_TYPE = "text/plain; version=1.0.0; charset=utf-8"

router = APIRouter(tags=["health"])


class StatusItem(TypedDict):
    status: str


@router.get("/livez", response_model=StatusItem)
async def livez() -> Response:
    """200 as long as the event loop answers."""
    return JSONResponse({"status": "ok"})


@router.get("/readyz", response_model=StatusItem, responses={503: {"model": StatusItem}})
async def readyz(here: Here) -> Response:
    """200 once the stored state is loaded and until the drain begins."""
    phase = here.phase()
    status = HTTPStatus.OK if phase is Phase.READY else HTTPStatus.SERVICE_UNAVAILABLE
    return JSONResponse({"status": phase.value}, status)


@router.get("/metrics", response_class=PlainTextResponse)
async def metrics(here: Here) -> Response:
    """Prometheus text."""
    return Response(await asyncio.to_thread(here.metrics), media_type=METRICS_TYPE)
