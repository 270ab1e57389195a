"""Resources in use that stay as they were released, because Envoy could not use their newest versions yet.

Each function finds them for one rule of docs/protocol.md. Whole listener trees are decided in ``transition``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from xds.model.resource_type import resource_type
from xds.model.snapshot import Snapshot
from xds.protocol.diffs import leads_within
from xds.protocol.linger import NO_NAMES_BY_TYPE, Names, keep_of
from xds.protocol.readiness import Readiness
from xds.protocol.release import joined
from xds.protocol.trees import Part, without_parts

if TYPE_CHECKING:
    from xds.protocol.client import ClientState


def over_absent_listeners(client: ClientState, absent: frozenset[str]) -> Names:
    """The clusters and assignments whose newest versions newly name internal listeners that are not ready.

    docs/protocol.md#additions: "a cluster or an assignment that is in use and newly names an internal listener is
    not updated until that listener is ready".
    """
    found: dict[str, set[str]] = {}
    if absent:
        for (url, name), listeners in client.releases.newly_behind(client.released, client.goal).items():
            if not listeners.isdisjoint(absent):
                found.setdefault(url, set()).add(name)
    return keep_of(found)


def aggregates_of_cold(client: ClientState, readiness: Readiness) -> Names:
    """The aggregate clusters with a member in the newest version that is cold.

    docs/protocol.md#additions: "within CDS, new members are sent with the old aggregate cluster, then the new
    aggregate, then removals".
    """
    url = client.url_of("clusters")
    found = client.releases.aggregates(client.released.get(url), client.goal.get(url))
    names = frozenset(name for name, members in found.items() if readiness.holds(client, members, is_unreadable=False))
    return ((url, names),) if names else NO_NAMES_BY_TYPE


def without_endpoints(client: ClientState) -> Names:
    """The clusters whose newest versions need assignments that the client rejects.

    docs/protocol.md#refusals: "a cluster in use stays as it was while the client rejects the assignment that its newest
    version newly refers to".
    """
    url = client.url_of("clusters")
    found = client.releases.newly_assigned(client.released.get(url), client.goal.get(url))
    if not found or client.order.proceed_on_nack:
        return NO_NAMES_BY_TYPE
    refused = _assignments_refused(client)
    return keep_of({url: [name for name, assignments in found.items() if not assignments.isdisjoint(refused)]})


def _assignments_refused(client: ClientState) -> frozenset[str]:
    """The newest assignments that the client rejects and never accepted. At first, those that it is known to reject."""
    url = client.url_of("endpoints")
    watches = client.watches.of(url)
    refusals = [watch.refusals for watch in watches] if watches else [client.past.refusals(url)]
    goal = client.goal.get(url)
    found = frozenset[str]().union(*(each.rejected_in(goal) for each in refusals if each is not None))
    return frozenset(name for name in found if not any(watch.has(name) for watch in watches))


def outdated_names(client: ClientState, users: Sequence[Snapshot], *, is_returning: bool) -> Names:
    """The names that listeners are to name again, and of which the client may have an earlier version in use.

    docs/protocol.md#additions: "a name that only draining listeners still use is sent before a listener that names it
    again". What listeners in ``users`` name is not among them. ``is_returning``: the client may request names yet.
    """
    url, releases = client.url_of("listeners"), client.releases
    named = releases.newly_named(client.released.get(url), client.goal.get(url))
    if named:
        yet = _requested_yet(client, named) if is_returning and client.has_returned else NO_NAMES_BY_TYPE
        named = joined(client.watches.outdated(named, client.goal), yet)
    if not named:
        return NO_NAMES_BY_TYPE
    used = frozenset[Part]().union(*(releases.used_by(frozenset(each.get(url).resources), each) for each in users))
    return without_parts(named, used)


def _requested_yet(client: ClientState, named: Names) -> Names:
    """The names among these that a client that has just returned may have, in earlier versions, and request yet."""
    found = {}
    for url, names in named:
        if resource_type(url).in_tree and not (client.is_aggregated and client.watches.of(url)):
            found[url] = client.cache.changed_since(client.goal, url, names - client.names_wanted(url))
    return keep_of(found)


def routes_in_use(client: ClientState) -> frozenset[Part]:
    """The routes that new connections of a client may use: it holds them, and all clusters that they refer to.

    What only draining listeners use may refer to clusters that were removed.
    """
    url, held = client.url_of("clusters"), client.watches.held_routes()
    clusters = client.release_of(url) if client.watches.of(url) else None
    return frozenset((each.type_url, each.name) for each in held if clusters is None or leads_within(each, clusters))
