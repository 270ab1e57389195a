"""Refused streams: which clients reach the server and are turned away, and why."""

from __future__ import annotations

import time
from itertools import islice
from typing import Annotated

from fastapi import Query
from fastapi.responses import JSONResponse, Response
from typing_extensions import TypedDict

from xds.admin.routing import api_router
from xds.admin.services import Deps
from xds.admin.shapes.values import timestamp
from xds.fleet.refused_streams import RECENT_S, ROWS_LIMIT, RefusedClient

router = api_router("fleet")


class RefusedStreamItem(TypedDict):
    """The refused streams of one address for one reason, and the last of them.

    * ``address``: the address of the client, without its port;
    * ``reason``: ``unauthenticated``, ``forbidden`` (a scope is missing), ``node`` (it may not be the node that it
      names), ``tls`` (the handshake failed), ``protocol`` (not the protocol of the port, or an unknown method),
      ``request`` (a request breaks a rule) or ``limit``;
    * ``message``: why the last one was refused;
    * ``peer``: where the last one came from, as ``HOST:PORT`` after the kind of the address;
    * ``service``: the service or method that it asked for; ``REST`` for a poll, ``HTTP`` for a connection to the HTTP
      port; empty if it did not get that far;
    * ``principal``: who the client is; empty if it is not known;
    * ``node``: the id of the node; empty if it is not known;
    * ``group``: the group of the node; empty if it is not known;
    * ``count``: how many streams were refused since ``first``;
    * ``first``: when the first one was refused;
    * ``last``: when the last one was refused.
    """

    address: str
    reason: str
    message: str
    peer: str
    service: str
    principal: str
    node: str
    group: str
    count: int
    first: str
    last: str


class RefusedStreamsAnswer(TypedDict):
    """Refused streams by address and reason; those that were refused last are first.

    * ``recent``: how many streams were refused in the last ``recent_s`` seconds, to the minute;
    * ``recent_s``: the length of that window;
    * ``summary``: that number and the last one in words; empty if none was refused in that time.
    """

    items: list[RefusedStreamItem]
    recent: int
    recent_s: int
    summary: str


@router.get("/streams/refused", response_model=RefusedStreamsAnswer)
async def list_refused_streams(
    deps: Deps,
    limit: Annotated[int, Query(ge=1, le=ROWS_LIMIT, description="The largest number of items")] = 100,
) -> Response:
    """Streams and connections of proxies that were refused within the last hour, by address and reason.

    Of each address there is one item for a reason, and a thousand items at most. Connections that fail before their
    first call (TLS, another protocol) are not seen with `server.grpc.transport: grpcio`.
    """
    now = time.time()
    answer: RefusedStreamsAnswer = {
        "items": [_item(each) for each in islice(deps.refused.clients(now), limit)],
        "recent": deps.refused.recent(now),
        "recent_s": RECENT_S,
        "summary": deps.refused.summary(now),
    }
    return JSONResponse(answer)


def _item(client: RefusedClient) -> RefusedStreamItem:
    last = client.last
    return {
        "address": last.address,
        "reason": last.reason.value,
        "message": last.message,
        "peer": last.peer,
        "service": last.service,
        "principal": last.principal,
        "node": last.node,
        "group": last.group,
        "count": client.count,
        "first": timestamp(client.first_at),
        "last": timestamp(client.last_at),
    }
