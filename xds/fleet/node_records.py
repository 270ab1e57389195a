"""The mutable records of nodes, streams and types, which events update, and the states built from them.

`Holding` is what a connected node has of a type, as far as its ACKs prove it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from heapq import nsmallest

from xds.fleet.node_past import NOTHING
from xds.fleet.node_state import NodeState
from xds.fleet.order_state import (
    LINGERS_SHOWN,
    NO_CLIENTS,
    ClientKey,
    ClientOrderState,
    Clients,
    comparable_set,
    count_resources,
    held_aliases,
    held_resources,
    lingering_resources,
)
from xds.fleet.polls import Poll, Polls, after_poll
from xds.fleet.refused_content import RefusedContent
from xds.fleet.state import StreamState, Sync, TypeState
from xds.model.names import NO_NAMES
from xds.model.node import Locality, Node
from xds.model.resource_type import alias_of
from xds.model.snapshot import ResourceSet
from xds.protocol.events import Subscribed
from xds.snapshots.interest import Interest

NAMES_SHOWN = 100
AGGREGATED_SERVICE = "ADS"
LED_BY = frozenset(("clusters", "listeners"))  # the types that name resources by config sources
_TEXT_LIMIT = 256  # characters of a text of a node that is not connected; clients choose them
NO_STATES: Mapping[str, TypeState] = {}  # shared by all nodes: a dict for each would take memory
WORST_FIRST = (Sync.NACKED, Sync.ORPHANED, Sync.PENDING, Sync.SYNCED, Sync.NOT_SUBSCRIBED)
_BADNESS = {state: -place for place, state in enumerate(WORST_FIRST)}
_ALONE = {state: frozenset((state,)) for state in Sync}


class TypeRecord:
    """One type on one stream. ``refusals`` are the open NACK records that apply to the stream, newest last."""

    __slots__ = (
        "_missing",
        "_missing_of",
        "acked",
        "names",
        "refusals",
        "sent",
        "since",
        "state",
        "type_url",
        "wildcard",
    )

    def __init__(self, type_url: str, now: float) -> None:
        self.type_url = type_url
        self.state = Sync.PENDING
        self.since = now
        self.sent: ResourceSet | None = None
        self.acked: ResourceSet | None = None
        self.refusals: tuple[RefusedContent, ...] = ()
        self.wildcard = False
        self.names: frozenset[str] = NO_NAMES
        self._missing: tuple[str, ...] = ()
        self._missing_of = 0  # the id of the set in which ``_missing`` are missing

    def enter(self, state: Sync, now: float) -> None:
        """Enter a state. ``since`` changes only if the state does."""
        if self.state is not state:
            self.state = state
            self.since = now

    def subscribe(self, event: Subscribed, now: float) -> None:
        """Apply a change of the subscription."""
        self.wildcard = event.wildcard
        self.names = event.names
        self._missing, self._missing_of = event.missing, self._set_id()
        if not event.wildcard and not event.names:
            self.enter(Sync.NOT_SUBSCRIBED, now)
        elif self.state is Sync.NOT_SUBSCRIBED:
            self.enter(Sync.PENDING, now)

    def missing(self) -> tuple[str, ...]:
        """Requested names that do not exist in the set that was sent last; computed once per set."""
        if self.sent is not None and self._missing_of != self.sent.id and self.names:
            self._missing = tuple(Interest(names=self.names).missing(self.sent))
            self._missing_of = self.sent.id
        return self._missing if self.names else ()

    def _set_id(self) -> int:
        return self.sent.id if self.sent is not None else 0


class StreamRecord:
    """One stream. ``node`` is None until the first request names it."""

    __slots__ = ("api", "group", "id", "node", "opened", "orphaned", "peer", "principal", "service", "types", "variant")

    def __init__(
        self, stream_id: int, peer: str, service: str, variant: str, now: float, api: str = "", principal: str = ""
    ) -> None:
        self.id = stream_id
        self.principal = principal
        self.peer = peer
        self.service = service
        self.variant = variant
        self.opened = now
        self.api = api
        self.node: NodeRecord | None = None
        self.group = ""
        self.orphaned = False
        self.types: dict[str, TypeRecord] = {}

    @property
    def client_key(self) -> ClientKey:
        """Identifies the client of the stream among the clients of its node."""
        return (self.peer, self.api)

    def record_of(self, type_url: str, now: float) -> TypeRecord:
        """The record of a type, which is created when the type is first used."""
        record = self.types.get(type_url)
        if record is None:
            record = self.types[type_url] = TypeRecord(type_url, now)
        return record

    def state(self, revisions: Mapping[int, int]) -> StreamState:
        """The state of the stream for operators. ``revisions`` are by id of a set."""
        merged = by_alias(self.types.values())
        types = (type_state(records, revisions, self.orphaned) for records in merged.values())
        identity = (self.id, self.peer, self.service, self.variant, self.opened)
        return StreamState(*identity, tuple(types), self.api, self.principal)


class NodeRecord:
    """One node id.

    ``last_states`` are the last states of the types of closed streams by alias, for a disconnected node.
    ``orphaned_recorded`` and ``synced_revision`` are the latest facts in the event log: whether no group matches, and
    the revision with which the node is synced. ``reporters`` counts its load report streams, which are no ``streams``:
    no push waits for them. ``polls`` are its polls since its last stream was opened. ``past`` is what it has been
    through (`MomentWriter`), without that it is ``connected``, since when; 0.0: it is not.

    Most nodes have one stream, and nothing lingers: a tuple and None take less memory than two dicts.
    """

    __slots__ = (
        "_clients",
        "connected",
        "first_seen",
        "group",
        "last_seen",
        "last_states",
        "node",
        "orphaned_recorded",
        "past",
        "polls",
        "reporters",
        "streams",
        "synced_revision",
    )

    def __init__(self, node: Node, now: float) -> None:
        self.node = node
        self.group = ""
        self.first_seen = now
        self.last_seen = now
        self.streams: tuple[StreamRecord, ...] = ()
        self.reporters = 0
        self.polls: Polls | None = None
        self.last_states = NO_STATES
        self._clients: dict[ClientKey, ClientOrderState] | None = None
        self.orphaned_recorded = False
        self.synced_revision = 0
        self.past = NOTHING
        self.connected = 0.0

    @property
    def clients(self) -> Clients:
        """The lingering and held resources of its clients."""
        return self._clients or NO_CLIENTS

    def leave(self, stream: StreamRecord, revisions: Mapping[int, int]) -> None:
        """Remove a closed stream. Only bounded state is kept of it: no names, sets or metadata that only it had."""
        self.streams = tuple(other for other in self.streams if other is not stream)
        self._forget_client(stream.client_key)  # the other streams of the client report it again
        types = by_alias(stream.types.values()).items()
        self.last_states = {
            **self.last_states,
            **{alias: type_state(records, revisions, orphaned=False) for alias, records in types},
        }
        self.forget_details()

    def forget_details(self) -> None:
        """Drop what may be large of a node that is not connected: metadata, features, the ends of long texts."""
        if not self.is_connected:
            self.node = _bounded(self.node)

    def note_poll(self, poll: Poll, revision: int | None, now: float) -> None:
        """Note a poll; ``revision`` is that of its content. Nothing is kept whose size the client chooses."""
        self.polls = after_poll(self.polls, poll, revision, now)

    def is_polling(self, now: float) -> bool:
        """Whether the node has no stream of resources, polls, and has not missed three polls."""
        return not self.streams and self.polls is not None and self.polls.are_going_on(now)

    def takes_without_ads(self, now: float) -> bool:
        """Whether the node takes clusters or listeners by a stream of their own or by polls, and has no ADS stream."""
        if self.is_polling(now):
            return self.polls is not None and not LED_BY.isdisjoint(self.polls.by_type)
        services = {stream.service for stream in self.streams}
        return AGGREGATED_SERVICE not in services and not LED_BY.isdisjoint(self.by_alias())

    def is_refused(self, type_url: str, refusal: RefusedContent) -> bool:
        """Whether a NACK record applies to a stream of the node id, which several clients may share."""
        records = (stream.types.get(type_url) for stream in self.streams)
        return any(record is not None and refusal in record.refusals for record in records)

    @property
    def is_connected(self) -> bool:
        """Whether the node has an open stream of any service."""
        return bool(self.streams) or self.reporters > 0

    def is_present(self, now: float) -> bool:
        """Whether the node is connected, or polls and has not missed three polls."""
        return self.is_connected or (self.polls is not None and self.polls.are_going_on(now))

    def sync_states(self, now: float) -> frozenset[Sync]:
        """The different states of its types, as `state` has them, without the cost of the rest."""
        found = {record.state for stream in self.streams for record in stream.types.values()}
        if len(found) == 1 and self._clients is None and self.polls is None and not self.orphaned:
            return _ALONE[found.pop()]
        going_on = self.polls is not None and self.polls.are_going_on(now)
        polled = self.polls.types if self.polls is not None and (going_on or not self.streams) else ()
        return frozenset({**{each.type: each.state for each in polled}, **self._sync_by_alias()}.values())

    def _sync_by_alias(self) -> dict[str, Sync]:
        """The state of each type on its streams, or at the end of the last one."""
        if not self.streams:
            return {alias: state.state for alias, state in self.last_states.items()}
        by_alias = {alias: worst(records).state for alias, records in self.by_alias().items()}
        held = held_aliases(self.clients)
        by_alias.update((alias, Sync.PENDING) for alias in held if by_alias.get(alias) is Sync.SYNCED)
        if self.orphaned:
            orphaned = [alias for alias, state in by_alias.items() if state is not Sync.NOT_SUBSCRIBED]
            by_alias.update(dict.fromkeys(orphaned, Sync.ORPHANED))
        return by_alias

    def nack_messages(self) -> list[str]:
        """The messages of its open NACKs; for a node without streams, of those that it left with."""
        if not self.streams:
            return [state.error for state in self.last_states.values() if state.error]
        records = (record for stream in self.streams for record in stream.types.values())
        return [refusal.record.message for record in records for refusal in record.refusals]

    def by_alias(self) -> dict[str, list[TypeRecord]]:
        """The records of all streams by type alias."""
        return by_alias(record for stream in self.streams for record in stream.types.values())

    def is_synced(self) -> bool:
        """Whether all subscribed types on all streams are synced."""
        records = (record for stream in self.streams for record in stream.types.values())
        if any(client.held for client in self.clients.values()):
            return False
        return all(record.state in (Sync.SYNCED, Sync.NOT_SUBSCRIBED) for record in records)

    def update_client(self, stream: StreamRecord, update: Callable[[ClientOrderState], None]) -> None:
        """Update the state of the client that a stream belongs to."""
        if self._clients is None:
            self._clients = {}
        client = self._clients.setdefault(stream.client_key, ClientOrderState())
        update(client)
        if not client:
            self._forget_client(stream.client_key)

    def _forget_client(self, key: ClientKey) -> None:
        if self._clients is not None:
            self._clients.pop(key, None)
            self._clients = self._clients or None

    @property
    def orphaned(self) -> bool:
        """Whether no group matches the node."""
        return bool(self.streams) and self.streams[0].orphaned and all(stream.orphaned for stream in self.streams)

    def state(self, revisions: Mapping[int, int]) -> NodeState:
        """The state of the node for operators. ``revisions`` are by id of a set."""
        streams = tuple(stream.state(revisions) for stream in self.streams)
        types = sorted(self._types(revisions, streams), key=lambda state: state.type)
        lingering = lingering_resources(self.clients)
        return NodeState(
            id=self.node.id,
            cluster=self.node.cluster,
            locality=self.node.locality,
            group=self.group,
            user_agent=self.node.user_agent,
            first_seen=self.first_seen,
            last_seen=self.last_seen,
            streams=streams,
            types=tuple(types),
            lingering=lingering[:LINGERS_SHOWN],
            lingering_total=count_resources(lingering),
            held=held_resources(self.clients),
            reporters=self.reporters,
            polls=self.polls,
        )

    def _types(self, revisions: Mapping[int, int], streams: Sequence[StreamState]) -> Iterable[TypeState]:
        if not streams:
            polled = self.polls.types if self.polls is not None else ()
            return {**{state.type: state for state in polled}, **self.last_states}.values()
        orphaned, held = self.orphaned, held_aliases(self.clients)
        if len(streams) == 1:
            return (_unless_held(state, held) for state in streams[0].types)
        states = (type_state(records, revisions, orphaned) for records in self.by_alias().values())
        return (_unless_held(state, held) for state in states)


def _bounded(node: Node) -> Node:
    """The node with what a list of nodes shows of it, in a bounded size."""
    where = node.locality
    return Node(
        id=node.id,
        cluster=node.cluster[:_TEXT_LIMIT],
        locality=Locality(where.region[:_TEXT_LIMIT], where.zone[:_TEXT_LIMIT], where.sub_zone[:_TEXT_LIMIT]),
        user_agent=node.user_agent[:_TEXT_LIMIT],
        user_agent_name=node.user_agent_name[:_TEXT_LIMIT],
        user_agent_version=node.user_agent_version[:_TEXT_LIMIT],
    )


def _unless_held(state: TypeState, held: frozenset[str]) -> TypeState:
    """A type with held resources is pending, although everything that was sent is ACKed."""
    return replace(state, state=Sync.PENDING) if state.state is Sync.SYNCED and state.type in held else state


def by_alias(records: Iterable[TypeRecord]) -> dict[str, list[TypeRecord]]:
    """Records by type alias, so that operators see one type for all APIs."""
    grouped: dict[str, list[TypeRecord]] = {}
    for record in records:
        grouped.setdefault(alias_of(record.type_url), []).append(record)
    return grouped


def worst(records: Iterable[TypeRecord]) -> TypeRecord:
    """The record that decides the state: NACKed before pending before synced, then the one that changed last."""
    return max(records, key=lambda record: (_BADNESS[record.state], record.since))


def type_state(records: list[TypeRecord], revisions: Mapping[int, int], orphaned: bool) -> TypeState:
    """One type of a node, merged from its streams."""
    lead = worst(records)
    is_nacked = lead.state is Sync.NACKED and bool(lead.refusals)
    refusals = [refusal for record in records for refusal in record.refusals] if is_nacked else []
    names = lead.names if len(records) == 1 else NO_NAMES.union(*(record.names for record in records))
    missing = lead.missing() if len(records) == 1 else sorted({name for record in records for name in record.missing()})
    return TypeState(
        type=alias_of(lead.type_url),
        type_url=lead.type_url,
        state=Sync.ORPHANED if orphaned and lead.state is not Sync.NOT_SUBSCRIBED else lead.state,
        version_sent=lead.sent.version_info if lead.sent is not None else "",
        version_acked=lead.acked.version_info if lead.acked is not None else "",
        revision=revisions.get(comparable_set(lead.acked).origin_id) if lead.acked is not None else None,
        wildcard=any(record.wildcard for record in records),
        subscribed=len(names),
        names=tuple(nsmallest(NAMES_SHOWN, names)),
        missing=tuple(missing[:NAMES_SHOWN]),
        error=lead.refusals[-1].record.message if is_nacked else "",
        guilty=tuple(dict.fromkeys(name for refusal in refusals for name in refusal.record.guilty))[:NAMES_SHOWN],
        since=lead.since,
    )


@dataclass(frozen=True, slots=True)
class Holding:
    """One type on one stream. ``acked`` is the last ACKed set, ``sent`` the last sent one."""

    type_url: str
    interest: Interest
    state: str
    acked: ResourceSet | None
    sent: ResourceSet | None

    @property
    def type(self) -> str:
        """The alias of the type."""
        return alias_of(self.type_url)


def holding(record: TypeRecord) -> Holding:
    """The holding of a type."""
    return Holding(record.type_url, Interest.of(record.wildcard, record.names), record.state, record.acked, record.sent)


def holdings(records: Iterable[TypeRecord]) -> Iterator[Holding]:
    """Holdings, ordered by type."""
    return map(holding, sorted(records, key=lambda record: (alias_of(record.type_url), record.type_url)))
