"""The servers that share the store, as this one knows them, and what each says of itself."""

from __future__ import annotations

from dataclasses import replace

from fastapi import Request
from fastapi.responses import Response

from xds.admin import operations
from xds.admin.answers import answer_model
from xds.admin.dependencies import Deps
from xds.admin.gathering import gather, is_of_server
from xds.admin.models.members import ServerMember, ServerMembers
from xds.admin.models.values import time_of
from xds.admin.routing import api_router
from xds.model.natural_order import natural_key
from xds.store.member_register import NO_NUMBER, KnownMembers, Member

router = api_router("about")
_OWN = ("streams", "lag_s", "problem")  # what only the server itself knows


@router.serve(operations.LIST_MEMBERS)
async def list_members(deps: Deps, request: Request) -> Response:
    """The servers that share the store. A server with a data directory is the only one."""
    known = deps.members()
    lag = deps.publisher.following.lag()
    mine = replace(
        _item(known, known.me),
        is_asked=True,
        streams=deps.fleet.streams_n,
        lag_s=round(lag.seconds, 1),
        problem=known.problem or str(lag),
    )
    if is_of_server(request.scope):
        return answer_model(ServerMembers(items=(mine,)))
    gathered = await gather(deps, request)
    others = [_item(known, each) for each in known.others]
    told = {name: document["items"][0] for name, document in gathered.documents.items()}
    items = [
        replace(each, **{name: told[each.id][name] for name in _OWN}) if each.id in told else each for each in others
    ]
    items = sorted([mine, *items], key=lambda each: natural_key(each.id))
    return answer_model(ServerMembers(items=tuple(items), partial=gathered.partial))


def _item(known: KnownMembers, member: Member) -> ServerMember:
    has_joined = member.number != NO_NUMBER  # another server may have its id
    return ServerMember(
        id=member.id,
        url=member.url,
        version=member.version,
        started=time_of(member.started_s),
        silent_s=round(max(0.0, known.now_s - member.seen_s), 1) if has_joined else 0.0,
        is_holder=has_joined and member.id == known.holder,
        is_asked=False,
        streams=None,
        lag_s=None,
        problem=None,
    )
