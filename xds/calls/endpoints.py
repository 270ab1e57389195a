"""The calls about live endpoints."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

from xds.admin import operations
from xds.admin.operations import Operation
from xds.calls.call import ApiCall, ask, ask_items, flags, write_parts
from xds.calls.encoding import ResourceInput, encode_resource

if TYPE_CHECKING:
    from xds.admin.models.endpoints import AssignmentSummary, ChangedAssignment, ServedAssignment


class ResetArguments(TypedDict, total=False):
    """Options of writes of live endpoints, all optional.

    ``drain_s``: how long removed endpoints drain. ``allow_empty`` permits that a cluster loses its last one. With
    ``strict``, warnings are errors.
    """

    author: str
    drain_s: float | None
    dry_run: bool
    allow_empty: bool
    strict: bool


class EndpointArguments(ResetArguments, total=False):
    """Options of changes of live endpoints: also ``if_match``, the etag that was read, or 0: there must be none yet."""

    if_match: str | int | None


def assignments(group: str, *, live: bool = False) -> ApiCall[tuple[AssignmentSummary, ...]]:
    """The assignments of a group, without their endpoints; ``live``: only live assignments."""
    return ask_items(operations.LIST_ENDPOINTS, group, query=flags(live=live))


def assignment(group: str, name: str) -> ApiCall[ServedAssignment]:
    """One assignment as it is served, with its endpoints."""
    return ask(operations.GET_ENDPOINTS, group, name)


def set_endpoints(
    group: str, name: str, assignment: ResourceInput, **options: Unpack[EndpointArguments]
) -> ApiCall[ChangedAssignment]:
    """Serve a ClusterLoadAssignment instead of the pushed one, without a revision. Its former endpoints drain."""
    return _edit(operations.PUT_ENDPOINTS, group, name, encode_resource(assignment, "the assignment"), options)


def change_endpoints(
    group: str,
    name: str,
    *,
    put: Iterable[Mapping[str, Any] | str] = (),
    remove: Iterable[str] = (),
    localities: Iterable[Mapping[str, Any]] = (),
    **options: Unpack[EndpointArguments],
) -> ApiCall[ChangedAssignment]:
    """Add, change and remove some endpoints. One is its ``HOST:PORT``, or ``{"address", "weight"?, ...}``."""
    parts = {
        "put": [{"address": each} if isinstance(each, str) else dict(each) for each in put],
        "remove": list(remove),
        "localities": [dict(each) for each in localities],
    }
    return _edit(
        operations.PATCH_ENDPOINTS, group, name, {part: value for part, value in parts.items() if value}, options
    )


def reset_endpoints(group: str, name: str, **options: Unpack[ResetArguments]) -> ApiCall[ChangedAssignment]:
    """Serve the pushed assignment again."""
    return _edit(operations.DELETE_ENDPOINTS, group, name, None, options)


def _edit(
    operation: Operation, group: str, name: str, body: object, given: EndpointArguments | ResetArguments
) -> ApiCall[ChangedAssignment]:
    query, headers = write_parts(given, EndpointArguments.__optional_keys__, "e-")
    return ask(operation, group, name, query=query, headers=headers, body=body)
