"""What the clusters of a set refer to: assignments, secrets, and the members of aggregates."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from xds.model.resource_type import ROUTE_TARGETS, alias_of
from xds.model.snapshot import ResourceSet


def assignments_of(clusters: Iterable[str], new: ResourceSet) -> frozenset[str]:
    """The names of the assignments that these clusters of a set refer to."""
    return frozenset(
        reference.name
        for name in clusters
        for reference in new.resources[name].references
        if alias_of(reference.type_url) == "endpoints"
    )


def members_of(clusters: ResourceSet, names: Iterable[str]) -> Mapping[str, frozenset[str]]:
    """The aggregate clusters among these names, with the names of their members."""
    by_aggregate = dict[str, set[str]]()
    for name in names:
        for each in clusters.resources[name].references:
            if each.type_url in ROUTE_TARGETS:
                by_aggregate.setdefault(name, set()).add(each.name)
    return {name: frozenset(members) for name, members in by_aggregate.items()}


def clusters_by_assignment(clusters: ResourceSet, source: str) -> Mapping[str, frozenset[str]]:
    """The clusters of a set by the name of their assignment, as far as clients request it from ``source``."""
    by_assignment = dict[str, set[str]]()
    for name, cluster in clusters.resources.items():
        for each in cluster.references:
            if each.source == source and alias_of(each.type_url) == "endpoints":
                by_assignment.setdefault(each.name, set()).add(name)
    return {assignment: frozenset(names) for assignment, names in by_assignment.items()}


def unassigned(users: Mapping[str, frozenset[str]], assignments: ResourceSet) -> frozenset[str]:
    """The clusters in ``users`` (`clusters_by_assignment`) with an assignment that is not in the set."""
    existing = assignments.resources
    return frozenset().union(*(names for assignment, names in users.items() if assignment not in existing))


def clusters_with(clusters: ResourceSet, parts: frozenset[str], alias: str) -> frozenset[str]:
    """The clusters of a set that refer to one of these assignments, or secrets (``alias``)."""
    return frozenset(
        name
        for name, cluster in clusters.resources.items()
        if any(each.name in parts and alias_of(each.type_url) == alias for each in cluster.references)
    )
