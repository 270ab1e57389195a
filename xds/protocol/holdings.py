"""What clients may hold of retained sets, judged by the names, versions and references that they show.

Pure functions of values.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from xds.model.resource import Resource
from xds.model.resource_type import alias_of, resource_type
from xds.model.snapshot import Change, ResourceSet


def leads_within(resource: Resource, clusters: ResourceSet | None) -> bool:
    """Whether all clusters that a resource refers to directly are in ``clusters``; False if these are unknown."""
    led_to = (each.name for each in resource.references if resource_type(each.type_url).is_route_target)
    return clusters is not None and all(name in clusters.resources for name in led_to)


def fed_by(assignments: frozenset[str], history: Sequence[ResourceSet]) -> ResourceSet | None:
    """The clusters whose endpoints are in these assignments, each from the newest set that has it; None for none.

    ``history`` has the newest set first.
    """
    members: dict[str, Resource] = {}
    for found in history:
        for name, cluster in found.resources.items():
            named = [each.name for each in cluster.references if alias_of(each.type_url) == "endpoints"]
            if name not in members and named and assignments.issuperset(named):
                members[name] = cluster
    return ResourceSet(history[0].type, history[0].version_info, members) if members else None


def has_all(resource_set: ResourceSet, members: Mapping[str, Resource]) -> bool:
    """Whether a set has all these resources in the same versions."""
    resources = resource_set.resources
    return all(name in resources and resources[name].version == each.version for name, each in members.items())


def named_by(versions: Mapping[str, str], history: Sequence[ResourceSet]) -> ResourceSet | None:
    """The set of resources with these versions, taken from ``history``; None if it has none of them.

    A set of the history that has exactly these versions is returned itself.
    """
    for found in history:
        if len(found) == len(versions) and all(
            (resource := found.resources.get(name)) is not None and resource.version == version
            for name, version in versions.items()
        ):
            return found
    members = {}
    for name, version in versions.items():
        for found in history:
            resource = found.resources.get(name)
            if resource is not None and resource.version == version:
                members[name] = resource
                break
    return ResourceSet(history[0].type, history[0].version_info, members) if members else None


def lacking(names: frozenset[str], old: ResourceSet, new: ResourceSet, change: Change) -> frozenset[str]:
    """The names whose resources in ``new`` a holder of ``old`` lacks, and the names that neither set has."""
    nowhere = names.difference(old.resources).difference(new.resources)
    return names.intersection((*change.added, *change.changed)) | nowhere
