"""Compiled discovery chains, and the walk of one request through a chain (docs/discovery-chain.md)."""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b
from http import HTTPStatus
from typing import Annotated

from fastapi import Query, Request
from fastapi.responses import Response

from xds.admin.answers import (
    JSON_TYPE,
    answer_json,
    answer_not_modified,
    answer_yaml,
    encode_json,
    etag_header,
    is_not_modified,
)
from xds.admin.bodies import accepts_yaml
from xds.admin.dependencies import Dependencies, Deps
from xds.admin.middleware import Segment
from xds.admin.problem import RequestError
from xds.admin.routing import api_router
from xds.consul.quantities import parse_duration
from xds.mesh import operations
from xds.mesh.core.chain.chain import ChainError, DiscoveryChain
from xds.mesh.core.chain.chain_json import response_json, walk_json
from xds.mesh.core.chain.index import chain_finding
from xds.mesh.core.chain.request import Overrides
from xds.mesh.core.chain.request_walk import HttpRequest, walk
from xds.mesh.served import served
from xds.model.errors import NotFoundError, ValidationError
from xds.tasks.threads import run_sized

_ETAG_BYTES = 4
_RESOURCES_PER_NODE = 5  # encoding a node takes as long as encoding this many resources

router = api_router("config entries")

PAIRS_LIMIT = 200
TEXT_LIMIT = 8_192  # characters of a path, or of a name with its value

Text = Annotated[str, Query(max_length=TEXT_LIMIT)]
Pairs = tuple[Text, ...]


@router.serve(operations.GET_DISCOVERY_CHAIN)
async def get_discovery_chain(
    deps: Deps,
    request: Request,
    service: Segment,
    datacenter: Annotated[
        str,
        Query(max_length=64, description="The datacenter for which the chain is compiled; empty: that of the server"),
    ] = "",
    protocol: Annotated[
        str, Query(max_length=64, description="The protocol instead of that of the entries; empty: no override")
    ] = "",
    connect_timeout: Annotated[
        str,
        Query(
            max_length=64,
            description="The connect timeout instead of that of the entries, such as `5s`; empty: no override",
        ),
    ] = "",
    mesh_gateway_mode: Annotated[
        str,
        Query(
            max_length=64,
            description="The mesh gateway mode instead of that of the entries, such as `local`; empty: no override",
        ),
    ] = "",
) -> Response:
    """The compiled discovery chain of a service, in Consul's JSON.

    A service without config entries has the default chain.
    """
    overrides = Overrides(protocol, _nanoseconds(connect_timeout), mesh_gateway_mode)
    chain = _chain(deps, service, overrides if overrides != Overrides() else None, datacenter)
    size = (len(chain.nodes) + len(chain.targets)) * _RESOURCES_PER_NODE
    document = await run_sized(response_json, chain, resources=size)
    body = await run_sized(encode_json, document, resources=size)
    etag = f"r{served(deps).entries.chain_revision(service)}-{blake2b(body, digest_size=_ETAG_BYTES).hexdigest()}"
    if is_not_modified(request, etag):
        return answer_not_modified(etag)
    if accepts_yaml(request):
        return await answer_yaml(request, document, etag_header(etag))
    return Response(body, headers=etag_header(etag), media_type=JSON_TYPE)


def _nanoseconds(text: str) -> int:
    """A duration in nanoseconds; 0 for an empty text. Raises ``RequestError`` (400)."""
    try:
        return parse_duration(text) if text else 0
    except ValueError:
        detail = f"connect_timeout must be a duration such as 5s or 250ms, not {text!r}"
        raise RequestError(HTTPStatus.BAD_REQUEST, detail) from None


@router.serve(operations.WALK_CHAIN)
async def walk_chain(
    deps: Deps,
    request: Request,
    service: Segment,
    path: Annotated[
        str, Query(pattern="^/", max_length=TEXT_LIMIT, description="The path of the request, with or without a query")
    ] = "/",
    method: Annotated[str, Query(pattern="^[A-Za-z]{1,20}$", description="The method of the request")] = "GET",
    header: Annotated[
        Pairs, Query(max_length=PAIRS_LIMIT, description="A header as `name=value`; may be repeated")
    ] = (),
    query: Annotated[
        Pairs, Query(max_length=PAIRS_LIMIT, description="A further query parameter as `name=value`; may be repeated")
    ] = (),
) -> Response:
    """Follow an HTTP request through the chain of a service: which routes do not match it and why, and where it ends.

    Routes match as in Envoy. Nothing is sent.
    """
    if not service:
        raise NotFoundError("the name of the service is empty")
    followed = HttpRequest.of(path, method, _pairs(header, "header"))
    followed = followed.with_query(_pairs(query, "query"))
    chain = _chain(deps, service)
    return await answer_json(request, walk_json(chain, followed, walk(chain, followed)))


def _chain(
    deps: Dependencies, service: str, overrides: Overrides | None = None, datacenter: str = ""
) -> DiscoveryChain:
    """The chain of a service. Raises ``ValidationError`` if its entries contradict each other."""
    try:
        return served(deps).entries.chain(service, overrides, datacenter)
    except ChainError as error:
        raise ValidationError([chain_finding(error, "is broken")]) from None


def _pairs(given: Iterable[str], what: str) -> list[tuple[str, str]]:
    """Names and values. Raises ``RequestError``."""
    pairs = [each.partition("=") for each in given]
    if any(not name or not divider for name, divider, _ in pairs):
        raise RequestError(HTTPStatus.UNPROCESSABLE_ENTITY, f"a {what} must be name=value")
    return [(name, value) for name, _, value in pairs]
