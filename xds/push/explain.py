"""Explains which group matched a node and why, and how far each resource is delivered to the node. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from difflib import get_close_matches
from enum import StrEnum
from functools import cached_property
from itertools import islice

from xds.envoy.translation import V2, V2_TYPES, UnexpressedResource, unexpressed
from xds.fleet.fleet import Fleet
from xds.fleet.nacks import mentions
from xds.fleet.node_records import Holding
from xds.fleet.node_state import NodeState
from xds.fleet.order_state import Clients, held_by_name, lingering_until
from xds.fleet.state import NackRecord, NackState
from xds.live.owners import LiveEndpoints, Owner
from xds.model.errors import NotFoundError
from xds.model.node import Locality, Node
from xds.model.resource_type import alias_of, v3_url
from xds.model.snapshot import ResourceSet, Snapshot
from xds.protocol.events import HeldContent
from xds.push.content import type_label
from xds.push.derived import NOTHING_DERIVED, DerivedContent
from xds.rollouts.rollout import Rollout
from xds.rollouts.wave import rank
from xds.snapshots.cache import SnapshotCache
from xds.snapshots.lines import GroupLine
from xds.snapshots.membership import GroupCandidate
from xds.tasks.threads import run_sized

RESOURCES_LIMIT = 1_000
_CLOSE_NAMES_LIMIT = 20  # missing names for which similar names are searched
_COMPARED_LIMIT = 500
_LENGTHS_APART = 4
_NAMES_SHOWN = 5


class DeliveryStatus(StrEnum):
    """How far a resource is delivered to a node.

    * ``served``: a node that subscribes gets it (for a node that is not connected);
    * ``sent``: the node has ACKed it; ``pending``: it is not yet sent, or not yet ACKed;
    * ``refused``: the node has NACKed it; ``held``: it will be sent when the clusters that it refers to are warm, and
      the node accepts the listener, filter or route that it waits for;
    * ``lingering``: it was removed from the group, and the node keeps it for a while;
    * ``missing``: the group has no such resource; ``unexpressed``: the node's API cannot express it;
    * ``not_subscribed``: the node does not subscribe to it; ``no_group``: no group matches the node.
    """

    SERVED = "served"
    SENT = "sent"
    PENDING = "pending"
    REFUSED = "refused"
    HELD = "held"
    LINGERING = "lingering"
    MISSING = "missing"
    UNEXPRESSED = "unexpressed"
    NOT_SUBSCRIBED = "not_subscribed"
    NO_GROUP = "no_group"


@dataclass(frozen=True, slots=True)
class ResourceDelivery:
    """The delivery of one resource. ``type`` is the type label, ``version`` the served version, empty for none.

    ``pushed_version`` is the version of the pushed resource if a live assignment or a traffic assignment replaces it;
    else empty. ``owner`` is the owner of a live assignment; None for all other resources.
    """

    type: str
    name: str
    status: DeliveryStatus
    detail: str
    version: str = ""
    pushed_version: str = ""
    owner: Owner | None = None


@dataclass(frozen=True, slots=True)
class ExplainQuery:
    """Which resources to explain; an empty ``type_url`` or ``name`` means all."""

    type_url: str = ""
    name: str = ""


EXPLAIN_ALL = ExplainQuery()


@dataclass(frozen=True)
class NodeContext:
    """A node with everything that decides what it receives. ``snapshot`` returns the snapshot for a type URL's API.

    ``source`` is the locality of the overlay in use, None without one. ``holdings`` are the types of a connected node;
    ``refusals`` are its open NACK records; ``clients`` are its lingering and held resources. ``owners`` are the owners
    of live assignments, by name. ``derived`` are the derived resources of its group.
    """

    node: Node
    candidates: tuple[GroupCandidate, ...]
    snapshot: Callable[[str], Snapshot | None] = lambda type_url: None
    source: Locality | None = None
    connected: bool = False
    holdings: Sequence[Holding] = ()
    refusals: Sequence[NackRecord] = ()
    clients: Clients = field(default_factory=dict)
    owners: Mapping[str, Owner] = field(default_factory=dict)
    derived: DerivedContent = NOTHING_DERIVED

    @cached_property
    def held(self) -> Mapping[tuple[str, str], HeldContent]:
        """The held resources, by type URL and name, with what they wait for."""
        return held_by_name(self.clients)

    @cached_property
    def lingering(self) -> Mapping[str, Mapping[str, float | None]]:
        """When lingering resources are removed, by type URL and name; epoch seconds, None: the time has not started."""
        return lingering_until(self.clients)


@dataclass(frozen=True, slots=True)
class Explanation:
    """``chosen`` is the first candidate that matches; None when no group matches. ``total`` counts all resources.

    ``source`` is the locality of the traffic assignment that the node is served; None without one. ``rollout`` says
    why a node is served which revision while its group has a careful rollout; empty without one.
    """

    node: Node
    candidates: tuple[GroupCandidate, ...]
    chosen: GroupCandidate | None
    revision: int | None
    connected: bool
    source: Locality | None = None
    resources: tuple[ResourceDelivery, ...] = ()
    total: int = field(default=0)
    rollout: str = ""


def explain(context: NodeContext, query: ExplainQuery = EXPLAIN_ALL) -> Explanation:
    """Explain one node. The cost is proportional to its subscriptions: run it in a thread if there may be many."""
    chosen = next((candidate for candidate in context.candidates if candidate.matched), None)
    snapshot = context.snapshot("")
    deliveries = list(_deliveries(context, query))
    return Explanation(
        node=context.node,
        candidates=context.candidates,
        chosen=chosen,
        revision=snapshot.revision if snapshot is not None else None,
        connected=context.connected,
        source=context.source,
        resources=tuple(deliveries[:RESOURCES_LIMIT]),
        total=len(deliveries),
    )


def _deliveries(context: NodeContext, query: ExplainQuery) -> Iterator[ResourceDelivery]:
    if not context.connected:
        yield from _served_if_subscribed(context, query)
        return
    alias = alias_of(query.type_url) if query.type_url else ""
    is_subscribed = False
    close = _CloseNames()
    for holding in context.holdings:
        if alias in ("", holding.type):
            for delivery in _of_holding(context, holding, close):
                if query.name in ("", delivery.name):
                    is_subscribed = True
                    yield delivery
    if query.type_url and not is_subscribed:
        yield _not_subscribed(context, query)


def _served_if_subscribed(context: NodeContext, query: ExplainQuery) -> Iterator[ResourceDelivery]:
    """What the group would serve to the node. Its subscriptions are not known, since it is not connected."""
    snapshot = context.snapshot(query.type_url)
    if not query.type_url:
        return
    label = type_label(query.type_url)
    if snapshot is None:
        yield ResourceDelivery(
            label, query.name, DeliveryStatus.NO_GROUP, "no group matches the node, so it is sent nothing"
        )
        return
    target = snapshot.get(query.type_url)
    for name in (query.name,) if query.name else tuple(target.resources):
        resource = target.resources.get(target.by_alias.get(name, name))
        if resource is None:
            yield _missing(label, name, target, _CloseNames())
        else:
            detail = f"group {snapshot.group} has it at revision {snapshot.revision}"
            delivery = ResourceDelivery(label, name, DeliveryStatus.SERVED, detail, resource.version)
            yield _with_origin(context, target, delivery)


def _not_subscribed(context: NodeContext, query: ExplainQuery) -> ResourceDelivery:
    snapshot = context.snapshot(query.type_url)
    label = type_label(query.type_url)
    target = snapshot.get(query.type_url) if snapshot is not None else None
    what = f"does not subscribe to {query.name!r}" if query.name else f"does not subscribe to {label}"
    if target is None:
        return ResourceDelivery(
            label, query.name, DeliveryStatus.NOT_SUBSCRIBED, f"the node {what}, and no group matches it"
        )
    if not query.name:
        return ResourceDelivery(
            label, "", DeliveryStatus.NOT_SUBSCRIBED, f"the node {what}; the group has {len(target)} resources"
        )
    resource = target.resources.get(query.name)
    if resource is not None:
        return ResourceDelivery(
            label, query.name, DeliveryStatus.NOT_SUBSCRIBED, f"the node {what}; the group has it", resource.version
        )
    missing = _missing(label, query.name, target, _CloseNames())
    return ResourceDelivery(label, query.name, DeliveryStatus.NOT_SUBSCRIBED, f"the node {what}; {missing.detail}")


# One type of a connected node


def _of_holding(context: NodeContext, holding: Holding, close: _CloseNames) -> Iterator[ResourceDelivery]:
    snapshot = context.snapshot(holding.type_url)
    label = type_label(holding.type_url)
    if snapshot is None:
        for name in sorted(holding.interest.names) or ["*"]:
            yield ResourceDelivery(
                label, name, DeliveryStatus.NO_GROUP, "no group matches the node, so it keeps its configuration"
            )
        return
    target = snapshot.get(holding.type_url)
    refusals = [record for record in context.refusals if record.type_url == holding.type_url]
    for name in holding.interest.select(target):
        version = target.resources[name].version
        status, detail = _progress(context, holding, name, version, refusals)
        yield _with_origin(context, target, ResourceDelivery(label, name, status, detail, version))
    for name in holding.interest.missing(target):
        if name in target.omitted:
            yield ResourceDelivery(label, name, DeliveryStatus.UNEXPRESSED, target.omitted[name])
        elif not _has(holding.sent, name):
            yield _missing(label, name, target, close)
    if holding.sent is not None:
        removed = (name for name in holding.interest.select(holding.sent) if name not in target.resources)
        for name in removed:
            yield ResourceDelivery(label, name, *_removal(context, holding, name))


def _with_origin(context: NodeContext, target: ResourceSet, delivery: ResourceDelivery) -> ResourceDelivery:
    """The delivery, with a note of where a derived resource comes from, or what replaces the pushed one."""
    name, owner = delivery.name, None
    pushed_version = target.observed.get(name) or target.overlaid.get(name, "")
    notes = [delivery.detail]
    key = v3_url(target.type.type_url), name
    if context.derived.owns(key):
        owner = context.owners.get(name) if name in target.observed else None
        notes.append(f"it is {context.derived.origin(key).text}")
    elif name in target.observed:
        owner = context.owners.get(name)
        whose = _ownership(owner)
        notes.append(f"it is {whose}, {'in place of the pushed one' if pushed_version else 'and not pushed'}")
    if name in target.overlaid:
        notes.append(f"the traffic assignment for {context.source} replaces the pushed one")
    return replace(delivery, detail="; ".join(notes), pushed_version=pushed_version, owner=owner)


def _ownership(owner: Owner | None) -> str:
    if owner is None:
        return "live"
    return f"{owner} at {_time(owner.time_s)}" if owner.time_s else str(owner)


def _time(seconds: float) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%SZ}"


def _progress(
    context: NodeContext, holding: Holding, name: str, version: str, refusals: Sequence[NackRecord]
) -> tuple[DeliveryStatus, str]:
    is_acked = _version(holding.acked, name) == version
    refusal = next((each for each in refusals if mentions((name,), each) or (_is_vague(each) and not is_acked)), None)
    if refusal is not None:
        return DeliveryStatus.REFUSED, f"the node rejected version {refusal.version}: {refusal.message}"
    if is_acked:
        return DeliveryStatus.SENT, "the node has ACKed it"
    if _version(holding.sent, name) == version:
        return DeliveryStatus.PENDING, "it was sent and is not ACKed yet"
    held = context.held.get((holding.type_url, name))
    if held is not None:
        return DeliveryStatus.HELD, _waiting_for(held)
    return DeliveryStatus.PENDING, "it will be sent after the response in flight is ACKed"


def _waiting_for(held: HeldContent) -> str:
    others = sorted(f"{alias_of(url)}/{name}" for url, names in held.waits_for_others for name in names)
    reasons = [f"clusters {_first(held.waits_for)} are warm on the node"] if held.waits_for else []
    reasons += [f"the node accepts {_first(others)}"] if others else []
    why = "; the clusters that it refers to cannot be determined" if held.is_unreadable else ""
    return f"it is held until {' and '.join(reasons) or 'the node has what replaces it'}{why}"


def _first(names: Sequence[str]) -> str:
    more = len(names) - _NAMES_SHOWN
    shown = " and ".join(names[:_NAMES_SHOWN])
    return f"{shown} and {more} more" if more > 0 else shown


def _removal(context: NodeContext, holding: Holding, name: str) -> tuple[DeliveryStatus, str]:
    held = context.held.get((holding.type_url, name))
    if held is not None:
        return (
            DeliveryStatus.HELD,
            f"it was removed from the group, and is removed together with its replacement: {_waiting_for(held)}",
        )
    ends = context.lingering.get(holding.type_url, {})
    if name not in ends:
        return DeliveryStatus.PENDING, "it was removed from the group; the removal will be sent"
    until = ends[name]
    if until is None:
        return (
            DeliveryStatus.LINGERING,
            "it was removed from the group; its time starts when the node ACKs everything that could refer to it",
        )
    return (
        DeliveryStatus.LINGERING,
        f"it was removed from the group, and lingers until {_time(until)}",
    )


def _is_vague(record: NackRecord) -> bool:
    """Whether a NACK may be about more resources than it names."""
    return not record.guilty and (not record.names or len(record.names) < record.resources)


def _version(resource_set: ResourceSet | None, name: str) -> str:
    resource = resource_set.resources.get(name) if resource_set is not None else None
    return resource.version if resource is not None else ""


def _has(resource_set: ResourceSet | None, name: str) -> bool:
    return resource_set is not None and (name in resource_set.resources or name in resource_set.by_alias)


# Missing resources


class _CloseNames:
    """Finds names similar to missing ones: for ``_CLOSE_NAMES_LIMIT`` names, each among ``_COMPARED_LIMIT``."""

    def __init__(self) -> None:
        self._searches_left = _CLOSE_NAMES_LIMIT

    def of(self, name: str, known: Mapping[str, object]) -> list[str]:
        """The names in ``known`` that are similar to ``name``; empty once the bound is reached."""
        if self._searches_left <= 0:
            return []
        self._searches_left -= 1
        similar = (each for each in known if abs(len(each) - len(name)) <= _LENGTHS_APART)
        return get_close_matches(name, islice(similar, _COMPARED_LIMIT), n=3)


def _missing(label: str, name: str, target: ResourceSet, close: _CloseNames) -> ResourceDelivery:
    similar = close.of(name, target.resources)
    hint = f"; did you mean {' or '.join(map(repr, similar))}?" if similar else ""
    return ResourceDelivery(
        label, name, DeliveryStatus.MISSING, f"the group has no {label} resource of this name{hint}"
    )


def node_context(
    cache: SnapshotCache,
    node: Node,
    live: LiveEndpoints | None = None,
    derived: Callable[[str], DerivedContent] = lambda group: NOTHING_DERIVED,
) -> NodeContext:
    """The context of a node with this identity, connected or not.

    ``live`` has the owners of live assignments; ``derived`` returns the derived resources of a group.
    """
    candidates = tuple(cache.membership.candidates(node))
    views = {api: cache.resolve(node, api) for api in ("", V2)}
    snapshots = {api: view.snapshot if view is not None else None for api, view in views.items()}
    plain = views[""]
    source = plain.source if plain is not None else None
    owners = live.owners(plain.group) if live is not None and plain is not None else {}
    return NodeContext(
        node,
        candidates,
        lambda type_url: snapshots[V2 if type_url in V2_TYPES else ""],
        source,
        owners=dict(owners),  # it is read in a thread
        derived=derived(plain.group) if plain is not None else NOTHING_DERIVED,
    )


def why_served(rollout: Rollout, node: Node) -> str:
    """Why a node is served which revision; empty after the end.

    Such as ``served 42, not 43: rank 0.7302, wave 2 of 4 has up to 0.1015``.
    """
    if not rollout.is_open:
        return ""
    wave, is_inside, place = rollout.nodes, rollout.in_wave(node), rank(rollout.group, node.id)
    served = f"served {rollout.head}" if is_inside else f"served {rollout.base}, not {rollout.head}"
    name = f"wave {rollout.wave + 1} of {len(rollout.plan.steps)}"
    if wave.below >= 1.0:
        return f"{served}: {name} has all nodes"
    if node.id in wave.ids:
        return f"{served}: {name} has this node by its id"
    if is_inside and place >= wave.below:
        return f"{served}: the selector of {name} matches"
    if wave.below:
        return f"{served}: rank {place:.4f}, {name} has up to {wave.below:.4f}"
    return f"{served}: not among the nodes of {name}"


class NodeViews:
    """What nodes are served, and why.

    ``live`` has the owners of live assignments; ``derived`` the derived resources; ``rollouts`` those of groups.
    """

    def __init__(
        self,
        cache: SnapshotCache,
        fleet: Fleet,
        live: LiveEndpoints,
        derived: Callable[[str], DerivedContent],
        rollouts: Callable[[str], Rollout | None],
    ) -> None:
        self._cache = cache
        self._fleet = fleet
        self._live = live
        self._derived = derived
        self._rollouts = rollouts

    def served(self, node_id: str) -> Snapshot | None:
        """The snapshot of a node, overlays for its locality included; None if no group matches."""
        node = self._fleet.identity(node_id)
        return self._context(node).snapshot("") if node is not None else None

    def line(self, group: str, node: Node | None) -> str:
        """``head`` or ``base``: what a node is served while its group has a careful rollout; empty without one."""
        if not self._cache.is_split(group):
            return ""
        line = self._cache.line(group, node)
        return "head" if line is GroupLine.HEAD else "base"

    def unexpressed(self, node: NodeState) -> Mapping[str, tuple[UnexpressedResource, ...]]:
        """The requested resources that are not sent since the node's API cannot express them, by type alias."""
        return unexpressed(self._cache, node, self._cache.line(node.group, self._fleet.identity(node.id)))

    async def explain(self, node_id: str, query: ExplainQuery = EXPLAIN_ALL) -> Explanation:
        """Why a node that is or was connected receives each resource. Raises ``NotFoundError``."""
        node, state = self._fleet.identity(node_id), self._fleet.node(node_id)
        if node is None or state is None:
            raise NotFoundError(f"no node {node_id!r} has connected recently")
        holdings = self._fleet.holdings(node_id)
        refusals = tuple(self._fleet.nack_log.select(node=node_id, state=NackState.OPEN))
        context = replace(
            self._context(node),
            connected=state.connected,
            holdings=holdings,
            refusals=refusals,
            clients=self._fleet.clients(node_id),
        )
        size = sum(len(holding.sent) for holding in holdings if holding.sent is not None)
        return await self._explain(context, query, size)

    async def explain_node(self, node: Node, query: ExplainQuery = EXPLAIN_ALL) -> Explanation:
        """What a node with this identity would receive."""
        return await self._explain(self._context(node), query, 0)

    async def _explain(self, context: NodeContext, query: ExplainQuery, size: int) -> Explanation:
        found = await run_sized(explain, context, query, resources=size)
        rollout = self._rollouts(found.chosen.match.group) if found.chosen is not None else None
        return replace(found, rollout=why_served(rollout, context.node)) if rollout is not None else found

    def _context(self, node: Node) -> NodeContext:
        return node_context(self._cache, node, self._live, self._derived)
