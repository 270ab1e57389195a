"""Warnings about the policies of a group when a change of the group is planned."""

from __future__ import annotations

from collections.abc import Mapping

from xds.model.errors import Violation
from xds.model.resource_type import CLUSTER, ENDPOINT
from xds.push.content import Key
from xds.push.request import PlannedChange
from xds.snapshots.resource_lookup import Find, assignment_name
from xds.steering.core.policy import Policy
from xds.steering.policy_review import review_policy
from xds.store.base import Delta, Drop


def review_policies(planned: PlannedChange, policies: Mapping[str, Policy]) -> list[Violation]:
    """Warnings about the policies with clusters or endpoints in the change. ``policies`` are those of the group."""
    change = planned.request.change
    if not policies or isinstance(change, Drop):
        return []
    affected = policies
    if isinstance(change, Delta):
        touched = {*planned.resources, *change.delete}
        affected = {
            name: policy for name, policy in policies.items() if not touched.isdisjoint(_keys(name, planned.after))
        }
    return [
        finding
        for policy in affected.values()
        for finding in review_policy(policy, planned.after, planned.names(CLUSTER), policies)
    ]


def _keys(cluster: str, find: Find) -> set[Key]:
    return {(CLUSTER, cluster), (ENDPOINT, assignment_name(find(CLUSTER, cluster)))}
