"""Who is in a wave: a pure function of the wave and the node, so a restart and another server give the same answer.

A counted wave has the ids of its nodes. They are chosen among the connected nodes: first one of each Envoy version and
zone, then by rank. Once it is known that some of them subscribe to nothing that the push changes, it takes others
beside them.

A share takes the nodes whose rank is below a bound. The bound is close to the share; it is set such that, of the nodes
connected when the wave begins, exactly the share is in the wave. So a tenth of ten proxies is one of them, not zero or
three. A node that connects later is in the wave if its own rank is below the bound.

Who is in a wave is in all later waves.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from functools import lru_cache
from hashlib import blake2b
from math import ceil, nextafter
from typing import Any, NamedTuple

from xds.filter.selector import read_selector, selects
from xds.filter.values import node_record
from xds.model.node import Locality, Node
from xds.rollouts.plan import ALL, NAMED, NODES_LIMIT, RolloutPlan, Wave
from xds.rollouts.reading import TEXT_LIMIT, FieldReader

FORMER_IDS_LIMIT = 4_000  # ids of former waves that are kept, beside those of the newest
SELECTORS_LIMIT = 16  # of former waves and the newest
KINDS_CACHED = 1_000  # bounded, because clients choose them
_RANK_BITS = 53  # of a float


def rank(group: str, node_id: str) -> float:
    """The place of a node among all nodes of a group: evenly spread in [0, 1), always the same."""
    digest = blake2b(f"{group}\0{node_id}".encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return (int.from_bytes(digest) >> (64 - _RANK_BITS)) / float(1 << _RANK_BITS)


def kind(node: Node) -> str:
    """The version and the zone of a proxy, such as ``envoy 1.40.0 in eu-1``. The first nodes are of different kinds."""
    return _kind(node.user_agent, node.locality)


@lru_cache(KINDS_CACHED)
def _kind(user_agent: str, locality: Locality) -> str:
    zone = str(replace(locality, sub_zone=""))
    return " in ".join(part for part in (user_agent, zone) if part)


@dataclass(frozen=True, slots=True)
class NodeSet:
    """The nodes of a group that are listed, or whose rank is lower than ``below``, or that a selector matches."""

    group: str
    ids: frozenset[str] = frozenset()
    below: float = 0.0
    selectors: frozenset[str] = frozenset()

    def __contains__(self, node: Node) -> bool:
        if self.below >= 1.0 or node.id in self.ids or (self.below and rank(self.group, node.id) < self.below):
            return True
        if not self.selectors:
            return False
        record = node_record(node)
        return any(selects(selector, record) for selector in self.selectors)

    def __or__(self, former: NodeSet) -> NodeSet:
        """The nodes of both, without the ids and selectors of ``former`` beyond the limits."""
        older = sorted(former.ids - self.ids, key=lambda id: rank(self.group, id))[:FORMER_IDS_LIMIT]
        selectors = sorted(former.selectors - self.selectors)[: SELECTORS_LIMIT - len(self.selectors)]
        if self.below >= 1.0 or former.below >= 1.0:
            return everybody(self.group)
        below = max(self.below, former.below)
        return NodeSet(self.group, self.ids.union(older), below, self.selectors.union(selectors))

    def document(self) -> dict[str, Any]:
        """The set as JSON."""
        return {"ids": sorted(self.ids), "below": self.below, "selectors": sorted(self.selectors)}


def everybody(group: str) -> NodeSet:
    """All nodes of a group."""
    return NodeSet(group, below=1.0)


def read_node_set(group: str, document: object, at: str) -> NodeSet:
    """The set that ``NodeSet.document`` has written. Raises ``ValidationError``."""
    fields = FieldReader(document, at, ("ids", "below", "selectors"))
    ids = fields.texts("ids", (), FORMER_IDS_LIMIT + 2 * NODES_LIMIT)
    below = fields.number("below", 0.0, 0.0, 1.0)
    selectors = fields.texts("selectors", (), SELECTORS_LIMIT)
    fields.nested("selectors", None, lambda _, pointer: [read_selector(each, pointer) for each in selectors])
    fields.finish()
    return NodeSet(group, frozenset(ids), below, frozenset(selectors))


class NextWave(NamedTuple):
    """A wave: its index in the plan, its nodes, and how many of them are connected, without those of a selector."""

    at: int
    nodes: NodeSet
    connected_n: int


def next_wave(
    plan: RolloutPlan, at: int, nodes: NodeSet, connected: Mapping[str, str], inside: Collection[str]
) -> NextWave:
    """The wave after ``at``; -1 is before the first.

    ``connected`` has the kinds of the connected nodes of the group, and ``inside`` those of them that are in ``nodes``,
    the wave ``at``. Waves that would add no connected node are left out; the last one never is.
    """
    adds = len(connected) > len(inside) or not connected
    for index, wave in enumerate(plan.steps[at + 1 :], at + 1):
        if wave == ALL:
            return NextWave(index, everybody(nodes.group), len(connected))
        if wave == NAMED:
            selectors = frozenset((plan.selector,)) if plan.selector else frozenset[str]()
            return NextWave(
                index, NodeSet(nodes.group, frozenset(plan.nodes), 0.0, selectors), len(connected.keys() & plan.nodes)
            )
        if adds and (wave.share or wave.count > len(inside)):
            outside = _ranked(nodes.group, connected.keys() - set(inside))
            if wave.count:
                chosen = _choose(wave.count - len(inside), connected, outside, inside)
                return NextWave(index, replace(nodes, ids=nodes.ids.union(chosen)), len(inside) + len(chosen))
            below, added_n = _bound(wave, [ranked for ranked, _ in outside], len(inside))
            return NextWave(index, replace(nodes, below=max(nodes.below, below)), len(inside) + added_n)
    raise AssertionError("the last wave is ALL")


def top_up(
    plan: RolloutPlan,
    at: int,
    nodes: NodeSet,
    connected: Mapping[str, str],
    inside: AbstractSet[str],
    unaffected: AbstractSet[str] = frozenset(),
) -> NodeSet:
    """The nodes of the counted wave ``at``, with more of those that are connected now, if it has too few.

    Those that are ``unaffected`` by the push do not count, and are not chosen.
    """
    missing = plan.steps[at].count - max(len(nodes.ids - unaffected), len(inside - unaffected))
    missing = min(missing, 2 * NODES_LIMIT - len(nodes.ids))
    if missing <= 0:
        return nodes
    outside = _ranked(nodes.group, connected.keys() - inside - unaffected)
    return replace(nodes, ids=nodes.ids.union(_choose(missing, connected, outside, inside)))


def waves_of(
    plan: RolloutPlan, group: str, connected: Mapping[str, str], selected: Collection[str] = ()
) -> Iterator[tuple[Wave, tuple[str, ...]]]:
    """Each wave that a rollout to these nodes would have, with the ids of the nodes that it adds, ordered by rank.

    ``connected`` has the kinds of the nodes, by id; ``selected`` are those that the selector of the plan matches.
    """
    at, reached, inside = -1, NodeSet(group), set[str]()
    while at < len(plan.steps) - 1:
        at, reached, _ = next_wave(plan, at, reached, connected, inside)
        by_id, chosen = replace(reached, selectors=frozenset()), selected if reached.selectors else ()
        added = {id for id in connected if id not in inside and (id in chosen or Node(id) in by_id)}
        yield plan.steps[at], tuple(sorted(added, key=lambda id: (rank(group, id), id)))
        inside |= added


def _ranked(group: str, ids: Iterable[str]) -> list[tuple[float, str]]:
    return sorted((rank(group, id), id) for id in ids)


def _choose(
    wanted: int, connected: Mapping[str, str], outside: list[tuple[float, str]], inside: Collection[str]
) -> list[str]:
    """At most ``wanted`` ids of ``outside``: of kinds that are not inside first, then by rank."""
    seen = {connected[id] for id in inside}
    first, rest = list[str](), list[str]()
    for _, id in outside:
        if not 0 < len(id) <= TEXT_LIMIT:
            continue
        (rest if connected[id] in seen else first).append(id)
        seen.add(connected[id])
    return [*first, *rest][:wanted]


def _bound(wave: Wave, outside: list[float], inside_n: int) -> tuple[float, int]:
    """The rank below which nodes are in a share, and how many it adds of the ranks ``outside``, which are ordered."""
    if not outside:
        return wave.share, 0
    total = inside_n + len(outside)
    added_n = max(ceil(round(wave.share * total, 6)), inside_n + 1) - inside_n
    last = outside[added_n - 1]
    limit = outside[added_n] if added_n < len(outside) else 1.0
    return min(max(wave.share, nextafter(last, 1.0)), limit), added_n
