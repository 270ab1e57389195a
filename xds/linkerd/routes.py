"""The answers of Linkerd's API for a destination, and the configuration that the API cannot express."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated

from fastapi import Depends, Query
from fastapi.responses import Response

from xds.admin.answers import answer_model
from xds.admin.dependencies import Deps
from xds.admin.middleware import Segment
from xds.admin.problem import RequestError
from xds.admin.routing import api_router
from xds.linkerd import operations
from xds.linkerd.core.authority import ProtocolGeneration, read_authority
from xds.linkerd.core.context_token import ContextToken, node_of, read_token
from xds.linkerd.core.mesh_state import DestinationClient
from xds.linkerd.destinations import Destinations
from xds.linkerd.models import DestinationAnswer
from xds.linkerd.served import ServedLinkerd
from xds.model.errors import RemoteProtocolError, StatusCode
from xds.model.node import Locality

router = api_router("services")

_UNNAMED_PEER = "ipv4:127.0.0.1:0"  # the peer of a proxy without a context token

_STATUSES = {StatusCode.NOT_FOUND: HTTPStatus.NOT_FOUND, StatusCode.FAILED_PRECONDITION: HTTPStatus.CONFLICT}


async def _served(deps: Deps) -> Destinations:
    return deps.feature(ServedLinkerd, "the Linkerd API").destinations


@router.serve(operations.GET_DESTINATION)
async def get_destination(
    destinations: Annotated[Destinations, Depends(_served)],
    authority: Segment,
    token: Annotated[
        str,
        Query(
            description='The context token of the proxy, such as `{"ns": "edge", "nodeName": "host-1"}`. Empty: none'
        ),
    ] = "",
) -> Response:
    """The answers to a Linkerd proxy that asks for `HOST[:PORT]`: endpoints, profile, and what is left out.

    404 if the Linkerd API is not served.
    """
    try:
        return answer_model(_preview(destinations, authority, read_token(token)))
    except RemoteProtocolError as error:
        raise RequestError(_STATUSES.get(error.code, HTTPStatus.BAD_REQUEST), error.message) from None


def _preview(destinations: Destinations, path: str, token: ContextToken) -> DestinationAnswer:
    """The answers that a proxy with this context token would get now. Raises as `DestinationResolver`."""
    resolver, cache = destinations.resolver, destinations.cache
    authority = read_authority(path, resolver.rules.naming)
    zone = token.zone or destinations.zone_of(token.node_name)
    node = node_of(token, _UNNAMED_PEER, Locality(token.region, zone, token.sub_zone))
    match = cache.match(node)
    group = match.group if match is not None else ""
    view = cache.view(group, "", node.locality, cache.line(group, None)) if match is not None else None
    client = DestinationClient(zone, token.node_name, view.snapshot if view is not None else None)
    is_address = authority.address is not None
    state = None if is_address else resolver.state(authority, client, ProtocolGeneration.LINKERD)
    return DestinationAnswer.from_domain(str(authority), group, state, resolver.profile(authority, client))
