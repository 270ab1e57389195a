"""Memories of clients that left, by node id: what they held, what lingered for them, what they rejected.

When the last stream of a client ends, a `ClientMemory` of it is made and kept in `Memories`, for as long as its old
connections may live and for a bounded number of nodes. `Past` belongs to a connected client: it has the memories from
before, and collects what streams of the client held and rejected when they ended. A memory never replaces what a
client shows: a remembered set counts only if the reconnecting client names it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from xds.model.names import NO_NAMES
from xds.model.resource_type import resource_type
from xds.model.snapshot import ResourceSet, mix
from xds.protocol.awaited import lacks_part
from xds.protocol.linger import Lingering, keep_of
from xds.protocol.refusals import Refusals
from xds.protocol.release import Releases
from xds.protocol.watch import Watch

if TYPE_CHECKING:
    from xds.protocol.client import ClientState


NODES_LIMIT = 50_000
PER_NODE = 4  # memories: of several proxies with one node id, or of one proxy that reconnected several times

SENT_LIMIT = 8  # sets of a type

LABELS_LIMIT = 8  # of a type
LABELLED_LIMIT = 8  # names; a stream for more stands for any names

Labels = tuple[tuple[str, frozenset[str]], ...]  # of the streams of a type, each with its names; none stand for any
NO_LABELS: Mapping[str, Labels] = MappingProxyType({})
NO_REFUSALS: Mapping[str, Mapping[str, str]] = MappingProxyType({})
NO_SUSPECTS: Mapping[str, Refusals] = MappingProxyType({})
Sets = tuple[ResourceSet, ...]
NOTHING_SENT: Mapping[str, Sets] = MappingProxyType({})
NOTHING_LINGERED: Mapping[str, ResourceSet] = MappingProxyType({})


class ClientMemory(NamedTuple):
    """The state of one client when it left.

    * ``sets``: the sets that it had ACKed, by type URL;
    * ``labels``: the version_info under which each stream ACKed them, by type URL, if that is not that of the set:
      unchanged content is not sent again under a new label;
    * ``warm``: the clusters that were all warm; None if that is unknown;
    * ``lingering``: the removals that lingered for it; ``drain_until_s``: when its old connections have ended;
    * ``drains``: a listener had changed or was removed, and the end of the removals was not set yet;
    * ``refused``: by type URL, name to rejected version;
    * ``left_s``: when it left;
    * ``suspected``: by type URL, rejections whose bad resource was not found yet;
    * ``sent``: by type URL, sets that it was sent and had not ACKed: it may show one of them;
    * ``lingered``: by type URL, for types that are kept on a move, sets with the content of the lingering names.
    """

    sets: Mapping[str, ResourceSet]
    labels: Mapping[str, Labels]
    warm: ResourceSet | None
    lingering: Lingering
    drain_until_s: float
    drains: bool
    refused: Mapping[str, Mapping[str, str]]
    left_s: float
    suspected: Mapping[str, Refusals] = NO_SUSPECTS
    sent: Mapping[str, Sets] = NOTHING_SENT
    lingered: Mapping[str, ResourceSet] = NOTHING_LINGERED

    def has_label(self, type_url: str, label: str, names: frozenset[str] = NO_NAMES) -> bool:
        """Whether a stream ACKed the type under this version_info; with ``names``, one that requested any of them."""
        labels = self.labels.get(type_url)
        if labels is None:
            return label == self.sets[type_url].version_info
        return any(each == label and not (names and own and names.isdisjoint(own)) for each, own in labels)


class Memories:
    """The memories of all nodes. Each is kept for ``kept_s`` after its client left."""

    def __init__(self, kept_s: float) -> None:
        self._kept_s = kept_s
        self._by_node: dict[str, tuple[ClientMemory, ...]] = {}  # the node that left longest ago first

    def __len__(self) -> int:
        return len(self._by_node)

    def keep(self, node_id: str, memory: ClientMemory) -> None:
        """A client of this node left."""
        before = self._by_node.pop(node_id, ())
        self._by_node[node_id] = (memory, *before)[:PER_NODE]
        if len(self._by_node) > NODES_LIMIT:
            del self._by_node[next(iter(self._by_node))]

    def of(self, node_id: str, now_s: float) -> Sequence[ClientMemory]:
        """The memories of a node, the latest first."""
        self._forget(now_s - self._kept_s)
        return self._by_node.get(node_id, ())

    def _forget(self, left_before_s: float) -> None:
        while self._by_node:
            node_id, memories = next(iter(self._by_node.items()))
            if memories[0].left_s >= left_before_s:
                return
            del self._by_node[node_id]


_Acked = tuple[ResourceSet, Labels]  # a set, and under which labels


class Past:
    """The past of a connected client.

    ``memories`` are those of its node id, the latest first: of itself or of other proxies with the same id.
    ``refused_before`` is what its node rejected before the server started, as ``refused`` in `ClientMemory`.
    """

    __slots__ = ("_left", "_left_refusals", "_left_sent", "_own", "memories", "refused_before")

    def __init__(self, memories: Sequence[ClientMemory]) -> None:
        self.memories = memories
        self._own = memories  # the memories that agree with what the client shows: they may be of the client itself
        self.refused_before: Mapping[str, Mapping[str, str]] = NO_REFUSALS
        # What was ACKed, rejected and sent on streams that ended. Most clients have one stream: None takes no memory.
        self._left: dict[str, _Acked] | None = None
        self._left_refusals: dict[str, Refusals] | None = None
        self._left_sent: dict[str, Sets] | None = None

    def forget(self) -> None:
        """Drop all memories: they are of groups that the client may not use any more."""
        self.memories = self._own = ()

    def note_shown(self, possible: Sequence[ResourceSet]) -> None:
        """The client shows that it holds one of these sets: memories with others of the type are of another proxy.

        A set that was sent and not ACKed counts as held too, because the ACK may be lost with the stream.
        """
        type = possible[0].type
        if type.full_state:
            url, digests = type.type_url, {each.digest for each in possible}
            self._keep_own(
                memory
                for memory in self._own
                if url not in memory.sets
                or any(each.digest in digests for each in (memory.sets[url], *memory.sent.get(url, ())))
            )

    def note_label(self, type_url: str, label: str) -> None:
        """On its aggregated stream the client shows this version_info of a type: so do its own memories."""
        self._keep_own(
            memory
            for memory in self._own
            if type_url not in memory.sets
            or memory.has_label(type_url, label)
            or any(label == each.version_info for each in memory.sent.get(type_url, ()))
        )

    def note_fed(self, assignments: Collection[str]) -> None:
        """On its aggregated stream the client shows that it has these assignments: those of all clusters it used."""
        self._keep_own(
            memory
            for memory in self._own
            if not any(
                held.type.is_route_target and lacks_part(held, assignments, "endpoints")
                for held in memory.sets.values()
            )
        )

    def _keep_own(self, kept: Iterable[ClientMemory]) -> None:
        left = tuple(kept)
        self._own = left if len(left) < len(self._own) else self._own

    # -- what is remembered -----------------------------------------------------------------------------------------

    @property
    def own(self) -> Sequence[ClientMemory]:
        """The memories that may be of the client itself, by what it has shown; all where none is."""
        return self._own or self.memories

    @property
    def warm(self) -> ResourceSet | None:
        """The clusters that were all warm; None if that is unknown or memories differ."""
        agreed = {memory.warm for memory in self._own}
        return agreed.pop() if len(agreed) == 1 else None

    @property
    def drains(self) -> bool:
        """Whether a listener had changed or was removed, and the end of the removals was not set yet."""
        return any(memory.drains for memory in self.memories)

    @property
    def drain_until_s(self) -> float:
        """When the old connections of changed listeners have ended; 0 if nothing is known of them."""
        return max((memory.drain_until_s for memory in self.memories), default=0.0)

    def lingering(self, releases: Releases) -> Lingering:
        """All that lingered, without names that lingered for one proxy and were in use by another."""
        together = releases.lingerings.together(memory.lingering for memory in self.memories)
        used: dict[str, set[str]] = {}
        for memory in self.memories if together else ():
            for url, names in together.names.items():
                held = memory.sets[url].resources.keys() if url in memory.sets else frozenset[str]()
                used.setdefault(url, set()).update((names & held) - memory.lingering.names.get(url, frozenset()))
        return releases.lingerings.besides(together, keep_of(used))

    def has(self, type_url: str) -> bool:
        """Whether the client subscribed to the type on this server and ACKed it."""
        return any(type_url in memory.sets for memory in self.memories)

    def acked(self, type_url: str, releases: Releases) -> ResourceSet | None:
        """The set of a type that the client had ACKed; None if some memory has none.

        A stream that ended alone says more than the memories from before the connection. Proxies with one node id may
        have ACKed different sets: only names in all memories count. Nor do names count that a response removed of which
        the ACK was not received: the client may have applied it (rule 18).
        """
        left = self._left_alone(type_url)
        found = left[0] if left is not None else _agreed(self._own, type_url, releases)
        if found is None:
            return None
        if found.type.full_state:
            for each in self.sent(type_url):
                found = releases.common(found, each)
        return found

    def sent(self, type_url: str) -> list[ResourceSet]:
        """The sets of a type that the client was sent and had not ACKed."""
        left = list((self._left_sent or {}).get(type_url, ()))
        if self._left_alone(type_url) is not None:
            return left
        return left + [each for memory in self._own for each in memory.sent.get(type_url, ())]

    def left_named(self, type_url: str, label: str) -> Sequence[ResourceSet]:
        """The sets with this version_info that a stream of this connection had ACKed or was sent, which ended.

        Only of full-state types: for them the next stream shows the whole set.
        """
        left = self._left_alone(type_url)
        if left is None:
            return ()
        acked, labels = left
        found = [acked] if label in (acked.version_info, *dict(labels)) else []
        sent = (self._left_sent or {}).get(type_url, ())
        return found + [each for each in sent if each.version_info == label and each is not acked]

    def _left_alone(self, type_url: str) -> _Acked | None:
        """What was ACKed of a full-state type on a stream of this connection that ended; None for nothing."""
        return self._left.get(type_url) if self._left is not None and resource_type(type_url).full_state else None

    def refusals(self, type_url: str) -> Refusals | None:
        """What the client rejected of a type, on a stream that ended or before it connected; None for nothing.

        The latest counts for each name. docs/protocol.md#refusals: "rejections are remembered per node id, also across
        a restart of the server".
        """
        found = Refusals()
        if self._left_refusals is not None and type_url in self._left_refusals:
            found.join(self._left_refusals[type_url])
        for memory in self.memories:
            suspected = memory.suspected.get(type_url)
            found.join(suspected if suspected is not None else Refusals(memory.refused.get(type_url)))
        if not found:
            found.join(Refusals(self.refused_before.get(type_url)))
        return found or None

    # -- what is kept -----------------------------------------------------------------------------------------------

    def keep(self, watch: Watch) -> None:
        """The stream of this watch ended: keep what it held, rejected and was sent."""
        url = watch.type.type_url
        if watch.refusals:
            self._left_refusals = {**(self._left_refusals or {}), url: watch.refusals.for_new_stream()}
        elif self._left_refusals is not None and watch.type.full_state:
            # This stream has accepted what an earlier one refused.
            self._left_refusals = {kind: each for kind, each in self._left_refusals.items() if kind != url}
        if watch.acked_set is not None:
            if watch.type.full_state:
                self._forget_left(url)
            self._left = {**(self._left or {}), url: _acked_by(watch, (self._left or {}).get(url))}
        if sent := _sent_by(watch):
            self._left_sent = {**(self._left_sent or {}), url: sent}

    def _forget_left(self, type_url: str) -> None:
        """A later stream ACKed the whole set of this type: what earlier streams had counts no more."""
        self._left = {url: each for url, each in (self._left or {}).items() if url != type_url} or None
        self._left_sent = {url: each for url, each in (self._left_sent or {}).items() if url != type_url} or None

    def memory(self, client: ClientState, now_s: float) -> ClientMemory | None:
        """The memory of the client as it is now; None if it ACKed nothing."""
        held = dict(self._left or {})
        refusals = dict(self._left_refusals or {})
        sent = dict(self._left_sent or {})
        for url in client.watches:
            if resource_type(url).full_state and client.watches.acked(url) is not None:
                held.pop(url, None)
                sent.pop(url, None)
            for watch in client.watches.of(url):
                if watch.acked_set is not None:
                    held[url] = _acked_by(watch, held.get(url))
                if watch.refusals:
                    refusals[url] = watch.refusals.for_new_stream()
                if in_flight := _sent_by(watch):
                    sent[url] = in_flight
        if not held:
            return None
        self._add_unseen(held, sent, client)
        transition = client.transition
        return ClientMemory(
            _shared({url: acked for url, (acked, _) in held.items()}, client.goal.sets),
            {url: labels for url, (acked, labels) in held.items() if {*dict(labels)} - {acked.version_info}}
            or NO_LABELS,
            _warm(client, held),
            client.lingering,
            client.drain_until_s,
            transition is not None and transition.drains,
            {url: dict(each.refused) for url, each in refusals.items() if each.refused} or NO_REFUSALS,
            now_s,
            {url: each for url, each in refusals.items() if each.suspects} or NO_SUSPECTS,
            sent or NOTHING_SENT,
            {url: client.released.get(url) for url in client.lingering.names if resource_type(url).kept_on_move}
            or NOTHING_LINGERED,
        )

    def _add_unseen(self, held: dict[str, _Acked], sent: dict[str, Sets], client: ClientState) -> None:
        """Add what is remembered of types that the client did not request on this connection.

        "Envoy sends no CDS request on a new stream while a cluster warms" (docs/protocol.md#coming-back): it may be cut
        off again, any number of times, before it shows its clusters.
        """
        for url in dict.fromkeys(url for memory in self._own for url in memory.sets):
            if url in held or client.watches.of(url):
                continue
            acked = _agreed(self._own, url, client.releases)
            if acked is not None:
                labels = {memory.labels.get(url, ((memory.sets[url].version_info, NO_NAMES),)) for memory in self._own}
                held[url] = acked, labels.pop() if len(labels) == 1 else ()
                latest = {each.digest: each for each in self.sent(url)}
                sent[url] = (*latest.values(),)[:SENT_LIMIT]


def _agreed(memories: Iterable[ClientMemory], type_url: str, releases: Releases) -> ResourceSet | None:
    """What all memories have of the set of a type; None if some memory has none, or there is no memory."""
    found: ResourceSet | None = None
    for memory in memories:
        each = memory.sets.get(type_url)
        if each is None:
            return None
        found = releases.common(found, each) if found is not None else each
    return found


def _warm(client: ClientState, held: Mapping[str, _Acked]) -> ResourceSet | None:
    """The clusters of a client that leaves that were all warm; None if that is unknown."""
    if client.warm:
        return client.warm
    if client.transition is not None:
        return client.transition.readiness.before
    acked = held.get(client.url_of("clusters"))
    return acked[0] if acked is not None and not client.has_returned else None  # as for a transition that begins


def _shared(sets: Mapping[str, ResourceSet], goal: Mapping[str, ResourceSet]) -> Mapping[str, ResourceSet]:
    """``goal`` if it is equal: clients in sync share one mapping."""
    return goal if goal == sets else sets


def _acked_by(watch: Watch, before: _Acked | None) -> _Acked:
    """The set that a watch ACKed, and its label. ``before`` is that of other streams of the client.

    Of a full-state type, the set of the stream that lags counts, and no label if the streams have different ones. Of a
    partial type, each stream counts for the names to which it subscribes, and under its own label.
    """
    held, interest = watch.acked_set, watch.subscription.interest
    assert held is not None
    names = interest.names if len(interest.names) <= LABELLED_LIMIT else NO_NAMES
    own = ((watch.acked_label, names),) if watch.acked_label else ()
    if before is None:
        return held, own
    others, labels = before
    if watch.type.full_state:
        return held if watch.lags else others, labels if labels == own else ()
    mixed = mix(others, held, interest.select(held)) if held is not others else held
    return mixed, (*(each for each in labels if each not in own), *own)[-LABELS_LIMIT:]


def _sent_by(watch: Watch) -> Sets:
    """The sets that a watch sent and the client did not ACK."""
    return tuple(each for each in watch.sent_sets() if each is not watch.acked_set)
