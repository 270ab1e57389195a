"""A group as a whole: what it holds, and the settings that say which nodes it takes."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, Header, Query
from fastapi.responses import JSONResponse, Response

from api.answers import etag_header
from api.body import Body, parse_one
from api.caller import Calling
from api.content_types import ContentType
from api.grants import needs
from api.preconditions import wanted_etag
from api.routing import api_router
from api.scope import Segment
from api.services import Here, Services
from api.shapes import GroupItem, GroupSettingsItem, group_item
from xds.control.etags import NO_ETAG
from xds.control.groups import GroupSettings, read_settings, settings_etag
from xds.control.tokens import ADMIN
from xds.model.errors import NotFoundError

router = api_router("groups")

SETTINGS_BYTES = 64 * 1024


async def expected(
    here: Here,
    if_match: Annotated[
        str | None, Header(description='The `settings_etag` that is changed, such as `"s-1f3a9c07"`, or `*`')
    ] = None,
    if_none_match: Annotated[str | None, Header(description="`*`: the group must have no settings")] = None,
) -> str:
    """What the settings must be now; empty: whatever they are. Raises ``RequestError``."""
    return wanted_etag(here, "s", if_match, if_none_match)


# Which nodes a group takes concerns all other groups: to write one of them is not enough.
@router.put("/groups/{group}", response_model=GroupItem, openapi_extra=needs(ADMIN))
async def put_group(
    here: Here,
    group: Segment,
    body: Body,
    by: Calling,
    etag: Annotated[str, Depends(expected)],
    content_type: ContentType = "",
    dry_run: Annotated[bool, Query(description="Check the settings, change nothing")] = False,
    allow_empty: Annotated[bool, Query(description="The group may take nodes although it is empty")] = False,
) -> Response:
    """Create a group, or change its settings; what is left out is reset.

    ``{"selector"?, "priority"?, "on_nack"?, "removal_delay_s"?, "listener_drain_s"?}``. They make no revision. A group
    without a snapshot takes no nodes. `If-Match` takes the `settings_etag` that was looked at: 412 when somebody else
    changed them since. 422 with the column for a selector that is none.
    """
    settings = read_settings(await parse_one(body, content_type, "the settings of a group", SETTINGS_BYTES))
    await here.publisher.configure(group, settings, etag=etag, dry_run=dry_run, allow_empty=allow_empty, by=by)
    item = item_of(here, group, settings)
    return JSONResponse(item, headers=etag_header(item["etag"]) if item["etag"] else {})


def item_of(here: Services, group: str, settings: GroupSettings | None = None, nodes: int | None = None) -> GroupItem:
    """The group's item; ``settings`` are shown instead of those in force. Raises ``NotFoundError``."""
    publisher = here.publisher
    content, table = publisher.held(group), publisher.settings
    if content is None and settings is None and group not in table:
        raise NotFoundError(f"no such group: {group!r}")
    shown = settings or table.get(group)
    etag = settings_etag(settings) if settings is not None else table.etag(group)
    own: GroupSettingsItem = {
        "selector": shown.selector,
        "priority": shown.priority,
        "on_nack": shown.on_nack,
        "removal_delay_s": shown.removal_delay_s,
        "listener_drain_s": shown.listener_drain_s,
        "selector_failures": table.failures(group),
        "settings_etag": etag if etag != NO_ETAG else "",
    }
    return group_item(group, content, len(here.fleet.connected(group)) if nodes is None else nodes, own)
