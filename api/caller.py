"""Who asks for a write: whom the door has authenticated, what the client says besides, and its address."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, Query, Request

from api.grants import grant_of
from xds.control.audit import Caller

AUTHOR_LIMIT = 200


async def caller(
    request: Request,
    author: Annotated[
        str,
        Query(max_length=AUTHOR_LIMIT, description="Who asks, as the client says; kept beside who is authenticated"),
    ] = "",
) -> Caller:
    """The caller of a route, as a dependency."""
    return Caller(grant_of(request).name, author, peer_of(request))


def peer_of(request: Request) -> str:
    """The address of whoever sent a request."""
    client = request.client
    if client is None:
        return ""
    host = f"[{client.host}]" if ":" in client.host else client.host
    return f"{host}:{client.port}"


Calling = Annotated[Caller, Depends(caller)]
