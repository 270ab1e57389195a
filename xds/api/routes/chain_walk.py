"""Which way one request goes through the discovery chain of a service, and why."""

from __future__ import annotations

from collections.abc import Iterable
from http import HTTPStatus
from typing import Annotated, Any

from fastapi import Query, Request
from fastapi.responses import Response
from typing_extensions import TypedDict

from xds.api.answers import answer_json
from xds.api.middleware import Segment
from xds.api.problem import RequestError
from xds.api.routing import api_router
from xds.api.services import Here
from xds.chain.chain_json import walk_json
from xds.chain.request_walk import HttpRequest, walk
from xds.model.errors import NotFoundError

router = api_router("config entries")

PAIRS_LIMIT = 200
TEXT_LIMIT = 8_192  # characters of a path, or of a name with its value

Text = Annotated[str, Query(max_length=TEXT_LIMIT)]


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
    header: Annotated[list[Text], Query(max_length=PAIRS_LIMIT, description="`name=value`; may be repeated")] = [],  # noqa: B006
    query: Annotated[list[Text], Query(max_length=PAIRS_LIMIT, description="`name=value`; may be repeated")] = [],  # noqa: B006
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
