"""The fleet as JSON: nodes, their streams and types, NACK records."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NotRequired

from typing_extensions import TypedDict

from xds.api.shapes.values import LocalityItem, timestamp
from xds.control.translation import UnexpressedResource
from xds.fleet.state import HeldResources, LingeringResources, NackRecord, NodeState, StreamState, TypeState
from xds.model.names import WILDCARD


class UnexpressedItem(TypedDict):
    name: str
    problem: str


class TypeItem(TypedDict):
    """``subscribed`` lists names, ``*`` for everything; ``subscribed_total`` counts when the list is cut off.

    ``error`` and ``guilty`` stand where it is ``nacked``: the client's own words, and the names known to be refused.
    ``unexpressed`` lists what the node asks for and is not sent: the API that it speaks (v2) cannot express it.
    """

    type_url: str
    state: str
    version_sent: str
    version_acked: str
    revision: int | None
    subscribed: list[str]
    subscribed_total: int
    missing: list[str]
    error: NotRequired[str]
    guilty: NotRequired[list[str]]
    unexpressed: NotRequired[list[UnexpressedItem]]
    since: str


class ReportsItem(TypedDict):
    """What came on a load report stream: how often, when last, what could not be, what a bound kept out."""

    reports: int
    reported: str | None
    refused: int
    left_out: int


class StreamItem(TypedDict):
    """``api`` is ``v2`` on the old transport, else ``v3``. A stream of load reports has ``load``, and no types.

    ``principal`` is who its connection has proved to be, empty where no credentials are asked for.
    """

    id: int
    peer: str
    principal: str
    service: str
    variant: str
    api: str
    opened: str
    types: dict[str, TypeItem]
    load: NotRequired[ReportsItem]


class LingerItem(TypedDict):
    """What the push of ``revision`` removed of a type, and the node keeps for a while: ``names`` are some of ``count``.

    It goes at ``until``, which is null while something that could refer to it is not ACKed.
    """

    type: str
    revision: int
    count: int
    names: list[str]
    until: str | None


class ResourceName(TypedDict):
    type: str
    name: str


class HeldBackItem(TypedDict):
    """What waits for clusters to be warm: ``resources`` are some of ``count``.

    With ``any_cluster`` it cannot be read which clusters it leads to: it waits for all that are new.
    """

    resources: list[ResourceName]
    count: int
    waits_for: list[str]
    any_cluster: bool


class NodeItem(TypedDict):
    """``lingering`` is what was removed and stays for a while, ``lingering_total`` counts the resources in all of it.

    ``held`` is what is held back from the node.
    """

    id: str
    cluster: str
    locality: LocalityItem
    group: str
    user_agent: str
    connected: bool
    first_seen: str
    last_seen: str
    streams: list[StreamItem]
    types: dict[str, TypeItem]
    lingering: list[LingerItem]
    lingering_total: int
    held: list[HeldBackItem]


class DisconnectedItem(TypedDict):
    """``streams`` is how many were ended; the client may come back at once."""

    node: str
    streams: int


class ReleaseItem(TypedDict):
    """How many nodes let go of what lingered, with how many connections; ``released`` counts the names by type."""

    nodes: int
    clients: int
    released: dict[str, int]


class NackItem(TypedDict):
    """``code`` is a gRPC status number, ``message`` the client's own words.

    ``id`` never stands for another record, also after a restart.
    ``names`` are some of the ``resources`` names that may be meant, ``guilty`` those that are known to be refused.
    """

    id: int
    node: str
    group: str
    type: str
    type_url: str
    version: str
    nonce: str
    code: int
    message: str
    names: list[str]
    resources: int
    guilty: list[str]
    count: int
    state: str
    first: str
    last: str
    resolved: str | None


class NodePage(TypedDict):
    items: list[NodeItem]
    next_page_token: NotRequired[str]


class NackPage(TypedDict):
    items: list[NackItem]
    next_page_token: NotRequired[str]


def node_item(
    node: NodeState, unexpressed: Mapping[str, Sequence[UnexpressedResource]], reporting: Sequence[StreamItem] = ()
) -> NodeItem:
    """``unexpressed`` by type alias, as the publisher finds it; ``reporting`` are its streams of load reports."""
    locality = node.locality
    types = _types(node.types)
    for alias, found in unexpressed.items():
        types[alias]["unexpressed"] = [{"name": each.name, "problem": each.problem} for each in found]
    return {
        "id": node.id,
        "cluster": node.cluster,
        "locality": {"region": locality.region, "zone": locality.zone, "sub_zone": locality.sub_zone},
        "group": node.group,
        "user_agent": node.user_agent,
        "connected": node.connected,
        "first_seen": timestamp(node.first_seen),
        "last_seen": timestamp(node.last_seen),
        "streams": [*map(_stream_item, node.streams), *reporting],
        "types": types,
        "lingering": [_linger_item(each) for each in node.lingering],
        "lingering_total": node.lingering_total,
        "held": [held_item(each) for each in node.held],
    }


def _linger_item(found: LingeringResources) -> LingerItem:
    return {
        "type": found.type,
        "revision": found.revision,
        "count": found.count,
        "names": list(found.names),
        "until": timestamp(found.until) if found.until is not None else None,
    }


def held_item(held: HeldResources) -> HeldBackItem:
    return {
        "resources": [{"type": type, "name": name} for type, name in held.resources],
        "count": held.count,
        "waits_for": list(held.waits_for),
        "any_cluster": held.any_cluster,
    }


def nack_item(record: NackRecord) -> NackItem:
    return {
        "id": record.id,
        "node": record.node,
        "group": record.group,
        "type": record.type,
        "type_url": record.type_url,
        "version": record.version,
        "nonce": record.nonce,
        "code": record.code,
        "message": record.message,
        "names": list(record.names),
        "resources": record.resources,
        "guilty": list(record.guilty),
        "count": record.count,
        "state": record.state.value,
        "first": timestamp(record.first),
        "last": timestamp(record.last),
        "resolved": timestamp(record.resolved) if record.resolved is not None else None,
    }


def _stream_item(stream: StreamState) -> StreamItem:
    return {
        "id": stream.id,
        "peer": stream.peer,
        "principal": stream.principal,
        "service": stream.service,
        "variant": stream.variant,
        "api": stream.api or "v3",
        "opened": timestamp(stream.opened),
        "types": _types(stream.types),
    }


def _types(states: Iterable[TypeState]) -> dict[str, TypeItem]:
    return {state.type: _type_item(state) for state in states}


def _type_item(state: TypeState) -> TypeItem:
    item: TypeItem = {
        "type_url": state.type_url,
        "state": state.state.value,
        "version_sent": state.version_sent,
        "version_acked": state.version_acked,
        "revision": state.revision,
        "subscribed": [*((WILDCARD,) if state.wildcard else ()), *state.names],
        "subscribed_total": state.subscribed,
        "missing": list(state.missing),
        "since": timestamp(state.since),
    }
    if state.error:
        item["error"] = state.error
        item["guilty"] = list(state.guilty)
    return item
