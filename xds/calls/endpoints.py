"""The calls about live endpoints."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Unpack

from xds.admin import operations
from xds.admin.operations import Operation
from xds.calls.call import ApiCall, WriteArguments, ask, ask_items, flags, write
from xds.calls.encoding import ResourceInput, encode_resource

if TYPE_CHECKING:
    from xds.admin.models.endpoints import AssignmentSummary, ChangedAssignment, ServedAssignment


class EndpointArguments(WriteArguments, total=False):
    """Options of writes of live endpoints.

    ``drain_s``: how long removed endpoints drain. ``allow_empty`` permits that a cluster loses its last one.
    """

    drain_s: float | None
    allow_empty: bool


def assignments(group: str, *, live: bool = False) -> ApiCall[tuple[AssignmentSummary, ...]]:
    """The assignments of a group, without their endpoints; ``live``: only live assignments."""
    return ask_items(operations.LIST_ENDPOINTS, group, query=flags(live=live))


def assignment(group: str, name: str) -> ApiCall[ServedAssignment]:
    """One assignment as it is served, with its endpoints."""
    return ask(operations.GET_ENDPOINTS, group, name)


def set_endpoints(
    group: str, name: str, assignment: ResourceInput, *, strict: bool = False, **options: Unpack[EndpointArguments]
) -> ApiCall[ChangedAssignment]:
    """Serve a ClusterLoadAssignment instead of the pushed one, without a revision. Its former endpoints drain."""
    body = encode_resource(assignment, "the assignment")
    return _change(operations.PUT_ENDPOINTS, group, name, body, options, strict=strict)


def change_endpoints(
    group: str,
    name: str,
    *,
    put: Iterable[Mapping[str, Any] | str] = (),
    remove: Iterable[str] = (),
    localities: Iterable[Mapping[str, Any]] = (),
    strict: bool = False,
    **options: Unpack[EndpointArguments],
) -> ApiCall[ChangedAssignment]:
    """Add, change and remove some endpoints. One is its ``HOST:PORT``, or ``{"address", "weight"?, ...}``."""
    parts = {
        "put": [{"address": each} if isinstance(each, str) else dict(each) for each in put],
        "remove": list(remove),
        "localities": [dict(each) for each in localities],
    }
    body = {part: value for part, value in parts.items() if value}
    return _change(operations.PATCH_ENDPOINTS, group, name, body, options, strict=strict)


def reset_endpoints(group: str, name: str, **options: Unpack[EndpointArguments]) -> ApiCall[ChangedAssignment]:
    """Serve the pushed assignment again."""
    return _change(operations.DELETE_ENDPOINTS, group, name, None, options)


def _change(
    operation: Operation, group: str, name: str, body: object, options: EndpointArguments, strict: bool = False
) -> ApiCall[ChangedAssignment]:
    return write(
        operation, group, name, options=options, known=EndpointArguments, body=body, prefix="e-", strict=strict
    )
