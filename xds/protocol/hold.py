"""What of the newest push a client is not sent yet: the names that keep the version that was released before.

docs/internals/engine.md#what-waits has the rules. The unit is the listener tree (`trees`). `find_held` is a function of
the facts, of the cold clusters and of what was held before.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from xds.model.names import NO_NAMES
from xds.model.snapshot import ResourceSet, Snapshot, empty_set
from xds.protocol.facts import ClientFacts
from xds.protocol.held_resources import (
    aggregates_of_cold_members,
    clusters_without_assignments,
    outdated_names,
    rejected_with_earlier_versions,
    used_by_rejected,
)
from xds.protocol.readiness import ColdClusters, holds_content
from xds.protocol.reverted_listeners import reverted_listeners
from xds.snapshots.linger import NO_NAMES_BY_TYPE, NamesByType, names_by_type, without_names
from xds.snapshots.release import merge_names
from xds.snapshots.trees import ResourceId, Tree, listeners_naming, routes_wait, without_resources

_NO_RESOURCES: frozenset[ResourceId] = frozenset()


class Held(NamedTuple):
    """What of the newest push a client is not sent yet, and what this follows from. No time is in it.

    * ``names``: all names that keep their released version, except lingering ones;
    * ``trees``: the trees of which nothing is released: they wait for clusters or internal listeners, or for the
      repair of a rejected resource;
    * ``absent_listeners``: listeners of which no version is ACKed, so that no cluster may lead to an internal one;
    * ``withheld_types``: the type URLs of which nothing is sent, because it is unknown what the client holds;
    * ``ready``: the last release whose listeners were all ready, so that new connections use it;
    * ``is_ready_unproved``: a reconnected client showed the listeners of ``ready``, so they may still be warming: all
      names in them count as newly named;
    * ``is_fetching``: listeners wait for what they newly name (phase FETCHING); ``is_fetch_over``: this has timed out.
    """

    ready: Snapshot
    is_ready_unproved: bool = False
    names: NamesByType = NO_NAMES_BY_TYPE
    trees: tuple[Tree, ...] = ()
    absent_listeners: frozenset[str] = NO_NAMES
    withheld_types: frozenset[str] = NO_NAMES
    is_fetching: bool = False
    is_fetch_over: bool = False

    def with_ready(self, release: Snapshot) -> Held:
        """All listeners of this release are ready."""
        return self._replace(ready=release, is_ready_unproved=False)


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


def find_held(facts: ClientFacts, before: Held, cold: ColdClusters) -> tuple[Held, Snapshot]:
    """What is held now, ``before`` at the last step; and the release in which a listener that cannot become ready is
    taken back to an earlier version.
    """
    reverted, released = reverted_listeners(facts, before.ready)
    facts = facts._replace(released=released)
    changing = _filters_changing(facts, before)
    held, unready = _with_unready(facts, before, changing)
    absent = NO_NAMES
    trees: tuple[Tree, ...] = ()
    parts: list[NamesByType] = []
    if cold.names or reverted or unready is None or unready:
        absent = _absent_listeners(facts)
        trees, parts = _held_by_trees(facts, held, cold, _Listeners(unready, reverted, absent, changing))
    if cold.names:
        parts.append(aggregates_of_cold_members(facts, cold))
    parts += [clusters_without_assignments(facts, cold), rejected_with_earlier_versions(facts, before.ready)]
    names = merge_names(*parts)
    held_types, withheld = {url for url, _ in names}, held.withheld_types
    waiting = [url for url in withheld if url in held_types or facts.watches.doubted_in(facts.goal.get(url))]
    withheld = frozenset(waiting) if len(waiting) < len(withheld) else withheld
    return held._replace(names=names, trees=trees, absent_listeners=absent, withheld_types=withheld), released


def _held_by_trees(
    facts: ClientFacts, before: Held, cold: ColdClusters, listeners: _Listeners
) -> tuple[tuple[Tree, ...], list[NamesByType]]:
    """The trees of which nothing is released, and the names that these and other trees hold."""
    url, changing = facts.url_of("listeners"), listeners.changing
    trees = facts.releases.plan(facts.released, facts.goal).trees
    held, free = list[Tree](), list[Tree]()
    for tree in trees:
        is_held = (
            not tree.needed_listeners.isdisjoint(listeners.absent)
            or holds_content(facts, cold, tree.clusters, is_unreadable=tree.is_unreadable)
            or not tree.listeners.isdisjoint(listeners.reverted)
        )
        (held if is_held else free).append(tree)
    stale = outdated_names(facts, before.ready)
    if stale and before.is_ready_unproved:  # earlier versions of its listeners may use what it has
        stale = facts.watches.not_fetched(stale)
    later = listeners_naming(stale, facts.goal) if stale else NO_NAMES  # listeners that wait for these names
    if changing:
        changed = facts.releases.diff(facts.released.get(url), facts.goal.get(url)).added_or_changed
        later |= changed & listeners_naming(changing, facts.goal)
    in_order = [tree for tree in free if not tree.listeners.isdisjoint(later)]
    if any(tree.has_added_listener for tree in (*held, *in_order)):
        # "listeners are replaced within one response, because the old one may hold the port of the new one"
        # (docs/protocol.md#additions).
        held += [tree for tree in free if tree.has_removed_listener and tree.listeners.isdisjoint(later)]
        free = [tree for tree in free if not (tree.has_removed_listener and tree.listeners.isdisjoint(later))]
    names = [part for tree in held for part in (tree.listener_parts, tree.route_parts)]
    names += [without_names(tree.listener_parts, merge_names(stale, changing)) for tree in in_order]
    waiting = _waiting_routes(facts, before, listeners, free)
    return tuple(held), [*names, without_names(waiting, stale)]


def _waiting_routes(
    facts: ClientFacts,
    before: Held,
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
        used = facts.releases.used_by(unready, before.ready) | _used_in_flight(facts)
        used |= used_by_rejected(facts, rejected, before.ready)
    if unready and before.is_ready_unproved and unready - _naming_absent(facts, before):
        unready = None  # the versions before those that the client showed may use any route
    waiting = merge_names(*(tree.used_route_parts for tree in trees if routes_wait(tree, unready, used)))
    if not waiting:
        return waiting
    # A listener needs the resources that it newly names to become ready, so these do not wait for it.
    return _without_needed(facts, before, listeners.changing, waiting, used)


def _without_needed(
    facts: ClientFacts,
    before: Held,
    changing: NamesByType,
    waiting: NamesByType,
    used: frozenset[ResourceId],
) -> NamesByType:
    """``waiting`` without the names that listeners newly name.

    Names that an unready listener ``used`` before wait in any case: its new version becomes ready with the content that
    the client holds.
    """
    url, releases = facts.url_of("listeners"), facts.releases
    goal, acked = facts.goal.get(url), facts.watches.acked(url) or before.ready.get(url)
    changed = releases.diff(acked, goal)
    needed = facts.watches.not_fetched(changed.newly_named)  # a listener becomes ready with what the client has
    filtered = listeners_naming(changing, facts.goal)
    if filtered:
        # The filters are sent before the listener, which then uses the new filters and the new routes.
        used |= releases.used_by(filtered, facts.goal)
    needed = without_resources(needed, used)
    # What listeners request that the client has in their newest versions makes these ready.
    missing, refused = _not_fetched(facts, before), facts.watches.never_accepted()
    requested = without_resources(missing, releases.used_by(changed.added_or_changed | filtered, facts.goal))
    if refused:  # a listener serves without it, so it comes after what else listeners newly name
        guarded = releases.used_by(listeners_naming(without_names(missing, refused), facts.goal), facts.goal)
        late = ((url, name) for url, names in refused for name in names)
        requested = without_resources(requested, guarded.intersection(late))
    return without_names(waiting, merge_names(needed, requested))


def _outdated_in_flight(facts: ClientFacts) -> Iterator[tuple[ResourceSet, frozenset[str]]]:
    """The sets of listeners in flight, each with the listeners that the newest push changed or removed since.

    The client may have these already.
    """
    goal = facts.goal.get(facts.url_of("listeners"))
    for watch in facts.watches.pending(goal.type.type_url):
        if watch.offered is not None and watch.offered.resource_set is not goal:
            change = facts.releases.diff(watch.offered.resource_set, goal).change
            yield watch.offered.resource_set, frozenset((*change.changed, *change.removed))


def _used_in_flight(facts: ClientFacts) -> frozenset[ResourceId]:
    """What the listeners in `_outdated_in_flight` refer to."""
    releases = facts.releases
    outdated = _outdated_in_flight(facts)
    used = (releases.used_by(names, releases.replaced(facts.released, sent)) for sent, names in outdated)
    return _NO_RESOURCES.union(*used)


# -- listeners ------------------------------------------------------------------------------------------------------


def _naming_absent(facts: ClientFacts, before: Held) -> frozenset[str]:
    """The listeners that name what the client has not and no push has: that says nothing of whether they warm."""
    missing = ((kind, names - facts.goal.get(kind).resources.keys()) for kind, names in _not_fetched(facts, before))
    return listeners_naming(names_by_type(dict(missing)), facts.released)


def _with_unready(facts: ClientFacts, before: Held, changing: NamesByType) -> tuple[Held, frozenset[str] | None]:
    """What is held, with the last release whose listeners were ready; and the listeners that are not ready, because
    the newest version or a name in it is not ACKed (None means all).

    docs/protocol.md#additions: "within a tree a route never overtakes the listener that refers to it, the resources
    that the listener newly names".
    """
    url = facts.url_of("listeners")
    goal = facts.goal.get(url)
    if not facts.watches.of(url):
        return before, None if facts.is_awaited and goal.resources else NO_NAMES
    acked = facts.watches.acked(url)
    if acked is None:
        return before, None if facts.watches.may_hold_anything(url) else NO_NAMES
    held = _with_earlier_ready(facts, before, acked, changing)
    unready = facts.releases.diff(acked, goal).added_or_changed
    if unready and facts.view.order.proceed_on_nack:
        unready = unready.difference(facts.rejected_versions(url))
    unready = unready.union(listeners_naming(changing, facts.goal), *(names for _, names in _outdated_in_flight(facts)))
    # docs/protocol.md#additions: a route "waits at most `order_timeout_s` for resources that never come".
    missing = _not_fetched(facts, held)
    held = held._replace(is_fetching=bool(missing))
    if missing:
        unready |= listeners_naming(missing, facts.released)
    if not held.is_fetch_over and not unready and acked is facts.released.get(url):
        held = held.with_ready(facts.releases.replaced(facts.released, acked))
    return held, unready


def _with_earlier_ready(facts: ClientFacts, before: Held, acked: ResourceSet, changing: NamesByType) -> Held:
    """What is held after the client ACKed listeners before those of the newest push, if these are ready."""
    url = acked.type.type_url
    ready = before.ready.get(url)
    if acked is facts.goal.get(url) or acked is ready:
        return before
    named = facts.releases.diff(empty_set(url) if before.is_ready_unproved else ready, acked).newly_named
    if named and facts.watches.not_fetched(named):
        return before
    release = facts.releases.replaced(facts.released, acked)
    if changing and listeners_naming(changing, release):
        return before
    return before.with_ready(release)


def _absent_listeners(facts: ClientFacts) -> frozenset[str]:
    """The listeners that the client has not ACKed in any version: no cluster may lead to an internal one of them yet.

    All listeners are, as long as a reconnected client is expected to show its listeners; none if it has shown that it
    may have any.
    """
    url = facts.url_of("listeners")
    listeners, acked = frozenset(facts.goal.get(url).resources), facts.watches.acked(url)
    if acked is not None:
        return listeners - acked.resources.keys()
    return listeners if facts.is_awaited and not facts.watches.of(url) else NO_NAMES


def _filters_changing(facts: ClientFacts, before: Held) -> NamesByType:
    """The changed extension configurations that are not ACKed.

    New ones count if the client has reconnected: a listener that it shows may still warm because of them.
    """
    url = facts.url_of("extension_configs")
    goal = facts.goal.get(url)
    if not goal.resources:
        return NO_NAMES_BY_TYPE
    if url in before.withheld_types:
        return names_by_type({url: goal.resources})
    proceeds, is_new = bool(facts.view.order.proceed_on_nack), not facts.has_returned
    return names_by_type({url: facts.watches.changing(url, goal, except_rejected=proceeds, except_new=is_new)})


def _not_fetched(facts: ClientFacts, held: Held) -> NamesByType:
    """The names that released listeners newly name and that the client has not ACKed.

    Names in listeners that a reconnected client showed count as newly named (``is_ready_unproved``).
    """
    if held.is_fetch_over:
        return NO_NAMES_BY_TYPE
    url = facts.url_of("listeners")
    before = empty_set(url) if held.is_ready_unproved else held.ready.get(url)
    named = facts.releases.diff(before, facts.released.get(url)).newly_named
    if held.is_ready_unproved:
        named = merge_names(named, facts.releases.diff(before, facts.watches.acked(url) or before).newly_named)
    return facts.watches.not_fetched(named) if named else NO_NAMES_BY_TYPE
