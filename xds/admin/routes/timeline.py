"""The timeline of a node, of all servers as one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from itertools import islice
from typing import Annotated, Any
from urllib.parse import quote

from fastapi import Query, Request
from fastapi.responses import JSONResponse, Response

from xds.admin import operations
from xds.admin.answers import answer_json
from xds.admin.dependencies import Dependencies, Deps
from xds.admin.gathering import gather, own_name, unknown_node
from xds.admin.middleware import Segment
from xds.admin.models.copying import copied
from xds.admin.models.timeline import NodeTimeline, TimelineEvent
from xds.admin.models.writing import document_of
from xds.admin.routing import api_router
from xds.admin.server_door import internal_router
from xds.fleet.node_past import Moment, MomentKind, NodePast
from xds.fleet.state import NackRecord, NackState
from xds.model.errors import NotFoundError
from xds.push.timeline import GroupPast, groups_of, timeline
from xds.rollouts.line_changes import LineOfNode
from xds.store.base import RevisionInfo, StoreError

_Json = dict[str, Any]

router = api_router("fleet")
internal = internal_router()

DEFAULT_LIMIT = 100
LIMIT = 1_000
GROUPS_LIMIT = 10  # the groups of a node whose histories are read


@dataclass(frozen=True, slots=True)
class _Seen:
    """What one server has seen of a node; ``lines`` are its changes of lines by group."""

    past: NodePast
    nacks: tuple[NackRecord, ...]
    lines: Mapping[str, tuple[LineOfNode, ...]]

    def document(self) -> _Json:
        """As JSON, for another server."""
        return asdict(self)

    @classmethod
    def read(cls, document: _Json) -> _Seen:
        """From what another server answered."""
        past = document["past"]
        moments = tuple(Moment(**{**each, "kind": MomentKind(each["kind"])}) for each in past["moments"])
        lines = {group: tuple(LineOfNode(**each) for each in found) for group, found in document["lines"].items()}
        return cls(NodePast(**{**past, "moments": moments}), tuple(map(_nack, document["nacks"])), lines)


def _nack(document: _Json) -> NackRecord:
    lists = {name: tuple(document[name]) for name in ("names", "guilty")}
    return NackRecord(**{**document, **lists, "state": NackState(document["state"])})


@router.serve(operations.GET_TIMELINE)
async def get_timeline(
    deps: Deps,
    request: Request,
    id: Segment,
    limit: Annotated[int, Query(ge=1, le=LIMIT, description="The largest number of items")] = DEFAULT_LIMIT,
) -> Response:
    """What happened to a node: connections, pushes to its group, waves of rollouts, NACKs, late ACKs, moves.

    It must be connected or have disconnected recently. Before that, and before the server's start, nothing is known.
    """
    seen = {own_name(deps, request): own} if (own := _seen(deps, id)) is not None else {}
    others = await gather(deps, request, f"/pasts/{quote(id, safe='')}", "")
    seen |= {server: _Seen.read(document) for server, document in others.documents.items()}
    if not seen:
        raise unknown_node(id, others.partial)
    pasts = {server: each.past for server, each in seen.items()}
    began = min(past.known_since for past in pasts.values())
    latest = max(seen.values(), key=lambda each: each.past.latest)
    found_groups = groups_of(pasts)
    groups, is_cut = {}, len(found_groups) > GROUPS_LIMIT or any(past.is_cut for past in pasts.values())
    for group in found_groups[:GROUPS_LIMIT]:
        revisions = await _revisions(deps, group, limit + 1)
        is_cut = is_cut or (len(revisions) > limit and revisions[-1].meta.time_s >= began)
        heads = deps.publisher.rollouts.line_changes.heads(group)
        groups[group] = GroupPast(revisions[::-1], heads, latest.lines.get(group, ()))
    nacks = {record.id: record for each in seen.values() for record in each.nacks}
    items = timeline(pasts, nacks.values(), groups)
    found = NodeTimeline(
        node=id,
        items=tuple(copied(TimelineEvent, item) for item in items[:limit]),
        truncated=is_cut or len(items) > limit,
        partial=others.partial,
    )
    return await answer_json(request, document_of(found))


@internal.get("/pasts/{id}")
async def get_past(deps: Deps, id: Segment) -> JSONResponse:
    """What this server has seen of a node."""
    seen = _seen(deps, id)
    if seen is None:
        raise unknown_node(id)
    return JSONResponse(seen.document())


def _seen(deps: Dependencies, id: str) -> _Seen | None:
    past, node = deps.fleet.past(id), deps.fleet.identity(id)
    if past is None or node is None:
        return None
    changes = deps.publisher.rollouts.line_changes
    lines = {group: tuple(changes.of_node(group, node)) for group in groups_of({"": past})}
    return _Seen(past, tuple(islice(deps.fleet.nack_log.select(node=id), LIMIT)), lines)


async def _revisions(deps: Dependencies, group: str, limit: int) -> list[RevisionInfo]:
    """The newest revisions of a group, newest first; none of a group without history, or while the store is away."""
    try:
        return await deps.publisher.history.lines(group, limit=limit)
    except (NotFoundError, StoreError):
        return []
