"""Nodes, NACKs, bootstraps."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable
from datetime import UTC, datetime
from http import HTTPStatus
from itertools import dropwhile
from typing import Annotated

import structlog
from fastapi import Query, Request
from fastapi.responses import JSONResponse, Response

from api.answers import answer_yaml
from api.caller import Calling
from api.content_types import accepts_yaml
from api.fleet_shapes import DisconnectedItem, NackPage, NodeItem, NodePage, nack_item, node_item
from api.load_shapes import report_stream_item
from api.paging import Paging
from api.problem import RequestError
from api.routing import api_router
from api.scope import Segment
from api.selection import Selector
from api.services import Here, Services
from xds.control.bootstrap import BootstrapOptions, ClientTls, Mode, bootstrap
from xds.filter.expression import EvaluationError, FilterSyntaxError
from xds.filter.filter import compile_filter
from xds.filter.values import NODE_SHAPE, node_record
from xds.fleet.state import NackState, NodeState, Sync
from xds.model.errors import NotFoundError
from xds.model.node import Locality

router = api_router("fleet")

_log = structlog.get_logger(logger_name="api.fleet")

SELECTOR_LIMIT = 4096
_AGE = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")
_UNIT_S = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400}


@router.get("/nodes", response_model=NodePage)
async def list_nodes(
    here: Here,
    request: Request,
    paging: Paging,
    selects: Selector,
    group: Annotated[str | None, Query()] = None,
    state: Annotated[Sync | None, Query(description="Nodes with a type in this state")] = None,
    selector: Annotated[
        str, Query(max_length=SELECTOR_LIMIT, description='As of groups: `node.metadata.role == "edge"`')
    ] = "",
) -> Response:
    """Nodes by id: those that are connected, and those that left not long ago."""
    selected = await _selection(here, selector)

    def wanted(node: NodeState) -> bool:
        return (state is None or any(type.state is state for type in node.types)) and selected(node)

    found = here.fleet.nodes(group, paging.after)
    return await paging.answer(request, found, lambda node: node.id, lambda node: _item(here, node), wanted)


async def _selection(here: Services, selector: str) -> Callable[[NodeState], bool]:
    """Which nodes a selector chooses. Raises ``RequestError`` for one that is none."""
    try:
        compiled = await asyncio.to_thread(compile_filter, selector)
        compiled.check(NODE_SHAPE)
    except (FilterSyntaxError, EvaluationError) as error:
        detail = f"selector, column {error.column}: {error.detail}"
        raise RequestError(HTTPStatus.BAD_REQUEST, detail) from None

    def is_selected(state: NodeState) -> bool:
        node = here.fleet.identity(state.id)
        try:
            return node is not None and compiled.matches(node_record(node))
        except EvaluationError:
            return False  # it has not what is asked about

    return is_selected if selector.strip() else lambda state: True


@router.get("/nodes/{id:path}", response_model=NodeItem)
async def get_node(here: Here, id: Segment) -> Response:
    """One node with all its streams."""
    node = here.fleet.node(id)
    if node is None:
        raise NotFoundError(f"no node {id!r} has connected lately")
    return JSONResponse(_item(here, node))


@router.delete("/nodes/{id:path}", response_model=DisconnectedItem)
async def disconnect_node(here: Here, id: Segment, by: Calling) -> Response:
    """End the streams of a node; it keeps what it has, and may come back at once."""
    streams = here.disconnect(id)
    if not streams:
        raise NotFoundError(f"no node {id!r} is connected")
    await here.publisher.audit.record(by.note("node.disconnected", subject=id, new={"streams": streams}))
    _log.info("node.disconnected", node_id=id, streams_n=streams, actor=by.actor, author=by.author)
    return JSONResponse({"node": id, "streams": streams})


def _item(here: Services, node: NodeState) -> NodeItem:
    reporting = [report_stream_item(stream) for stream in here.load.streams(node.id)]
    return node_item(node, here.publisher.unexpressed(node), reporting)


@router.get("/nacks", response_model=NackPage)
async def list_nacks(
    here: Here,
    request: Request,
    paging: Paging,
    group: Annotated[str | None, Query()] = None,
    node: Annotated[str | None, Query()] = None,
    type: Annotated[str | None, Query(description="Alias or type URL")] = None,
    since: Annotated[str | None, Query(description="An age (`15m`) or an RFC 3339 time")] = None,
    state: Annotated[NackState | None, Query()] = None,
) -> Response:
    """Who refused what, and why; the newest first."""
    found = here.fleet.nacks(group, node, type, point_in_time(since), state)
    if paging.after:
        found = dropwhile(lambda record: f"{record.id}" != paging.after, found)
        next(found, None)
    return await paging.answer(request, found, lambda record: str(record.id), nack_item)


@router.get("/bootstrap")
async def get_bootstrap(
    here: Here,
    request: Request,
    node_id: Annotated[str, Query(min_length=1)] = "envoy-1",
    cluster: Annotated[str, Query()] = "default",
    mode: Annotated[Mode, Query()] = Mode.ADS_DELTA,
    admin_port: Annotated[int, Query(ge=0, le=65535)] = 0,
    address: Annotated[str, Query(description="HOST:PORT of this server; by default where it listens")] = "",
    region: Annotated[str, Query()] = "",
    zone: Annotated[str, Query()] = "",
    sub_zone: Annotated[str, Query()] = "",
    load_reports: Annotated[bool, Query()] = False,
    ca: Annotated[str, Query(description="File on the client: authorities to trust; turns TLS on")] = "",
    certificate: Annotated[str, Query(description="File on the client: its certificate")] = "",
    private_key: Annotated[str, Query(description="File on the client: its key")] = "",
) -> Response:
    """A bootstrap for one client of this server: Envoy, or a gRPC library with ``mode=grpc``."""
    own = here.options.http_address() if mode is Mode.REST else here.options.grpc_address()
    host, port = split_address(address) if address else own
    options = BootstrapOptions(
        node_id,
        cluster,
        host,
        port,
        mode,
        admin_port,
        Locality(region, zone, sub_zone),
        ClientTls(ca, certificate, private_key) if ca else None,
        load_reports=load_reports,
    )
    document = bootstrap(options)
    return await answer_yaml(request, document) if accepts_yaml(request) else JSONResponse(document)


def split_address(text: str) -> tuple[str, int]:
    """``HOST:PORT``, IPv6 hosts in brackets. Raises ``RequestError``."""
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal() or int(port) > 65535:
        raise RequestError(HTTPStatus.BAD_REQUEST, f"not HOST:PORT: {text[:100]!r}")
    return host.strip("[]"), int(port)


def point_in_time(text: str | None) -> float | None:
    """Epoch seconds of an age or an RFC 3339 time. Raises ``RequestError``."""
    if text is None:
        return None
    age = _AGE.fullmatch(text)
    if age is not None:
        return time.time() - float(age[1]) * _UNIT_S[age[2]]
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise RequestError(HTTPStatus.BAD_REQUEST, f"neither an age such as 15m nor a time: {text[:100]!r}") from None
    return (found if found.tzinfo is not None else found.replace(tzinfo=UTC)).timestamp()
