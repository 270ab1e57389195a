"""The mutable side: what is known of each stream, in a few slots that events write to.

What a connected node has, resource by resource, as far as its answers prove it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from heapq import nsmallest

from xds.fleet.order_state import (
    LINGERS_SHOWN,
    ClientKey,
    ClientOrderState,
    counted,
    held_aliases,
    held_back,
    lingers,
)
from xds.fleet.partial_sets import stands_for
from xds.fleet.refused_content import RefusedContent
from xds.fleet.state import NodeState, StreamState, Sync, TypeState
from xds.model.name import is_glob
from xds.model.node import Node
from xds.model.resource_type import alias_of
from xds.model.snapshot import ResourceSet
from xds.protocol.events import Subscribed
from xds.protocol.subscription import NO_NAMES, Interest

NAMES_SHOWN = 100
_WORST_FIRST = (Sync.NACKED, Sync.ORPHANED, Sync.PENDING, Sync.SYNCED, Sync.NOT_SUBSCRIBED)
_BADNESS = {state: -place for place, state in enumerate(_WORST_FIRST)}


class TypeRecord:
    """One type on one stream. ``refusals`` are the open NACK records that it stands by, the newest last."""

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
        self._missing_of = 0  # the id of the set that lacks them

    def enter(self, state: Sync, now: float) -> None:
        if self.state is not state:
            self.state = state
            self.since = now

    def subscribe(self, event: Subscribed, now: float) -> None:
        self.wildcard = event.wildcard
        self.names = event.names
        self._missing, self._missing_of = event.missing, self._set_id()
        if not event.wildcard and not event.names:
            self.enter(Sync.NOT_SUBSCRIBED, now)
        elif self.state is Sync.NOT_SUBSCRIBED:
            self.enter(Sync.PENDING, now)

    def missing(self) -> tuple[str, ...]:
        """Names asked for that do not exist in what was last served; found once per set."""
        if self.sent is not None and self._missing_of != self.sent.id and self.names:
            self._missing = tuple(Interest(names=self.names).missing(self.sent))
            self._missing_of = self.sent.id
        return self._missing if self.names else ()

    def _set_id(self) -> int:
        return self.sent.id if self.sent is not None else 0


class StreamRecord:
    """One stream. ``node`` is None until it named itself."""

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
        """What the streams of one client have in common, among those of a node."""
        return (self.peer, self.api)

    def track(self, type_url: str, now: float) -> TypeRecord:
        """The type's track, made at its first mention."""
        found = self.types.get(type_url)
        if found is None:
            found = self.types[type_url] = TypeRecord(type_url, now)
        return found

    def state(self, revisions: Mapping[int, int]) -> StreamState:
        merged = by_alias(self.types.values())
        types = (type_state(tracks, revisions, self.orphaned) for tracks in merged.values())
        known = (self.id, self.peer, self.service, self.variant, self.opened)
        return StreamState(*known, tuple(types), self.api, self.principal)


class NodeRecord:
    """One node id.

    ``clients`` is what was told of its clients: what lingers for them, and what is held back. ``left`` keeps the last
    state of each type by alias, to show what a node had that is gone. ``adrift`` and ``told_revision`` are what was
    last told of it: that no group matches, and the revision it came into step with.
    """

    __slots__ = ("adrift", "clients", "first_seen", "group", "last_seen", "left", "node", "streams", "told_revision")

    def __init__(self, node: Node, now: float) -> None:
        self.node = node
        self.group = ""
        self.first_seen = now
        self.last_seen = now
        self.streams: dict[int, StreamRecord] = {}
        self.left: dict[str, TypeState] = {}
        self.clients: dict[ClientKey, ClientOrderState] = {}
        self.adrift = False
        self.told_revision = 0

    def leave(self, stream: StreamRecord, revisions: Mapping[int, int]) -> None:
        """A stream went. What stays of it is of a bounded size: no names, sets or metadata that only it held."""
        del self.streams[stream.id]
        self.clients.pop(stream.client_key, None)  # its client's other streams tell it again
        for alias, tracks in by_alias(stream.types.values()).items():
            self.left[alias] = type_state(tracks, revisions, orphaned=False)
        if not self.streams:
            self.node = replace(self.node, metadata={})

    def tracks(self) -> dict[str, list[TypeRecord]]:
        """Type alias to its tracks on all streams."""
        return by_alias(track for stream in self.streams.values() for track in stream.types.values())

    def settled(self) -> bool:
        """True when all it subscribes to, on all streams, is in step."""
        tracks = (track for stream in self.streams.values() for track in stream.types.values())
        if any(facts.held for facts in self.clients.values()):
            return False
        return all(track.state in (Sync.SYNCED, Sync.NOT_SUBSCRIBED) for track in tracks)

    def tell(self, stream: StreamRecord, tell: Callable[[ClientOrderState], None]) -> None:
        """Take in what was told of the client that a stream belongs to."""
        facts = self.clients.setdefault(stream.client_key, ClientOrderState())
        tell(facts)
        if not facts:
            del self.clients[stream.client_key]

    @property
    def orphaned(self) -> bool:
        return bool(self.streams) and all(stream.orphaned for stream in self.streams.values())

    def state(self, revisions: Mapping[int, int]) -> NodeState:
        types = sorted(self._types(revisions), key=lambda state: state.type)
        lingering = lingers(self.clients)
        return NodeState(
            id=self.node.id,
            cluster=self.node.cluster,
            locality=self.node.locality,
            group=self.group,
            user_agent=self.node.user_agent,
            first_seen=self.first_seen,
            last_seen=self.last_seen,
            streams=tuple(stream.state(revisions) for stream in self.streams.values()),
            types=tuple(types),
            lingering=lingering[:LINGERS_SHOWN],
            lingering_total=counted(lingering),
            held=held_back(self.clients),
        )

    def _types(self, revisions: Mapping[int, int]) -> Iterable[TypeState]:
        if not self.streams:
            return self.left.values()
        orphaned, held = self.orphaned, held_aliases(self.clients)
        states = (type_state(tracks, revisions, orphaned) for tracks in self.tracks().values())
        return (_unless_held(state, held) for state in states)


