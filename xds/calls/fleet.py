"""The calls about nodes, NACKs and events."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime

from xds.admin.models.nacks import Nack
from xds.admin.models.nodes import NodeStatus
from xds.admin.models.reading import ShapeError, read_object
from xds.calls.call import ApiCall, flags, items, place, reader
from xds.calls.failures import ServerBusyError, UnreachableServerError
from xds.calls.results import ServerEvent

NDJSON = "application/x-ndjson"
LAST_EVENT_ID = "last-event-id"
RECONNECT_S = (0.1, 0.5, 1.0, 2.0, 5.0, *(10.0,) * 5)  # a minute in all, in which a server can restart


def nodes(*, group: str = "", state: str = "", selector: str = "") -> ApiCall[tuple[NodeStatus, ...]]:
    """Nodes by id. ``state``: with a type in this state, such as ``nacked``; ``selector`` as for groups."""
    return ApiCall("GET", place("nodes"), items(NodeStatus), flags(group=group, state=state, selector=selector))


def node(id: str) -> ApiCall[NodeStatus]:
    """One node with its streams."""
    return ApiCall("GET", place("nodes", id), reader(NodeStatus))


def disconnect(id: str, *, author: str = "") -> ApiCall[int]:
    """End the streams of a node, which may reconnect at once; returns their number."""
    return ApiCall("DELETE", place("nodes", id), lambda value: int(value["streams"]), flags(author=author))


def nacks(
    *, group: str = "", node: str = "", type: str = "", since: datetime | str = "", state: str = ""
) -> ApiCall[tuple[Nack, ...]]:
    """NACKs, the newest first. ``since`` is a time or an age (``15m``), ``state`` ``open`` or ``resolved``."""
    after = since if isinstance(since, str) else since.astimezone().isoformat()
    query = flags(group=group, node=node, type=type, since=after, state=state)
    return ApiCall("GET", place("nacks"), items(Nack), query)


class EventCursor:
    """The position of an event reader. Makes its requests, reads the lines, and says when to reconnect.

    No event is lost between two requests. Without ``reconnects`` the reader ends when the connection is lost.
    """

    def __init__(self, kinds: Sequence[str], group: str, node: str, after: str, reconnects: bool) -> None:
        self._query = flags(kinds=",".join(kinds), group=group, node=node)
        self._after = after
        self.reconnects = reconnects
        self._has_begun = False
        self._attempt = 0

    def call(self) -> ApiCall[None]:
        """The request that continues after the last event."""
        headers = {"Accept": NDJSON, **({LAST_EVENT_ID: self._after} if self._after else {})}
        return ApiCall("GET", place("events"), lambda _: None, self._query, headers)

    def begin(self, headers: Mapping[str, str]) -> None:
        """Note the position at which an answer begins, so that no event is missed if it ends before the first one."""
        self._has_begun = True
        self._after = self._after or headers.get(LAST_EVENT_ID, "")

    def read(self, line: str) -> ServerEvent | None:
        """The event of a line; None for an empty line, which keeps the connection open. Raises ``ShapeError``."""
        if not line.strip():
            return None
        try:
            event = read_object(ServerEvent, json.loads(line))
        except ValueError as error:
            raise ShapeError(f"not an event: {error}") from None
        self._after = event.id or self._after
        self._attempt = 0
        return event

    def fail(self, error: UnreachableServerError | ServerBusyError) -> None:
        """The connection is lost. Raises the error if the reader ends with it."""
        if not self.reconnects or not self._has_begun or self._attempt == len(RECONNECT_S):
            raise error

    def delay_s(self) -> float:
        """How long to wait before the next request."""
        delay_s = RECONNECT_S[min(self._attempt, len(RECONNECT_S) - 1)]
        self._attempt += 1
        return delay_s
