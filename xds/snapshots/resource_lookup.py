"""Looks up resources of a group. Pure."""

from __future__ import annotations

from collections.abc import Callable

from xds.model.resource import Resource
from xds.model.resource_type import ENDPOINT
from xds.model.snapshot import Snapshot

Find = Callable[[str, str], Resource | None]  # looks up a resource of the group by type URL and name


def finder(snapshot: Snapshot | None) -> Find:
    """Looks up resources of a snapshot; finds nothing if there is no snapshot."""
    return lambda type_url, name: snapshot.get(type_url).resources.get(name) if snapshot is not None else None


def assignment_name(cluster: Resource | None) -> str:
    """The name of the ClusterLoadAssignment of an EDS cluster; empty for other clusters."""
    references = cluster.references if cluster is not None else ()
    return next((each.name for each in references if each.type_url == ENDPOINT), "")
