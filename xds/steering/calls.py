"""The calls about policies of traffic assignment."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Unpack

from xds.admin.operations import Operation
from xds.calls.call import WRITE_ARGUMENTS, ApiCall, Json, WriteArguments, ask, document, documents, write_parts
from xds.steering import operations


def policies(group: str) -> ApiCall[tuple[Json, ...]]:
    """The policies of a group with their decisions."""
    return ask(operations.LIST_ASSIGNMENTS, group, read=documents)


def policy(group: str, cluster: str) -> ApiCall[Json]:
    """The policy of a cluster: its decisions, with the reason of each."""
    return ask(operations.GET_ASSIGNMENT, group, cluster, read=document)


def policy_history(group: str, cluster: str) -> ApiCall[tuple[Json, ...]]:
    """The decisions about a cluster, the newest first."""
    return ask(operations.GET_ASSIGNMENT_HISTORY, group, cluster, read=documents)


def set_policy(group: str, cluster: str, policy: Mapping[str, Any], **options: Unpack[WriteArguments]) -> ApiCall[Json]:
    """Set the policy of a cluster. Pushed resources are not changed: weights are served as an overlay."""
    return _write(operations.PUT_ASSIGNMENT, group, cluster, dict(policy), options)


def delete_policy(group: str, cluster: str, **options: Unpack[WriteArguments]) -> ApiCall[Json]:
    """Delete a policy: proxies are served the pushed weights."""
    return _write(operations.DELETE_ASSIGNMENT, group, cluster, None, options)


def _write(operation: Operation, group: str, cluster: str, body: object, given: WriteArguments) -> ApiCall[Json]:
    query, headers = write_parts(given, WRITE_ARGUMENTS, "p-")
    return ask(operation, group, cluster, query=query, headers=headers, body=body, read=document)
