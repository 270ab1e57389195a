"""The JSON of assignments as they are served: their owners and endpoints."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NotRequired

from typing_extensions import TypedDict

from xds.admin.shapes.values import FindingItem, LocalityItem, locality_item, timestamp
from xds.codec.load_assignment import PRIORITY_LIMIT, WEIGHT_SUM_LIMIT
from xds.live.draining import EndpointState
from xds.live.hand_assignment import HandAssignment
from xds.live.owners import Owner, OwnerKind
from xds.model.errors import Violation

Json = dict[str, Any]

PUSHED = "pushed"


class OwnerItem(TypedDict):
    """The owner of an assignment.

    * ``kind``: ``pushed``; ``hand`` (set by hand); ``binding`` (follows a service); ``lowered`` (from an upstream); or
      ``leaving`` while endpoints of a live assignment that ended still drain;
    * ``actor``: present if it is known: the principal that set it;
    * ``author``: present if it is set by hand: the author as the client claims;
    * ``time``: present if it is known: when it was set;
    * ``service``: present for ``binding``: the service that it follows;
    * ``upstream``: present for ``lowered``: the name of the upstream.
    """

    kind: str
    actor: NotRequired[str]
    author: NotRequired[str]
    time: NotRequired[str]
    service: NotRequired[str]
    upstream: NotRequired[str]


class EndpointItem(TypedDict):
    """One endpoint of an assignment.

    * ``address``: such as ``10.0.0.1:80``, ``[::1]:80`` or ``unix:PATH``;
    * ``health``: its health status as in Envoy's API, such as ``HEALTHY`` or ``DRAINING``;
    * ``weight``: its weight; null if none is set;
    * ``locality``: its locality;
    * ``priority``: the priority of its locality; 0 is the first;
    * ``hostname``: present if it has one: its host name;
    * ``until``: present if it drains: when it is removed.
    """

    address: str
    health: str
    weight: int | None
    locality: LocalityItem
    priority: int
    hostname: NotRequired[str]
    until: NotRequired[str]


class AssignmentSummary(TypedDict):
    """An assignment in a list.

    * ``name``: the name of the ClusterLoadAssignment;
    * ``owner``: its owner;
    * ``etag``: its etag, without quotes; empty unless it is set by hand;
    * ``version``: the version of what is served: a hash of its content; empty while nothing is served;
    * ``endpoints_n``: the number of endpoints;
    * ``draining_n``: how many of them drain;
    * ``leaving``: true if the live assignment has ended, and the pushed one is served once its endpoints have drained.
    """

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

    * ``endpoints``: its endpoints, those that drain included;
    * ``assignment``: the assignment without endpoints that only drain, as PUT accepts it.
    """

    endpoints: list[EndpointItem]
    assignment: Json


class EndpointsAnswer(LiveAssignmentItem):
    """The result of a change of endpoints; in a dry run, what it would make.

    * ``changed``: false if the assignment was the same before.
    """

    changed: bool
    warnings: list[FindingItem]
    dry_run: NotRequired[bool]


class AssignmentSummaryPage(TypedDict):
    """A page of the assignments of a group, by name."""

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
        "locality": locality_item(state.locality),
        "priority": state.priority,
    }
    if state.hostname:
        item["hostname"] = state.hostname
    if state.until_s is not None:
        item["until"] = timestamp(state.until_s)
    return item


def unused_warning(group: str, name: str) -> Violation:
    """The warning about an assignment that no cluster of its group refers to."""
    detail = f"no cluster of group {group!r} takes its endpoints from an assignment of this name"
    hint = "the name is that of the cluster, or its eds_cluster_config.service_name"
    return Violation("unused_assignment", detail, resource=f"endpoints/{name}", severity="warning", hint=hint)


def absent_warning(name: str, address: str) -> Violation:
    """The warning about an address that was to be removed and is not there."""
    detail = f"there is no endpoint {address}: nothing to remove"
    return Violation("absent_endpoint", detail, resource=f"endpoints/{name}", severity="warning", pointer="/remove")


def _list(description: str, items: Json) -> Json:
    return {"type": "array", "description": description, "items": items}


def _entry(required: str, **properties: Json) -> Json:
    return {"type": "object", "properties": properties, "required": [required], "additionalProperties": False}


_PARTS = {"region": "The region", "zone": "The zone", "sub_zone": "The sub-zone"}
_LOCALITY: Json = {
    "type": "object",
    "description": "The locality. By default the only one of the assignment",
    "properties": {part: {"type": "string", "description": text} for part, text in _PARTS.items()},
    "additionalProperties": False,
}
_WEIGHT: Json = {"type": "integer", "minimum": 1, "maximum": WEIGHT_SUM_LIMIT, "description": "The weight"}
_PRIORITY: Json = {
    "type": "integer",
    "minimum": 0,
    "maximum": PRIORITY_LIMIT,
    "description": "The priority of the locality; 0 is the first",
}
PATCH_SCHEMA: Json = {
    "type": "object",
    "description": "Changes of the endpoints of an assignment",
    "properties": {
        "put": _list(
            "Endpoints to add, or to change by their address. What is left out stays as it is",
            _entry(
                "address",
                address={"type": "string", "description": "The address, such as `10.0.0.1:80` or `[::1]:80`"},
                weight=_WEIGHT,
                health={"type": "string", "description": "The health status as in Envoy's API, such as `UNHEALTHY`"},
                locality=_LOCALITY,
                priority=_PRIORITY,
                hostname={"type": "string", "description": "The host name of the endpoint"},
            ),
        ),
        "remove": _list("The addresses of endpoints to remove", {"type": "string"}),
        "localities": _list(
            "Weights of localities", _entry("weight", locality=_LOCALITY, priority=_PRIORITY, weight=_WEIGHT)
        ),
    },
    "additionalProperties": False,
}
