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
from xds.linkerd.destinations import Destinations
from xds.linkerd.models import DestinationAnswer
from xds.linkerd.preview import preview
from xds.linkerd.served import ServedLinkerd
from xds.model.errors import RemoteProtocolError, StatusCode

router = api_router("services")

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
        seen = preview(destinations, authority, token)
    except RemoteProtocolError as error:
        raise RequestError(_STATUSES.get(error.code, HTTPStatus.BAD_REQUEST), error.message) from None
    return answer_model(DestinationAnswer.from_domain(seen.authority, seen.group, seen.state, seen.profile))
