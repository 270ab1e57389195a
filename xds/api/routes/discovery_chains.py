"""Compiled discovery chains, and which way one request goes through the chain of a service, and why.

See docs/discovery-chain.md.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b
from http import HTTPStatus
from typing import Annotated, Any

from fastapi import Query, Request
from fastapi.responses import Response
from typing_extensions import TypedDict

from xds.api.answers import JSON_TYPE, answer_json, answer_yaml, encode_json, etag_header, not_modified, unchanged
from xds.api.bodies import accepts_yaml
from xds.api.middleware import Segment
from xds.api.problem import RequestError
from xds.api.routing import api_router
from xds.api.services import Here
from xds.catalog.quantities import parse_duration
from xds.chain.chain_json import response_json, walk_json
from xds.chain.request import Overrides
from xds.chain.request_walk import HttpRequest, walk
from xds.control.threads import run_sized
from xds.model.errors import NotFoundError

_ETAG_BYTES = 4
_SIZE_OF_NODE = 5  # writing one takes as long as this many resources

router = api_router("config entries")

PAIRS_LIMIT = 200
TEXT_LIMIT = 8_192  # characters of a path, or of a name with its value

Text = Annotated[str, Query(max_length=TEXT_LIMIT)]
Pairs = tuple[Text, ...]


class ChainAnswer(TypedDict):
    """``Chain`` is Consul's ``CompiledDiscoveryChain``."""

    Chain: dict[str, Any]


@router.get("/discovery-chains/{service}", response_model=ChainAnswer)
async def get_discovery_chain(
    here: Here,
    request: Request,
    service: Segment,
    datacenter: Annotated[str, Query(max_length=64, description="The datacenter for which the chain is compiled")] = "",
    protocol: Annotated[str, Query(max_length=64, description="Overrides the protocol of the entries")] = "",
    connect_timeout: Annotated[
        str, Query(max_length=64, description="Such as `5s`; overrides the timeout of the entries")
    ] = "",
    mesh_gateway_mode: Annotated[str, Query(max_length=64, description="`none`, `local` or `remote`")] = "",
) -> Response:
    """The compiled chain of any service; one without entries has the default chain. In Consul's JSON."""
    overrides = Overrides(protocol, _nanoseconds(connect_timeout), mesh_gateway_mode)
    entries = here.publisher.entries
    chain = entries.chain(service, overrides if overrides != Overrides() else None, datacenter)
    size = (len(chain.nodes) + len(chain.targets)) * _SIZE_OF_NODE
    document = await run_sized(response_json, chain, resources=size)
    body = await run_sized(encode_json, document, resources=size)
    etag = f"r{entries.chain_revision(service)}-{blake2b(body, digest_size=_ETAG_BYTES).hexdigest()}"
    if not_modified(request, etag):
        return unchanged(etag)
    if accepts_yaml(request):
        return await answer_yaml(request, document, etag_header(etag))
    return Response(body, headers=etag_header(etag), media_type=JSON_TYPE)


def _nanoseconds(text: str) -> int:
    """Raises ``RequestError`` (400)."""
    try:
        return parse_duration(text) if text else 0
    except ValueError:
        detail = f"connect_timeout is no duration such as 5s or 250ms: {text!r}"
        raise RequestError(HTTPStatus.BAD_REQUEST, detail) from None


class WalkedRequest(TypedDict):
    """The request that was followed. ``headers`` and ``query`` are pairs of name and value."""

    method: str
    path: str
    query: list[list[str]]
    headers: list[list[str]]


class TriedRouteItem(TypedDict):
    """A route of the router, from 1 on. ``mismatch`` is the first thing that does not match, empty where all does."""

    route: int
    matches: bool
    mismatch: str


class WayItem(TypedDict):
    """Where ``weight`` percent of such requests end: the node of a resolver, its target and those it fails over to."""

    weight: float
    resolver: str
    target: str
    failover: list[str]


class WalkAnswer(TypedDict):
    """``Chain`` is the whole chain, in Consul's form.

    ``routes`` are those that were tried, up to the one that matches; none without a router. ``next_node`` is the node
    of the chain behind the router, ``path`` the one that is sent on.
    """

    Chain: dict[str, Any]
    request: WalkedRequest
    routes: list[TriedRouteItem]
    next_node: str
    path: str
    ways: list[WayItem]


@router.get("/discovery-chains/{service}/walk", response_model=WalkAnswer)
async def walk_chain(
    here: Here,
    request: Request,
    service: Segment,
    path: Annotated[str, Query(pattern="^/", max_length=TEXT_LIMIT, description="With or without a query")] = "/",
    method: Annotated[str, Query(pattern="^[A-Za-z]{1,20}$")] = "GET",
    header: Annotated[Pairs, Query(max_length=PAIRS_LIMIT, description="`name=value`; may be repeated")] = (),
    query: Annotated[Pairs, Query(max_length=PAIRS_LIMIT, description="`name=value`; may be repeated")] = (),
) -> Response:
    """Follow a request of HTTP through the chain of a service: which routes do not match it and why, and where it ends.

    Matching is Envoy's. Nothing is sent.
    """
    if not service:
        raise NotFoundError("a service has a name")
    followed = HttpRequest.of(path, method, _pairs(header, "header"))
    followed = followed.with_query(_pairs(query, "query"))
    chain = here.publisher.entries.chain(service)
    return await answer_json(request, walk_json(chain, followed, walk(chain, followed)))


def _pairs(given: Iterable[str], what: str) -> list[tuple[str, str]]:
    """Names and values. Raises ``RequestError``."""
    pairs = [each.partition("=") for each in given]
    if any(not name or not divider for name, divider, _ in pairs):
        raise RequestError(HTTPStatus.UNPROCESSABLE_ENTITY, f"a {what} is name=value")
    return [(name, value) for name, _, value in pairs]
