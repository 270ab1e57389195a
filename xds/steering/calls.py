"""The calls about policies of traffic assignment."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Unpack

from xds.calls.call import WRITE_ARGUMENTS, ApiCall, Json, WriteArguments, document, documents, place, write_parts


def policies(group: str) -> ApiCall[tuple[Json, ...]]:
    """The policies of a group with their decisions."""
    return ApiCall("GET", place("groups", group, "assignments"), documents)


def policy(group: str, cluster: str) -> ApiCall[Json]:
    """The policy of a cluster: its decisions, with the reason of each."""
    return ApiCall("GET", place("groups", group, "assignments", cluster), document)


def policy_history(group: str, cluster: str) -> ApiCall[tuple[Json, ...]]:
    """The decisions about a cluster, the newest first."""
    return ApiCall("GET", place("groups", group, "assignments", cluster, "history"), documents)


def set_policy(group: str, cluster: str, policy: Mapping[str, Any], **options: Unpack[WriteArguments]) -> ApiCall[Json]:
    """Set the policy of a cluster. Pushed resources are not changed: weights are served as an overlay."""
    return _write("PUT", group, cluster, dict(policy), options)


def delete_policy(group: str, cluster: str, **options: Unpack[WriteArguments]) -> ApiCall[Json]:
    """Delete a policy: proxies are served the pushed weights."""
    return _write("DELETE", group, cluster, None, options)


def _write(method: str, group: str, cluster: str, body: object, given: WriteArguments) -> ApiCall[Json]:
    query, headers = write_parts(given, WRITE_ARGUMENTS, "p-")
    return ApiCall(method, place("groups", group, "assignments", cluster), document, query, headers, body)
