"""Load that clients report (LRS): per cluster, and by locality, node or endpoint."""

from __future__ import annotations

import asyncio
import re
from http import HTTPStatus
from typing import Annotated, Any

from fastapi import Depends, Query, Request
from fastapi.responses import Response

from xds.admin import operations
from xds.admin.answers import Paging, answer_json, page_token
from xds.admin.dependencies import Deps
from xds.admin.gathering import Gathered, gather, is_of_server, merged_page, silent_error
from xds.admin.merged_load import (
    ROWS_RPS,
    cluster_key,
    clusters_of,
    detail_of,
    line_key,
    lines_of,
    reporting_of,
    row_key,
)
from xds.admin.middleware import Segment
from xds.admin.models.load import (
    ROWS,
    LoadDetail,
    LoadLine,
    LoadLines,
    LoadPart,
    LoadSummary,
    ReportingInterval,
)
from xds.admin.models.writing import document_of
from xds.admin.problem import RequestError
from xds.admin.routing import api_router
from xds.lrs.figures import (
    Breakdown,
    ChartLine,
    ClusterFigures,
    LoadRow,
)
from xds.model.errors import NotFoundError
from xds.model.node import Locality
from xds.model.units import UNIT_S

router = api_router("load")

DEFAULT_WINDOW = "60"
WINDOW_S = (1.0, 3600.0)
# Windows of single seconds are kept for two minutes, windows of minutes for an hour.
FINE_WINDOW_S, FINE_STEP_S, COARSE_STEP_S = 120.0, 1.0, 60.0
_DURATION = re.compile(r"(\d{1,6}(?:\.\d{1,3})?)(s|m|h)?")
_SEPARATOR = "\0"  # sorts after the name itself and before every longer name


async def window_of(
    window: Annotated[
        str, Query(description="The length of the window: seconds, or a duration such as `5m`; one second to one hour")
    ] = DEFAULT_WINDOW,
) -> float:
    """The window of a request, in seconds. Raises ``RequestError``."""
    return duration("window", window, *WINDOW_S)


Window = Annotated[float, Depends(window_of)]


@router.serve(operations.LIST_LOAD)
async def list_load(deps: Deps, request: Request, paging: Paging, window_s: Window) -> Response:
    """The clusters that clients have reported, by cluster name and service name."""
    clusters = await asyncio.to_thread(deps.load.clusters, window_s)
    reporting = document_of(ReportingInterval.from_domain(deps.load.reporting()))
    found = await paging.document(await paging.find_items_after(clusters, _key), _key, LoadSummary.from_domain)
    own = {**found, "reporting": reporting}
    others = await gather(deps, request)
    if others.is_alone:
        return await answer_json(request, own)
    pages = [own, *others.documents.values()]
    merged = await merged_page(pages, paging.limit, clusters_of, cluster_key)
    told = {"reporting": reporting_of([each["reporting"] for each in pages]), **others.marks}
    return await answer_json(request, {**merged, **told})


@router.serve(operations.GET_LOAD)
async def get_load(
    deps: Deps,
    request: Request,
    cluster: Segment,
    paging: Paging,
    window_s: Window,
    by: Annotated[Breakdown, Query(description="What each row is about")] = "locality",
    service_name: Annotated[
        str | None, Query(description="Only the load with this EDS service name; by default of all")
    ] = None,
) -> Response:
    """The load of one cluster, with a row per pair of localities (source, target), per node, or per endpoint.

    404 if no client has reported the cluster recently.
    """
    figures = await asyncio.to_thread(deps.load.cluster, cluster, window_s, by, service_name)
    others = await gather(deps, request)
    found = list(others.documents.values())
    if figures is not None:
        page = await asyncio.to_thread(_page_of_rows, figures, paging)
        parts = LoadDetail.of_page(figures, by, tuple(page["items"]), page.get("next_page_token", ""))
        own = document_of(parts)
        if not others.is_alone or is_of_server(request.scope):
            own[ROWS_RPS] = sum(row.figures.rps for row in figures.rows)
        found.insert(0, own)
    if not found:
        raise _not_reported(cluster, others)
    if others.is_alone:
        return await answer_json(request, found[0])
    answer, is_more = await asyncio.to_thread(detail_of, found, by, paging.limit)
    if is_more:
        answer["next_page_token"] = page_token(row_key(answer[ROWS[by]][-1]))
    return await answer_json(request, {**answer, **others.marks})


