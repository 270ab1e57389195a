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
    """A resource that the node's transport (v2) cannot express."""

    name: str
    problem: str


class TypeItem(TypedDict):
    """``subscribed`` lists names, ``*`` for everything; ``subscribed_total`` counts also what the list leaves out.

    ``error`` and ``guilty`` are present if it is ``nacked``: the client's error message, and the names that are known
    to be rejected. ``unexpressed`` lists requested resources that are not sent, because the node's transport (v2)
    cannot express them.
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
    """The reports of a load report stream: their number, the latest, invalid ones, and values that a limit left out."""

    reports: int
    reported: str | None
    refused: int
    left_out: int


class LinkerdItem(TypedDict):
    """The last answer on a stream of a Linkerd proxy. ``source``: the service, cluster or instance that its destination
    is.

    ``endpoints`` is null for a stream without endpoints in its answers; ``is_known`` is false while the answer is
    awaited. ``skipped`` lists the configuration that Linkerd's API cannot express, with reasons.
    """

    method: str
    authority: str
    source: str
    is_known: bool
    exists: bool
    endpoints: int | None
    messages: int
    sent: str | None
    skipped: list[str]


class StreamItem(TypedDict):
    """``api`` is ``v2`` on the v2 transport, else ``v3``. A stream of load reports has ``load`` and no types.

    ``principal`` is the authenticated name of its connection, empty if no credentials are asked for.
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
    linkerd: NotRequired[LinkerdItem]


class LingerItem(TypedDict):
    """Resources that the push of ``revision`` removed and the node keeps for a while: ``names`` are some of ``count``.

    Lingering ends at ``until``, which is null while a resource that could refer to them is not ACKed.
    """

    type: str
    revision: int
    count: int
    names: list[str]
    until: str | None


class ResourceName(TypedDict):
    """Type and name of a resource."""

    type: str
    name: str


class HeldBackItem(TypedDict):
    """Resources that wait for clusters to become warm: ``resources`` are some of ``count``.

    ``any_cluster``: their references cannot be read, so they wait for all new clusters.
    """

    resources: list[ResourceName]
    count: int
    waits_for: list[str]
    any_cluster: bool


class NodeItem(TypedDict):
    """``lingering`` are removed resources that the node keeps for a while; ``lingering_total`` counts all of them.

    ``held`` are resources that are held for the node. ``admin`` is the address of Envoy's admin port on its machine, if
    its bootstrap names one (``admin_address`` in the metadata).
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
    admin: NotRequired[str]


class DisconnectedItem(TypedDict):
    """``streams`` is the number of ended streams. The client may reconnect at once."""

    node: str
    streams: int


class ReleaseItem(TypedDict):
    """How many nodes and connections released lingering resources; ``released`` counts their names by type."""

    nodes: int
    clients: int
    released: dict[str, int]


class NackItem(TypedDict):
    """``code`` is a gRPC status code, ``message`` the client's error message.

    ``id`` is never used again for another record, also after a restart. ``names`` are some of the ``resources`` names
    that may be meant, ``guilty`` those that are known to be rejected.
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
    """A page of nodes."""

    items: list[NodeItem]
    next_page_token: NotRequired[str]


class NackPage(TypedDict):
    """A page of NACKs."""

    items: list[NackItem]
    next_page_token: NotRequired[str]


def node_item(
    node: NodeState, unexpressed: Mapping[str, Sequence[UnexpressedResource]], reporting: Sequence[StreamItem] = ()
) -> NodeItem:
    """The item of a node. ``unexpressed`` are resources by type alias, ``reporting`` its load report streams."""
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
    """The item of held resources."""
    return {
        "resources": [{"type": type, "name": name} for type, name in held.resources],
        "count": held.count,
        "waits_for": list(held.waits_for),
        "any_cluster": held.any_cluster,
    }


def nack_item(record: NackRecord) -> NackItem:
    """The item of a NACK record."""
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
