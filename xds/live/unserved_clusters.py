"""Clusters in use whose assignment serves nothing: requests to them fail."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from xds.live.draining import has_serving_endpoint
from xds.model.resource_type import CLUSTER, ENDPOINT
from xds.model.snapshot import ResourceSet, Snapshot
from xds.snapshots.cluster_references import assignments_of

Used = tuple[tuple[str, frozenset[str]], ...]
"""Clusters that other resources name, each with the names of its assignments."""


class UnservedClusters:
    """The clusters of a group that other resources name and whose EDS assignment has no endpoint that serves.

    An assignment that does not exist is left out: the push warns of it, and something else may provide it. Only what
    has changed since the last call is read again. Call it in a thread.
    """

    def __init__(self, snapshot: Callable[[str], Snapshot | None]) -> None:
        self._snapshot = snapshot
        self._used: dict[str, tuple[tuple[int, ...], Used]] = {}
        self._judged: dict[str, dict[str, tuple[str, bool]]] = {}  # by group and assignment, with its version

    def of(self, groups: Iterable[str]) -> dict[str, list[str]]:
        """By group; a group that is served nothing is left out."""
        served = {group: snapshot for group in groups if (snapshot := self._snapshot(group)) is not None}
        for known in (self._used, self._judged):
            for gone in known.keys() - served.keys():
                known.pop(gone, None)
        return {group: self._of(snapshot) for group, snapshot in served.items()}

    def _of(self, snapshot: Snapshot) -> list[str]:
        assignments = snapshot.get(ENDPOINT)
        judged = self._judged.get(snapshot.group, {})
        now: dict[str, tuple[str, bool]] = {}
        unserved: list[str] = []
        for cluster, names in self._used_in(snapshot):
            for name in names & assignments.resources.keys():
                resource = assignments.resources[name]
                version, is_serving = judged.get(name, ("", False))
                if version != resource.version:
                    is_serving = has_serving_endpoint(resource)
                now[name] = (resource.version, is_serving)
                if not is_serving and cluster not in unserved[-1:]:
                    unserved.append(cluster)
        self._judged[snapshot.group] = now
        return unserved

    def _used_in(self, snapshot: Snapshot) -> Used:
        """They depend on all sets but the assignments, which change most often."""
        sets = [each for each in snapshot if each.type.type_url != ENDPOINT]
        ids = tuple(each.id for each in sets)
        known, used = self._used.get(snapshot.group, ((), ()))
        if known != ids:
            used = _used(snapshot.get(CLUSTER), sets)
            self._used[snapshot.group] = (ids, used)
        return used


def _used(clusters: ResourceSet, sets: Iterable[ResourceSet]) -> Used:
    resources = (resource for each in sets for resource in each.resources.values())
    named = {each.name for resource in resources for each in resource.references if each.type_url == CLUSTER}
    return tuple((name, assignments_of((name,), clusters)) for name in sorted(named & clusters.resources.keys()))
