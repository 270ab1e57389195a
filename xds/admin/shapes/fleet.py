"""The fleet as JSON: nodes, their streams and types, NACK records."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from time import time
from typing import NotRequired

from typing_extensions import TypedDict

from xds.admin.shapes.values import LocalityItem, locality_item, timestamp
from xds.envoy.translation import UnexpressedResource
from xds.fleet.merged_nacks import MergedNack
from xds.fleet.state import HeldResources, LingeringResources, NackRecord, NodeState, StreamState, TypeState
from xds.model.names import WILDCARD

NODES_SHOWN = 100  # of equal NACKs


class UnexpressedItem(TypedDict):
    """A resource that the v2 API of the node cannot express.

    * ``problem``: what cannot be expressed.
    """

    name: str
    problem: str


class TypeItem(TypedDict):
    """The state of one type on a node or a stream.

    * ``state``: ``synced`` (all is ACKed), ``pending`` (an answer is missing), ``nacked``, ``not_subscribed``, or
      ``orphaned`` (no group matches the node);
    * ``version_sent``: the ``version_info`` of the last response; empty before the first;
    * ``version_acked``: the ``version_info`` that was ACKed last; empty before the first ACK;
    * ``revision``: the newest revision whose content of this type is ACKed; null if it is not known;
    * ``subscribed``: the subscribed names, ``*`` for all resources; the list is bounded;
    * ``subscribed_total``: the number of subscribed names, without ``*``;
    * ``missing``: subscribed names that do not exist; the list is bounded;
    * ``error``: present after a NACK: the error message of the client;
    * ``guilty``: present after a NACK: the names that are known to be rejected;
    * ``unexpressed``: present if the v2 API of the node cannot express subscribed resources, which are not sent;
    * ``since``: when this state began.
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
    """The load reports of a stream.

    * ``reports``: the number of reports;
    * ``reported``: the time of the latest report; null before the first;
    * ``refused``: the number of invalid reports of clusters;
    * ``left_out``: the number of values that a limit on memory left out.
    """

    reports: int
    reported: str | None
    refused: int
    left_out: int


class LinkerdItem(TypedDict):
    """The last answer on a stream of a Linkerd proxy.

    * ``method``: service and method, such as ``Destination/Get``;
    * ``authority``: the name or address that the proxy asks for;
    * ``source``: the service, cluster or instance behind the answer; ``nothing`` for none;
    * ``is_known``: false while the answer is not known yet;
    * ``exists``: false if the answer says that there is no such destination;
    * ``endpoints``: the number of endpoints; null if the answers of this method have none;
    * ``messages``: the number of sent messages;
    * ``sent``: when the last message was sent; null before the first;
    * ``skipped``: configuration that Linkerd's API cannot express, each with the reason.
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
    """A stream of a node: xDS, load reports, or Linkerd's API.

    * ``id``: its number, unique while the server runs;
    * ``peer``: the address of the client, as ``HOST:PORT``;
    * ``principal``: the authenticated principal of the connection; empty without authentication;
    * ``service``: the short name of the gRPC service, such as ``ADS``; ``LRS`` for load reports;
    * ``variant``: ``sotw`` or ``delta``; empty for a stream of load reports;
    * ``api``: ``v2`` or ``v3``;
    * ``opened``: when it was opened;
    * ``types``: the state of each type, by type alias; empty for a stream of load reports;
    * ``load``: present for a stream of load reports;
    * ``linkerd``: present for a stream of a Linkerd proxy.
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
    """Removed resources of one type that a node keeps for a while.

    * ``revision``: the revision that removed them;
    * ``count``: the number of resources;
    * ``names``: some of their names;
    * ``until``: when they are removed from the node; null while the node has not ACKed everything that may refer to
      them.
    """

    type: str
    revision: int
    count: int
    names: list[str]
    until: str | None


class ResourceName(TypedDict):
    """The type and name of a resource."""

    type: str
    name: str


class HeldBackItem(TypedDict):
    """Resources that are not sent until clusters are warm, or until the node accepts other resources.

    * ``resources``: some of the resources;
    * ``count``: the number of resources;
    * ``waits_for``: names of clusters that they wait for;
    * ``any_cluster``: true if their clusters cannot be determined, so that they wait for all new clusters;
    * ``waits_for_others``: other resources that they wait for, such as a listener: the node rejects them, or does not
      have them yet.
    """

    resources: list[ResourceName]
    count: int
    waits_for: list[str]
    any_cluster: bool
    waits_for_others: list[ResourceName]


class PollsItem(TypedDict):
    """The polls of a node: REST xDS, and ``Fetch`` over gRPC.

    * ``last``: when the last poll was;
    * ``interval_s``: the longest time of late between two polls of one type, in seconds; at least 5.
    """

    last: str
    interval_s: float


