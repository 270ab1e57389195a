"""The check of the server: what an operator would look at first."""

from __future__ import annotations

from fastapi.responses import JSONResponse, Response
from typing_extensions import TypedDict

from xds.admin import check_rows
from xds.admin.routing import api_router
from xds.admin.services import Deps

router = api_router("about")


class CheckRowItem(TypedDict):
    """One row of the check.

    * ``check``: the name of the row: ``ready``, ``store``, ``streams`` (refused ones), ``nacks``, ``load`` (clusters
      that fail most of their requests), ``endpoints`` (clusters in use without a serving endpoint), ``watch``,
      ``sources`` or ``certificates``;
    * ``state``: ``ok``, ``warning`` or ``failed``;
    * ``detail``: what was found, in words;
    * ``next``: the command to run next;
    * ``see``: the section of the project's documentation about the row.
    """

    check: str
    state: str
    detail: str
    next: str
    see: str


class CheckAnswer(TypedDict):
    """All rows of the check.

    * ``state``: the worst state of a row.
    """

    state: str
    items: list[CheckRowItem]


_WORST = (check_rows.FAILED, check_rows.WARNING, check_rows.OK)


@router.get("/check", response_model=CheckAnswer)
async def check(deps: Deps) -> Response:
    """The health of the server point by point: store, refused streams, NACKs, failing clusters, sources, certificates.

    The answer is 200 also if a row has failed; probes use `/readyz`.
    """
    rows = await check_rows.check(deps)
    answer: CheckAnswer = {
        "state": next(state for state in _WORST if any(row.state == state for row in rows)),
        "items": [
            {"check": row.check, "state": row.state, "detail": row.detail, "next": row.next, "see": row.see}
            for row in rows
        ],
    }
    return JSONResponse(answer)
