"""How many nodes have a push, and counts over the whole fleet.

A node has a push when it has ACKed the content. Content is compared, not version_info, which may repeat. Content that
was derived from a pushed set, for a locality or for another API, counts as that set. `take_census` iterates over
copies, so it may run in another thread than the one that applies events.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from xds.fleet.nacks import NackLog
from xds.fleet.node_records import (
    AGGREGATED_SERVICE,
    NodeRecord,
    StreamRecord,
    TypeRecord,
    by_alias,
    worst,
)
from xds.fleet.order_state import comparable_set, held_resources
from xds.fleet.state import Convergence, HeldResources, NackRecord, Sync
from xds.model.names import is_glob, matches_glob
from xds.model.resource_type import alias_of
from xds.model.snapshot import ResourceSet

STALE_AFTER_S = 60.0
SHOWN_LIMIT = 100


class NodeProgress:
    """The worst state over all streams and pushed types of a node, with its NACK ids and its last ACK."""

    __slots__ = ("last_ack", "nacks", "state")

    def __init__(self) -> None:
        self.state = Sync.NOT_SUBSCRIBED
        self.nacks: list[int] = []
        self.last_ack = 0.0

    def add(self, record: TypeRecord, target: ResourceSet) -> None:
        """Add one type of one stream."""
        state = progress(record, target)
        if state is Sync.NACKED:
            self.state = Sync.NACKED
            self.nacks += (refusal.record.id for refusal in record.refusals if refusal.concerns(target))
        elif state is Sync.PENDING and self.state is not Sync.NACKED:
            self.state = Sync.PENDING
        elif state is Sync.SYNCED:
            self.last_ack = max(self.last_ack, record.since)
            if self.state is Sync.NOT_SUBSCRIBED:
                self.state = Sync.SYNCED


def node_progress(
    node: NodeRecord, targets: Mapping[str, ResourceSet], variants: Mapping[str, Mapping[str, ResourceSet]]
) -> NodeProgress:
    """The progress of a connected node towards ``targets``, the pushed sets by type URL.

    A node that has just connected is pending until it shows which types it subscribes to.

    ``variants`` are the sets for streams of another API, by API and type URL.
    """
    result = NodeProgress()
    for stream in node.streams:
        for type_url, target in variants.get(stream.api, targets).items():
            record = stream.types.get(type_url)
            if record is not None:
                result.add(record, target)
    if result.state is Sync.NOT_SUBSCRIBED and any(map(_is_starting, node.streams)):
        result.state = Sync.PENDING
    return result


def _is_starting(stream: StreamRecord) -> bool:
    """Whether the client has subscribed to clusters on an aggregated stream and has not ACKed any yet.

    "LDS only after the CDS response" (docs/internals/clients.md#requests): until then it is unknown whether it
    subscribes to what was pushed.
    """
    if stream.service != AGGREGATED_SERVICE:
        return False
    records = [record for url, record in list(stream.types.items()) if alias_of(url) == "clusters"]
    return any(record.state is Sync.PENDING and record.acked is None for record in records)


def concerns(node: NodeRecord, changed: Mapping[str, Collection[str]]) -> bool:
    """Whether a connected node subscribes to one of the ``changed`` names, by type alias; True until it is known."""
    for stream in node.streams:
        if _is_starting(stream):
            return True
        for record in list(stream.types.values()):
            names = changed.get(alias_of(record.type_url), ())
            if names and (record.wildcard or not record.names.isdisjoint(names)):
                return True
            globs = [name for name in record.names if is_glob(name)] if names else ()
            if any(matches_glob(glob, name) for glob in globs for name in names):
                return True
    return False


def has_changes(
    node: NodeRecord,
    targets: Mapping[str, ResourceSet],
    changed: Mapping[str, Collection[str]],
    variants: Mapping[str, Mapping[str, ResourceSet]],
) -> bool:
    """Whether a connected node has ACKed ``targets`` as far as the ``changed`` names go; it may reject others."""
    for stream in node.streams:
        for type_url, target in variants.get(stream.api, targets).items():
            record = stream.types.get(type_url)
            if record is None or record.state is Sync.NOT_SUBSCRIBED:
                continue
            if record.acked is None or not has_content(record.acked, target, changed.get(alias_of(type_url), ())):
                return False
    return True


def type_progress(
    node: NodeRecord, targets: Mapping[str, ResourceSet], variants: Mapping[str, Mapping[str, ResourceSet]]
) -> dict[str, Sync]:
    """The state of a connected node for each pushed type, by alias: the worst of its streams."""
    result = {alias_of(type_url): NodeProgress() for type_url in targets}
    for stream in node.streams:
        for type_url, target in variants.get(stream.api, targets).items():
            record, progressed = stream.types.get(type_url), result.get(alias_of(type_url))
            if record is not None and progressed is not None:
                progressed.add(record, target)
    return {alias: each.state for alias, each in result.items()}


def progress(record: TypeRecord, target: ResourceSet) -> Sync:
    """The state of one type on one stream with respect to the pushed set."""
    if record.state is Sync.NOT_SUBSCRIBED:
        return Sync.NOT_SUBSCRIBED
    if record.state is Sync.NACKED:
        # A NACK of earlier content says nothing about this push: the new response may be on its way.
        return Sync.NACKED if any(refusal.concerns(target) for refusal in record.refusals) else Sync.PENDING
    if record.state is Sync.SYNCED and record.acked is not None and has_content(record.acked, target):
        return Sync.SYNCED
    return Sync.PENDING


def has_content(acked: ResourceSet, target: ResourceSet, among: Collection[str] | None = None) -> bool:
    """Whether an ACKed set has the content of a pushed one, or that of the names ``among`` it.

    Overlays and lingering resources are ignored.
    """
    acked = comparable_set(acked, among)
    return acked is target or acked.origin_id == target.origin_id or acked.digest == target.digest


@dataclass(slots=True)
class Census:
    """Counts of connected nodes.

    * ``nodes``: by group; ``agents``: nodes by what the client calls itself, such as ``envoy 1.40.0``;
    * ``nacked``, ``stale``: nodes that reject a type, and nodes whose ACK is overdue, by (alias,
      group);
    * ``missing``: requested names that do not exist, by alias, over all streams;
    * ``synced``: whether a type is synced, by (node, group, alias), for the first nodes only; ``left_out`` counts the
      other nodes;
    * ``lingering``, ``held``: by group, nodes that keep removed resources, and nodes from which resources are held
    back.
    """

    nodes: Counter[str] = field(default_factory=Counter)
    agents: Counter[str] = field(default_factory=Counter)
    nacked: Counter[tuple[str, str]] = field(default_factory=Counter)
    stale: Counter[tuple[str, str]] = field(default_factory=Counter)
    missing: Counter[str] = field(default_factory=Counter)
    lingering: Counter[str] = field(default_factory=Counter)
    held: Counter[str] = field(default_factory=Counter)
    synced: dict[tuple[str, str, str], bool] = field(default_factory=dict)
    left_out: int = 0


def take_convergence(
    nodes: Iterable[NodeRecord],
    targets: Mapping[str, ResourceSet],
    variants: Mapping[str, Mapping[str, ResourceSet]],
    nack_log: NackLog,
) -> Convergence:
    """How many of the connected ``nodes`` have taken a push (`Fleet.convergence`)."""
    counts: Counter[Sync] = Counter()
    pending: list[str] = []
    nacks: list[NackRecord] = []
    held: list[tuple[str, HeldResources]] = []
    for record in nodes:
        node = node_progress(record, targets, variants)
        counts[node.state] += 1
        if node.state is Sync.PENDING and len(pending) < SHOWN_LIMIT:
            pending.append(record.node.id)
            held.extend((record.node.id, each) for each in held_resources(record.clients))
        elif node.state is Sync.NACKED and len(nacks) < SHOWN_LIMIT:
            nacks.extend(filter(None, map(nack_log.get, dict.fromkeys(node.nacks))))
    return Convergence(
        synced=counts[Sync.SYNCED],
        pending=counts[Sync.PENDING],
        nacked=counts[Sync.NACKED],
        pending_nodes=tuple(pending),
        nacks=tuple(nacks),
        held=tuple(held),
    )


def last_ack_of_all(nodes: Iterable[NodeRecord], targets: Mapping[str, ResourceSet]) -> float | None:
    """When the last of the connected ``nodes`` ACKed ``targets``; None while one has not."""
    last_ack = 0.0
    for record in nodes:
        node = node_progress(record, targets, {})
        if node.state in (Sync.PENDING, Sync.NACKED):
            return None
        last_ack = max(last_ack, node.last_ack)
    return last_ack


def take_census(
    nodes: Collection[NodeRecord],
    streams: Collection[StreamRecord],
    now: float,
    *,
    stale_after_s: float = STALE_AFTER_S,
    detailed: int = 0,
) -> Census:
    """Count the fleet. ``synced`` covers the first ``detailed`` nodes."""
    census = Census()
    for node in list(nodes):
        if node.streams:
            _count_node(census, node, now - stale_after_s, detailed)
    for stream in list(streams):
        for record in list(stream.types.values()):
            if record.names and (missing := record.missing()):
                census.missing[alias_of(record.type_url)] += len(missing)
    return census


def _count_node(census: Census, node: NodeRecord, stale_before: float, detailed: int) -> None:
    census.nodes[node.group] += 1
    census.agents[node.node.user_agent] += 1
    clients = list(node.clients.values())
    census.lingering[node.group] += any(client.lingering for client in clients)
    census.held[node.group] += any(client.held for client in clients)
    is_detailed = detailed > 0 and census.nodes.total() <= detailed
    if detailed and not is_detailed:
        census.left_out += 1
    for alias, records in by_alias(_type_records(node)).items():
        lead = worst(records)
        if lead.state is Sync.NACKED:
            census.nacked[alias, node.group] += 1
        elif lead.state is Sync.PENDING and min(_pending_since(records)) < stale_before:
            census.stale[alias, node.group] += 1
        if is_detailed and lead.state is not Sync.NOT_SUBSCRIBED:
            census.synced[node.node.id, node.group, alias] = lead.state is Sync.SYNCED


def _type_records(node: NodeRecord) -> list[TypeRecord]:
    return [record for stream in node.streams for record in list(stream.types.values())]


def _pending_since(records: list[TypeRecord]) -> list[float]:
    return [record.since for record in records if record.state is Sync.PENDING] or [float("inf")]
