"""Snapshots in the form that they have after a restart."""

from __future__ import annotations

from collections.abc import Iterable

from xds.model.snapshot import Snapshot, build_snapshot


def read_back(snapshots: Iterable[Snapshot]) -> list[Snapshot]:
    """The same snapshots as a store returns them: equal sets, but different objects."""
    found: list[Snapshot] = []
    for each in snapshots:
        versions = {url: resources.version_info for url, resources in each.sets.items()}
        before = found[-1] if found else None
        found.append(build_snapshot(each.group, each.revision, each.resources(), versions, before))
    return found
