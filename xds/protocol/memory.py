"""What is remembered of clients that left, by node id: what they held, what lingered for them, what they rejected.

`Past` is one client's view of its own past, and collects what will be remembered of it: what a stream had ACKed and
rejected when it ended is kept there until the last of the client's streams ends, and becomes its `ClientMemory` then.
`Memories` keeps these as long as old connections may live, for a bounded number of nodes. A memory never replaces what
a client shows itself: a remembered set counts only where the returning client names it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from xds.model.snapshot import ResourceSet
from xds.protocol.linger import Lingering, keep_of
from xds.protocol.refusals import Refusals
from xds.protocol.release import Releases
from xds.protocol.watch import Watch

if TYPE_CHECKING:
    from xds.protocol.client import ClientState


NODES_LIMIT = 50_000
PER_NODE = 4  # proxies of one node id, or one that was cut several times

NO_LABELS: Mapping[str, str] = MappingProxyType({})
NO_REFUSALS: Mapping[str, Mapping[str, str]] = MappingProxyType({})
NO_SUSPECTS: Mapping[str, Refusals] = MappingProxyType({})
Sets = tuple[ResourceSet, ...]
NOTHING_SENT: Mapping[str, Sets] = MappingProxyType({})


class ClientMemory(NamedTuple):
    """One client as it left.

    * ``sets``: what it had ACKed, by type URL; ``labels``: under which version_info, where that is not that of the set
      (content that is told under another label is not sent again);
    * ``warm``: the set of clusters that were all warm;
    * ``drains``: a listener had changed, and the clock of what lingers for that did not run yet;
    * ``sent``: by type URL, what it was sent besides and had not ACKed, of full-state types: it may show that;
    * ``refused``: by type URL, name to the version that was refused; ``suspected``: by type URL, what may be refused.
    """

    sets: Mapping[str, ResourceSet]
    labels: Mapping[str, str]
    warm: ResourceSet | None
    lingering: Lingering
    drain_until_s: float
    drains: bool
    refused: Mapping[str, Mapping[str, str]]
    left_s: float
    suspected: Mapping[str, Refusals] = NO_SUSPECTS
    sent: Mapping[str, Sets] = NOTHING_SENT


class Memories:
    """The memories of all nodes; ``kept_s`` is how long each is kept."""

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
        """What is remembered of a node, the latest first."""
        self._forget(now_s - self._kept_s)
        return self._by_node.get(node_id, ())

    def _forget(self, left_before_s: float) -> None:
        while self._by_node:
            node_id, memories = next(iter(self._by_node.items()))
            if memories[0].left_s >= left_before_s:
                return
            del self._by_node[node_id]


_Acked = tuple[ResourceSet, str]  # a set, and under which label


class Past:
    """``memories`` are those of the client's node id, the latest first: of itself, or of proxies of the same id.

    ``refused_before``: what it refused before the server started, as in `ClientMemory`.
    """

    __slots__ = ("_left", "_left_refusals", "_left_sent", "_own", "memories", "refused_before")

    def __init__(self, memories: Sequence[ClientMemory]) -> None:
        self.memories = memories
        self._own = memories  # those that may be of the client itself, by what it shows
        self.refused_before: Mapping[str, Mapping[str, str]] = NO_REFUSALS
        # What was ACKed and refused of types whose streams ended. Most clients have one stream: no room for nothing.
        self._left: dict[str, _Acked] | None = None
        self._left_refusals: dict[str, Refusals] | None = None
        self._left_sent: dict[str, Sets] | None = None

    def forget(self) -> None:
        """Nothing of it is for this client."""
        self.memories = self._own = ()

    def note_shown(self, held: ResourceSet) -> None:
        """The client shows that it holds this: a memory of something else is another proxy's.

        What was sent and not ACKed it may have taken: the ACK was lost with the stream.
        """
        if held.type.full_state and self._own:
            url, digest = held.type.type_url, held.digest
            kept = tuple(
                memory
                for memory in self._own
                if url not in memory.sets
                or any(each.digest == digest for each in (memory.sets[url], *memory.sent.get(url, ())))
            )
            self._own = kept if len(kept) < len(self._own) else self._own

    # -- what is remembered -----------------------------------------------------------------------------------------

    @property
    def warm(self) -> ResourceSet | None:
        """The clusters that were all warm; None where nobody knows, or where memories differ."""
        agreed = {memory.warm for memory in self._own}
        return agreed.pop() if len(agreed) == 1 else None

    @property
    def drains(self) -> bool:
        """Had a listener changed, and the clock of what lingers for that did not run yet?"""
        return any(memory.drains for memory in self.memories)

    @property
    def drain_until_s(self) -> float:
        """When old connections of listeners are known to be over; 0 for nothing known."""
        return max((memory.drain_until_s for memory in self.memories), default=0.0)

    def lingering(self, releases: Releases) -> Lingering:
        """All that lingered, with the latest of its ends; without what some memory has in use."""
        together = releases.lingerings.together(memory.lingering for memory in self.memories)
        used: dict[str, set[str]] = {}
        for memory in self.memories if together else ():
            for url, names in together.names.items():
                held = memory.sets[url].resources.keys() if url in memory.sets else frozenset[str]()
                used.setdefault(url, set()).update((names & held) - memory.lingering.names.get(url, frozenset()))
        return releases.lingerings.besides(together, keep_of(used))

    def has(self, type_url: str) -> bool:
        """Did the client ask this server for the type?"""
        return any(type_url in memory.sets for memory in self.memories)

    def acked(self, type_url: str, releases: Releases) -> ResourceSet | None:
        """What the client had ACKed of a type; None for nothing.

        Two proxies of one node id never speak for each other: what not all that is remembered agrees on does not count.
        """
        found: ResourceSet | None = None
        for memory in self._own:
            each = memory.sets.get(type_url)
            if each is None:
                return None
            found = releases.common(found, each) if found is not None else each
        return found

    def refusals(self, type_url: str) -> Refusals | None:
        """ "Refusals are remembered per node id": of several memories the latest says what is so of a name."""
        found = Refusals()
        for memory in self.memories:
            suspected = memory.suspected.get(type_url)
            found.join(suspected if suspected is not None else Refusals(memory.refused.get(type_url)))
        if not found:
            found.join(Refusals(self.refused_before.get(type_url)))
        return found or None

    # -- what is kept -----------------------------------------------------------------------------------------------

    def keep(self, watch: Watch) -> None:
        """The stream of this watch ended."""
        url = watch.type.type_url
        if watch.refusals:
            self._left_refusals = {**(self._left_refusals or {}), url: watch.refusals}
        if watch.acked_set is not None:
            self._left = {**(self._left or {}), url: _acked_by(watch, (self._left or {}).get(url))}
        if sent := _sent_by(watch):
            self._left_sent = {**(self._left_sent or {}), url: sent}

    def memory(self, client: ClientState, now_s: float) -> ClientMemory | None:
        """What is remembered of the client for its return; None where it holds nothing."""
        held = dict(self._left or {})
        refusals = dict(self._left_refusals or {})
        sent = dict(self._left_sent or {})
        for url in client.watches:
            for watch in client.watches.of(url):
                if watch.acked_set is not None:
                    held[url] = _acked_by(watch, held.get(url))
                if watch.refusals:
                    refusals[url] = watch.refusals.for_new_stream()
                if in_flight := _sent_by(watch):
                    sent[url] = in_flight
        if not held:
            return None
        transition = client.transition
        return ClientMemory(
            _shared({url: acked for url, (acked, _) in held.items()}, client.goal.sets),
            {url: label for url, (acked, label) in held.items() if label not in ("", acked.version_info)} or NO_LABELS,
            client.warm or (transition.readiness.before if transition is not None else None),
            client.lingering,
            client.drain_until_s,
            transition is not None and transition.drains,
            {url: dict(each.refused) for url, each in refusals.items() if each.refused} or NO_REFUSALS,
            now_s,
            {url: each for url, each in refusals.items() if each.suspects} or NO_SUSPECTS,
            sent or NOTHING_SENT,
        )


def _shared(sets: Mapping[str, ResourceSet], goal: Mapping[str, ResourceSet]) -> Mapping[str, ResourceSet]:
    """Clients in step share one mapping."""
    return goal if goal == sets else sets


def _acked_by(watch: Watch, before: _Acked | None) -> _Acked:
    """What a watch ACKed, and under which label; under none where another stream says another one of it.

    Of several streams the one that lags says what all have.
    """
    assert watch.acked_set is not None
    if before is None:
        return watch.acked_set, watch.acked_label
    return watch.acked_set if watch.lags else before[0], watch.acked_label if before[1] == watch.acked_label else ""


def _sent_by(watch: Watch) -> Sets:
    """What a watch sent of a full-state type and has no answer to."""
    if not watch.type.full_state:
        return ()
    return tuple(each for each in watch.sent_sets() if each is not watch.acked_set)
