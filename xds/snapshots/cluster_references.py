"""What the clusters of a set refer to: assignments, secrets, and the members of aggregates."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set

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


def members_of(clusters: ResourceSet, names: Iterable[str] | None = None) -> Mapping[str, frozenset[str]]:
    """The aggregate clusters among these names, or all, with the names of their members."""
    by_aggregate = dict[str, set[str]]()
    for name in clusters.resources if names is None else names:
        for each in clusters.resources[name].references:
            if each.type_url in ROUTE_TARGETS:
                by_aggregate.setdefault(name, set()).add(each.name)
    return {name: frozenset(members) for name, members in by_aggregate.items()}


def clusters_by_part(clusters: ResourceSet, alias: str, source: str = "") -> Mapping[str, frozenset[str]]:
    """The clusters of a set by the names of their assignments, or secrets (``alias``).

    Only of those that clients request from ``source``, if it is given.
    """
    by_part = dict[str, set[str]]()
    for name, cluster in clusters.resources.items():
        for each in cluster.references:
            if alias_of(each.type_url) == alias and each.source == (source or each.source):
                by_part.setdefault(each.name, set()).add(name)
    return {part: frozenset(names) for part, names in by_part.items()}


def clusters_with(users: Mapping[str, frozenset[str]], parts: Set[str]) -> frozenset[str]:
    """The clusters in ``users`` (`clusters_by_part`) with one of these parts."""
    return frozenset().union(*map(users.__getitem__, users.keys() & parts))
