"""A bounded log of events for operators, and the events that the fleet records in it. No clock, no tasks, no queues.

A reader is a cursor: the number of the last event that it has read. For a reader that is too slow, or that returns too
late, ``EventPage.lagged`` is set, and the reader continues with the events that still exist. So readers do not slow
writers down.

Rare events (pushes, NACKs) and frequent events (streams, ACKs, assignments) are kept in separate buffers, so that a
reconnecting fleet does not displace the history of changes. ACKs are recorded only while somebody reads them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from heapq import merge
from types import MappingProxyType

from xds.fleet.node_records import StreamRecord
from xds.fleet.state import NackRecord
from xds.model.resource_type import alias_of
from xds.model.snapshot import ResourceSet
from xds.snapshots.linger import Removal

RARE_LIMIT = 5_000
FREQUENT_LIMIT = 10_000
MESSAGE_LIMIT = 1_000
ORPHANED = "no group matches: the node keeps its resources and gets no updates"
GUILTY_SHOWN = 10
LINGER_CUT = (
    "more than order.linger_max pushes removed resources: the oldest are removed while connections may use them"
)
WAIT_ENDED = "not ready in time: the resources that waited for it are sent"


class EventKind(StrEnum):
    """The subject of an event; ``action`` says what happened."""

    PUSH = "push"
    ROLLBACK = "rollback"
    ROLLOUT = "rollout"
    GROUP = "group"
    CONFIG_ENTRIES = "config_entries"
    NACK = "nack"
    ORDER = "order"
    WATCH = "watch"
    SOURCE = "source"
    NODE = "node"
    STREAM = "stream"
    ACK = "ack"
    ASSIGNMENT = "assignment"
    ENDPOINTS = "endpoints"
    AUTH = "auth"
    STORE = "store"


FREQUENT = frozenset(
    {
        EventKind.NODE,
        EventKind.STREAM,
        EventKind.ACK,
        EventKind.ASSIGNMENT,
        EventKind.ENDPOINTS,
        EventKind.AUTH,
    }
)
ON_DEMAND = frozenset({EventKind.ACK})
DEFAULT_KINDS = frozenset(EventKind) - ON_DEMAND


@dataclass(frozen=True, slots=True)
class FleetEvent:
    """One event at ``time`` (epoch seconds). Empty strings and None mean that a field does not apply.

    ``details`` are fields of some actions only; JSON scalars.
    """

    id: int
    time: float
    kind: EventKind
    action: str
    group: str = ""
    node: str = ""
    type: str = ""
    revision: int | None = None
    message: str = ""
    details: Mapping[str, str | int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class EventFilter:
    """Selects events from ``since`` (epoch seconds) on. An empty group or node means all."""

    kinds: frozenset[EventKind] = DEFAULT_KINDS
    group: str = ""
    node: str = ""
    since: float = 0.0

    def __call__(self, event: FleetEvent) -> bool:
        if event.kind not in self.kinds or event.time < self.since:
            return False
        return self.group in ("", event.group) and self.node in ("", event.node)


@dataclass(frozen=True, slots=True)
class EventPage:
    """Events after a cursor, oldest first. Continue with ``cursor``. ``lagged``: events before these were dropped."""

    events: tuple[FleetEvent, ...]
    cursor: int
    lagged: bool


class _Ring:
    """The latest events. ``dropped`` is the newest event number that was dropped."""

    __slots__ = ("dropped", "events")

    def __init__(self, limit: int, dropped: int) -> None:
        self.events: deque[FleetEvent] = deque(maxlen=limit)
        self.dropped = dropped

    def append(self, event: FleetEvent) -> None:
        """Add an event and drop the oldest one if the ring is full."""
        if len(self.events) == self.events.maxlen:
            self.dropped = self.events[0].id
        self.events.append(event)

    def after(self, cursor: int) -> list[FleetEvent]:
        """The events after ``cursor``, oldest first."""
        events: list[FleetEvent] = []
        for event in reversed(self.events):
            if event.id <= cursor:
                break
            events.append(event)
        events.reverse()
        return events


class EventLog:
    """The latest events. ``first_id`` must be above the ids of earlier processes, so that readers can continue."""

    def __init__(self, first_id: int = 1, rare_limit: int = RARE_LIMIT, frequent_limit: int = FREQUENT_LIMIT) -> None:
        self.newest = first_id - 1
        self.closed = False
        self.acks_wanted = False  # whether ACKs are recorded
        self._rare = _Ring(rare_limit, self.newest)
        self._frequent = _Ring(frequent_limit, self.newest)
        self._ack_readers = 0
        self._waiting: list[Callable[[], None]] = []

    # Writing

    def record(
        self,
        kind: EventKind,
        action: str,
        now: float,
        *,
        group: str = "",
        node: str = "",
        type: str = "",
        revision: int | None = None,
        message: str = "",
        details: Mapping[str, str | int] = MappingProxyType({}),
    ) -> None:
        """Record an event and wake the waiting readers."""
        self.newest += 1
        short = message[:MESSAGE_LIMIT]
        event = FleetEvent(self.newest, now, kind, action, group, node, type, revision, short, details)
        (self._frequent if kind in FREQUENT else self._rare).append(event)
        self._wake()

    def close(self) -> None:
        """End the log: readers end after the last event."""
        self.closed = True
        self._wake()

    # Reading

    @contextmanager
    def watching(self, kinds: Collection[EventKind]) -> Iterator[None]:
        """Record events of ``kinds`` that are recorded on demand, while the context is open."""
        ack = int(EventKind.ACK in kinds)
        self._ack_readers += ack
        self.acks_wanted = self._ack_readers > 0
        try:
            yield
        finally:
            self._ack_readers -= ack
            self.acks_wanted = self._ack_readers > 0

    def after(self, cursor: int, wanted: EventFilter, limit: int) -> EventPage:
        """At most ``limit`` events that match ``wanted``. A cursor of another process counts as dropped."""
        rings = [
            ring
            for ring, kinds in ((self._rare, wanted.kinds - FREQUENT), (self._frequent, wanted.kinds & FREQUENT))
            if kinds
        ]
        position = cursor if cursor <= self.newest else 0
        lagged = position != cursor or any(position < ring.dropped for ring in rings)
        events: list[FleetEvent] = []
        for event in merge(*(ring.after(position) for ring in rings), key=lambda event: event.id):
            if wanted(event):
                events.append(event)
                if len(events) == limit:
                    return EventPage(tuple(events), event.id, lagged)
        return EventPage(tuple(events), self.newest, lagged)

    def call_on_next(self, callback: Callable[[], None]) -> None:
        """Call ``callback`` once, at the next event or at the end of the log."""
        self._waiting.append(callback)

    def forget_call(self, callback: Callable[[], None]) -> None:
        """Withdraw a callback. Harmless if it was called already."""
        if callback in self._waiting:
            self._waiting.remove(callback)

    def _wake(self) -> None:
        if self._waiting:
            waiting, self._waiting = self._waiting, []
            for callback in waiting:
                callback()


def record_stream(log: EventLog, action: str, stream: StreamRecord, now: float) -> None:
    """Record that a stream was opened or closed."""
    principal = {"principal": stream.principal} if stream.principal else {}
    log.record(
        EventKind.STREAM,
        action,
        now,
        group=stream.group,
        node=node_id(stream),
        details={
            "stream": stream.id,
            "service": stream.service,
            "variant": stream.variant,
            "peer": stream.peer,
            **principal,
        },
    )


def record_node(log: EventLog, action: str, stream: StreamRecord, now: float) -> None:
    """Record that a node connected (its first stream) or disconnected (its last stream)."""
    log.record(EventKind.NODE, action, now, group=stream.group, node=node_id(stream))


def record_moved(log: EventLog, stream: StreamRecord, group: str, now: float) -> bool:
    """Record that a node moved to another group or matches none: once per node, not for each of its streams.

    Returns whether it was recorded.
    """
    node = stream.node
    if node is None or (group == node.group and not node.orphaned_recorded) or (not group and node.orphaned_recorded):
        return False
    if group:
        log.record(EventKind.NODE, "moved", now, group=group, node=node.node.id, details={"previous": node.group})
    else:
        log.record(EventKind.NODE, "orphaned", now, group=node.group, node=node.node.id, message=ORPHANED)
    node.orphaned_recorded = not group
    return True


def record_acked(log: EventLog, stream: StreamRecord, accepted: ResourceSet, revision: int | None, now: float) -> None:
    """Record the ACK of a type; and, once per revision, that all types of the node are synced."""
    node = stream.node
    if node is None:
        return
    name, alias = node.node.id, alias_of(accepted.type.type_url)
    log.record(
        EventKind.ACK,
        "acked",
        now,
        group=stream.group,
        node=name,
        type=alias,
        revision=revision,
        details={"version": accepted.version_info},
    )
    if revision is not None and revision != node.synced_revision and node.is_synced():
        node.synced_revision = revision
        log.record(EventKind.ACK, "synced", now, group=stream.group, node=name, revision=revision)


def record_nack(log: EventLog, action: str, record: NackRecord, now: float) -> None:
    """Record that a NACK was opened, narrowed to the rejected names, or resolved."""
    details: dict[str, str | int] = {"nack": record.id, "version": record.version}
    if record.guilty:
        details["guilty"] = ", ".join(record.guilty[:GUILTY_SHOWN])
    log.record(
        EventKind.NACK,
        action,
        now,
        group=record.group,
        node=record.node,
        type=record.type,
        message=record.message,
        details=details,
    )


def record_wait_ended(log: EventLog, stream: StreamRecord, type_url: str, now: float) -> None:
    """Record that a wait for a type, usually clusters, timed out (docs/internals/design.md#order-of-updates)."""
    alias = alias_of(type_url)
    log.record(
        EventKind.ORDER, "wait_ended", now, group=stream.group, node=node_id(stream), type=alias, message=WAIT_ENDED
    )


def record_linger_cut(log: EventLog, stream: StreamRecord, removal: Removal, now: float) -> None:
    """Record that lingering resources of a group were removed early; the event names the first node of the group."""
    count = sum(map(len, removal.names.values()))
    details: dict[str, str | int] = {"resources": count, "types": ", ".join(sorted(map(alias_of, removal.names)))}
    log.record(
        EventKind.ORDER,
        "linger_cut",
        now,
        group=stream.group,
        node=node_id(stream),
        revision=removal.revision,
        message=LINGER_CUT,
        details=details,
    )


def node_id(stream: StreamRecord) -> str:
    """The id of the stream's node; empty before its first request."""
    return stream.node.node.id if stream.node is not None else ""
