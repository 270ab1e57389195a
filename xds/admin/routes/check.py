"""The check of the server: what an operator would look at first."""

from __future__ import annotations

from fastapi.responses import Response

from xds.admin import check_rows, operations
from xds.admin.answers import answer_model
from xds.admin.models.checks import CheckedRow, CheckedServer
from xds.admin.routing import api_router
from xds.admin.services import Deps

router = api_router("about")


_WORST = (check_rows.FAILED, check_rows.WARNING, check_rows.OK)


@router.serve(operations.CHECK)
async def check(deps: Deps) -> Response:
    """The health of the server point by point: store, refused streams, NACKs, failing clusters, sources, certificates.

    The answer is 200 also if a row has failed; probes use `/readyz`.
    """
    rows = await check_rows.check(deps)
    checked = CheckedServer(
        state=next(state for state in _WORST if any(row.state == state for row in rows)),
        items=tuple(
            CheckedRow(check=row.check, state=row.state, detail=row.detail, next=row.next, see=row.see) for row in rows
        ),
    )
    return answer_model(checked)