def _unless_held(state: TypeState, held: frozenset[str]) -> TypeState:
    """What is held back of a type is on its way, though all that was sent of it is ACKed."""
    return replace(state, state=Sync.PENDING) if state.state is Sync.SYNCED and state.type in held else state


def by_alias(tracks: Iterable[TypeRecord]) -> dict[str, list[TypeRecord]]:
    """Tracks by type alias: to people a type is the same whichever API a client asks for it in."""
    found: dict[str, list[TypeRecord]] = {}
    for track in tracks:
        found.setdefault(alias_of(track.type_url), []).append(track)
    return found


def worst(tracks: Iterable[TypeRecord]) -> TypeRecord:
    """The track that decides: nacked before pending before synced, then the one that changed last."""
    return max(tracks, key=lambda track: (_BADNESS[track.state], track.since))


def type_state(tracks: list[TypeRecord], revisions: Mapping[int, int], orphaned: bool) -> TypeState:
    """One type of a node, merged from its streams."""
    lead = worst(tracks)
    is_nacked = lead.state is Sync.NACKED and bool(lead.refusals)
    refusals = [refusal for track in tracks for refusal in track.refusals] if is_nacked else []
    names = lead.names if len(tracks) == 1 else NO_NAMES.union(*(track.names for track in tracks))
    missing = lead.missing() if len(tracks) == 1 else sorted({name for track in tracks for name in track.missing()})
    return TypeState(
        type=alias_of(lead.type_url),
        type_url=lead.type_url,
        state=Sync.ORPHANED if orphaned and lead.state is not Sync.NOT_SUBSCRIBED else lead.state,
        version_sent=lead.sent.version_info if lead.sent is not None else "",
        version_acked=lead.acked.version_info if lead.acked is not None else "",
        revision=revisions.get(stands_for(lead.acked).origin_id) if lead.acked is not None else None,
        wildcard=any(track.wildcard for track in tracks),
        subscribed=len(names),
        names=tuple(nsmallest(NAMES_SHOWN, names)),
        missing=tuple(missing[:NAMES_SHOWN]),
        error=lead.refusals[-1].record.message if is_nacked else "",
        guilty=tuple(dict.fromkeys(name for refusal in refusals for name in refusal.record.guilty))[:NAMES_SHOWN],
        since=lead.since,
    )


@dataclass(frozen=True, slots=True)
class Holding:
    """One type on one stream. ``acked`` is what the client took last, ``sent`` what it was sent last."""

    type_url: str
    interest: Interest
    state: str
    acked: ResourceSet | None
    sent: ResourceSet | None

    @property
    def type(self) -> str:
        return alias_of(self.type_url)


def holding(track: TypeRecord) -> Holding:
    """The type's holding, from its track."""
    globs = tuple(sorted(name for name in track.names if is_glob(name)))
    return Holding(track.type_url, Interest(track.wildcard, track.names, globs), track.state, track.acked, track.sent)


def holdings(tracks: Iterable[TypeRecord]) -> Iterator[Holding]:
    """Holdings in the order of their types."""
    return map(holding, sorted(tracks, key=lambda track: (alias_of(track.type_url), track.type_url)))
