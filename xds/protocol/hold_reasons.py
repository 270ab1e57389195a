"""What content that is held back from a client waits for: cold clusters, and what the client rejects or lacks.

``hold`` decides what is held. The reasons are found here when they are reported, so the frequent transitions, in
which nothing is rejected, do not pay for them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from xds.model.resource_type import alias_of, resource_type
from xds.model.snapshot import Snapshot
from xds.protocol.events import Event, HeldContent, HoldChanged, LingerChanged, LingerCut
from xds.protocol.facts import ClientFacts
from xds.protocol.held_resources import used_by_rejected
from xds.protocol.reverted_listeners import reverting
from xds.protocol.transition import Transition
from xds.snapshots.linger import (
    NO_NAMES_BY_TYPE,
    NOTHING_LINGERS,
    Lingering,
    NamesByType,
    Removal,
    names_by_type,
    without_names,
)
from xds.snapshots.release import merge_names
from xds.snapshots.trees import Tree


class Reports:
    """What the events of a client have told of what is held and what lingers.

    ``cut_removals``: the removals that ``linger_max`` ended early and that no event has told yet.
    """

    __slots__ = ("cut_removals", "held_content", "lingering")

    def __init__(self) -> None:
        self.cut_removals: tuple[Removal, ...] = ()
        self.lingering: Lingering = NOTHING_LINGERS
        self.held_content: tuple[HeldContent, ...] = ()

    def has_untold(self, lingering: Lingering) -> bool:
        """Whether `tell` may have something to tell of a client without a transition."""
        return lingering is not self.lingering or bool(self.held_content or self.cut_removals)

    def tell(
        self,
        events: list[Event],
        lingering: Lingering,
        transition: Transition | None,
        facts_of: Callable[[], ClientFacts],
    ) -> None:
        """Add the events that tell what has changed."""
        if self.cut_removals:
            events.append(LingerCut(self.cut_removals))
            self.cut_removals = ()
        if lingering is not self.lingering:
            self.lingering = lingering
            events.append(LingerChanged(lingering))
        is_holding = transition is not None and transition.held.names
        held = held_content(facts_of(), transition) if transition is not None and is_holding else ()
        if held != self.held_content:
            self.held_content = held
            events.append(HoldChanged(held))


def held_content(facts: ClientFacts, transition: Transition) -> tuple[HeldContent, ...]:
    """The content that is held back, each part with all that it waits for.

    docs/protocol.md#additions: "held content is shown with the clusters that it waits for";
    docs/protocol.md#rejections: "what a rejected listener, route, extension configuration or assignment holds is shown
    with it".
    """
    if not transition.held.names:
        return ()
    reverted = reverting(facts, transition.held.ready) if transition.held.trees else NO_NAMES_BY_TYPE
    contents = [_of_tree(facts, transition, tree, reverted) for tree in transition.held.trees]
    if facts.watches.rejects_anything:
        rest = without_names(transition.held.names, merge_names(*(each.names for each in contents)))
        contents += _behind_rejected(facts, transition, rest)
    return tuple(contents)


def _of_tree(facts: ClientFacts, transition: Transition, tree: Tree, reverted: NamesByType) -> HeldContent:
    """A tree of which nothing is released; ``reverted``: the refused names for which listeners go back."""
    cold = transition.readiness.cold.names
    listeners = tree.needed_listeners & transition.held.absent_listeners
    return HeldContent(
        merge_names(tree.listener_parts, tree.route_parts),
        tuple(sorted(cold if tree.is_unreadable else cold.intersection(tree.clusters))),
        tree.is_unreadable,
        merge_names(
            names_by_type({facts.url_of("listeners"): listeners}),
            _named_by(tree.listeners, reverted, facts.released, facts.goal),
        ),
    )


def _behind_rejected(facts: ClientFacts, transition: Transition, names: NamesByType) -> Iterator[HeldContent]:
    """The parts of ``names``, outside of held trees, that wait for a rejected listener, filter or assignment."""
    listeners, filters = (facts.goal.get(facts.url_of(alias)) for alias in ("listeners", "extension_configs"))
    rejected, doubted = facts.watches.rejected_in(listeners), facts.watches.doubted_in(listeners)
    bad_filters = names_by_type({filters.type.type_url: facts.watches.doubted_in(filters)})
    suspect, absent = doubted - rejected, doubted & transition.held.absent_listeners
    for tree in facts.releases.plan(facts.released, facts.goal).trees if names else ():
        held = _common(merge_names(tree.listener_parts, tree.route_parts), names)
        # Suspect listeners, which were rejected together, hold all their routes; others those of `used_by_rejected`.
        holding = _rejected_users(facts, transition, tree, rejected & tree.listeners)
        waits_for = (tree.listeners & suspect).union(tree.needed_listeners & absent, holding)
        repairs = merge_names(
            names_by_type({listeners.type.type_url: waits_for}), _named_by(tree.listeners, bad_filters, facts.goal)
        )
        if held and repairs:
            yield HeldContent(held, (), False, repairs)
    yield from _single_clusters(facts, names)


def _rejected_users(facts: ClientFacts, transition: Transition, tree: Tree, rejected: frozenset[str]) -> Iterator[str]:
    """Those of the rejected listeners that hold routes of a tree."""
    parts = {(url, name) for url, names in tree.used_route_parts for name in names}
    for name in rejected:
        if not parts.isdisjoint(used_by_rejected(facts, frozenset((name,)), transition.held.ready)):
            yield name


def _single_clusters(facts: ClientFacts, names: NamesByType) -> Iterator[HeldContent]:
    """The clusters in use that stay as they were because the client rejects the assignment that they newly need."""
    url = facts.url_of("endpoints")
    rejected = facts.watches.rejected_in(facts.goal.get(url))
    for kind, held in names if rejected else ():
        if resource_type(kind).is_route_target:
            assigned = facts.releases.diff(facts.released.get(kind), facts.goal.get(kind)).newly_assigned
            for name in sorted(held & assigned.keys()):
                if lacking := assigned[name] & rejected:
                    yield HeldContent(((kind, frozenset((name,))),), (), False, ((url, lacking),))


def _named_by(listeners: Iterable[str], names: NamesByType, *snapshots: Snapshot) -> NamesByType:
    """The names among ``names`` that these listeners refer to directly in one of the snapshots."""
    if not names:
        return NO_NAMES_BY_TYPE
    named: dict[str, set[str]] = {}
    sought = dict(names)
    for resource_set in (s.get(url) for s in snapshots for url in s.sets if alias_of(url) == "listeners"):
        for listener in resource_set.resources.keys() & listeners:
            for each in resource_set.resources[listener].references:
                if each.name in sought.get(each.type_url, ()):
                    named.setdefault(each.type_url, set()).add(each.name)
    return names_by_type(named)


def _common(names: NamesByType, others: NamesByType) -> NamesByType:
    """The names that both have."""
    return without_names(names, without_names(names, others))
