"""The check of the server: what an operator would look at first."""

from __future__ import annotations

from fastapi import Request
from fastapi.responses import JSONResponse, Response

from xds.admin import check_rows, operations
from xds.admin.dependencies import Deps
from xds.admin.gathering import gather
from xds.admin.merged_pages import STATES, checks_of
from xds.admin.models.checks import CheckedServer
from xds.admin.models.writing import document_of
from xds.admin.routing import api_router

router = api_router("about")


@router.serve(operations.CHECK)
async def check(deps: Deps, request: Request) -> Response:
    """The health of the server point by point: store, refused streams, NACKs, failing clusters, sources, certificates.

    The answer is 200 also if a row has failed; probes use `/readyz`. Of several servers each row has the worst state,
    and what the servers in that state found.
    """
    rows = tuple(await check_rows.check(deps))
    own = document_of(CheckedServer(state=max((row.state for row in rows), key=STATES.index), items=rows))
    others = await gather(deps, request)
    if others.is_alone:
        return JSONResponse(own)
    answers = {deps.others.me: own, **others.documents}
    least = [check_rows.WARNING] if others.partial else []
    state = max((*least, *(answer["state"] for answer in answers.values())), key=STATES.index)
    return JSONResponse({"state": state, "items": checks_of(answers), **others.marks})
