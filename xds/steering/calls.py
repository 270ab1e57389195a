"""The calls about policies of traffic assignment."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Unpack

from xds.calls.call import ApiCall, CheckedArguments, WriteArguments, ask, ask_items, write
from xds.steering import operations

if TYPE_CHECKING:
    from xds.steering.models import ChangedShares, PolicyDeleted, PolicyState


def policies(group: str) -> ApiCall[tuple[PolicyState, ...]]:
    """The policies of a group with their decisions."""
    return ask_items(operations.LIST_ASSIGNMENTS, group)


def policy(group: str, cluster: str) -> ApiCall[PolicyState]:
    """The policy of a cluster: its decisions, with the reason of each."""
    return ask(operations.GET_ASSIGNMENT, group, cluster)


def policy_history(group: str, cluster: str) -> ApiCall[tuple[ChangedShares, ...]]:
    """The decisions about a cluster, the newest first."""
    return ask_items(operations.GET_ASSIGNMENT_HISTORY, group, cluster)


def set_policy(
    group: str, cluster: str, policy: Mapping[str, Any], **options: Unpack[CheckedArguments]
) -> ApiCall[PolicyState]:
    """Set the policy of a cluster. Pushed resources are not changed: weights are served as an overlay."""
    body = dict(policy)
    return write(
        operations.PUT_ASSIGNMENT, group, cluster, options=options, known=CheckedArguments, body=body, prefix="p-"
    )


def delete_policy(group: str, cluster: str, **options: Unpack[WriteArguments]) -> ApiCall[PolicyDeleted]:
    """Delete a policy: proxies are served the pushed weights."""
    return write(operations.DELETE_ASSIGNMENT, group, cluster, options=options, known=WriteArguments, prefix="p-")
