"""One idea: the state of the connected fleet, built from the events of the engine: nodes, streams, types, NACK records.

Applying an event costs a few attribute writes. States for operators are built on demand. Times are epoch seconds and
always arguments.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from xds.fleet import convergence
from xds.fleet.convergence import STALE_AFTER_S, Census
from xds.fleet.event_log import (
    EventLog,
    record_acked,
    record_linger_cut,
    record_moved,
    record_nack,
    record_node,
    record_stream,
    record_wait_ended,
)
from xds.fleet.kept_nodes import KeptNodes
from xds.fleet.nacks import RECORDS_LIMIT, NackLog
from xds.fleet.node_past import LATE_S, Moment, MomentKind, MomentWriter, NodePast
from xds.fleet.node_records import (
    NO_STATES,
    Holding,
    NodeRecord,
    StreamRecord,
    TypeRecord,
    holding,
    holdings,
)
from xds.fleet.node_selection import ListedNode, NodeFilter, listed_node
from xds.fleet.node_state import NodeState
from xds.fleet.order_state import NO_CLIENTS, Clients, PartialSets, comparable_set, held_resources
from xds.fleet.polls import Poll
from xds.fleet.refused_content import AckedNames, RefusedContent
from xds.fleet.senders import Senders, take_senders
from xds.fleet.state import Convergence, HeldResources, NodeStanding, StreamState, Sync
from xds.model.natural_order import OrderedNames
from xds.model.node import Locality, Node
from xds.model.resource_type import alias_of, resource_type
from xds.model.snapshot import ResourceSet, Snapshot
from xds.protocol.events import (
    Acked,
    AckWaitTimedOut,
    Event,
    HoldChanged,
    Identified,
    LingerChanged,
    LingerCut,
    Nacked,
    Send,
    Subscribed,
    Synced,
    ViewChanged,
)

DISCONNECTED_KEPT_S = 3600.0
DISCONNECTED_LIMIT = 10_000
REVISIONS_LIMIT = 100_000


class Fleet:
    """All nodes that are or recently were connected.

    ``changes`` grows with every event that can advance a push, so that a caller that waits knows when to check again.
    ``events`` is the log for operators.
    """

    def __init__(
        self,
        disconnected_kept_s: float = DISCONNECTED_KEPT_S,
        disconnected_limit: int = DISCONNECTED_LIMIT,
        nacks_limit: int = RECORDS_LIMIT,
        events: EventLog | None = None,
        first_nack_id: int = 1,
    ) -> None:
        self.changes = 0
        self.events = events if events is not None else EventLog()
        self.nack_log = NackLog(nacks_limit, first_id=first_nack_id)
        self._streams: dict[int, StreamRecord] = {}
        self._nodes: dict[str, NodeRecord] = {}
        self._order = OrderedNames()
        # Apart, so that whoever polls under many ids does not replace nodes that were connected.
        self._disconnected = KeptNodes(disconnected_kept_s, disconnected_limit)
        self._polling = KeptNodes(disconnected_kept_s, disconnected_limit)
        self._cut_recorded: dict[str, int] = {}  # group -> the newest revision recorded as removed early
        self._partial_sets = PartialSets()
        self._clock_offset_s = 0.0  # epoch seconds minus the engine's clock
        self._moments = MomentWriter()
        self._revisions: dict[int, int] = {}  # ResourceSet.id -> newest revision that contains it

    # Writing

    def stream_opened(
        self, stream_id: int, peer: str, service: str, variant: str, now: float, api: str = "", principal: str = ""
    ) -> None:
        """Add a stream. It belongs to no node until its first request. ``api``, ``principal``: see `StreamState`."""
        self._streams[stream_id] = StreamRecord(stream_id, peer, service, variant, now, api, principal)
        self._forget_gone(now)

    def apply_events(
        self, stream_id: int, events: Iterable[Event], now: float, engine_now_s: float | None = None
    ) -> None:
        """Apply the events of the engine for one stream, in their order.

        ``engine_now_s`` is the current time of the engine's clock; None if that clock counts epoch seconds.
        """
        self.apply_shared((stream_id,), events, now, engine_now_s)

    def apply_shared(
        self, stream_ids: Iterable[int], events: Iterable[Event], now: float, engine_now_s: float | None = None
    ) -> None:
        """As `apply_events`, for several streams that had the same events."""
        streams = list(filter(None, map(self._streams.get, stream_ids)))
        self._clock_offset_s = now - engine_now_s if engine_now_s is not None else 0.0
        for event in events:
            if type(event) is Send:
                self._sent(streams, event, now)
            elif type(event) is Acked:
                self._acked(streams, event, now)
            elif (handler := _HANDLERS.get(type(event))) is not None:
                for stream in streams:
                    handler(self, stream, event, now)

    def stream_closed(self, stream_id: int, now: float) -> bool:
        """Remove a closed stream. Its node stays visible for a while.

        True if the other streams of the client have to report lingering and held resources again.
        """
        stream = self._streams.pop(stream_id, None)
        if stream is None or stream.node is None:
            return False
        node = stream.node
        needs_report = stream.client_key in node.clients
        node.leave(stream, self._revisions)
        node.last_seen = now
        self.changes += 1
        record_stream(self.events, "closed", stream, now)
        if not node.streams:
            record_node(self.events, "disconnected", stream, now)
            self._remember(node, Moment(node.connected, MomentKind.CONNECTED))
            self._remember(node, Moment(now, MomentKind.DISCONNECTED))
            node.connected = 0.0
            self._note_left(node, now)
        return needs_report

    def reporter_opened(self, node: Node, group: str, now: float) -> None:
        """Add a load report stream of a node. A node with no other stream is known by it; no push waits for it."""
        record = self._record_of(node, now)
        record.reporters += 1
        if not record.streams:
            record.node, record.group = node, group

    def reporter_moved(self, node_id: str, group: str) -> None:
        """Note the group of a node that only reports load."""
        if (record := self._nodes.get(node_id)) is not None and not record.streams:
            record.group = group

    def reporter_closed(self, node_id: str, now: float) -> None:
        """Remove a load report stream of a node."""
        record = self._nodes[node_id]
        record.reporters -= 1
        record.last_seen = now
        record.forget_details()
        self._note_left(record, now)

    def polled(self, node: Node, group: str, poll: Poll, now: float) -> None:
        """Note a poll of a node. It is known for a while by that; no push waits for it."""
        record = self._record_of(node, now)
        content = poll.fetched.content if poll.fetched is not None else None
        record.note_poll(poll, self._revisions.get(content.origin_id) if content is not None else None, now)
        if not record.streams:
            record.node, record.group, record.last_states = node, group, NO_STATES
            for refusal in self.nack_log.open_of(node.id, poll.type_url):
                if poll.resolves(refusal):
                    self._resolve(refusal, now)
        if not record.is_connected:
            record.forget_details()
            self._polling.note(node.id, now)
            self._forget_gone(now)

    def _record_of(self, node: Node, now: float) -> NodeRecord:
        """The record of a node that opens a stream or polls."""
        record = self._nodes.get(node.id)
        if record is None:
            record = self._nodes[node.id] = NodeRecord(node, now)
            self._order.add(node.id)
        self._disconnected.discard(node.id)
        self._polling.discard(node.id)
        record.last_seen = now
        return record

    def _note_left(self, node: NodeRecord, now: float) -> None:
        """Keep a node for a while if that was its last stream."""
        if not node.is_connected:
            self._disconnected.note(node.node.id, now)
            self._forget_gone(now)

    def published(self, snapshot: Snapshot) -> None:
        """Remember the revision of the sets of a snapshot, so that node states can show it."""
        for resource_set in snapshot:
            self._revisions.pop(resource_set.id, None)
            self._revisions[resource_set.id] = snapshot.revision
        while len(self._revisions) > REVISIONS_LIMIT:
            del self._revisions[next(iter(self._revisions))]

    def restore(self, refusals: Sequence[RefusedContent], now: float) -> None:
        """Restore the open NACKs of an earlier process. NACKs of nodes that do not reconnect are resolved in time."""
        self.nack_log.restore(refusals)
        for refusal in refusals:
            self._disconnected.note(refusal.record.node, now)

    def adopt(self, refusals: Sequence[RefusedContent], now: float) -> None:
        """Keep open NACKs that another server has kept. Those of nodes that do not come here are resolved in time."""
        self.nack_log.adopt(refusals)
        for refusal in refusals:
            node = self._nodes.get(refusal.record.node)
            if node is None or not node.is_connected:
                self._disconnected.note(refusal.record.node, now)

    # Reading

    def ids_after(self, node_id: str = "") -> list[str]:
        """The ids behind one, which need not be known, in natural order."""
        return self._order.after(node_id)

    def listed(self, ids: Iterable[str], chosen: NodeFilter, now: float) -> list[ListedNode]:
        """Those of some nodes that pass a filter, in the given order. No state of a node is built."""
        records = filter(None, map(self._nodes.get, ids))
        return [node for record in records if (node := listed_node(record, chosen, now)) is not None]

    def past(self, node_id: str) -> NodePast | None:
        """What a node has been through; None as for ``node``."""
        record = self._nodes.get(node_id)
        if record is None:
            return None
        moments = self._moments.read(record.past)
        if record.connected:
            moments.append(Moment(record.connected, MomentKind.CONNECTED))
        in_order = tuple(sorted(moments, key=lambda moment: moment.time))
        return NodePast(record.group, record.first_seen, in_order, self._moments.is_full(record.past))

    def standing(self, node_id: str, now: float) -> NodeStanding | None:
        """What this server has of a node; None as for ``node``."""
        record = self._nodes.get(node_id)
        if record is None:
            return None
        return NodeStanding(bool(record.streams), record.is_present(now), record.last_seen)

    def node(self, node_id: str) -> NodeState | None:
        """One node; None if it is unknown or forgotten."""
        record = self._nodes.get(node_id)
        return record.state(self._revisions) if record is not None else None

    def holdings(self, node_id: str) -> list[Holding]:
        """Each type on each stream of a connected node; empty for a node that is not connected."""
        record = self._nodes.get(node_id)
        streams = record.streams if record is not None else ()
        return list(holdings(type for stream in streams for type in stream.types.values()))

    def clients(self, node_id: str) -> Clients:
        """The lingering and held resources of a node, by client."""
        record = self._nodes.get(node_id)
        return dict(record.clients) if record is not None else NO_CLIENTS

    def identity(self, node_id: str) -> Node | None:
        """The identity of a node; None as for ``node``. The metadata of a disconnected node is not kept."""
        record = self._nodes.get(node_id)
        return record.node if record is not None else None

    def identities(self) -> list[tuple[str, Node]]:
        """The ids and identities of all nodes, as `identity` gives them."""
        return [(node_id, record.node) for node_id, record in self._nodes.items() if record.node is not None]

    def identified(self, group: str) -> list[Node]:
        """The identities of the connected nodes of a group."""
        return [record.node for record in self._connected_among(group, None)]

    def reporting(self, group: str) -> list[Node]:
        """The identities of the nodes of a group that report their load here, and have no other stream here."""
        records = self._nodes.values()
        return [each.node for each in records if each.group == group and each.reporters and not each.streams]

    def is_followed(self, group: str) -> bool:
        """Whether a node of the group is connected, or was within the hour."""
        return any(record.group == group for record in self._nodes.values())

    @property
    def streams_n(self) -> int:
        """The number of open streams."""
        return len(self._streams)

    def streams(self) -> Iterator[StreamState]:
        """The open streams, including those that have not named their node yet."""
        for stream in list(self._streams.values()):
            yield stream.state(self._revisions)

    def connected(self, group: str | None = None) -> frozenset[str]:
        """The ids of the nodes with an open stream."""
        nodes = self._nodes.values()
        return frozenset(record.node.id for record in nodes if record.streams and group in (None, record.group))

    def polling(self, group: str, now: float) -> int:
        """The number of nodes of a group that poll and have no open stream."""
        return sum(record.is_polling(now) for record in self._nodes.values() if record.group == group)

    def without_ads(self, group: str, now: float) -> list[str]:
        """The nodes of a group that take clusters or listeners by streams of their own or by polls."""
        records = (record for record in self._nodes.values() if record.group == group)
        return [record.node.id for record in records if record.takes_without_ads(now)]

    def connected_groups(self) -> frozenset[str]:
        """The groups of the nodes with an open stream. May be called from another thread."""
        return frozenset(record.group for record in list(self._nodes.values()) if record.streams)

    def apis(self, group: str) -> frozenset[str]:
        """The APIs of the streams of a group, as in `StreamState`."""
        return frozenset(stream.api for stream in self._streams.values() if stream.group == group)

    def convergence(
        self,
        group: str,
        targets: Mapping[str, ResourceSet],
        among: Collection[str] | None = None,
        variants: Mapping[str, Mapping[str, ResourceSet]] = MappingProxyType({}),
    ) -> Convergence:
        """How many nodes have taken a push.

        ``targets`` are the sets that it changed, by type URL; ``variants`` are the sets for streams of another API, by
        API. Connected nodes of the group count, restricted to ``among``; nodes that subscribe to none of the types do
        not. May be called from another thread: with thousands of nodes it takes milliseconds.
        """
        return convergence.take_convergence(self._connected_among(group, among), targets, variants, self.nack_log)

    def converged_at(
        self, group: str, targets: Mapping[str, ResourceSet], among: Collection[str] | None = None
    ) -> float | None:
        """When the last connected node of the group ACKed ``targets`` (sets by type URL); None while a node has not.

        May be called from another thread. Stops at the first node that has not ACKed them.
        """
        return convergence.last_ack_of_all(self._connected_among(group, among), targets)

    def states_of(
        self,
        group: str,
        targets: Mapping[str, ResourceSet],
        among: Collection[str],
        changed: Mapping[str, Collection[str]],
        variants: Mapping[str, Mapping[str, ResourceSet]] = MappingProxyType({}),
    ) -> dict[str, tuple[Sync, Sequence[HeldResources]]]:
        """As ``convergence``, for each node ``among`` that is connected: its state, and what is held back from it.

        A node is not subscribed if it wants none of the ``changed`` names, by type alias. It is synced, too, if it
        rejects others of a type and has ACKed these.
        """
        states: dict[str, tuple[Sync, Sequence[HeldResources]]] = {}
        for record in self._connected_among(group, among):
            state = Sync.NOT_SUBSCRIBED
            if convergence.concerns(record, changed):
                state = convergence.node_progress(record, targets, variants).state
                if state is Sync.NACKED and convergence.has_changes(record, targets, changed, variants):
                    state = Sync.SYNCED
            states[record.node.id] = state, held_resources(record.clients)
        return states

    def not_concerned(self, group: str, among: Collection[str], changed: Mapping[str, Collection[str]]) -> set[str]:
        """The connected nodes ``among`` these that subscribe to none of the ``changed`` names, by type alias."""
        nodes = self._connected_among(group, among)
        return {record.node.id for record in nodes if not convergence.concerns(record, changed)}

    def progress_by_type(
        self,
        group: str,
        targets: Mapping[str, ResourceSet],
        among: Collection[str] | None = None,
        variants: Mapping[str, Mapping[str, ResourceSet]] = MappingProxyType({}),
    ) -> dict[str, Counter[Sync]]:
        """As ``convergence``, per type alias: the number of nodes in each state."""
        counts: dict[str, Counter[Sync]] = {alias_of(type_url): Counter() for type_url in targets}
        for record in self._connected_among(group, among):
            for alias, state in convergence.type_progress(record, targets, variants).items():
                counts[alias][state] += 1
        return counts

    def localities(self, group: str) -> frozenset[Locality]:
        """The localities of the connected nodes of a group."""
        nodes = self._nodes.values()
        return frozenset(record.node.locality for record in nodes if record.streams and record.group == group)

    def senders(
        self,
        group: str,
        reporting_since: Mapping[str, float],
        reported_until: Mapping[str, float],
        now: float,
        settled_after_s: float,
    ) -> Senders:
        """The connected nodes of a group that could send to its clusters, as `take_senders`."""
        nodes = self._connected_among(group, None)
        return take_senders(nodes, self.reporting(group), reporting_since, reported_until, now, settled_after_s)

    def nodes_by_group(self) -> Counter[str]:
        """The number of connected nodes per group; nodes without a group are under the empty name."""
        return Counter(record.group for record in self._nodes.values() if record.streams)

    def census(self, now: float, stale_after_s: float = STALE_AFTER_S, detailed: int = 0) -> Census:
        """Counts over the fleet. May be called from another thread."""
        nodes, streams = list(self._nodes.values()), list(self._streams.values())
        return convergence.take_census(nodes, streams, now, stale_after_s=stale_after_s, detailed=detailed)

    def _connected_among(self, group: str, among: Collection[str] | None) -> Iterator[NodeRecord]:
        records = list(self._nodes.values()) if among is None else filter(None, map(self._nodes.get, among))
        return (record for record in records if record.streams and record.group == group)

    def _forget_gone(self, now: float) -> None:
        for node_id in (*self._disconnected.take_forgotten(now), *self._polling.take_forgotten(now)):
            self._nodes.pop(node_id, None)
            self._order.discard(node_id)
            for refusal in self.nack_log.open_of_node(node_id):
                self._resolve(refusal, now)

    # Applying events

    def _identified(self, stream: StreamRecord, event: Identified, now: float) -> None:
        node = self._record_of(event.node, now)
        is_first_stream = not node.streams
        if node.group not in ("", event.group):
            self._moved(node, event.group, now)
        node.node = event.node
        node.group = event.group
        node.last_states, node.polls = NO_STATES, None
        node.streams = (*node.streams, stream)
        stream.node = node
        stream.group = event.group
        if is_first_stream:
            node.connected = now
            record_node(self.events, "connected", stream, now)
        record_stream(self.events, "opened", stream, now)

    def _view_changed(self, stream: StreamRecord, event: ViewChanged, now: float) -> None:
        self.changes += 1
        stream.orphaned = not event.group
        if record_moved(self.events, stream, event.group, now) and stream.node is not None:
            self._moved(stream.node, event.group, now)
        if event.group:
            stream.group = event.group
            if stream.node is not None:
                stream.node.group = event.group

    def _sent(self, streams: Sequence[StreamRecord], event: Send, now: float) -> None:
        if event.response.heartbeat:
            return
        type_url, sent, pending = event.type_url, event.response.resource_set, Sync.PENDING
        for stream in streams:
            record = stream.types.get(type_url) or stream.record_of(type_url, now)
            if record.state is not pending or record.sent is None:
                record.state = pending
                record.since = now
            record.sent = sent

    def _acked(self, streams: Sequence[StreamRecord], event: Acked, now: float) -> None:
        if event.response.heartbeat:
            return
        self.changes += len(streams)
        type_url, accepted, is_refused = event.type_url, event.response.resource_set, bool(self.nack_log)
        for stream in streams:
            record = stream.types.get(type_url) or stream.record_of(type_url, now)
            record.acked = accepted
            if now - record.since > LATE_S and record.state is Sync.PENDING:
                self._acked_late(stream, record, accepted, now)
            if is_refused:
                self._resolve_accepted(stream, record, accepted, event.response.names, now)
            self._mark_synced(record, now)
            if self.events.acks_wanted:
                revision = self._revisions.get(comparable_set(accepted).origin_id)
                record_acked(self.events, stream, accepted, revision, now)

    def _acked_late(self, stream: StreamRecord, record: TypeRecord, accepted: ResourceSet, now: float) -> None:
        if stream.node is not None:
            revision = self._revisions.get(comparable_set(accepted).origin_id, 0)
            late_s = round(now - record.since)
            moment = Moment(now, MomentKind.ACKED, stream.group, "", alias_of(record.type_url), revision, late_s)
            self._remember(stream.node, moment)

    def _moved(self, node: NodeRecord, group: str, now: float) -> None:
        kind = MomentKind.MOVED if group else MomentKind.ORPHANED
        self._remember(node, Moment(now, kind, group, node.group))

    def _remember(self, node: NodeRecord, moment: Moment) -> None:
        node.past = self._moments.added(node.past, moment)

    def _synced(self, stream: StreamRecord, event: Synced, now: float) -> None:
        self.changes += 1
        record = stream.record_of(event.type_url, now)
        record.sent = record.acked = event.resource_set
        if self.nack_log:
            self._resolve_accepted(stream, record, event.resource_set, None, now)
        self._mark_synced(record, now)

    def _nacked(self, stream: StreamRecord, event: Nacked, now: float) -> None:
        if stream.node is None:
            return
        self.changes += 1
        refusal, is_news = self.nack_log.refuse(stream.node.node.id, stream.group, event, now)
        record = stream.record_of(event.type_url, now)
        record.refusals = (*(each for each in record.refusals if each is not refusal), refusal)
        record.enter(Sync.NACKED, now)
        if event.guilty and not refusal.suspects and resource_type(event.type_url).full_state:
            # Of a rejected CDS or LDS response Envoy applies the valid resources, and names the others in its NACK.
            record.acked = self._partial_sets.partial_set(event.response.resource_set, record.acked, event.guilty)
        if is_news:
            record_nack(self.events, "opened" if refusal.record.count == 1 else "narrowed", refusal.record, now)

    def _subscribed(self, stream: StreamRecord, event: Subscribed, now: float) -> None:
        record = stream.record_of(event.type_url, now)
        record.subscribe(event, now)
        if self.nack_log and record.sent is None and stream.node is not None and not record.refusals:
            # A client that returns may be sent nothing as long as what it rejected is pushed.
            record.refusals = tuple(self.nack_log.open_of(stream.node.node.id, event.type_url))
            record.enter(Sync.NACKED if record.refusals else record.state, now)
        if not record.refusals:
            return
        wants = holding(record).interest.wants_name
        for refusal in record.refusals:
            if refusal.names and not refusal.is_wanted(wants):
                self._withdraw(stream, record, refusal, now)
        if not record.refusals and record.state is Sync.NACKED:
            record.enter(Sync.SYNCED if record.acked is not None else Sync.PENDING, now)

    def _mark_synced(self, record: TypeRecord, now: float) -> None:
        """The type is synced, unless a NACK stays open: an ACK about other names does not resolve it."""
        if record.refusals:
            record.refusals = tuple(refusal for refusal in record.refusals if self.nack_log.is_open(refusal))
            if record.refusals:
                record.enter(Sync.NACKED, now)
                return
        if record.state is not Sync.NOT_SUBSCRIBED:
            record.state = Sync.SYNCED
            record.since = now

    def _resolve_accepted(
        self, stream: StreamRecord, record: TypeRecord, accepted: ResourceSet, acked_names: AckedNames, now: float
    ) -> None:
        """Resolve the NACKs that an ACK of this set resolves, and note the others that apply to the stream."""
        if stream.node is None:
            return
        for refusal in self.nack_log.open_of(stream.node.node.id, record.type_url):
            if refusal in record.refusals:
                if self.nack_log.accept(refusal, accepted, acked_names):
                    record_nack(self.events, "narrowed", refusal.record, now)
                if refusal.is_resolved_by(accepted, acked_names):
                    self._withdraw(stream, record, refusal, now)
                continue
            # A record of another stream, or of an earlier connection: this stream may confirm or resolve it.
            wants = holding(record).interest.wants_name
            if refusal.is_left_out(accepted, wants):
                record.refusals = (*record.refusals, refusal)
            elif refusal.is_wanted(wants) and refusal.is_resolved_by(accepted, acked_names, wants):
                self._withdraw(stream, record, refusal, now)

    def _withdraw(self, stream: StreamRecord, record: TypeRecord, refusal: RefusedContent, now: float) -> None:
        """Remove a NACK record from a stream, and resolve it if it applies to no other stream of the node."""
        record.refusals = tuple(each for each in record.refusals if each is not refusal)
        if stream.node is not None and not stream.node.is_refused(record.type_url, refusal):
            self._resolve(refusal, now)

    def _resolve(self, refusal: RefusedContent, now: float) -> None:
        record_nack(self.events, "resolved", self.nack_log.resolve(refusal, now), now)

    def _linger_changed(self, stream: StreamRecord, event: LingerChanged, now: float) -> None:
        if stream.node is not None:
            stream.node.update_client(stream, lambda client: client.linger(event.lingering, self._clock_offset_s))

    def _linger_cut(self, stream: StreamRecord, event: LingerCut, now: float) -> None:
        """Recorded once for all nodes of the group, since the same push affects all of them."""
        recorded = self._cut_recorded.get(stream.group, 0)
        for removal in event.removals:
            if removal.revision > recorded:
                self._cut_recorded[stream.group] = removal.revision
                record_linger_cut(self.events, stream, removal, now)

    def _hold_changed(self, stream: StreamRecord, event: HoldChanged, now: float) -> None:
        self.changes += 1
        if stream.node is not None:
            stream.node.update_client(stream, lambda client: client.hold(event.held))

    def _wait_ended(self, stream: StreamRecord, event: AckWaitTimedOut, now: float) -> None:
        record_wait_ended(self.events, stream, event.type_url, now)


_HANDLERS: Mapping[type, Callable[[Fleet, StreamRecord, Any, float], None]] = {
    Identified: Fleet._identified,
    ViewChanged: Fleet._view_changed,
    Synced: Fleet._synced,
    Nacked: Fleet._nacked,
    Subscribed: Fleet._subscribed,
    AckWaitTimedOut: Fleet._wait_ended,
    LingerChanged: Fleet._linger_changed,
    LingerCut: Fleet._linger_cut,
    HoldChanged: Fleet._hold_changed,
}
