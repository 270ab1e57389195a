"""The fold: engine events in, node states and NACK records out.

House rules: an event costs a few attribute writes; what is shown is built when it is asked for. Times are epoch
seconds and always arguments.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from xds.fleet.census import STALE_AFTER_S, Census, take_census
from xds.fleet.convergence import node_progress, type_progress
from xds.fleet.event_log import EventLog
from xds.fleet.holding import Holding, holding, holdings
from xds.fleet.mixed import Partly, stands_for
from xds.fleet.nacks import RECORDS_LIMIT, NackLog
from xds.fleet.ordering import NO_CLIENTS, Clients, held_back
from xds.fleet.refusal import Refusal, Told
from xds.fleet.state import Convergence, Held, NackRecord, NackState, NodeState, StreamState, Sync
from xds.fleet.telling import (
    tell_acked,
    tell_linger_cut,
    tell_moved,
    tell_nack,
    tell_node,
    tell_stream,
    tell_wait_ended,
)
from xds.fleet.track import NodeTrack, StreamTrack, TypeTrack
from xds.model.node import Locality, Node
from xds.model.resource_type import alias_of, resource_type, type_url_of
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
SHOWN_LIMIT = 100


class Fleet:
    """All nodes that are or recently were connected.

    ``changes`` grows with every event that can move a push forward, so that a waiter knows when to look again.
    ``events`` tells people what happened.
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
        self._streams: dict[int, StreamTrack] = {}
        self._nodes: dict[str, NodeTrack] = {}
        self._disconnected: dict[str, float] = {}  # node id -> when it left, oldest first
        self._cut_told: dict[str, int] = {}  # group -> the newest revision whose removals were told to go early
        self._partly = Partly()
        self._clock_offset_s = 0.0  # of the engine's clock
        self._revisions: dict[int, int] = {}  # ResourceSet.id -> newest revision that holds it
        self._kept_s = disconnected_kept_s
        self._disconnected_limit = disconnected_limit

    # Writing

    def stream_opened(
        self, stream_id: int, peer: str, service: str, variant: str, now: float, api: str = "", principal: str = ""
    ) -> None:
        """A stream came; it belongs to no node until its first request. ``api``, ``principal``: as in `StreamState`."""
        self._streams[stream_id] = StreamTrack(stream_id, peer, service, variant, now, api, principal)
        self._forget_disconnected(now)

    def fold(self, stream_id: int, events: Iterable[Event], now: float, engine_now_s: float | None = None) -> None:
        """Take in what the engine reported for one stream, in its order.

        ``engine_now_s`` is what the engine's clock says now; None where it counts epoch seconds as well.
        """
        stream = self._streams.get(stream_id)
        if stream is None:
            return
        self._clock_offset_s = now - engine_now_s if engine_now_s is not None else 0.0
        for event in events:
            fold = _FOLDS.get(type(event))
            if fold is not None:
                fold(self, stream, event, now)

    def stream_closed(self, stream_id: int, now: float) -> bool:
        """A stream went; its node stays visible for a while.

        True when the other streams of its client have to tell again what lingers and what is held.
        """
        stream = self._streams.pop(stream_id, None)
        if stream is None or stream.node is None:
            return False
        node = stream.node
        is_untold = stream.client_key in node.clients
        node.leave(stream, self._revisions)
        node.last_seen = now
        self.changes += 1
        tell_stream(self.events, "closed", stream, now)
        if not node.streams:
            tell_node(self.events, "disconnected", stream, now)
            self._disconnected[node.node.id] = now
            self._forget_disconnected(now)
        return is_untold

    def published(self, snapshot: Snapshot) -> None:
        """Learn which revision the sets of a snapshot belong to, so that node states can name it."""
        for resource_set in snapshot:
            self._revisions.pop(resource_set.id, None)
            self._revisions[resource_set.id] = snapshot.revision
        while len(self._revisions) > REVISIONS_LIMIT:
            del self._revisions[next(iter(self._revisions))]

    def restore(self, refusals: Sequence[Refusal], now: float) -> None:
        """What nodes refused when an earlier process ended; one that does not come back is forgotten in time."""
        self.nack_log.restore(refusals)
        self._disconnected.update((refusal.record.node, now) for refusal in refusals)

    # Reading

    def nodes(self, group: str | None = None, after: str = "") -> Iterator[NodeState]:
        """Nodes in the order of their ids, behind ``after``; connected or gone not long ago; built one by one."""
        for node_id in sorted(node_id for node_id in self._nodes if node_id > after):
            track = self._nodes.get(node_id)
            if track is not None and group in (None, track.group):
                yield track.state(self._revisions)

    def node(self, node_id: str) -> NodeState | None:
        """One node; None when it was never seen or is forgotten."""
        track = self._nodes.get(node_id)
        return track.state(self._revisions) if track is not None else None

    def holdings(self, node_id: str) -> list[Holding]:
        """What a connected node has of each type on each of its streams; empty for one that is not connected."""
        track = self._nodes.get(node_id)
        if track is None:
            return []
        return list(holdings(type for stream in track.streams.values() for type in stream.types.values()))

    def clients(self, node_id: str) -> Clients:
        """What lingers for the clients of a node, and what is held back from them."""
        track = self._nodes.get(node_id)
        return dict(track.clients) if track is not None else NO_CLIENTS

    def identity(self, node_id: str) -> Node | None:
        """How a node named itself; None as for ``node``. Of one that left, its metadata is not kept."""
        track = self._nodes.get(node_id)
        return track.node if track is not None else None

    def streams(self) -> Iterator[StreamState]:
        """The open streams, those included that have not named their node yet."""
        for stream in list(self._streams.values()):
            yield stream.state(self._revisions)

    def nacks(
        self,
        group: str | None = None,
        node: str | None = None,
        type: str | None = None,
        since: float | None = None,
        state: NackState | str | None = None,
    ) -> Iterator[NackRecord]:
        """NACK records, the newest first. ``since`` bounds the last occurrence.

        ``type`` is an alias, for whichever API a client speaks, or a type URL.
        """
        type_url = type_url_of(type) if type is not None else None
        for record in self.nack_log:
            if (
                group in (None, record.group)
                and node in (None, record.node)
                and (type in (None, record.type) or type_url == record.type_url)
                and (since is None or record.last >= since)
                and state in (None, record.state)
            ):
                yield record

    def connected(self, group: str | None = None) -> frozenset[str]:
        """Ids of the nodes that have a stream now."""
        nodes = self._nodes.values()
        return frozenset(track.node.id for track in nodes if track.streams and group in (None, track.group))

    def apis(self, group: str) -> frozenset[str]:
        """The APIs that the streams of a group speak, as in `StreamState`."""
        return frozenset(stream.api for stream in self._streams.values() if stream.group == group)

    def convergence(
        self,
        group: str,
        targets: Mapping[str, ResourceSet],
        among: Collection[str] | None = None,
        variants: Mapping[str, Mapping[str, ResourceSet]] = MappingProxyType({}),
    ) -> Convergence:
        """How far a push has come.

        ``targets`` are the sets it changed, by type URL; ``variants`` are those that streams of another API get
        instead, by API. Connected nodes of the group count, narrowed to ``among`` (those connected at commit); a node
        that subscribes to none of the types does not. May be called from another thread: with thousands
        of nodes it takes milliseconds.
        """
        counts: Counter[Sync] = Counter()
        last_ack = 0.0
        pending: list[str] = []
        nacks: list[NackRecord] = []
        held: list[tuple[str, Held]] = []
        for track in self._connected_among(group, among):
            found = node_progress(track, targets, variants)
            counts[found.state] += 1
            last_ack = max(last_ack, found.last_ack)
            if found.state is Sync.PENDING and len(pending) < SHOWN_LIMIT:
                pending.append(track.node.id)
                held.extend((track.node.id, each) for each in held_back(track.clients))
            elif found.state is Sync.NACKED and len(nacks) < SHOWN_LIMIT:
                nacks.extend(filter(None, map(self.nack_log.get, dict.fromkeys(found.nacks))))
        return Convergence(
            synced=counts[Sync.SYNCED],
            pending=counts[Sync.PENDING],
            nacked=counts[Sync.NACKED],
            last_ack=last_ack,
            pending_nodes=tuple(pending),
            nacks=tuple(nacks),
            held=tuple(held),
        )

    def converged_at(self, group: str, targets: Mapping[str, ResourceSet]) -> float | None:
        """When the last connected node of the group ACKed ``targets`` (sets by type URL); None while one has not.

        May be called from another thread; ends at the first node that has not.
        """
        last_ack = 0.0
        for track in self._connected_among(group, None):
            found = node_progress(track, targets, {})
            if found.state in (Sync.PENDING, Sync.NACKED):
                return None
            last_ack = max(last_ack, found.last_ack)
        return last_ack

    def progress_by_type(
        self,
        group: str,
        targets: Mapping[str, ResourceSet],
        among: Collection[str] | None = None,
        variants: Mapping[str, Mapping[str, ResourceSet]] = MappingProxyType({}),
    ) -> dict[str, Counter[Sync]]:
        """As ``convergence``, for each type by alias: how many nodes are in which state."""
        found: dict[str, Counter[Sync]] = {alias_of(type_url): Counter() for type_url in targets}
        for track in self._connected_among(group, among):
            for alias, state in type_progress(track, targets, variants).items():
                found[alias][state] += 1
        return found

    def localities(self, group: str) -> frozenset[Locality]:
        """Where the connected nodes of a group are."""
        nodes = self._nodes.values()
        return frozenset(track.node.locality for track in nodes if track.streams and track.group == group)

    def nodes_by_group(self) -> Counter[str]:
        """Connected nodes per group; the empty group is of those that none matches."""
        return Counter(track.group for track in self._nodes.values() if track.streams)

    def census(self, now: float, stale_after_s: float = STALE_AFTER_S, detailed: int = 0) -> Census:
        """The fleet in numbers; may be called from another thread."""
        nodes, streams = list(self._nodes.values()), list(self._streams.values())
        return take_census(nodes, streams, now, stale_after_s=stale_after_s, detailed=detailed)

    def _connected_among(self, group: str, among: Collection[str] | None) -> Iterator[NodeTrack]:
        tracks = list(self._nodes.values()) if among is None else filter(None, map(self._nodes.get, among))
        return (track for track in tracks if track.streams and track.group == group)

    def _forget_disconnected(self, now: float) -> None:
        gone = self._disconnected
        while gone:
            node_id, left = next(iter(gone.items()))
            if len(gone) <= self._disconnected_limit and left > now - self._kept_s:
                return
            del gone[node_id]
            self._nodes.pop(node_id, None)
            for refusal in self.nack_log.open_of_node(node_id):
                tell_nack(self.events, "resolved", self.nack_log.resolve(refusal, now), now)

    # The fold, event by event

    def _identified(self, stream: StreamTrack, event: Identified, now: float) -> None:
        node = self._nodes.get(event.node.id)
        if node is None:
            node = self._nodes[event.node.id] = NodeTrack(event.node, now)
        came = not node.streams
        self._disconnected.pop(event.node.id, None)
        node.node = event.node
        node.group = event.group
        node.last_seen = now
        node.left.clear()
        node.streams[stream.id] = stream
        stream.node = node
        stream.group = event.group
        if came:
            tell_node(self.events, "connected", stream, now)
        tell_stream(self.events, "opened", stream, now)

    def _view_changed(self, stream: StreamTrack, event: ViewChanged, now: float) -> None:
        self.changes += 1
        stream.orphaned = not event.group
        tell_moved(self.events, stream, event.group, now)
        if event.group:
            stream.group = event.group
            if stream.node is not None:
                stream.node.group = event.group

    def _sent(self, stream: StreamTrack, event: Send, now: float) -> None:
        if event.response.heartbeat:
            return
        track = stream.types.get(event.type_url) or stream.track(event.type_url, now)
        track.sent = event.response.resource_set
        if track.state is not Sync.PENDING:
            track.state = Sync.PENDING
            track.since = now

    def _acked(self, stream: StreamTrack, event: Acked, now: float) -> None:
        if event.response.heartbeat:
            return
        self.changes += 1
        track = stream.types.get(event.type_url) or stream.track(event.type_url, now)
        track.acked = event.response.resource_set
        if self.nack_log:
            self._mend(stream, track, event.response.resource_set, event.response.names, now)
        self._settle(track, now)
        if self.events.acks_wanted:
            taken = event.response.resource_set
            tell_acked(self.events, stream, taken, self._revisions.get(stands_for(taken).origin_id), now)

    def _in_step(self, stream: StreamTrack, event: Synced, now: float) -> None:
        self.changes += 1
        track = stream.track(event.type_url, now)
        track.sent = track.acked = event.resource_set
        if self.nack_log:
            self._mend(stream, track, event.resource_set, None, now)
        self._settle(track, now)

    def _nacked(self, stream: StreamTrack, event: Nacked, now: float) -> None:
        if stream.node is None:
            return
        self.changes += 1
        refusal, is_news = self.nack_log.refuse(stream.node.node.id, stream.group, event, now)
        track = stream.track(event.type_url, now)
        track.refusals = (*(each for each in track.refusals if each is not refusal), refusal)
        track.enter(Sync.NACKED, now)
        if event.guilty and not refusal.suspects and resource_type(event.type_url).full_state:
            # Of CDS and LDS clients take what is good, and say so in their NACK.
            track.acked = self._partly.taken(event.response.resource_set, track.acked, event.guilty)
        if is_news:
            tell_nack(self.events, "opened" if refusal.record.count == 1 else "narrowed", refusal.record, now)

    def _subscribed(self, stream: StreamTrack, event: Subscribed, now: float) -> None:
        track = stream.track(event.type_url, now)
        track.subscribe(event, now)
        if not track.refusals:
            return
        wants = holding(track).interest.wants_name
        for refusal in track.refusals:
            if refusal.names and not refusal.is_wanted(wants):
                self._drop(stream, track, refusal, now)
        if not track.refusals and track.state is Sync.NACKED:
            track.enter(Sync.SYNCED if track.acked is not None else Sync.PENDING, now)

    def _settle(self, track: TypeTrack, now: float) -> None:
        """In step, but for what is still refused (an answer about other names does not mend that)."""
        if track.refusals:
            track.refusals = tuple(refusal for refusal in track.refusals if self.nack_log.is_open(refusal))
            if track.refusals:
                track.enter(Sync.NACKED, now)
                return
        if track.state is not Sync.NOT_SUBSCRIBED:
            track.state = Sync.SYNCED
            track.since = now

    def _mend(self, stream: StreamTrack, track: TypeTrack, held: ResourceSet, told: Told, now: float) -> None:
        """Resolve what a client that holds this no longer refuses, and remember what it does."""
        if stream.node is None:
            return
        for refusal in self.nack_log.open_of(stream.node.node.id, track.type_url):
            if refusal in track.refusals:
                refusal.clear(held, told)
                self.nack_log.weigh(refusal)
                if refusal.is_mended(held, told):
                    self._drop(stream, track, refusal, now)
                continue
            # From another stream, or from before this connection: what is known of it may show here as well.
            wants = holding(track).interest.wants_name
            if refusal.is_left_out(held, wants):
                track.refusals = (*track.refusals, refusal)
            elif refusal.is_wanted(wants) and refusal.is_mended(held, told, wants):
                self._drop(stream, track, refusal, now)

    def _drop(self, stream: StreamTrack, track: TypeTrack, refusal: Refusal, now: float) -> None:
        """The stream does not stand by a refusal any more: where no other one does, it is resolved."""
        track.refusals = tuple(each for each in track.refusals if each is not refusal)
        if stream.node is not None and not _refused_elsewhere(stream.node, track.type_url, refusal):
            tell_nack(self.events, "resolved", self.nack_log.resolve(refusal, now), now)

    def _linger_changed(self, stream: StreamTrack, event: LingerChanged, now: float) -> None:
        if stream.node is not None:
            stream.node.tell(stream, lambda facts: facts.linger(event.lingering, self._clock_offset_s))

    def _linger_cut(self, stream: StreamTrack, event: LingerCut, now: float) -> None:
        """Told once for all nodes of the group, which are cut at the same push."""
        told = self._cut_told.get(stream.group, 0)
        for removal in event.removals:
            if removal.revision > told:
                self._cut_told[stream.group] = removal.revision
                tell_linger_cut(self.events, stream, removal, now)

    def _hold_changed(self, stream: StreamTrack, event: HoldChanged, now: float) -> None:
        self.changes += 1
        if stream.node is not None:
            stream.node.tell(stream, lambda facts: facts.hold(event.held))

    def _wait_ended(self, stream: StreamTrack, event: AckWaitTimedOut, now: float) -> None:
        tell_wait_ended(self.events, stream, event.type_url, now)


def _refused_elsewhere(node: NodeTrack, type_url: str, refusal: Refusal) -> bool:
    """True while another stream of the same node id (many clients may share one) stands by its refusal."""
    tracks = (stream.types.get(type_url) for stream in node.streams.values())
    return any(track is not None and refusal in track.refusals for track in tracks)


_FOLDS: Mapping[type, Callable[[Fleet, StreamTrack, Any, float], None]] = {
    Identified: Fleet._identified,
    ViewChanged: Fleet._view_changed,
    Send: Fleet._sent,
    Acked: Fleet._acked,
    Synced: Fleet._in_step,
    Nacked: Fleet._nacked,
    Subscribed: Fleet._subscribed,
    AckWaitTimedOut: Fleet._wait_ended,
    LingerChanged: Fleet._linger_changed,
    LingerCut: Fleet._linger_cut,
    HoldChanged: Fleet._hold_changed,
}
