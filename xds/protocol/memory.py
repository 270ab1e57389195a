"""Memories of disconnected clients, by node id: the content that they held, that lingered for them, that they rejected.

When the last stream of a client ends, its state becomes a `ClientMemory`. `Memories` keeps it as long as old
connections of the client may live, for a bounded number of nodes. `Past` belongs to a connected client: it has the
memories of the node id, and collects the content of streams of the client that ended. A memory never replaces the
content that a client shows: a remembered set counts only if the reconnected client names it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from xds.model.names import NO_NAMES
from xds.model.resource import Resource
from xds.model.resource_type import resource_type
from xds.model.snapshot import ResourceSet, mix
from xds.protocol.expected_requests import lacks_dependency
from xds.protocol.linger import Lingering, names_by_type
from xds.protocol.rejections import Rejections
from xds.protocol.release import Releases
from xds.protocol.watch import Watch

if TYPE_CHECKING:
    from xds.protocol.client import ClientState


NODES_LIMIT = 50_000
PER_NODE = 4  # memories: of several proxies with one node id, or of one proxy that reconnected several times
SENT_LIMIT = 8  # sets of a type

LABELS_LIMIT = 8  # of a type
LABELLED_LIMIT = 8  # names; a label of a stream with more names counts for any name

Labels = tuple[tuple[str, frozenset[str]], ...]  # of each stream of a type, with its names; no names: any
NO_LABELS: Mapping[str, Labels] = MappingProxyType({})
NO_REJECTIONS: Mapping[str, Mapping[str, str]] = MappingProxyType({})
NO_SUSPECTS: Mapping[str, Rejections] = MappingProxyType({})
Sets = tuple[ResourceSet, ...]
NOTHING_SENT: Mapping[str, Sets] = MappingProxyType({})
NO_LINGERING_SETS: Mapping[str, ResourceSet] = MappingProxyType({})


class ClientMemory(NamedTuple):
    """The state of one client when it disconnected. All mappings are keyed by type URL.

    * ``sets``: the sets that it had ACKed;
    * ``labels``: the version_info under which each stream ACKed a set, if it differs from that of the set: unchanged
      content is not re-sent under a new label;
    * ``warm_clusters``: a set of clusters that were all warm; None if that is unknown;
    * ``lingering``: the removals that lingered for it; ``drain_until_s``: when its old connections have ended;
    * ``drains``: a listener had changed or was removed, and the end of the removals was not set yet;
    * ``rejected``: the rejected resources, name to version;
    * ``left_s``: when it disconnected;
    * ``open_rejections``: rejections whose bad resource was not found yet;
    * ``sent``: the sets that were sent and not ACKed: the client may show one of them;
    * ``lingering_sets``: sets with the content of the lingering names, for types that are kept on a move.
    """

    sets: Mapping[str, ResourceSet]
    labels: Mapping[str, Labels]
    warm_clusters: ResourceSet | None
    lingering: Lingering
    drain_until_s: float
    drains: bool
    rejected: Mapping[str, Mapping[str, str]]
    left_s: float
    open_rejections: Mapping[str, Rejections] = NO_SUSPECTS
    sent: Mapping[str, Sets] = NOTHING_SENT
    lingering_sets: Mapping[str, ResourceSet] = NO_LINGERING_SETS

    def has_label(self, type_url: str, label: str, names: frozenset[str] = NO_NAMES) -> bool:
        """Whether a stream ACKed the type under this version_info; with ``names``, one that requested any of them."""
        labels = self.labels.get(type_url)
        if labels is None:
            return label == self.sets[type_url].version_info
        return any(each == label and not (names and own and names.isdisjoint(own)) for each, own in labels)


class Memories:
    """The memories of all nodes. Each is kept for ``retention_s`` after its client disconnected."""

    def __init__(self, retention_s: float) -> None:
        self._retention_s = retention_s
        self._by_node: dict[str, tuple[ClientMemory, ...]] = {}  # the first node disconnected longest ago

    def __len__(self) -> int:
        return len(self._by_node)

    def keep(self, node_id: str, memory: ClientMemory) -> None:
        """Keep the memory of a client of this node, which has disconnected."""
        before = self._by_node.pop(node_id, ())
        self._by_node[node_id] = (memory, *before)[:PER_NODE]
        if len(self._by_node) > NODES_LIMIT:
            del self._by_node[next(iter(self._by_node))]

    def of(self, node_id: str, now_s: float) -> Sequence[ClientMemory]:
        """The memories of a node, the latest first."""
        self._forget(now_s - self._retention_s)
        return self._by_node.get(node_id, ())

    def _forget(self, left_before_s: float) -> None:
        while self._by_node:
            node_id, memories = next(iter(self._by_node.items()))
            if memories[0].left_s >= left_before_s:
                return
            del self._by_node[node_id]


_Acked = tuple[ResourceSet, Labels]  # a set, and the labels under which it was ACKed


class Past:
    """The past of a connected client.

    * ``memories``: those of its node id, the latest first; they are of the client or of other proxies with the same id;
    * ``rejected_before``: what its node rejected before the server started, as ``rejected`` in `ClientMemory`.
    """

    __slots__ = ("_ended_acked", "_ended_rejections", "_ended_sent", "_own_memories", "memories", "rejected_before")

    def __init__(self, memories: Sequence[ClientMemory]) -> None:
        self.memories = memories
        self._own_memories = memories  # the memories that agree with what the client has shown
        self.rejected_before: Mapping[str, Mapping[str, str]] = NO_REJECTIONS
        # Content of streams of this connection that ended. Most clients have one stream, and None takes no memory.
        self._ended_acked: dict[str, _Acked] | None = None
        self._ended_rejections: dict[str, Rejections] | None = None
        self._ended_sent: dict[str, Sets] | None = None

    def forget(self) -> None:
        """Drop all memories, because they are of groups that the client may no longer use."""
        self.memories = self._own_memories = ()

    def note_shown(self, possible: Sequence[ResourceSet]) -> None:
        """Note that the client shows one of these sets. Memories with other sets of the type are of another proxy.

        A set that was sent and not ACKed counts as held, because the ACK may be lost with the stream.
        """
        type = possible[0].type
        if type.full_state:
            url, digests = type.type_url, {each.digest for each in possible}
            self._narrow_own(
                memory
                for memory in self._own_memories
                if url not in memory.sets
                or any(each.digest in digests for each in (memory.sets[url], *memory.sent.get(url, ())))
            )

    def note_label(self, type_url: str, label: str) -> None:
        """Note the version_info of a type that the client shows on its aggregated stream: its own memories have it."""
        self._narrow_own(
            memory
            for memory in self._own_memories
            if type_url not in memory.sets
            or memory.has_label(type_url, label)
            or any(label == each.version_info for each in memory.sent.get(type_url, ()))
        )

    def note_shown_assignments(self, assignments: Collection[str]) -> None:
        """Note the assignments that the client shows on its aggregated stream: those of all clusters that it used.

        A cluster that was sent in another version and not ACKed does not count: the client may use either version.
        """
        self._narrow_own(
            memory
            for memory in self._own_memories
            if not any(
                held.type.is_route_target
                and lacks_dependency(_in_all(held, memory.sent.get(url, ())), assignments, "endpoints")
                for url, held in memory.sets.items()
            )
        )

    def _narrow_own(self, agreeing: Iterable[ClientMemory]) -> None:
        own = tuple(agreeing)
        self._own_memories = own if len(own) < len(self._own_memories) else self._own_memories

    # -- what is remembered -----------------------------------------------------------------------------------------

    @property
    def own_memories(self) -> Sequence[ClientMemory]:
        """The memories that agree with what the client has shown, so they may be its own; all if none agrees."""
        return self._own_memories or self.memories

    @property
    def warm_clusters(self) -> ResourceSet | None:
        """A set of clusters that were all warm; None if that is unknown or the memories differ."""
        agreed = {memory.warm_clusters for memory in self._own_memories}
        return agreed.pop() if len(agreed) == 1 else None

    @property
    def drains(self) -> bool:
        """Whether a listener had changed or was removed, and the end of the removals was not set yet."""
        return any(memory.drains for memory in self.memories)

    @property
    def drain_until_s(self) -> float:
        """When the old connections of changed listeners have ended; 0 if that is unknown."""
        return max((memory.drain_until_s for memory in self.memories), default=0.0)

    def lingering(self, releases: Releases) -> Lingering:
        """The lingering names of all memories, except names that lingered for one proxy and were in use by another."""
        merged = releases.lingerings.merge(memory.lingering for memory in self.memories)
        used: dict[str, set[str]] = {}
        for memory in self.memories if merged else ():
            for url, names in merged.names.items():
                held = memory.sets[url].resources.keys() if url in memory.sets else frozenset[str]()
                used.setdefault(url, set()).update((names & held) - memory.lingering.names.get(url, frozenset()))
        return releases.lingerings.without_names(merged, names_by_type(used))

    def subscribed_to(self, type_url: str) -> bool:
        """Whether a client with this node id subscribed to the type on this server and ACKed it."""
        return any(type_url in memory.sets for memory in self.memories)

    def acked(self, type_url: str, releases: Releases) -> ResourceSet | None:
        """The set of a type that the client ACKed before; None if some memory has no set of the type.

        A stream of this connection that ended takes precedence over memories from before the connection. Proxies with
        one node id may have ACKed different sets, so only names in all memories count. Names that an unACKed response
        removed do not count, because the client may have applied it (rule 18).
        """
        ended = self._acked_on_ended_stream(type_url)
        found = ended[0] if ended is not None else _agreed(self._own_memories, type_url, releases)
        if found is None:
            return None
        if found.type.full_state:
            for each in self.sent(type_url):
                found = releases.without_removed(found, each)
        return found

    def sent(self, type_url: str) -> list[ResourceSet]:
        """The sets of a type that were sent to the client before, and not ACKed."""
        ended = list((self._ended_sent or {}).get(type_url, ()))
        if self._acked_on_ended_stream(type_url) is not None:
            return ended
        return ended + [each for memory in self._own_memories for each in memory.sent.get(type_url, ())]

    def is_ended(self, type_url: str) -> bool:
        """Whether a stream of this connection ACKed the type and ended: it may come back."""
        return self._ended_acked is not None and type_url in self._ended_acked

    def named_on_ended_stream(self, type_url: str, label: str) -> Sequence[ResourceSet]:
        """The sets with this version_info that were ACKed or sent on an ended stream of this connection.

        Empty for partial types: only the next stream of a full-state type shows the whole set.
        """
        ended = self._acked_on_ended_stream(type_url)
        if ended is None:
            return ()
        acked, labels = ended
        found = [acked] if label in (acked.version_info, *dict(labels)) else []
        sent = (self._ended_sent or {}).get(type_url, ())
        return found + [each for each in sent if each.version_info == label and each is not acked]

    def _acked_on_ended_stream(self, type_url: str) -> _Acked | None:
        """The set of a full-state type that was ACKed on an ended stream of this connection; None for none."""
        return (
            self._ended_acked.get(type_url)
            if self._ended_acked is not None and resource_type(type_url).full_state
            else None
        )

    def rejections(self, type_url: str) -> Rejections | None:
        """The rejections of a type on ended streams and from before the connection; None if there are none.

        For each name, the latest rejection counts. docs/protocol.md#rejections: "rejections are remembered per node id,
        also across a restart of the server".
        """
        found = Rejections()
        if self._ended_rejections is not None and type_url in self._ended_rejections:
            found.join(self._ended_rejections[type_url])
        for memory in self.memories:
            open_rejections = memory.open_rejections.get(type_url)
            found.join(open_rejections if open_rejections is not None else Rejections(memory.rejected.get(type_url)))
        if not found:
            found.join(Rejections(self.rejected_before.get(type_url)))
        return found or None

    # -- what ended streams leave -----------------------------------------------------------------------------------

    def note_ended(self, watch: Watch) -> None:
        """The stream of this watch ended: remember what the client ACKed, rejected and was sent on it."""
        url = watch.type.type_url
        if watch.rejections:
            self._ended_rejections = {**(self._ended_rejections or {}), url: watch.rejections.for_new_stream()}
        elif self._ended_rejections is not None and watch.type.full_state:
            # The client accepted on this stream what it had rejected on an earlier one.
            self._ended_rejections = {kind: each for kind, each in self._ended_rejections.items() if kind != url}
        if watch.acked_set is not None:
            if watch.type.full_state:
                self._forget_ended(url)
            self._ended_acked = {**(self._ended_acked or {}), url: _acked_by(watch, (self._ended_acked or {}).get(url))}
        if sent := _sent_by(watch):
            self._ended_sent = {**(self._ended_sent or {}), url: sent}

    def _forget_ended(self, type_url: str) -> None:
        """A later stream ACKed the whole set of this type, so the content of earlier streams no longer counts."""
        self._ended_acked = {url: each for url, each in (self._ended_acked or {}).items() if url != type_url} or None
        self._ended_sent = {url: each for url, each in (self._ended_sent or {}).items() if url != type_url} or None

    def memory(self, client: ClientState, now_s: float) -> ClientMemory | None:
        """The memory of the client in its present state; None if it ACKed nothing."""
        client.note_proof()
        held = dict(self._ended_acked or {})
        rejections = dict(self._ended_rejections or {})
        sent = dict(self._ended_sent or {})
        for url in client.watches:
            if resource_type(url).full_state and client.watches.acked(url) is not None:
                held.pop(url, None)
                sent.pop(url, None)
            for watch in client.watches.of(url):
                if watch.acked_set is not None:
                    held[url] = _acked_by(watch, held.get(url))
                if watch.rejections:
                    rejections[url] = watch.rejections.for_new_stream()
                if in_flight := _sent_by(watch):
                    sent[url] = in_flight
        if not held:
            return None
        self._add_unrequested(held, sent, client)
        transition = client.transition
        return ClientMemory(
            _shared({url: acked for url, (acked, _) in held.items()}, client.goal.sets),
            {url: labels for url, (acked, labels) in held.items() if {*dict(labels)} - {acked.version_info}}
            or NO_LABELS,
            client.proof.clusters,
            client.lingering,
            client.drain_until_s,
            transition is not None and transition.drains,
            {url: dict(each.rejected) for url, each in rejections.items() if each.rejected} or NO_REJECTIONS,
            now_s,
            {url: each for url, each in rejections.items() if each.suspects} or NO_SUSPECTS,
            sent or NOTHING_SENT,
            {url: client.released.get(url) for url in client.lingering.names if resource_type(url).kept_on_move}
            or NO_LINGERING_SETS,
        )

    def _add_unrequested(self, held: dict[str, _Acked], sent: dict[str, Sets], client: ClientState) -> None:
        """Add the remembered content of types that the client did not request on this connection.

        docs/protocol.md#coming-back: "Envoy sends no CDS request on a new stream while a cluster warms". The client may
        be disconnected any number of times before it shows its clusters.
        """
        for url in dict.fromkeys(url for memory in self._own_memories for url in memory.sets):
            if url in held or client.watches.of(url):
                continue
            acked = _agreed(self._own_memories, url, client.releases)
            if acked is not None:
                labels = {
                    memory.labels.get(url, ((memory.sets[url].version_info, NO_NAMES),))
                    for memory in self._own_memories
                }
                held[url] = acked, labels.pop() if len(labels) == 1 else ()
                latest = {each.digest: each for each in self.sent(url)}
                sent[url] = (*latest.values(),)[:SENT_LIMIT]


def _agreed(memories: Iterable[ClientMemory], type_url: str, releases: Releases) -> ResourceSet | None:
    """The names of a type that all memories have; None if some memory has no set of the type, or without memories."""
    found: ResourceSet | None = None
    for memory in memories:
        each = memory.sets.get(type_url)
        if each is None:
            return None
        found = releases.without_removed(found, each) if found is not None else each
    return found


def _in_all(held: ResourceSet, others: Sets) -> Iterator[Resource]:
    """The resources of a set that all the other sets have in the same version."""
    for name, each in held.resources.items():
        if all((other := found.resources.get(name)) is not None and other.version == each.version for found in others):
            yield each


def _shared(sets: Mapping[str, ResourceSet], goal: Mapping[str, ResourceSet]) -> Mapping[str, ResourceSet]:
    """``goal`` if it is equal to ``sets``, so that clients in sync share one mapping; else ``sets``."""
    return goal if goal == sets else sets


def _acked_by(watch: Watch, before: _Acked | None) -> _Acked:
    """The set that a watch ACKed, and its label. ``before`` has those of other streams of the client, None for none.

    Of a full-state type, the set of the pending stream counts, and no label if the streams have different ones. Of a
    partial type, each stream counts for the names to which it subscribes, and for its own label. The label of an
    earlier stream for the same names counts no more.
    """
    acked, interest = watch.acked_set, watch.subscription.interest
    assert acked is not None
    names = interest.names if len(interest.names) <= LABELLED_LIMIT else NO_NAMES
    own_label = ((watch.acked_label, names),) if watch.acked_label else ()
    if before is None:
        return acked, own_label
    others, labels = before
    if watch.type.full_state:
        return acked if watch.is_pending else others, labels if labels == own_label else ()
    mixed = mix(others, acked, interest.select(acked)) if acked is not others else acked
    others_labels = (each for each in labels if not each[1] <= interest.names)
    return mixed, (*others_labels, *own_label)[-LABELS_LIMIT:]


def _sent_by(watch: Watch) -> Sets:
    """The sets that were sent on a watch and not ACKed."""
    return tuple(each for each in watch.sent_sets() if each is not watch.acked_set)
