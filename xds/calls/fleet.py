"""The calls about nodes, NACKs, what nodes hold, and events."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from xds.admin import operations
from xds.admin.models.reading import ShapeError, read_object
from xds.calls.call import ApiCall, ask, ask_items, flags
from xds.calls.failures import ServerBusyError, UnreachableServerError

if TYPE_CHECKING:
    from xds.admin.models.certificates import CertificateExpiry
    from xds.admin.models.events import ServerEvent
    from xds.admin.models.explanations import NodeExplanation
    from xds.admin.models.holdings import HeldResource
    from xds.admin.models.nacks import Nack
    from xds.admin.models.nodes import NodeCounts, NodeStatus, ReleasedNodes
    from xds.admin.models.streams import RefusedPeers
    from xds.admin.models.timeline import NodeTimeline

NDJSON = "application/x-ndjson"
LAST_EVENT_ID = "last-event-id"
RECONNECT_S = (0.1, 0.5, 1.0, 2.0, 5.0, *(10.0,) * 5)  # a minute in all, in which a server can restart


def nodes(
    *,
    group: str = "",
    state: str = "",
    selector: str = "",
    line: str = "",
    text: str = "",
    user_agent: str = "",
    order: str = "",
) -> ApiCall[tuple[NodeStatus, ...]]:
    """Nodes by id. ``state``: with a type in this state, such as ``nacked``; ``selector`` as for groups.

    ``line``: those that a careful rollout serves the ``head``, or the ``base``. ``text``: those with this text in id,
    cluster, locality, version or NACK. ``user_agent``: those of exactly this client, such as ``envoy/1.36.2``.
    ``order``: ``trouble``, those that NACKed first, then pending ones.
    """
    query = flags(group=group, state=state, selector=selector, line=line, text=text, user_agent=user_agent, order=order)
    return ask_items(operations.LIST_NODES, query=query)


def node_counts(
    *, group: str = "", state: str = "", selector: str = "", line: str = "", text: str = "", user_agent: str = ""
) -> ApiCall[NodeCounts]:
    """The numbers of nodes that `nodes` returns for the same arguments, by state, version and group."""
    chosen = flags(group=group, state=state, selector=selector, line=line, text=text, user_agent=user_agent)
    query = {**chosen, **flags(counts=True, limit=1)}
    return ask(operations.LIST_NODES, query=query, read=lambda value: read_object(_counts_class(), value["counts"]))


def _counts_class() -> type[NodeCounts]:
    from xds.admin.models.nodes import NodeCounts

    return NodeCounts


def node(id: str) -> ApiCall[NodeStatus]:
    """One node with its streams."""
    return ask(operations.GET_NODE, id)


def disconnect(id: str, *, author: str = "") -> ApiCall[int]:
    """End the streams of a node, which may reconnect at once; returns their number."""
    return ask(operations.DISCONNECT_NODE, id, query=flags(author=author), read=lambda value: int(value["streams"]))


def release_node(id: str, *, author: str = "") -> ApiCall[ReleasedNodes]:
    """End the lingering of removed resources of a node."""
    return ask(operations.RELEASE_NODE, id, query=flags(author=author))


def node_resources(
    id: str, *, type: str = "", name: str = "", side: str = "", contents: bool = False, show_secrets: bool = False
) -> ApiCall[tuple[HeldResource, ...]]:
    """The resources that a node has, by type and name; with ``contents``, also their documents.

    ``name`` is a pattern (``web-*``); ``side`` is ``acked``, ``sent`` or ``served``.
    """
    query = flags(type=type, name=name, side=side, contents=contents, show_secrets=show_secrets)
    return ask_items(operations.LIST_HELD, id, query=query)


def explain(id: str, *, type: str = "", name: str = "") -> ApiCall[NodeExplanation]:
    """What a node is served, and why: its group, the rule that chose it, and each resource."""
    return ask(operations.EXPLAIN_NODE, id, query=flags(type=type, name=name))


def explain_node(node: Mapping[str, Any], *, type: str = "", name: str = "") -> ApiCall[NodeExplanation]:
    """What a node would be served, and why. ``node`` is one as in a bootstrap; it need not be connected."""
    return ask(operations.EXPLAIN_DOCUMENT, query=flags(type=type, name=name), body=dict(node))


def timeline(id: str, *, limit: int | None = None) -> ApiCall[NodeTimeline]:
    """What happened to a node, newest first: connections, pushes to its group, rollouts, NACKs, late ACKs, moves."""
    return ask(operations.GET_TIMELINE, id, query=flags(limit=limit))


def nacks(
    *, group: str = "", node: str = "", type: str = "", since: datetime | str = "", state: str = ""
) -> ApiCall[tuple[Nack, ...]]:
    """NACKs, the newest first. ``since`` is a time or an age (``15m``), ``state`` ``open`` or ``resolved``."""
    query = _nack_query(group, node, type, since, state)
    return ask_items(operations.LIST_NACKS, query=query)


def nacks_by_message(
    *, group: str = "", node: str = "", type: str = "", since: datetime | str = "", state: str = ""
) -> ApiCall[tuple[Nack, ...]]:
    """As `nacks`; equal NACKs of several nodes are one item."""
    query = {**_nack_query(group, node, type, since, state), "by": "message"}
    return ask_items(operations.LIST_NACKS, query=query)


def _nack_query(group: str, node: str, type: str, since: datetime | str, state: str) -> dict[str, str]:
    after = since if isinstance(since, str) else since.astimezone().isoformat()
    return flags(group=group, node=node, type=type, since=after, state=state)


def refused_streams(*, limit: int | None = None) -> ApiCall[RefusedPeers]:
    """Streams that were refused recently, and why."""
    return ask(operations.LIST_REFUSED_STREAMS, query=flags(limit=limit))


def certificates(*, group: str = "") -> ApiCall[tuple[CertificateExpiry, ...]]:
    """The certificates in the resources of groups; those that expire first at the top."""
    return ask_items(operations.LIST_CERTIFICATES, query=flags(group=group))


def events(
    *,
    kinds: Sequence[str] = (),
    group: str = "",
    node: str = "",
    since: str = "",
    follow: bool = True,
    after: str = "",
) -> ApiCall[None]:
    """The events as lines: those after the event ``after``; without ``follow`` up to the latest one."""
    query = flags(kinds=",".join(kinds), group=group, node=node, since=since, follow="" if follow else "false")
    headers = {"Accept": NDJSON, **({LAST_EVENT_ID: after} if after else {})}
    return ask(operations.GET_EVENTS, query=query, headers=headers, read=lambda _: None)


class EventCursor:
    """The position of an event reader. Makes its requests, reads the lines, and says when to reconnect.

    No event is lost between two requests. Without ``reconnects`` the reader ends when the connection is lost.
    """

    def __init__(self, kinds: Sequence[str], group: str, node: str, after: str, reconnects: bool) -> None:
        self._kinds, self._group, self._node = kinds, group, node
        self._after = after
        self.reconnects = reconnects
        self._has_begun = False
        self._attempt = 0

    def call(self) -> ApiCall[None]:
        """The request that continues after the last event."""
        return events(kinds=self._kinds, group=self._group, node=self._node, after=self._after)

    def begin(self, headers: Mapping[str, str]) -> None:
        """Note the position at which an answer begins, so that no event is missed if it ends before the first one."""
        self._has_begun = True
        self._after = self._after or headers.get(LAST_EVENT_ID, "")

    def read(self, line: str) -> ServerEvent | None:
        """The event of a line; None for an empty line, which keeps the connection open. Raises ``ShapeError``."""
        from xds.admin.models.events import ServerEvent

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
