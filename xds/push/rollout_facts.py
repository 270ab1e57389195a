"""Gathers what one server knows of the nodes of a group, for the decisions about its rollout.

Nodes are looked at in batches, and streams are served in between: ten thousand nodes take a tenth of a second.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Container, Iterable, Mapping
from dataclasses import dataclass
from time import monotonic, time

from xds.envoy.translation import variant_sets
from xds.filter.selector import read_selector, selects
from xds.filter.values import node_record
from xds.fleet.fleet import Fleet
from xds.fleet.refused_content import RefusedContent
from xds.fleet.state import HeldResources, NackRecord, Sync
from xds.lrs.figures import Totals
from xds.model.node import Node
from xds.model.resource_type import CLUSTER, alias_of
from xds.model.snapshot import ResourceSet
from xds.push.progress import changed_sets
from xds.push.rollouts import Rollouts
from xds.rollouts.decide import Facts, RequestCount
from xds.rollouts.rollout import Rollout
from xds.rollouts.server_facts import ServerFacts, total
from xds.rollouts.wave import kind
from xds.snapshots.cache import SnapshotCache
from xds.snapshots.lines import GroupLine

NODES_AT_ONCE = 200
WAITING_SHOWN = 100
MESSAGE_SHOWN = 500  # characters of the words of a node
SENT_AGAIN_S = 2.0  # after which a node has been sent the head of its wave, if it is sent it at all
RECENT_S = 300.0  # of this time before a rollout it is known how many requests fail usually
KNOWS_AFTER_S = 60.0  # a server that has started just now does not know yet who follows a group
Sets = Mapping[str, ResourceSet]
# The totals of a node's load reports about these clusters; None for a node that reports none of them.
RequestsOf = Callable[[str, Container[str]], Totals | None]
# Those of all nodes of a group, of so many seconds until now.
RecentRequests = Callable[[str, Container[str], float, float], Totals]
# Gathers what all servers know of a group; with the nodes that a selector matches, if there is one.
Gather = Callable[[str, str], Awaitable[ServerFacts]]


_Wave = tuple[int, int, float]  # head, number of the wave, and when it began


class FactsHere:
    """Gathers the facts of this server. ``requests_of`` and ``recent_requests`` tell what load reports have counted."""

    def __init__(self, cache: SnapshotCache, fleet: Fleet, rollouts: Rollouts) -> None:
        self._cache = cache
        self._fleet = fleet
        self._rollouts = rollouts
        self.requests_of: RequestsOf = lambda node_id, clusters: None
        self.recent_requests: RecentRequests = lambda group, clusters, now, window_s: Totals()
        self._started_s = monotonic()
        self._seen: dict[str, _SeenWave] = {}

    async def gather(self, group: str, selector: str = "") -> ServerFacts:
        """The facts of a group. Streams are served between batches of nodes. Raises ``ValidationError``."""
        if selector:
            await asyncio.to_thread(read_selector, selector, "")
        rollout = self._rollouts.find(group)
        running = rollout if rollout is not None and rollout.is_open else None
        serves = self._serves(group, running)
        seen = self._seen_of(group, running)
        look = _Look(self._cache, self._fleet, group, running)
        kinds: dict[str, str] = {}
        selected: set[str] = set()
        connected = self._fleet.identified(group)
        nodes = [*connected, *self._fleet.reporting(group)]
        for start in range(0, len(nodes), NODES_AT_ONCE):
            batch = nodes[start : start + NODES_AT_ONCE]
            here = batch[: max(len(connected) - start, 0)]
            kinds.update((node.id, kind(node)) for node in here)
            if selector:
                selected.update(node.id for node in here if selects(selector, node_record(node)))
            inside = look.add(batch)
            for node in batch if running is not None else ():
                seen.add(node.id, self.requests_of(node.id, seen.clusters), is_inside=node.id in inside)
            await asyncio.sleep(0)
        was_sent = self._rollouts.wave_age_s(group) >= SENT_AGAIN_S
        look.add_refusals(self._rollouts.head_since_s(group), was_sent=was_sent)
        if running is None:
            recent = await asyncio.to_thread(self.recent_requests, group, seen.clusters, time(), RECENT_S)
            seen.outside = RequestCount(recent.errors, recent.errors + recent.successes)
        seen.ids |= look.inside
        if _wave(self._rollouts.find(group)) == seen.wave:  # else another one began during this look
            self._seen.pop(group, None)
            if running is not None:
                self._seen[group] = seen
        is_new = monotonic() - self._started_s < KNOWS_AFTER_S
        facts = Facts(
            kinds,
            look.inside,
            look.acked,
            look.nacked,
            look.waiting,
            seen.inside,
            seen.outside,
            unaffected=look.unaffected,
            left=frozenset(filter(self._is_connected, seen.ids - look.inside)),
        )
        return ServerFacts(facts, serves, bool(kinds) or is_new or self._fleet.is_followed(group), selected)

    def _serves(self, group: str, running: Rollout | None) -> str:
        head = self._cache.pushed(group)
        revision = head.revision if head is not None else 0
        return f"{revision}" if running is None else f"{revision}: wave {running.wave} of {running.head}"

    def _clusters(self, group: str) -> frozenset[str]:
        """The clusters of both lines. Proxies report others too, such as the one that they reach this server by."""
        return frozenset[str]().union(*(each.get(CLUSTER).resources for each in self._cache.served(group)))

    def _is_connected(self, node_id: str) -> bool:
        standing = self._fleet.standing(node_id, time())
        return standing is not None and standing.has_streams

    def _seen_of(self, group: str, running: Rollout | None) -> _SeenWave:
        """What was seen since the present wave began, without any load yet."""
        wave, before = _wave(running), self._seen.get(group)
        if before is not None and before.wave == wave:
            return _SeenWave(wave, before.clusters, before.base, before.ids)
        return _SeenWave(wave, self._clusters(group), {}, set())


def _wave(rollout: Rollout | None) -> _Wave | None:
    """Which wave goes on; None if there is none."""
    return (rollout.head, rollout.wave, rollout.since_s) if rollout is not None and rollout.is_open else None


@dataclass(slots=True)
class _SeenWave:
    """The nodes that were in a wave, and the requests of nodes since it began; without a wave, the recent ones.

    Those to the ``clusters`` that the group had then count. ``base`` are the totals, by node, that do not: those at the
    first look at it, or when they last became fewer.
    """

    wave: _Wave | None
    clusters: frozenset[str]
    base: dict[str, Totals]
    ids: set[str]
    inside: RequestCount | None = None
    outside: RequestCount | None = None

    def add(self, node_id: str, totals: Totals | None, *, is_inside: bool) -> None:
        """Add the requests of a node, if it reports any."""
        if totals is None:
            return
        before = self.base.setdefault(node_id, totals)
        if totals.errors < before.errors or totals.successes < before.successes:
            before = self.base[node_id] = totals
        failed = float(totals.errors - before.errors)
        count = RequestCount(failed, failed + totals.successes - before.successes)
        if is_inside:
            self.inside = total((self.inside, count))
        else:
            self.outside = total((self.outside, count))


class _Look:
    """One look at the nodes of a group: who is in the wave, and what these have of the head."""

    def __init__(self, cache: SnapshotCache, fleet: Fleet, group: str, rollout: Rollout | None) -> None:
        self.inside: set[str] = set()
        self.acked: set[str] = set()
        self.unaffected: set[str] = set()
        self.nacked: dict[str, str] = {}
        self.waiting: dict[str, str] = {}
        self._fleet = fleet
        self._group = group
        self._rollout = rollout
        self._nacking: set[str] = set()
        base = cache.get(group, GroupLine.BASE)
        self._targets: Sets = {}
        self._variants: Mapping[str, Sets] = {}
        self._base: Sets = {}
        self._changed: Mapping[str, Collection[str]] = {}
        if rollout is not None and base is not None:
            sets = changed_sets(cache, group)
            self._targets = {url: after for url, (_, after) in sets.items()}
            self._changed = {alias_of(url): _changed(cache, *pair) for url, pair in sets.items()}
            self._variants = variant_sets(cache, fleet, group, self._targets)
            before = variant_sets(cache, fleet, group, self._targets, GroupLine.BASE)
            self._base = {**base.sets, **{url: each for sets in before.values() for url, each in sets.items()}}

    def add(self, nodes: Iterable[Node]) -> set[str]:
        """Look at some connected nodes. Returns those in the wave."""
        rollout = self._rollout
        inside = {node.id for node in nodes if rollout.in_wave(node)} if rollout is not None else set[str]()
        states = self._fleet.states_of(self._group, self._targets, inside, self._changed, self._variants)
        if rollout is not None and rollout.step.count:
            outside = {node.id for node in nodes} - inside
            self.unaffected |= self._fleet.not_concerned(self._group, outside, self._changed)
        self.inside |= states.keys()
        for id, (state, held) in states.items():
            if state is Sync.SYNCED:
                self.acked.add(id)
            elif state is Sync.NOT_SUBSCRIBED:
                self.unaffected.add(id)
            elif len(self.waiting) < WAITING_SHOWN:
                self.waiting[id] = _waits_for(held)
            if state is Sync.NACKED:
                self._nacking.add(id)
        return inside

    def add_refusals(self, since_s: float, *, was_sent: bool) -> None:
        """Add the nodes in the wave that reject content of the head, also those that have left since it is watched.

        A NACK from before ``since_s`` is one of an earlier attempt with the same content. It counts for a node that
        has answered nothing else when the wave ``was_sent`` the head: what it rejected is not sent to it again.
        """
        rollout = self._rollout
        if rollout is None:
            return
        targets = {**self._targets, **{url: each for sets in self._variants.values() for url, each in sets.items()}}
        for refusal in self._fleet.nack_log.open_in(self._group):
            record, target = refusal.record, targets.get(refusal.record.type_url)
            node = self._fleet.identity(record.node)
            if node is None or target is None or not rollout.in_wave(node) or not refusal.concerns(target):
                continue
            is_of_attempt = record.last >= since_s or (was_sent and record.node in self._nacking)
            is_of_wave = record.node in self.inside or record.last >= rollout.since_s
            if is_of_attempt and is_of_wave and self._is_newer(refusal, target):
                self.nacked.setdefault(record.node, _words(record))
                self.waiting.pop(record.node, None)

    def _is_newer(self, refusal: RefusedContent, target: ResourceSet) -> bool:
        """Whether a node rejects what the base does not have as well."""
        base = self._base.get(refusal.record.type_url)
        return base is None or refusal.concerns_more_than(base, target)


def _changed(cache: SnapshotCache, before: ResourceSet, after: ResourceSet) -> frozenset[str]:
    """The names that differ, with the aliases of their resources."""
    names = cache.diffs.change(before, after).names
    resources = (each.resources.get(name) for name in names for each in (before, after))
    return frozenset(names).union(*(each.aliases for each in resources if each is not None))


def _words(record: NackRecord) -> str:
    """What a node rejects, and its own words."""
    names = record.guilty or (record.names if record.resources == 1 else ())
    shown = ", ".join(f"{record.type}/{name}" for name in names[:2]) or record.type
    return f"{shown}: {record.message[:MESSAGE_SHOWN]}"


def _waits_for(held: Iterable[HeldResources]) -> str:
    """What a node waits for, in words."""
    for each in held:
        names = ", ".join(f"{alias}/{name}" for alias, name in each.resources[:2])
        others = [*(f"cluster {name}" for name in each.waits_for), *(f"{t}/{n}" for t, n in each.waits_for_others)]
        return f"{names} waits for {', '.join(others[:2]) or 'its clusters'}"
    return "has not answered yet"
