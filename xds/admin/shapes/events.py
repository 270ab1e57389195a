"""The JSON of events."""

from __future__ import annotations

from typing import NotRequired

from typing_extensions import TypedDict

from xds.admin.shapes.values import timestamp
from xds.fleet.event_log import FleetEvent


class EventItem(TypedDict):
    """One event. It is the ``data`` of a server-sent event, or one line. A line of the kind ``lagged`` says that
    events are missing before ``next``.

    * ``id``: its id, for ``Last-Event-ID``; opaque;
    * ``time``: when it happened;
    * ``kind``: its subject, as in the parameter ``kinds``;
    * ``action``: what happened, such as ``committed``;
    * ``group``: the name of the group; absent if the event is about none;
    * ``node``: the id of the node; absent if the event is about none;
    * ``type``: the type alias; absent if the event is about none;
    * ``revision``: the revision; absent if the event is about none;
    * ``message``: the message of a push or a client, or an explanation; absent without one;
    * ``details``: further values, which depend on kind and action; absent without any.
    """

    id: str
    time: str
    kind: str
    action: str
    group: NotRequired[str]
    node: NotRequired[str]
    type: NotRequired[str]
    revision: NotRequired[int]
    message: NotRequired[str]
    details: NotRequired[dict[str, str | int]]


def event_item(event: FleetEvent) -> EventItem:
    """An event as JSON."""
    item: EventItem = {
        "id": str(event.id),
        "time": timestamp(event.time),
        "kind": event.kind.value,
        "action": event.action,
    }
    if event.group:
        item["group"] = event.group
    if event.node:
        item["node"] = event.node
    if event.type:
        item["type"] = event.type
    if event.revision is not None:
        item["revision"] = event.revision
    if event.message:
        item["message"] = event.message
    if event.details:
        item["details"] = dict(event.details)
    return item
