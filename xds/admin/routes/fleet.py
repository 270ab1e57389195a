"""Nodes, NACKs and bootstraps; nodes chosen by a selector; ending of lingering (docs/protocol.md#removals)."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Container, Iterable
from datetime import UTC, datetime
from functools import partial
from http import HTTPStatus
from itertools import dropwhile
from typing import Annotated, Any, Literal
from urllib.parse import urlencode

import structlog
from fastapi import Body, Depends, Query, Request
from fastapi.responses import JSONResponse, Response

from xds.access.caller import Caller
from xds.access.tokens import ADMIN, write_scope
from xds.admin import node_list, operations
from xds.admin.answers import LIMIT, Page, Paging, answer_json, answer_yaml
from xds.admin.bodies import accepts_yaml
from xds.admin.dependencies import Dependencies, Deps
from xds.admin.gathering import (
    STANDINGS_PATH,
    answer_of_holder,
    gather,
    marks,
    merged_page,
    own_name,
    standings,
    unknown_node,
)
from xds.admin.merged_pages import nacks_by_message, nacks_of, nodes_of, place_of_nack, summed
from xds.admin.middleware import Segment
from xds.admin.models.copying import copied
from xds.admin.models.nacks import Nack
from xds.admin.models.nodes import DisconnectedNode, NodeStatus, ReleasedNodes
from xds.admin.models.reading import read_object
from xds.admin.models.values import time_of, time_text
from xds.admin.models.writing import document_of
from xds.admin.node_list import NodeList
from xds.admin.problem import RequestError
from xds.admin.routing import Calling, api_router, demand
from xds.admin.server_door import internal_router
from xds.codec.effort import check_effort
from xds.envoy.bootstrap import ADMIN_KEY, BootstrapMode, BootstrapOptions, ClientTls, bootstrap
from xds.filter.expression import EvaluationError, FilterSyntaxError
from xds.filter.filter import Filter, compile_filter
from xds.filter.values import NODE_SHAPE, node_record
from xds.fleet.merged_nacks import EqualNacks, equal_nacks_of, merge_by_message
from xds.fleet.node_selection import NodeFilter, NodeOrder
from xds.fleet.node_state import NodeState
from xds.fleet.order_state import ClientOrderState, lingering_names
from xds.fleet.state import NackRecord, NackState, Sync
from xds.model.errors import NotFoundError
from xds.model.node import Locality, Node
from xds.model.units import UNIT_S
from xds.tasks.threads import run_for_caller

_Json = dict[str, Any]

router = api_router("fleet")
internal = internal_router()


# A caller that may push to the group may also end the lingering of its removed resources.
@router.serve(operations.RELEASE_NODE)
async def release_node(deps: Deps, request: Request, id: Segment, by: Calling) -> Response:
    """End the lingering of removed resources for a node: they are removed now. Requests that still use them may fail.

    It needs the scope `write:group/<group>` for the group of the node.
    """
    node = deps.fleet.node(id)
    held = await answer_of_holder(deps, request, id, node, needs_stream=True)
    if held.relayed is not None:
        return held.relayed
    demand(request, write_scope(node.group) if node is not None else ADMIN)
    if node is None or not node.connected:
        raise NotFoundError(f"no node {id!r} has an open stream")
    return JSONResponse(document_of(await _release(deps, (id,), node.group, id, by)))


@router.serve(operations.RELEASE_GROUP)
async def release_group(deps: Deps, request: Request, group: Segment, by: Calling) -> Response:
    """End the lingering of removed resources for all connected nodes of a group: they are removed now.

    Requests that still use them may fail.
    """
    deps.publisher.groups.check(group)
    nodes = deps.fleet.connected(group)
    released = await _release(deps, nodes, group, "", by)
    others = await gather(deps, request, method="POST", read=partial(read_object, ReleasedNodes))
    answers: list[ReleasedNodes] = [released, *others.documents.values()]
    added = ReleasedNodes(
        sum(each.nodes for each in answers),
        sum(each.clients for each in answers),
        summed(each.released for each in answers),
    )
    return JSONResponse({**document_of(added), **others.marks})


async def _release(deps: Dependencies, nodes: Iterable[str], group: str, node: str, by: Caller) -> ReleasedNodes:
    """End the lingering; recorded in the audit list if anything was released."""
    lingering = {each: clients for each in nodes if (clients := _lingering(deps, each))}
    names = lingering_names(facts for clients in lingering.values() for facts in clients)
    released = {alias: len(released_names) for alias, released_names in sorted(names.items())}
    if lingering:
        result = {"nodes": len(lingering), "released": released}
        await deps.publisher.audit.record(by.note("released", group=group, subject=node, new=result))
        deps.publisher.journal.released(group, node, len(lingering), released, by, time.time())
    if lingering or not node:
        await deps.let_go(lingering.keys(), "" if node else group)
    return ReleasedNodes(len(lingering), sum(map(len, lingering.values())), released)


def _lingering(deps: Dependencies, node: str) -> list[ClientOrderState]:
    return [facts for facts in deps.fleet.clients(node).values() if facts.lingering.next_end_s is not None]


SELECTOR_LIMIT = 4096
TEXT_LIMIT = 256
ADMIN_LIMIT = 300  # characters of the address of an admin port


async def selected_nodes(
    deps: Deps,
    selector: Annotated[
        str,
        Query(
            max_length=SELECTOR_LIMIT,
            description='Only nodes that match this filter, such as `node.cluster == "edge"`; empty: all',
        ),
    ] = "",
) -> Container[str] | None:
    """The ids of the nodes that the selector matches; None without one. Raises ``RequestError``.

    A node that the selector cannot be evaluated for does not match.
    """
    if not selector.strip():
        return None
    try:
        return await run_for_caller(_select, selector, deps.fleet.identities())
    except (FilterSyntaxError, EvaluationError) as error:
        raise RequestError(HTTPStatus.BAD_REQUEST, f"selector, {error}") from None


def _select(selector: str, nodes: Iterable[tuple[str, Node]]) -> Container[str]:
    chosen = compile_filter(selector)
    chosen.check(NODE_SHAPE)
    return {node_id for node_id, node in nodes if _is_match(chosen, node)}


def _is_match(chosen: Filter, node: Node) -> bool:
    check_effort()
    try:
        return chosen.matches(node_record(node))
    except EvaluationError:
        return False


Selected = Annotated[Container[str] | None, Depends(selected_nodes)]


_log = structlog.get_logger(logger_name="api.fleet")

_AGE = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")


@router.serve(operations.LIST_NODES)
async def list_nodes(
    deps: Deps,
    request: Request,
    paging: Paging,
    selected: Selected,
    group: Annotated[str | None, Query(description="Only nodes of this group")] = None,
    state: Annotated[Sync | None, Query(description="Only nodes with a type in this state")] = None,
    line: Annotated[
        Literal["head", "base"] | None,
        Query(description="Only nodes that are served this line of a group with a careful rollout"),
    ] = None,
    text: Annotated[
        str,
        Query(
            max_length=TEXT_LIMIT,
            description="Only nodes with this text, whatever its case, in the id, cluster, locality or version of the "
            "client, or in the message of an open NACK",
        ),
    ] = "",
    user_agent: Annotated[
        str | None, Query(description="Only nodes whose client is exactly this one, such as `envoy/1.36.2`")
    ] = None,
    order: Annotated[
        NodeOrder,
        Query(
            description="`trouble`: nodes that NACKed first, then those without a group, then pending ones, then all "
            "others, each by id. A node whose state changes meanwhile may be on two pages, or on none"
        ),
    ] = NodeOrder.ID,
    counts: Annotated[bool, Query(description="Also count all nodes that match, on all pages")] = False,
) -> Response:
    """Nodes by id: connected nodes, and nodes that disconnected recently."""
    views, server = deps.publisher.views, own_name(deps, request)
    is_on_line = (lambda group, node: views.line(group, node) == line) if line is not None else None
    chosen = NodeFilter(group, state, text, user_agent, selected, is_on_line)
    asked = NodeList(chosen, order, counts, paging)
    return await answer_json(
        request, await node_list.answer(deps, request, asked, lambda node: _status(deps, node, server))
    )


def _token_of_nack(nack: _Json) -> str:
    return _PLACE.join(map(str, place_of_nack(nack)))


@internal.post(STANDINGS_PATH)
async def list_standings(deps: Deps, ids: Annotated[list[str], Body(embed=True, max_length=LIMIT)]) -> JSONResponse:
    """What this server knows of some nodes."""
    return JSONResponse({"nodes": standings(deps, ids)})


@router.serve(operations.GET_NODE)
async def get_node(deps: Deps, request: Request, id: Segment) -> Response:
    """One node with all its streams. It must be connected or have disconnected recently."""
    node = deps.fleet.node(id)
    own = [document_of(_status(deps, node, own_name(deps, request)))] if node is not None else []
    others = await gather(deps, request)
    found = nodes_of({"items": items} for items in (own, *([each] for each in others.documents.values())))
    if not found:
        raise unknown_node(id, others.partial)
    return JSONResponse({**found[0], **(marks(others.partial) if not found[0]["streams"] else {})})


@router.serve(operations.DISCONNECT_NODE)
async def disconnect_node(deps: Deps, request: Request, id: Segment, by: Calling) -> Response:
    """End the streams of a node. It keeps its configuration and may reconnect at once."""
    held = await answer_of_holder(deps, request, id, deps.fleet.node(id), needs_stream=True)
    if held.relayed is not None:
        return held.relayed
    streams = deps.disconnect(id)
    if not streams:
        raise NotFoundError(f"no node {id!r} has an open stream")
    await deps.publisher.audit.record(by.note("node.disconnected", subject=id, new={"streams": streams}))
    _log.info("node.disconnected", node_id=id, streams_n=streams, actor=by.actor, author=by.author)
    return JSONResponse(document_of(DisconnectedNode(id, streams)))


def _status(deps: Dependencies, node: NodeState, server: str) -> NodeStatus:
    identity = deps.fleet.identity(node.id)
    admin = identity.metadata.get(ADMIN_KEY) if identity is not None else None
    return NodeStatus.from_domain(
        node,
        time.time(),
        deps.publisher.views.unexpressed(node),
        deps.load.streams(node.id),
        {id: answer for feature in deps.features for id, answer in feature.stream_answers(node.id).items()},
        admin if isinstance(admin, str) and len(admin) <= ADMIN_LIMIT else "",
        server,
        deps.publisher.views.line(node.group, identity),
    )


@router.serve(operations.LIST_NACKS)
async def list_nacks(
    deps: Deps,
    request: Request,
    paging: Paging,
    group: Annotated[str | None, Query(description="Only NACKs of nodes of this group")] = None,
    node: Annotated[str | None, Query(description="Only NACKs of this node")] = None,
    type: Annotated[str | None, Query(description="Only this type: an alias or a type URL")] = None,
    since: Annotated[
        str | None, Query(description="Only NACKs since then: an age such as `15m`, or an RFC 3339 time")
    ] = None,
    state: Annotated[NackState | None, Query(description="Only records in this state")] = None,
    by: Annotated[
        Literal["message"] | None, Query(description="`message`: equal NACKs of several nodes are one item")
    ] = None,
) -> Response:
    """NACK records, newest first: who rejected what, and why."""
    records = deps.fleet.nack_log.select(group, node, type, point_in_time(since), state)
    if by is not None:
        return await _list_merged(deps, request, paging, merge_by_message(map(equal_nacks_of, records)))
    after = _place_in(paging)
    placed = sorted(records, key=_place, reverse=True)
    behind = placed if after is None else [each for each in placed if _place(each) < after]
    page = await paging.document(behind, lambda record: _PLACE.join(map(str, _place(record))), partial(copied, Nack))
    others = await gather(deps, request)
    if others.is_alone:
        return await answer_json(request, page)
    merged = await merged_page([page, *others.documents.values()], paging.limit, nacks_of, _token_of_nack)
    return await answer_json(request, {**merged, **others.marks})


_PLACE = " "  # between the parts of the place of a record


def _place(record: NackRecord) -> tuple[str, int]:
    """The place of a record, as `place_of_nack` finds it in its document."""
    return time_text(time_of(record.last)), record.id


def _place_in(paging: Page) -> tuple[str, int] | None:
    """The place of the last record of the page before; None for the first page. Raises ``RequestError``."""
    last, _, number = paging.after.partition(_PLACE)
    if not paging.after:
        return None
    if not number.isdecimal():
        raise RequestError(HTTPStatus.BAD_REQUEST, "page_token is not one that this server returned")
    return last, int(number)


async def _list_merged(
    deps: Dependencies, request: Request, paging: Page, merged: Iterable[EqualNacks[NackRecord]]
) -> Response:
    """A page of equal NACKs. Of the other servers all are asked for, because equal ones may stand at any place."""
    query = [pair for pair in request.query_params.multi_items() if pair[0] not in {"page_token", "limit"}]
    others = await gather(deps, request, query=urlencode([*query, ("limit", LIMIT)]))
    items: Iterable[dict[str, Any]] = (document_of(Nack.from_merged(one)) for one in merged)
    if not others.is_alone:
        items = await asyncio.to_thread(nacks_by_message, [{"items": list(items)}, *others.documents.values()])
    if paging.after:
        items = dropwhile(lambda one: str(one["id"]) != paging.after, items)
        next(iter(items), None)
    return await paging.answer(request, items, lambda one: str(one["id"]), lambda one: one, extra=others.marks)


@router.serve(operations.GET_BOOTSTRAP)
async def get_bootstrap(
    deps: Deps,
    request: Request,
    node_id: Annotated[str, Query(min_length=1, description="The id of the node")] = "envoy-1",
    cluster: Annotated[str, Query(description="The cluster of the node")] = "default",
    mode: Annotated[
        BootstrapMode, Query(description="How the client gets its configuration")
    ] = BootstrapMode.ADS_DELTA,
    admin_port: Annotated[int, Query(ge=0, le=65535, description="The port of Envoy's admin page; 0: a free one")] = 0,
    address: Annotated[
        str, Query(description="`HOST:PORT` at which the client reaches this server; empty: the address it listens on")
    ] = "",
    region: Annotated[str, Query(description="The region of the node")] = "",
    zone: Annotated[str, Query(description="The zone of the node")] = "",
    sub_zone: Annotated[str, Query(description="The sub-zone of the node")] = "",
    load_reports: Annotated[
        bool, Query(description="Let Envoy report its load. It has no effect with `mode=rest` and `mode=grpc`")
    ] = True,
    ca: Annotated[
        str, Query(description="The file on the client with trusted certificate authorities; turns TLS on")
    ] = "",
    certificate: Annotated[str, Query(description="The file on the client with its certificate")] = "",
    private_key: Annotated[str, Query(description="The file on the client with its private key")] = "",
) -> Response:
    """A bootstrap for one client of this server: Envoy, or a gRPC library with `mode=grpc`."""
    own = deps.options.http_address() if mode is BootstrapMode.REST else deps.options.grpc_address()
    host, port = split_address(address) if address else own
    try:
        tls = ClientTls.of(ca, certificate, private_key)
    except ValueError as error:
        raise RequestError(HTTPStatus.BAD_REQUEST, str(error)) from None
    options = BootstrapOptions(
        node_id,
        cluster,
        host,
        port,
        mode,
        admin_port,
        Locality(region, zone, sub_zone),
        tls,
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
        return time.time() - float(age[1]) * UNIT_S[age[2]]
    try:
        time_of = datetime.fromisoformat(text)
    except ValueError:
        raise RequestError(
            HTTPStatus.BAD_REQUEST, f"expected an age such as 15m or an RFC 3339 time: {text[:100]!r}"
        ) from None
    return (time_of if time_of.tzinfo is not None else time_of.replace(tzinfo=UTC)).timestamp()