@router.serve(operations.GET_LOAD_SERIES)
async def get_load_series(
    deps: Deps,
    request: Request,
    cluster: Segment,
    paging: Paging,
    window_s: Window,
    step: Annotated[
        str,
        Query(
            description="The length of a step: seconds, or a duration such as `10s`. By default the least: a second; "
            "a minute in windows above two minutes"
        ),
    ] = "",
    by: Annotated[
        Breakdown | None,
        Query(
            description="One line for each pair of localities, or each endpoint; `node` is refused (400). "
            "By default one line for the whole cluster"
        ),
    ] = None,
) -> Response:
    """The load of a cluster over time, step by step. 404 if no client has reported it recently."""
    step_s = _step(step, window_s)
    if by == "node":
        raise RequestError(HTTPStatus.BAD_REQUEST, "by: there is no history of single nodes; use locality or endpoint")
    points = await asyncio.to_thread(deps.load.series, cluster, window_s, step_s, by)
    others = await gather(deps, request)
    found = list(others.documents.values())
    if points:
        page = await asyncio.to_thread(
            paging.render, await paging.find_items_after(points, _line_key), _line_key, LoadLine.from_domain
        )
        lines = LoadLines(cluster, window_s, points[0].step_s, tuple(page["items"]), page.get("next_page_token", ""))
        found.insert(0, await asyncio.to_thread(document_of, lines))
    if not found:
        raise _not_reported(cluster, others)
    if others.is_alone:
        return await answer_json(request, found[0])
    merged = await merged_page(found, paging.limit, lines_of, line_key)
    first = {name: value for name, value in found[0].items() if name != "next_page_token"}
    return await answer_json(request, {**first, **merged, **others.marks})


def duration(name: str, text: str, least_s: float, most_s: float) -> float:
    """Parse ``60``, ``60s`` or ``5m`` as seconds within bounds. Raises ``RequestError``."""
    match = _DURATION.fullmatch(text)
    seconds = float(match[1]) * UNIT_S[match[2] or "s"] if match is not None else -1.0
    if not least_s <= seconds <= most_s:
        bounds = f"{least_s:g} to {most_s:g} seconds"
        raise RequestError(HTTPStatus.BAD_REQUEST, f"{name}: {bounds}, such as 60 or 5m, not {text[:100]!r}")
    return seconds


def _step(text: str, window_s: float) -> float:
    least_s = FINE_STEP_S if window_s <= FINE_WINDOW_S else COARSE_STEP_S
    return duration("step", text, least_s, window_s) if text else least_s


def _not_reported(cluster: str, others: Gathered) -> Exception:
    detail = f"no recent load reports for cluster {cluster!r}"
    return silent_error(detail, others.partial) if others.partial else NotFoundError(detail)


def _key(figures: ClusterFigures) -> str:
    return f"{figures.cluster}{_SEPARATOR}{figures.service_name}"


def _page_of_rows(figures: ClusterFigures, paging: Paging) -> dict[str, Any]:
    return paging.render(paging.items_after(figures.rows, _row_key), _row_key, LoadPart.from_domain)


def _row_key(row: LoadRow) -> str:
    return _SEPARATOR.join(
        (_locality_key(row.source), _locality_key(row.target), f"{row.priority:03}", row.endpoint, row.node)
    )


def _line_key(line: ChartLine) -> str:
    return _SEPARATOR.join((_locality_key(line.source), _locality_key(line.target), line.endpoint, ""))


def _locality_key(locality: Locality | None) -> str:
    return _SEPARATOR.join((locality.region, locality.zone, locality.sub_zone)) if locality is not None else ""
