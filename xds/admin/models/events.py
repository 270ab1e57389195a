"""Events of the server."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, ClassVar

from xds.admin.models.copying import copied
from xds.admin.models.writing import EMPTY_FOR_NONE

if TYPE_CHECKING:
    from xds.fleet.event_log import FleetEvent


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerEvent:
    """One event. It is the ``data`` of a server-sent event, or one line. A line of the kind ``lagged`` says that
    events are missing before ``next``; one of the kind ``partial`` that the events of servers are missing, which do not
    answer.

    * ``id``: its id, for ``Last-Event-ID``; opaque;
    * ``time``: when it happened;
    * ``kind``: its subject, as in the parameter ``kinds``;
    * ``action``: what happened, such as ``committed``;
    * ``group``: the name of the group; absent if the event is about none;
    * ``node``: the id of the node; absent if the event is about none;
    * ``type``: the type alias; absent if the event is about none;
    * ``revision``: the revision; absent if the event is about none;
    * ``message``: the message of a push or a client, or an explanation; absent without one;
    * ``details``: further values, which depend on kind and action; absent without any;
    * ``server``: present where several servers work on one store: the one that recorded the event.
    """

    schema_name: ClassVar[str] = "EventItem"

    id: str
    time: datetime | None = field(metadata=EMPTY_FOR_NONE)  # None in a line of the kind `lagged`
    kind: str
    action: str
    group: str = ""
    node: str = ""
    type: str = ""
    revision: int | None = None
    message: str = ""
    details: Mapping[str, str | int] = field(default_factory=dict)
    server: str = ""

    @classmethod
    def from_domain(cls, event: FleetEvent) -> ServerEvent:
        """An event of the log."""
        return copied(cls, event, id=str(event.id), kind=event.kind.value)
