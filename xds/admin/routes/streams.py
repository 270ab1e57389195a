"""Refused streams: which clients reach the server and are turned away, and why."""

from __future__ import annotations

import time
from itertools import islice
from typing import Annotated

from fastapi import Query, Request
from fastapi.responses import JSONResponse, Response

from xds.admin import operations
from xds.admin.answers import answer_model
from xds.admin.dependencies import Deps
from xds.admin.gathering import gather
from xds.admin.merged_pages import refused_of
from xds.admin.models.copying import copied
from xds.admin.models.streams import RefusedPeer, RefusedPeers
from xds.admin.models.values import time_of
from xds.admin.models.writing import document_of
from xds.admin.routing import api_router
from xds.fleet.refused_streams import RECENT_S, ROWS_LIMIT, RefusedClient

router = api_router("fleet")


@router.serve(operations.LIST_REFUSED_STREAMS)
async def list_refused_streams(
    deps: Deps,
    request: Request,
    limit: Annotated[int, Query(ge=1, le=ROWS_LIMIT, description="The largest number of items")] = 100,
) -> Response:
    """Streams and connections of proxies that were refused within the last hour, by address and reason.

    Of each address there is one item for a reason, and a thousand items at most. Connections that fail before their
    first call (TLS, another protocol) are not seen with `server.grpc.transport: grpcio`.
    """
    now = time.time()
    peers = RefusedPeers(
        items=tuple(map(_item, islice(deps.refused.clients(now), limit))),
        recent=deps.refused.recent(now),
        recent_s=RECENT_S,
        summary=deps.refused.summary(now),
    )
    others = await gather(deps, request)
    if others.is_alone:
        return answer_model(peers)
    return JSONResponse({**refused_of([document_of(peers), *others.documents.values()], limit), **others.marks})


def _item(client: RefusedClient) -> RefusedPeer:
    first, last = time_of(client.first_at), time_of(client.last_at)
    return copied(RefusedPeer, client.last, count=client.count, first=first, last=last)
