"""What of the newest push a client is not sent yet: the names that keep the version that was released before.

docs/internals/engine.md#what-waits has the rules. The unit is the listener tree (`trees`). `find_hold` is a function of
the facts and of the transition before; the next transition is part of its result.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from xds.model.names import NO_NAMES
from xds.model.snapshot import ResourceSet, Snapshot, empty_set
from xds.protocol.expected_requests import listeners_with_unshown_filters
from xds.protocol.facts import ClientFacts
from xds.protocol.held_resources import (
    aggregates_of_cold_members,
    clusters_without_assignments,
    outdated_names,
    used_by_rejected,
)
from xds.protocol.readiness import Readiness, holds_content
from xds.protocol.reverted_listeners import are_ready, reverted_listeners
from xds.protocol.transition import Transition
from xds.snapshots.linger import NO_NAMES_BY_TYPE, NamesByType, names_by_type, without_names
from xds.snapshots.memo import Situation
from xds.snapshots.release import merge_names
from xds.snapshots.trees import ResourceId, Tree, listeners_naming, routes_wait, without_resources

_NO_RESOURCES: frozenset[ResourceId] = frozenset()


class Hold(NamedTuple):
    """What is held.

    * ``names``: the names that keep their released version, except lingering ones; all others may be released;
    * ``released``: the release with that version: a listener that cannot become ready is taken back to an earlier one;
    * ``transition``: the state after this step.
    """

    names: NamesByType
    released: Snapshot
    transition: Transition


class _Listeners(NamedTuple):
    """Which listeners of the newest push may not be used yet.

    * ``unready``: the newest version, or a name in it, is not ACKed; None means all;
    * ``reverted``: taken back to an earlier version;
    * ``absent``: the client has ACKed no version of them;
    * ``changing``: the extension configurations that change, for which listeners wait.
    """

    unready: frozenset[str] | None
    reverted: frozenset[str]
    absent: frozenset[str]
    changing: NamesByType


def find_hold(facts: ClientFacts, situation: Situation, before: Transition, readiness: Readiness, now_s: float) -> Hold:
    """What is held now. ``before`` is the transition of the last step, ``readiness`` is that of this one.

    Clients in the same ``situation`` (`ClientFacts.situation`) share the decision, which does not depend on the time.
    """
    if situation and not readiness.rejected:
        key = (
            *situation,
            readiness.cold,
            readiness.unassigned,
            before.ready,
            before.is_ready_unproved,
            before.withheld_types,
            before.fetch_since_s is not None,
            before.is_fetch_over,
            before.is_awaited,
        )
        hold: Hold = facts.releases.holds.get(key, _find_hold, facts, before, readiness)
    else:
        hold = _find_hold(facts, before, readiness)
    return Hold(hold.names, hold.released, _with_times(hold.transition, before, readiness, now_s))


def _without_times(transition: Transition, readiness: Readiness) -> Transition:
    """What the rules about held content may read of a transition: what is in the key of `find_hold`."""
    return Transition(
        began_s=0.0,
        ready=transition.ready,
        is_ready_unproved=transition.is_ready_unproved,
        readiness=Readiness(readiness.cold, (), readiness.unassigned, readiness.rejected),
        withheld_types=transition.withheld_types,
        fetch_since_s=0.0 if transition.fetch_since_s is not None else None,
        is_fetch_over=transition.is_fetch_over,
        returning_until_s=0.0 if transition.is_awaited else None,
    )


def _with_times(found: Transition, before: Transition, readiness: Readiness, now_s: float) -> Transition:
    """``before`` with this readiness and what was found of held content; the same object if it is as it was."""
    since_s = None
    if found.fetch_since_s is not None:
        since_s = before.fetch_since_s if before.fetch_since_s is not None else now_s
    if (
        readiness is before.readiness
        and found.ready is before.ready
        and found.held_names is before.held_names
        and found.held_trees is before.held_trees
        and found.absent_listeners is before.absent_listeners
        and found.withheld_types is before.withheld_types
        and found.is_ready_unproved is before.is_ready_unproved
        and since_s == before.fetch_since_s
    ):
        return before
    return before._replace(
        readiness=readiness,
        ready=found.ready,
        is_ready_unproved=found.is_ready_unproved,
        held_names=found.held_names,
        held_trees=found.held_trees,
        absent_listeners=found.absent_listeners,
        withheld_types=found.withheld_types,
        fetch_since_s=since_s,
    )


def _find_hold(facts: ClientFacts, before: Transition, readiness: Readiness) -> Hold:
    before = _without_times(before, readiness)
    reverted, released = reverted_listeners(facts, before.ready)
    facts = facts._replace(released=released)
    changing = _filters_changing(facts, before)
    transition, unready = _with_unready(facts, before, changing)
    absent = NO_NAMES
    trees: tuple[Tree, ...] = ()
    held: list[NamesByType] = []
    if readiness.cold or reverted or unready is None or unready:
        absent = _absent_listeners(facts, transition)
        trees, held = _held_by_trees(facts, transition, _Listeners(unready, reverted, absent, changing))
    if readiness.cold:
        held.append(aggregates_of_cold_members(facts, readiness))
    held.append(clusters_without_assignments(facts, readiness))
    names = merge_names(*held)
    held_types, withheld = {url for url, _ in names}, transition.withheld_types
    waiting = [url for url in withheld if url in held_types or facts.watches.doubted_in(facts.goal.get(url))]
    transition = transition._replace(
        held_names=names,
        held_trees=trees,
        absent_listeners=absent,
        withheld_types=frozenset(waiting) if len(waiting) < len(withheld) else withheld,
    )
    return Hold(names, released, transition)


def _held_by_trees(
    facts: ClientFacts, transition: Transition, listeners: _Listeners
) -> tuple[tuple[Tree, ...], list[NamesByType]]:
    """The trees of which nothing is released, and the names that these and other trees hold."""
    url, changing = facts.url_of("listeners"), listeners.changing
    trees = facts.releases.plan(facts.released, facts.goal).trees
    held = [
        tree
        for tree in trees
        if not tree.needed_listeners.isdisjoint(listeners.absent)
        or holds_content(facts, transition.readiness, tree.clusters, is_unreadable=tree.is_unreadable)
        or not tree.listeners.isdisjoint(listeners.reverted)
    ]
    stale = outdated_names(facts, transition.ready, is_returning=transition.is_awaited)
    later = listeners_naming(stale, facts.goal) if stale else NO_NAMES  # listeners that wait for these names
    if changing:
        changed = facts.releases.diff(facts.released.get(url), facts.goal.get(url)).added_or_changed
        later |= changed & listeners_naming(changing, facts.goal)
    in_order = [tree for tree in trees if tree not in held and not tree.listeners.isdisjoint(later)]
    if any(tree.has_added_listener for tree in (*held, *in_order)):
        # "listeners are replaced within one response, because the old one may hold the port of the new one"
        # (docs/protocol.md#additions).
        held += [tree for tree in trees if tree.has_removed_listener and tree not in (*held, *in_order)]
    names = [part for tree in held for part in (tree.listener_parts, tree.route_parts)]
    names += [without_names(tree.listener_parts, merge_names(stale, changing)) for tree in in_order]
    waiting = _waiting_routes(facts, transition, listeners, (tree for tree in trees if tree not in held))
    return tuple(held), [*names, without_names(waiting, stale)]


def _waiting_routes(
    facts: ClientFacts,
    transition: Transition,
    listeners: _Listeners,
    trees: Iterable[Tree],
) -> NamesByType:
    """The scopes, routes and hosts of these trees that wait for a listener.

    Until a listener is ready, new connections use its earlier version and the resources that this refers to.
    """
    unready, used = listeners.unready, _NO_RESOURCES
    if unready:
        rejected = unready & facts.watches.rejected_in(facts.goal.get(facts.url_of("listeners")))
        unready -= rejected
        used = facts.releases.used_by(unready, transition.ready)
        used |= used_by_rejected(facts, rejected, transition.ready)
    waiting = merge_names(*(tree.used_route_parts for tree in trees if routes_wait(tree, unready, used)))
    if not waiting:
        return waiting
    # A listener needs the resources that it newly names to become ready, so these do not wait for it.
    return _without_needed(facts, transition, listeners.changing, waiting, used)


def _without_needed(
    facts: ClientFacts,
    transition: Transition,
    changing: NamesByType,
    waiting: NamesByType,
    used: frozenset[ResourceId],
) -> NamesByType:
    """``waiting`` without the names that listeners newly name.

    Names that an unready listener ``used`` before wait in any case: its new version becomes ready with the content that
    the client holds.
    """
    url, releases = facts.url_of("listeners"), facts.releases
    goal, acked = facts.goal.get(url), facts.watches.acked(url) or transition.ready.get(url)
    changed = releases.diff(acked, goal)
    needed = changed.newly_named
    if needed and facts.watches.may_hold_anything(url):  # its listeners may use what it has
        needed = facts.watches.not_fetched(needed)
    filtered = _filters_unready(facts, transition, changing)
    if filtered:
        # The filters are sent before the listener, which then uses the new filters and the new routes.
        used |= releases.used_by(filtered, facts.goal)
    needed = without_resources(needed, used)
    # What listeners request that the client has in their newest versions makes these ready.
    requested = without_resources(
        _not_fetched(facts, transition), releases.used_by(changed.added_or_changed | filtered, facts.goal)
    )
    return without_names(waiting, merge_names(needed, requested))


# -- listeners ------------------------------------------------------------------------------------------------------


def _with_unready(
    facts: ClientFacts, before: Transition, changing: NamesByType
) -> tuple[Transition, frozenset[str] | None]:
    """The transition with the last release whose listeners were ready; and the listeners that are not ready, because
    the newest version or a name in it is not ACKed (None means all).

    docs/protocol.md#additions: "within a tree a route never overtakes the listener that refers to it, the resources
    that the listener newly names".
    """
    url = facts.url_of("listeners")
    goal = facts.goal.get(url)
    if not facts.watches.of(url):
        return before, None if before.is_awaited and goal.resources else NO_NAMES
    acked = facts.watches.acked(url)
    if acked is None:
        return before, None if facts.watches.may_hold_anything(url) else NO_NAMES
    transition = _with_earlier_ready(facts, before, acked, changing)
    unready = facts.releases.diff(acked, goal).added_or_changed
    if unready and facts.view.order.proceed_on_nack:
        unready = unready.difference(facts.rejected_versions(url))
    unready |= _filters_unready(facts, transition, changing)
    # docs/protocol.md#additions: a route "waits at most `order_timeout_s` for resources that never come".
    missing = _not_fetched(facts, transition)
    transition = transition._replace(fetch_since_s=0.0 if missing else None)
    if missing:
        unready |= listeners_naming(missing, facts.released)
    if not transition.is_fetch_over and are_ready(facts, acked, unready):
        transition = transition.with_ready(facts.releases.replaced(facts.released, acked))
    return transition, unready


def _with_earlier_ready(
    facts: ClientFacts, transition: Transition, acked: ResourceSet, changing: NamesByType
) -> Transition:
    """The transition after the client ACKed listeners before those of the newest push, if these are ready.

    Separate streams do not tell which routes the client had when it ACKed them.
    """
    url = acked.type.type_url
    ready = transition.ready.get(url)
    if not facts.is_aggregated or acked is facts.goal.get(url) or acked is ready:
        return transition
    named = facts.releases.diff(ready, acked).newly_named
    if named and facts.watches.not_fetched(named):
        return transition
    release = facts.releases.replaced(facts.released, acked)
    if changing and listeners_naming(changing, release):
        return transition
    return transition.with_ready(release)


def _absent_listeners(facts: ClientFacts, transition: Transition) -> frozenset[str]:
    """The listeners that the client has not ACKed in any version: no cluster may lead to an internal one of them yet.

    All listeners are, as long as a reconnected client is expected to show its listeners; none if it has shown that it
    may have any.
    """
    url = facts.url_of("listeners")
    listeners, acked = frozenset(facts.goal.get(url).resources), facts.watches.acked(url)
    if acked is not None:
        return listeners - acked.resources.keys()
    return listeners if transition.is_awaited and not facts.watches.of(url) else NO_NAMES


def _filters_unready(facts: ClientFacts, transition: Transition, changing: NamesByType) -> frozenset[str]:
    """The listeners that name an extension configuration among those ``changing``. No route may overtake it.

    In the phase RETURNING, also the listeners that name an extension configuration that was not requested yet.
    """
    unready = listeners_naming(changing, facts.goal) if changing else NO_NAMES
    return unready | listeners_with_unshown_filters(facts) if transition.is_awaited else unready


def _filters_changing(facts: ClientFacts, transition: Transition) -> NamesByType:
    """The changed extension configurations that are not ACKed.

    New ones count if the client has reconnected: a listener that it shows may still warm because of them.
    """
    url = facts.url_of("extension_configs")
    goal = facts.goal.get(url)
    if not goal.resources:
        return NO_NAMES_BY_TYPE
    if url in transition.withheld_types:
        return names_by_type({url: goal.resources})
    proceeds, is_new = bool(facts.view.order.proceed_on_nack), not facts.has_returned
    return names_by_type({url: facts.watches.changing(url, goal, except_rejected=proceeds, except_new=is_new)})


def _not_fetched(facts: ClientFacts, transition: Transition) -> NamesByType:
    """The names that released listeners newly name and that the client has not ACKed.

    Names in listeners that a reconnected client showed count as newly named (``is_ready_unproved``).
    """
    if transition.is_fetch_over:
        return NO_NAMES_BY_TYPE
    url = facts.url_of("listeners")
    before = empty_set(url) if transition.is_ready_unproved else transition.ready.get(url)
    named = facts.releases.diff(before, facts.released.get(url)).newly_named
    if transition.is_ready_unproved:
        named = merge_names(named, facts.releases.diff(before, facts.watches.acked(url) or before).newly_named)
    return facts.watches.not_fetched(named) if named else NO_NAMES_BY_TYPE
