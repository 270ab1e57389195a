"""Looks up resources of a group. Pure."""

from __future__ import annotations

from collections.abc import Callable

from xds.model.resource import Resource
from xds.model.resource_type import ENDPOINT
from xds.model.snapshot import Snapshot

Find = Callable[[str, str], Resource | None]  # looks up a resource of the group by type URL and name


def finder(*snapshots: Snapshot) -> Find:
    """Looks up resources of snapshots: in the first one that has the name."""
    return lambda type_url, name: next(
        (each for snapshot in snapshots if (each := snapshot.get(type_url).resources.get(name)) is not None), None
    )


def assignment_name(cluster: Resource | None) -> str:
    """The name of the ClusterLoadAssignment of an EDS cluster; empty for other clusters."""
    references = cluster.references if cluster is not None else ()
    return next((each.name for each in references if each.type_url == ENDPOINT), "")