class NodeItem(TypedDict):
    """A node: what it runs on each stream, and what it keeps or waits for.

    * ``id``: the id of the node;
    * ``cluster``: the cluster that the node names; not a resource;
    * ``locality``: the locality of the node;
    * ``group``: the group of the node; empty if no group matches;
    * ``user_agent``: the name and version of the client;
    * ``connected``: whether it has an open stream, or polls and has not missed three polls;
    * ``first_seen``: when its first stream was opened, or its first poll was, as long as it is remembered;
    * ``last_seen``: when its latest stream was opened or closed, or its latest poll was;
    * ``streams``: its open streams;
    * ``types``: the state of each type over all streams, by type alias, or at its latest poll; after the last stream
      its last state;
    * ``lingering``: the oldest removed resources that the node keeps for a while;
    * ``lingering_total``: the number of all removed resources that the node keeps;
    * ``held``: resources that are not sent yet;
    * ``polls``: present if it polls, or did since its last stream was opened;
    * ``admin``: present if the metadata of the node has ``admin_address``: the address of Envoy's admin page on its
      machine.
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
    polls: NotRequired[PollsItem]
    admin: NotRequired[str]


class DisconnectedItem(TypedDict):
    """The node whose streams were ended.

    * ``streams``: the number of ended streams.
    """

    node: str
    streams: int


class ReleaseItem(TypedDict):
    """The nodes that no longer keep removed resources.

    * ``nodes``: the number of nodes that kept some;
    * ``clients``: the number of their connections;
    * ``released``: the number of names of these resources, by type alias.
    """

    nodes: int
    clients: int
    released: dict[str, int]


class NackItem(TypedDict):
    """A NACK record: what a node rejected, and why. There is one open record per node, type and rejected content.

    * ``id``: its number, which no other record ever gets;
    * ``version``: the ``version_info`` of the rejected response;
    * ``nonce``: the nonce of the rejected response;
    * ``code``: the gRPC status code in the NACK;
    * ``message``: the error message of the client; long ones are cut;
    * ``names``: some of the names that may be rejected;
    * ``resources``: the number of names that may be rejected;
    * ``guilty``: the names that are known to be rejected; empty while they are not known;
    * ``count``: how often it was NACKed;
    * ``state``: ``open`` or ``resolved``;
    * ``first``: the time of the first NACK;
    * ``last``: the time of the last NACK;
    * ``resolved``: when the record was resolved; null while it is open;
    * ``nodes``: present with ``by=message``: some of the nodes with an equal NACK; ``count`` is then the sum over all;
    * ``nodes_total``: present with ``by=message``: the number of these nodes.
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
    nodes: NotRequired[list[str]]
    nodes_total: NotRequired[int]


class NodePage(TypedDict):
    """A page of nodes, by id."""

    items: list[NodeItem]
    next_page_token: NotRequired[str]


class NackPage(TypedDict):
    """A page of NACK records, newest first; with ``by=message`` open ones first, then those of the most nodes."""

    items: list[NackItem]
    next_page_token: NotRequired[str]


def node_item(
    node: NodeState, unexpressed: Mapping[str, Sequence[UnexpressedResource]], reporting: Sequence[StreamItem] = ()
) -> NodeItem:
    """The item of a node. ``unexpressed`` are resources by type alias, ``reporting`` its load report streams."""
    now, polls = time(), node.polls
    types = _types(node.types)
    if polls is not None and polls.are_going_on(now):
        types = {**_types(polls.types), **types}
    for alias, found in unexpressed.items():
        types[alias]["unexpressed"] = [{"name": each.name, "problem": each.problem} for each in found]
    item: NodeItem = {
        "id": node.id,
        "cluster": node.cluster,
        "locality": locality_item(node.locality),
        "group": node.group,
        "user_agent": node.user_agent,
        "connected": node.is_present(now),
        "first_seen": timestamp(node.first_seen),
        "last_seen": timestamp(node.last_seen),
        "streams": [*map(_stream_item, node.streams), *reporting],
        "types": types,
        "lingering": [_linger_item(each) for each in node.lingering],
        "lingering_total": node.lingering_total,
        "held": [held_item(each) for each in node.held],
    }
    if polls is not None:
        item["polls"] = {"last": timestamp(polls.last), "interval_s": round(polls.interval_s, 3)}
    return item


def add_answers(item: NodeItem, answers: Mapping[int, LinkerdItem]) -> None:
    """Add last answers to the streams of a node, by the id of the stream."""
    for stream in item["streams"]:
        if stream["id"] in answers:
            stream["linkerd"] = answers[stream["id"]]


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
        "waits_for_others": [{"type": type, "name": name} for type, name in held.waits_for_others],
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


def merged_nack_item(merged: MergedNack) -> NackItem:
    """The item of equal NACKs of several nodes."""
    item = nack_item(merged.record)
    item["nodes"], item["nodes_total"] = list(merged.nodes[:NODES_SHOWN]), len(merged.nodes)
    return item


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
