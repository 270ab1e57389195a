"""The transition of one client to the newest snapshot: what has to wait, and for what (docs/protocol.md#order).

A transition is not tied to one push. It always covers the difference between the content released to this client and
the newest snapshot. The difference is split into listener trees (`trees`), and each tree is in one phase:

    phase of a tree  what the client is sent              what the tree waits for          what ends the phase
    CLUSTERS         the clusters that the tree refers    every cold cluster that it       the ACK of CDS, or proof for
                     to, with EDS and SDS; nothing of     refers to (`readiness`)          single clusters;
                     the tree itself                                                       order_timeout_s
    LISTENERS        extension configurations, listeners  the ACKs of LDS and ECDS         the ACKs
                     and new routes; a listener after the
                     changed ones that it names
    FETCHING         the same                             everything that the listeners    the ACKs; order_timeout_s
                                                          newly name
    ROUTES           changed routes too                   their ACKs                       the ACKs
    LINGERING        everything but removals              nothing                          the end of lingering

    phase of a client
    RETURNING        updates of the content that it       its requests for the types that  return_s; order_timeout_s
                     shows; nothing of types whose        it had before, above all CDS     while it is known to use CDS
                     content is unknown                                                    and has not requested it

"Routes" are scoped routes, route configurations and virtual hosts. A tree with warm clusters only skips CLUSTERS.
Lingering outlasts the transition (`ClientState.lingering`). A rejected resource stops its tree in the phase it is in.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from typing import NamedTuple

from xds.model.names import NO_NAMES
from xds.model.resource_type import resource_type
from xds.model.snapshot import ResourceSet, Snapshot, empty_set
from xds.protocol.awaited_secrets import still_named
from xds.protocol.cluster_parts import lacks_named_clusters
from xds.protocol.expected_requests import (
    listeners_with_unshown_filters,
    may_have_warming_listeners,
    subscribes_to_clusters,
)
from xds.protocol.facts import ClientFacts
from xds.protocol.held_resources import (
    aggregates_of_cold_members,
    clusters_without_assignments,
    is_served_here,
    outdated_names,
    routes_in_use,
    used_by_rejected,
)
from xds.protocol.linger import NO_NAMES_BY_TYPE, NamesByType, names_by_type, without_names
from xds.protocol.readiness import Readiness
from xds.protocol.release import merge_names
from xds.protocol.reverted_listeners import are_earlier_ready, are_ready, reverted_listeners
from xds.protocol.trees import ResourceId, Tree, listeners_naming, routes_wait, without_resources

_NO_RESOURCES: frozenset[ResourceId] = frozenset()
_ACKED_RELEASES_LIMIT = 8


class Expired(NamedTuple):
    """The waits that a deadline ends.

    * ``overdue``: all clusters that content has waited for long enough;
    * ``is_unproved``: content is released without proof that the client is ready for it;
    * ``is_missing_due``: requested names that waited are missing now.
    """

    overdue: frozenset[str]
    is_unproved: bool
    is_missing_due: bool


class Transition:
    """The transition of one client.

    * ``ready_release``: the last release whose listeners were all ready, so that new connections use it;
    * ``is_ready_release_unproved``: a reconnected client showed the listeners of ``ready_release``, so they may still
      be warming: all names in them count as newly named;
    * ``acked_releases``: the releases with listeners that were ACKed since; new connections may use these as well;
    * ``held_trees``: the trees of which nothing is released: they wait for clusters or internal listeners, or for the
      repair of a rejected resource;
    * ``held_names``: all names that keep their released version, except lingering ones;
    * ``absent_listeners``: new listeners that are not ready, so that no cluster may lead to an internal one of them;
    * ``drains``: a listener changed or was removed, so old connections drain;
    * ``withheld_types``: the type URLs of which nothing is sent, because it is unknown what the client holds;
    * ``fetch_since_s``: since when listeners are in the phase FETCHING; ``is_fetch_over``: this wait has timed out;
    * ``has_timed_out``: `order_timeout_s` has passed: names that exist only in held content are reported as missing,
      and clusters that a client did not request by name are not waited for;
    * ``returning_until_s``: the end of the phase RETURNING; None outside of it;
    * ``awaited_until_s``: the missing secrets that content in use newly names, and until when they may come;
    """

    __slots__ = (
        "absent_listeners",
        "acked_releases",
        "awaited_until_s",
        "began_s",
        "drains",
        "fetch_since_s",
        "has_timed_out",
        "held_names",
        "held_trees",
        "is_fetch_over",
        "is_ready_release_unproved",
        "readiness",
        "ready_release",
        "returning_until_s",
        "withheld_types",
    )

    def __init__(self, facts: ClientFacts, now_s: float) -> None:
        self.began_s = now_s
        self.ready_release: Snapshot = facts.released
        self.acked_releases: tuple[Snapshot, ...] = ()
        self.awaited_until_s: Mapping[str, float] = {}
        self.is_ready_release_unproved = may_have_warming_listeners(facts, now_s)
        self.readiness = Readiness()
        self.held_trees: tuple[Tree, ...] = ()
        self.held_names: NamesByType = NO_NAMES_BY_TYPE
        self.absent_listeners: frozenset[str] = NO_NAMES
        self.drains = False
        self.withheld_types: frozenset[str] = NO_NAMES
        self.fetch_since_s: float | None = None
        self.is_fetch_over = False
        self.has_timed_out = False
        self.returning_until_s: float | None = None

    def copy(self) -> Transition:
        """An independent transition in the same state."""
        clone = copy(self)
        clone.readiness = self.readiness.copy()
        return clone

    def set_ready_release(self, release: Snapshot) -> None:
        """Note that all listeners of this release are ready."""
        self.ready_release, self.acked_releases, self.is_ready_release_unproved = release, (), False

    def withhold(self, facts: ClientFacts, type_url: str) -> None:
        """Send nothing of this type: it is unknown what the client holds, and what changed may drain."""
        self.withheld_types |= {type_url}
        self.drains = True
        # A listener that cannot become ready is taken back to the version before.
        self.ready_release = facts.releases.replaced(self.ready_release, facts.logs.earlier(type_url))

    def note_shown(self, ready_release: Snapshot) -> None:
        """A reconnected client showed that it has listeners of this release. They may still be warming."""
        self.ready_release, self.is_ready_release_unproved = ready_release, True

    def become_ready(self, release: Snapshot) -> None:
        """The client has ACKed all of this release that may refer to clusters."""
        self.ready_release, self.is_ready_release_unproved, self.drains = release, False, False

    @property
    def is_awaited(self) -> bool:
        """Whether the client is expected to request further types, because it has returned or a stream ended."""
        return self.returning_until_s is not None

    def holds_type(self, type_url: str) -> bool:
        """Whether some resources of this type keep their released version."""
        return any(url == type_url for url, _ in self.held_names)

    def holds_back(self, type_url: str) -> bool:
        """Whether newer content of this type is not released."""
        return type_url in self.withheld_types or self.holds_type(type_url)

    def upcoming_set(self, goal_set: ResourceSet) -> ResourceSet | None:
        """The newest set of a type while some of it is held. Its names are not reported as missing meanwhile.

        None if nothing is held, and after `order_timeout_s`: "a name that exists only in held content is reported as
        missing after `order_timeout_s`, and sent when the content is released" (docs/protocol.md#additions).
        """
        is_held = not self.has_timed_out and self.holds_type(goal_set.type.type_url)
        return goal_set if is_held else None

    def awaited_secrets(self, type_url: str) -> frozenset[str]:
        """The secrets that content in use newly names: not reported as missing for `order_timeout_s`."""
        if not self.awaited_until_s or resource_type(type_url).alias != "secrets":
            return NO_NAMES
        return frozenset(self.awaited_until_s)

    # -- what is held -----------------------------------------------------------------------------------------------

    def find_held_names(self, facts: ClientFacts, now_s: float) -> tuple[NamesByType, Snapshot]:
        """The names that keep their released version, except lingering ones; and the release with that version.

        All others may be released. A listener that cannot become ready is taken back to an earlier version.
        """
        is_awaited, cold = self.is_awaited, self.readiness.cold
        reverted, released = reverted_listeners(facts, self.ready_release)
        facts = facts._replace(released=released)
        unready = self._unready_listeners(facts, now_s, is_awaited=is_awaited)
        self.held_trees, held, absent = (), [], NO_NAMES
        if cold or reverted or unready is None or unready:
            absent = self._absent_listeners(facts, unready, is_awaited=is_awaited)
            absent |= self._unused_listeners(facts, reverted)
            held = self._held_by_trees(facts, unready, reverted, absent)
        if cold:
            held.append(aggregates_of_cold_members(facts, self.readiness))
        held.append(clusters_without_assignments(facts, self.readiness))
        self.held_names, self.absent_listeners = merge_names(*held), absent
        waiting = [
            url for url in self.withheld_types if self.holds_type(url) or facts.watches.rejects(facts.goal.get(url))
        ]
        if len(waiting) < len(self.withheld_types):
            self.withheld_types = frozenset(waiting)
        return self.held_names, released

    def _held_by_trees(
        self, facts: ClientFacts, unready: frozenset[str] | None, reverted: frozenset[str], absent: frozenset[str]
    ) -> list[NamesByType]:
        """The names that are held because their tree is in the phase CLUSTERS, LISTENERS or FETCHING.

        The arguments are names of listeners: not ready (None: all), taken back to an earlier version, not there yet.
        """
        trees = facts.releases.plan(facts.released, facts.goal).trees
        held = [
            tree
            for tree in trees
            if not tree.needed_listeners.isdisjoint(absent)
            or self.readiness.holds(facts, tree.clusters, is_unreadable=tree.is_unreadable)
            or not tree.listeners.isdisjoint(reverted)
        ]
        unshown = self._used_by_unshown(facts)
        stale = outdated_names(
            facts, (self.ready_release, *self.acked_releases), is_returning=self.returning_until_s is not None
        )
        stale = without_resources(stale, unshown)
        later = listeners_naming(stale, facts.goal) if stale else NO_NAMES  # listeners that wait for these names
        changing = self._filters_changing(facts)
        if changing:
            url = facts.url_of("listeners")
            changed = facts.releases.diff(facts.released.get(url), facts.goal.get(url)).added_or_changed
            later |= changed & listeners_naming(changing, facts.goal)
        in_order = [tree for tree in trees if tree not in held and not tree.listeners.isdisjoint(later)]
        if any(tree.has_added_listener for tree in (*held, *in_order)):
            # "listeners are replaced within one response, because the old one may hold the port of the new one"
            # (docs/protocol.md#additions).
            held += [tree for tree in trees if tree.has_removed_listener and tree not in (*held, *in_order)]
        self.held_trees = tuple(held)
        names = [part for tree in held for part in (tree.listener_parts, tree.route_parts)]
        names += [without_names(tree.listener_parts, merge_names(stale, changing)) for tree in in_order]
        # Until a listener is ready, new connections use its earlier versions and the resources that these refer to.
        used = _NO_RESOURCES
        if unready:
            rejected = unready & facts.watches.rejected_in(facts.goal.get(facts.url_of("listeners")))
            unready -= rejected
            for each in (self.ready_release, *self.acked_releases):
                used |= facts.releases.used_by(unready, each) | used_by_rejected(facts, rejected, each)
            used |= unshown
        waiting = merge_names(
            *(tree.used_route_parts for tree in trees if tree not in held and routes_wait(tree, unready, used))
        )
        if waiting:
            # A listener needs the resources that it newly names to become ready, so these do not wait for it.
            waiting = self._without_needed(facts, waiting, used)
        return [*names, without_names(waiting, stale)]

    def _used_by_unshown(self, facts: ClientFacts) -> frozenset[ResourceId]:
        """The routes in use that earlier versions of listeners may name, which a reconnected client does not show.

        New connections use these routes while a shown listener lacks a resource that this server serves or served. A
        resource that the client rejects is not lacking: the listener becomes ready without it.
        """
        if not self.is_ready_release_unproved:
            return _NO_RESOURCES
        missing = self._not_fetched(facts, facts.watches.never_accepted())
        return routes_in_use(facts) if any(is_served_here(facts, *each) for each in missing) else _NO_RESOURCES

    def _absent_listeners(
        self, facts: ClientFacts, unready: frozenset[str] | None, *, is_awaited: bool
    ) -> frozenset[str]:
        """The new listeners that are not ready: no cluster may lead to an internal one of them yet.

        Changed listeners are not among them: each "serves its previous content meanwhile" (docs/protocol.md#additions).
        All listeners are, as long as a reconnected client is expected to show its listeners.
        """
        if unready is not None and not unready:
            return NO_NAMES
        url = facts.url_of("listeners")
        listeners = frozenset(facts.goal.get(url).resources)
        if not facts.watches.of(url):
            return listeners if is_awaited else NO_NAMES
        return self._unused_listeners(facts, listeners if unready is None else unready & listeners)

    def _unused_listeners(self, facts: ClientFacts, listeners: frozenset[str]) -> frozenset[str]:
        """The listeners among these that no new connection is known to use yet, in any version."""
        if not listeners:
            return listeners
        url = facts.url_of("listeners")
        used, acked = self.ready_release.get(url).resources.keys(), facts.watches.acked(url)
        # While a listener is rejected, `ready_release` stays as it is and may have listeners that were removed since.
        new = listeners.difference(used if acked is None else used & acked.resources.keys())
        if self.is_ready_release_unproved and (missing := self._not_fetched(facts)):
            new |= listeners & listeners_naming(missing, facts.released)
        return new

    def _without_needed(self, facts: ClientFacts, waiting: NamesByType, used: frozenset[ResourceId]) -> NamesByType:
        """``waiting`` without the names that listeners newly name, and without rejected names of which no version was
        accepted.

        These rejected names do not wait, so that a repair is sent at once, unless a listener that uses them waits for
        its filters. A name of which the client accepted a version can wait for its listener. Names that an unready
        listener ``used`` before wait in any case: its new version becomes ready with the content that the client holds.
        """
        url = facts.url_of("listeners")
        goal, acked = facts.goal.get(url), facts.watches.acked(url) or self.ready_release.get(url)
        in_flight = [watch.offered for watch in facts.watches.of(url) if watch.offered is not None]
        changed = facts.releases.diff(acked, goal)
        needed = changed.newly_named
        if needed and facts.watches.may_hold_anything(url):  # its listeners may use what it has
            needed = facts.watches.not_fetched(needed)
        for each in in_flight:
            if needed:
                needed = without_names(needed, facts.releases.diff(acked, each.resource_set).newly_named)
        if filtered := self._filters_unready(facts):
            # The filters are sent before the listener, which then uses the new filters and the new routes.
            used |= facts.releases.used_by(filtered, facts.goal)
        needed = without_resources(needed, used)
        # What listeners request that the client has in their newest versions makes these ready.
        requested = without_resources(
            self._not_fetched(facts), facts.releases.used_by(changed.added_or_changed | filtered, facts.goal)
        )
        needed = merge_names(needed, requested)
        return without_names(without_names(waiting, needed), self._repairs(facts))

    def _repairs(self, facts: ClientFacts) -> NamesByType:
        """The rejected names of which no version was accepted, unless a listener that uses them is not ready."""
        rejected = facts.watches.never_accepted()
        if not rejected:
            return NO_NAMES_BY_TYPE
        url = facts.url_of("listeners")
        goal, acked = facts.goal.get(url), facts.watches.acked(url) or self.ready_release.get(url)
        missing = self._not_fetched(facts, rejected)
        unready = facts.releases.diff(acked, goal).added_or_changed | self._filters_unready(facts)
        used = facts.releases.used_by(unready | listeners_naming(missing, facts.released), facts.goal)
        return without_resources(rejected, used)

    def _unready_listeners(self, facts: ClientFacts, now_s: float, *, is_awaited: bool) -> frozenset[str] | None:
        """The listeners that are not ready, because the newest version or a name in it is not ACKed; None means all.

        docs/protocol.md#additions: "within a tree a route never overtakes the listener that refers to it, the resources
        that the listener newly names".
        """
        url = facts.url_of("listeners")
        goal = facts.goal.get(url)
        if not facts.watches.of(url):
            return None if is_awaited and goal.resources else NO_NAMES
        acked = facts.watches.acked(url)
        if acked is None:
            return None if facts.watches.may_hold_anything(url) else NO_NAMES
        self._note_acked_release(facts, acked)
        unready = facts.releases.diff(acked, goal).added_or_changed
        if unready and facts.view.order.proceed_on_nack:
            unready = unready.difference(facts.rejected_versions(url))
        unready = unready | self._filters_unready(facts) | self._fetching(facts, now_s)
        if not self.is_fetch_over and are_ready(facts, acked, unready):
            self.set_ready_release(facts.releases.replaced(facts.released, acked))  # new connections use it from now on
        return unready

    def _note_acked_release(self, facts: ClientFacts, acked: ResourceSet) -> None:
        """Note the release of this ACKed set of listeners. No new connection uses a listener that the set lacks."""
        url, without_removed = acked.type.type_url, facts.releases.without_removed
        if are_earlier_ready(facts, acked, self.ready_release.get(url), self._filters_changing(facts)):
            self.set_ready_release(facts.releases.replaced(facts.released, acked))
            return
        self.acked_releases = tuple(x.with_set(without_removed(x.get(url), acked)) for x in self.acked_releases)
        if acked is not facts.goal.get(url) and all(
            acked is not each.get(url) for each in (self.ready_release, *self.acked_releases)
        ):
            self.acked_releases = (*self.acked_releases, facts.released.with_set(acked))[-_ACKED_RELEASES_LIMIT:]

    def _filters_unready(self, facts: ClientFacts) -> frozenset[str]:
        """The listeners that name a changed extension configuration that is not ACKed. No route may overtake it.

        In the phase RETURNING, also the listeners that name an extension configuration that was not requested yet.
        """
        changing = self._filters_changing(facts)
        unready = listeners_naming(changing, facts.goal) if changing else NO_NAMES
        return unready | listeners_with_unshown_filters(facts) if self.returning_until_s is not None else unready

    def _filters_changing(self, facts: ClientFacts) -> NamesByType:
        """The changed extension configurations that are not ACKed.

        New ones count if the client has reconnected: a listener that it shows may still warm because of them.
        """
        url = facts.url_of("extension_configs")
        goal = facts.goal.get(url)
        if not goal.resources:
            return NO_NAMES_BY_TYPE
        if url in self.withheld_types:
            return names_by_type({url: goal.resources})
        proceeds, is_new = bool(facts.view.order.proceed_on_nack), not facts.has_returned
        return names_by_type({url: facts.watches.changing(url, goal, except_rejected=proceeds, except_new=is_new)})

    def _fetching(self, facts: ClientFacts, now_s: float) -> frozenset[str]:
        """The listeners in the phase FETCHING: released, but the client has not ACKed all names that they newly name.

        docs/protocol.md#additions: a route "waits at most `order_timeout_s` for resources that never come".
        """
        missing = self._not_fetched(facts)
        if not missing:
            self.fetch_since_s = None
            return NO_NAMES
        self.fetch_since_s = now_s if self.fetch_since_s is None else self.fetch_since_s
        return listeners_naming(missing, facts.released)

    def _not_fetched(self, facts: ClientFacts, excluded: NamesByType = NO_NAMES_BY_TYPE) -> NamesByType:
        """The names that released listeners newly name and that the client has not ACKed, without ``excluded``.

        Names in listeners that a reconnected client showed count as newly named (``is_ready_release_unproved``).
        """
        if self.is_fetch_over:
            return NO_NAMES_BY_TYPE
        url = facts.url_of("listeners")
        before = empty_set(url) if self.is_ready_release_unproved else self.ready_release.get(url)
        named = facts.releases.diff(before, facts.released.get(url)).newly_named
        if self.is_ready_release_unproved:
            named = merge_names(named, facts.releases.diff(before, facts.watches.acked(url) or before).newly_named)
        named = without_names(named, excluded)
        return facts.watches.not_fetched(named) if named else NO_NAMES_BY_TYPE

    def note_missing_secrets(self, facts: ClientFacts, missing: frozenset[str], now_s: float) -> None:
        """Wait for these secrets, and for those that are waited for already as long as they are missing."""
        until_s, before = now_s + facts.rules.order_timeout_s, self.awaited_until_s
        if before or missing:
            self.awaited_until_s = {n: before.get(n, until_s) for n in still_named({*before, *missing}, facts.goal)}

    # -- the end ----------------------------------------------------------------------------------------------------

    def is_acked(self, facts: ClientFacts) -> bool:
        """Whether the client has ACKed everything that may refer to clusters.

        docs/protocol.md#removals: "the clock starts when everything that could refer to the resource is ACKed". One
        that requests clusters by name uses an old one until it has the new one (`lacks_named_clusters`).
        """
        is_fetching = self.fetch_since_s is not None
        if self.held_names or self.withheld_types or self.is_awaited or self.awaited_until_s or is_fetching:
            return False
        if any(resource_type(url).in_tree for url in facts.watches.pending_types):
            return False
        return not lacks_named_clusters(facts, is_bounded=self.has_timed_out)

    def is_over(self, facts: ClientFacts) -> bool:
        """Whether all clusters are warm or overdue (`Proof`), CDS is ACKed, and all removals have an end.

        Once `is_acked` holds as well, the transition ends.
        """
        if not self.readiness.cold <= self.readiness.overdue(facts) or facts.lingering.lacks_end:
            return False
        return not any(resource_type(url).is_route_target for url in facts.watches.pending_types)

    def expire(self, facts: ClientFacts, now_s: float) -> Expired:
        """End waits that have timed out."""
        rules, is_missing_due = facts.rules, False
        overdue = self.readiness.expire(facts, now_s)
        is_unreadable = any(tree.is_unreadable for tree in self.held_trees)
        ended = any(
            is_unreadable or not self.readiness.waits_without_limit(facts, name)
            for name in overdue - facts.proof.overdue
            if self.held_trees
        )
        if self.returning_until_s is not None and now_s >= self._returning_until_s(facts):
            self.returning_until_s = None
            ended = ended or (subscribes_to_clusters(facts) and not facts.has_requested_clusters)
        if self.fetch_since_s is not None and now_s >= self.fetch_since_s + rules.order_timeout_s:
            self.fetch_since_s, self.is_fetch_over, ended = None, True, True
        if any(until_s <= now_s for until_s in self.awaited_until_s.values()):
            self.awaited_until_s = {n: until_s for n, until_s in self.awaited_until_s.items() if until_s > now_s}
            is_missing_due = True
        if not self.has_timed_out and now_s >= self.began_s + rules.order_timeout_s:
            self.has_timed_out = is_missing_due = True
        return Expired(overdue, is_unproved=ended, is_missing_due=is_missing_due)

    def deadline_s(self, facts: ClientFacts) -> float | None:
        """When `expire` is due if no request or push comes before; None if it is not needed."""
        rules, due = facts.rules, []
        ready_s = self.readiness.deadline_s(facts)
        if ready_s is not None:
            due.append(ready_s)
        if self.returning_until_s is not None:
            due.append(self._returning_until_s(facts))
        if self.fetch_since_s is not None:
            due.append(self.fetch_since_s + rules.order_timeout_s)
        due += self.awaited_until_s.values()
        if (self.held_names or facts.lingering.lacks_end) and not self.has_timed_out:
            due.append(self.began_s + rules.order_timeout_s)
        return min(due, default=None)

    def _returning_until_s(self, facts: ClientFacts) -> float:
        """When the phase RETURNING ends.

        docs/protocol.md#coming-back: "New trees wait for the CDS request of such a client, at most
        `order_timeout_s`".
        """
        assert self.returning_until_s is not None
        if not facts.watches.of(facts.url_of("clusters")) and subscribes_to_clusters(facts):
            return self.began_s + facts.rules.order_timeout_s
        return self.returning_until_s
