"""The plan of a client that steps from released content to a pushed snapshot: what differs, and what of it has to wait.

`Releases.plan` makes one `Plan` for each pair of snapshots; all clients share it.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import NamedTuple

from xds.model.resource_type import alias_of, resource_type
from xds.model.snapshot import Change, Snapshot
from xds.snapshots.awaited_secrets import missing_secrets
from xds.snapshots.linger import Lingering, NamesByType, removed_names
from xds.snapshots.set_diff import DiffOf
from xds.snapshots.trees import Tree, changed_trees


class Step(NamedTuple):
    """The step from a release to a pushed snapshot.

    * ``removed``: the removed names that linger;
    * ``is_simple``: no part of the step waits for another, so the whole step is released at once;
    * ``drains``: a listener changed or was removed, so old connections drain on its old filter chains;
    * ``has_trees``: the step changes types of listener trees, which may refer to clusters;
    * ``missing_secrets``: the secrets that content in use newly names and that do not exist (`awaited_secrets`).
    """

    removed: NamesByType
    is_simple: bool
    drains: bool
    has_trees: bool
    missing_secrets: frozenset[str]


class Plan:
    """The way from ``released`` to ``goal``. Each value is computed when it is first read."""

    def __init__(self, released: Snapshot, goal: Snapshot, diff: DiffOf) -> None:
        self.released = released
        self.goal = goal
        self._diff = diff

    @cached_property
    def changes(self) -> Mapping[str, Change]:
        """The changes by type URL; types without a change are left out."""
        diffs = {}
        for url in {**self.released.sets, **self.goal.sets}:
            before, after = self.released.get(url), self.goal.get(url)
            if before is not after and (change := self._diff(before, after).change):
                diffs[url] = change
        return diffs

    @cached_property
    def trees(self) -> tuple[Tree, ...]:
        """The listener trees in which the snapshots differ."""
        return changed_trees(self.released, self.goal, self.changes)

    def step(self, lingering: Lingering) -> Step:
        """The step of a client with these lingering resources. `Releases.step` keeps it."""
        released, goal, changes = self.released, self.goal, self.changes
        drains, is_simple, has_listener_parts, has_route_parts = False, True, False, False
        for url, change in changes.items():
            type = resource_type(url)
            drains = drains or (type.alias == "listeners" and bool(change.changed or change.removed))
            if type.is_route_target:
                diff = self._diff(released.get(url), goal.get(url))
                is_simple = is_simple and not (change.added or diff.aggregates or diff.newly_assigned)
            has_listener_parts = has_listener_parts or (type.in_tree and not type.after_listeners)
            has_route_parts = has_route_parts or type.after_listeners
        removed = removed_names(released, goal, changes, lingering, is_draining=drains)
        has_listeners = any(alias_of(url) == "listeners" for url in changes)
        is_simple = is_simple and not removed and not has_listeners and not (has_listener_parts and has_route_parts)
        missing = missing_secrets(released, goal, changes, self._diff)
        return Step(removed, is_simple and not missing, drains, has_listener_parts or has_route_parts, missing)
