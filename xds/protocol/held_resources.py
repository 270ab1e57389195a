"""Single resources that are held in their released version, because Envoy cannot use the newest version yet.

Each function finds them by one rule of docs/protocol.md. ``hold`` decides about whole listener trees.
"""

from __future__ import annotations

from xds.model.names import NO_NAMES
from xds.model.resource_type import resource_type
from xds.model.snapshot import Snapshot
from xds.protocol.facts import ClientFacts
from xds.protocol.readiness import ColdClusters, holds_content
from xds.protocol.returning import earlier_route
from xds.protocol.reverted_listeners import reverting
from xds.snapshots.linger import NO_NAMES_BY_TYPE, NamesByType, names_by_type, without_names
from xds.snapshots.trees import ResourceId, without_resources


def used_by_rejected(facts: ClientFacts, rejected: frozenset[str], earlier: Snapshot) -> frozenset[ResourceId]:
    """The tree parts that rejected listeners refer to in the newest version and in an earlier one.

    docs/protocol.md#rejections: "a rejected listener holds the routes that both its newest version and the one that the
    client has refer to, and no others".
    """
    used_by = facts.releases.used_by
    return used_by(rejected, earlier) & used_by(rejected, facts.goal)


def aggregates_of_cold_members(facts: ClientFacts, cold: ColdClusters) -> NamesByType:
    """The aggregate clusters whose newest version has a cold member.

    docs/protocol.md#additions: "within CDS, new members are sent with the old aggregate cluster, then the new
    aggregate, then removals".
    """
    url = facts.url_of("clusters")
    aggregates = facts.releases.diff(facts.released.get(url), facts.goal.get(url)).aggregates
    names = frozenset(
        name for name, members in aggregates.items() if holds_content(facts, cold, members, is_unreadable=False)
    )
    return ((url, names),) if names else NO_NAMES_BY_TYPE


def clusters_without_assignments(facts: ClientFacts, cold: ColdClusters) -> NamesByType:
    """The clusters whose newest versions newly need an assignment that does not exist, or that the client rejects.

    docs/protocol.md#rejections: "a cluster in use stays as it was while the client rejects the assignment that its
    newest version newly refers to, or while that assignment does not exist, at most `order_timeout_s`".
    """
    url = facts.url_of("clusters")
    assigned = facts.releases.diff(facts.released.get(url), facts.goal.get(url)).newly_assigned
    if not assigned:
        return NO_NAMES_BY_TYPE
    rejected = _rejected_assignments(facts) if not facts.view.order.proceed_on_nack else NO_NAMES
    awaited = cold.unassigned - facts.proof.overdue
    return names_by_type({url: [n for n, each in assigned.items() if n in awaited or not each.isdisjoint(rejected)]})


def _rejected_assignments(facts: ClientFacts) -> frozenset[str]:
    """The assignments whose newest version the client rejects, and of which it never accepted any version."""
    goal = facts.goal.get(facts.url_of("endpoints"))
    watches = facts.watches.of(goal.type.type_url)
    rejected = facts.watches.rejected_in(goal)
    return frozenset(name for name in rejected if not any(watch.has_accepted(name) for watch in watches))


def rejected_with_earlier_versions(facts: ClientFacts, ready: Snapshot) -> NamesByType:
    """What a returned client requests and rejects, has in no version, and may get in an earlier one.

    docs/protocol.md#rejections: "where it is not known what the client has, the last version in the group's removal log
    that no node rejected takes the place of a rejected one": a listener that the client showed may warm for it.
    `with_earlier_routes` sends that version.
    """
    held = dict[str, list[str]]()
    for url, names in facts.watches.never_accepted() if facts.has_returned else ():
        if resource_type(url).is_below_listeners:
            rejected = names & facts.watches.names(url) & facts.watches.rejected_in(facts.goal.get(url))
            held[url] = [name for name in rejected if earlier_route(facts, url, name) is not None]
    return without_names(names_by_type(held), reverting(facts, ready)) if held else NO_NAMES_BY_TYPE


def outdated_names(facts: ClientFacts, ready: Snapshot) -> NamesByType:
    """The names that listeners will name again, and of which the client may use an earlier version.

    docs/protocol.md#additions: "a name that only draining listeners still use is sent before a listener that names it
    again". Names of listeners that are ``ready``, or that the client may have beside them, are left out.
    """
    url, releases = facts.url_of("listeners"), facts.releases
    sent = [each for watch in facts.watches.of(url) for each in watch.sent_sets() if each is not facts.goal.get(url)]
    if facts.watches.may_hold_anything(url) or any(map(releases.leftovers, sent)):
        return NO_NAMES_BY_TYPE  # the listeners that it has may use them
    named = releases.diff(facts.released.get(url), facts.goal.get(url)).newly_named
    named = facts.watches.outdated(named, facts.goal) if named else named
    if not named:
        return NO_NAMES_BY_TYPE
    held = (ready, *(releases.replaced(ready, each) for each in sent))
    used = (releases.used_by(frozenset(each.get(url).resources), each) for each in held)
    return without_resources(named, frozenset().union(*used))
