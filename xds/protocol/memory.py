"""What is remembered of clients that left, by node id: what they held, what lingered for them, what they refused.

It stands in for nothing that a client shows itself: a set counts only where the client that comes back names it. It is
kept as long as old connections may live, and for so many nodes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from xds.model.snapshot import ResourceSet
from xds.protocol.linger import Lingering
from xds.protocol.refusals import Refusals

NODES_LIMIT = 50_000
PER_NODE = 4  # proxies of one node id, or one that was cut several times

NO_LABELS: Mapping[str, str] = MappingProxyType({})
NO_REFUSALS: Mapping[str, Mapping[str, str]] = MappingProxyType({})
NO_SUSPECTS: Mapping[str, Refusals] = MappingProxyType({})
Sets = tuple[ResourceSet, ...]
NOTHING_SENT: Mapping[str, Sets] = MappingProxyType({})


class Memory(NamedTuple):
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
        self._by_node: dict[str, tuple[Memory, ...]] = {}  # the node that left longest ago first

    def __len__(self) -> int:
        return len(self._by_node)

    def keep(self, node_id: str, memory: Memory) -> None:
        """A client of this node left."""
        before = self._by_node.pop(node_id, ())
        self._by_node[node_id] = (memory, *before)[:PER_NODE]
        if len(self._by_node) > NODES_LIMIT:
            del self._by_node[next(iter(self._by_node))]

    def of(self, node_id: str, now_s: float) -> Sequence[Memory]:
        """What is remembered of a node, the latest first."""
        self._forget(now_s - self._kept_s)
        return self._by_node.get(node_id, ())

    def _forget(self, left_before_s: float) -> None:
        while self._by_node:
            node_id, memories = next(iter(self._by_node.items()))
            if memories[0].left_s >= left_before_s:
                return
            del self._by_node[node_id]
