"""The JSON of assignments as they are served: their owners and endpoints."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NotRequired

from typing_extensions import TypedDict

from xds.api.shapes.values import FindingItem, LocalityItem, timestamp
from xds.control.hand_assignment import HandAssignment
from xds.control.live_endpoints import Owner, OwnerKind
from xds.lower.live_assignment import EndpointState
from xds.lower.load_assignment import PRIORITY_LIMIT, WEIGHT_SUM_LIMIT
from xds.model.errors import Violation
from xds.model.node import Locality

Json = dict[str, Any]

PUSHED = "pushed"


class OwnerItem(TypedDict):
    """``kind``: ``pushed``, ``hand``, ``binding``, ``lowered``, or ``leaving``: nobody's, but endpoints of it drain.

    ``service`` is that of a binding, ``upstream`` the name of the upstream that is lowered.
    """

    kind: str
    actor: NotRequired[str]
    author: NotRequired[str]
    time: NotRequired[str]
    service: NotRequired[str]
    upstream: NotRequired[str]


class EndpointItem(TypedDict):
    """One endpoint. ``weight`` is null where none is set. It is removed at ``until``, if it drains."""

    address: str
    health: str
    weight: int | None
    locality: LocalityItem
    priority: int
    hostname: NotRequired[str]
    until: NotRequired[str]


class AssignmentSummary(TypedDict):
    """An assignment in a list. ``draining_n`` of ``endpoints_n`` endpoints drain."""

    group: str
    name: str
    owner: OwnerItem
    etag: str
    version: str
    endpoints_n: int
    draining_n: int
    leaving: bool


class LiveAssignmentItem(AssignmentSummary):
    """An assignment as it is served.

    ``etag`` is empty unless it is set by hand; ``version`` is its content hash. ``leaving``: it was deleted, or its
    binding has ended, and the pushed assignment is served when ``endpoints`` have drained. ``assignment`` is what was
    set, in the form that PUT accepts.
    """

    endpoints: list[EndpointItem]
    assignment: Json


class EndpointsAnswer(LiveAssignmentItem):
    """The answer to a change. ``changed`` is false where it was so before."""

    changed: bool
    warnings: list[FindingItem]
    dry_run: NotRequired[bool]


class AssignmentSummaryPage(TypedDict):
    """The assignments of a group."""

    items: list[AssignmentSummary]
    next_page_token: NotRequired[str]


def owner_item(owner: Owner | None, held: HandAssignment | None = None) -> OwnerItem:
    """An owner; None: the push."""
    if owner is None:
        return {"kind": PUSHED}
    item: OwnerItem = {"kind": owner.kind.value}
    if owner.kind is OwnerKind.BINDING:
        item["service"] = owner.service
    elif owner.kind is OwnerKind.LOWERED:
        item["upstream"] = owner.service
    if held is not None:
        item["actor"], item["author"] = held.actor, held.author
    elif owner.actor:
        item["actor"] = owner.actor
    if owner.time_s:
        item["time"] = timestamp(owner.time_s)
    return item


def endpoint_items(states: Iterable[EndpointState]) -> list[EndpointItem]:
    """Endpoints in the order of the assignment."""
    return [_endpoint(state) for state in states]


def _endpoint(state: EndpointState) -> EndpointItem:
    item: EndpointItem = {
        "address": state.address,
        "health": state.health,
        "weight": state.weight,
        "locality": locality_of(state.locality),
        "priority": state.priority,
    }
    if state.hostname:
        item["hostname"] = state.hostname
    if state.until_s is not None:
        item["until"] = timestamp(state.until_s)
    return item


def locality_of(found: Locality) -> LocalityItem:
    """A locality."""
    return {"region": found.region, "zone": found.zone, "sub_zone": found.sub_zone}


def unused_warning(group: str, name: str) -> Violation:
    """The warning about an assignment that no cluster of its group refers to."""
    detail = f"no cluster of group {group!r} takes its endpoints from an assignment of this name"
    hint = "the name is that of the cluster, or its eds_cluster_config.service_name"
    return Violation("unused_assignment", detail, resource=f"endpoints/{name}", severity="warning", hint=hint)


def absent_warning(name: str, address: str) -> Violation:
    """The warning about an address that was to be removed and is not there."""
    detail = f"there is no endpoint {address}: nothing to remove"
    return Violation("absent_endpoint", detail, resource=f"endpoints/{name}", severity="warning", pointer="/remove")


_LOCALITY: Json = {
    "type": "object",
    "properties": {part: {"type": "string"} for part in ("region", "zone", "sub_zone")},
    "additionalProperties": False,
}
_WEIGHT: Json = {"type": "integer", "minimum": 1, "maximum": WEIGHT_SUM_LIMIT}
_PRIORITY: Json = {"type": "integer", "minimum": 0, "maximum": PRIORITY_LIMIT}
PATCH_SCHEMA: Json = {
    "type": "object",
    "properties": {
        "put": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {
                    "address": {"type": "string"},
                    "weight": _WEIGHT,
                    "health": {"type": "string"},
                    "locality": _LOCALITY,
                    "priority": _PRIORITY,
                    "hostname": {"type": "string"},
                },
                "required": ["address"],
                "additionalProperties": False,
            },
        },
        "remove": {"type": "array", "items": {"type": "string"}},
        "localities": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {"locality": _LOCALITY, "priority": _PRIORITY, "weight": _WEIGHT},
                "required": ["weight"],
                "additionalProperties": False,
            },
        },
    },
    "additionalProperties": False,
}
