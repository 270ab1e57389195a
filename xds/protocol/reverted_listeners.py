"""Listeners that are taken back, because the client rejects what they newly name.

``ready`` is the last release whose listeners were all ready (`Held.ready`).
"""

from __future__ import annotations

from collections.abc import Set

from xds.model.names import NO_NAMES
from xds.model.resource_type import resource_type
from xds.model.snapshot import Snapshot, empty_set
from xds.protocol.cluster_parts import lacking_parts
from xds.protocol.facts import ClientFacts
from xds.protocol.returning import earlier_route
from xds.snapshots.linger import NO_NAMES_BY_TYPE, NamesByType, names_by_type
from xds.snapshots.trees import listeners_naming


def reverted_listeners(facts: ClientFacts, ready: Snapshot) -> tuple[frozenset[str], Snapshot]:
    """The listeners that newly name a rejected resource, and the release with their last accepted versions.

    docs/protocol.md#rejections: "a rejected route or extension configuration that a listener newly names takes the
    listener back to its last accepted version, because Envoy would go live without it".
    """
    if not facts.watches.rejects_anything:
        return NO_NAMES, facts.released
    rejected = reverting(facts, ready)
    released, reverted = facts.released, listeners_naming(rejected, facts.released)
    if reverted:
        released = facts.releases.reverted(released, _usable(facts, ready), facts.url_of("listeners"), reverted)
    return listeners_naming(rejected, facts.goal), released


def _usable(facts: ClientFacts, ready: Snapshot) -> Snapshot:
    """The release ``ready``, but no listener names what the client rejects and never accepted, if the log has a version
    that does not, and that leads to clusters that it has.

    A client that returns may show a listener that still warms, and then reject what this names. But what it may get in
    an earlier version makes the listener ready (`rejected_with_earlier_versions`).
    """
    rejected = facts.watches.never_accepted() if facts.has_returned else NO_NAMES_BY_TYPE
    unusable = ((kind, names - _acceptable(facts, kind)) for kind, names in rejected if resource_type(kind).in_tree)
    names = names_by_type({kind: [n for n in each if earlier_route(facts, kind, n) is None] for kind, each in unusable})
    if not names:
        return ready
    url = facts.url_of("clusters")
    acked = facts.watches.acked(url) or empty_set(url)
    usable = facts.releases.mixed(acked, empty_set(url), lacking_parts(facts, acked))
    return facts.releases.replaced(ready, facts.logs.naming_none(ready.get(facts.url_of("listeners")), names, usable))


def _acceptable(facts: ClientFacts, type_url: str) -> Set[str]:
    """The names of which the newest version is not rejected."""
    newest = facts.goal.get(type_url)
    return newest.resources.keys() - facts.watches.rejected_in(newest)


def reverting(facts: ClientFacts, ready: Snapshot) -> NamesByType:
    """The rejected names for which listeners are taken back to their last accepted version."""
    return _newly_named_rejected(facts, _usable(facts, ready))


def _newly_named_rejected(facts: ClientFacts, ready: Snapshot) -> NamesByType:
    """The tree parts that newest listeners newly name and that the client rejects and never accepted."""
    if not facts.watches.rejects_anything:
        return NO_NAMES_BY_TYPE
    url = facts.url_of("listeners")
    before = ready.get(url) if not facts.watches.may_hold_anything(url) else None  # then it may lack any of them
    named = facts.releases.diff(before, facts.goal.get(url)).newly_named
    in_tree = ((kind, names) for kind, names in named if resource_type(kind).in_tree)
    return names_by_type({kind: names.intersection(facts.rejected_versions(kind)) for kind, names in in_tree})
