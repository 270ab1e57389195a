"""The JSON of the answers (DESIGN 5.2), as typed dictionaries: checked here, documented in the OpenAPI description."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NotRequired

from typing_extensions import TypedDict

from xds.control.content import Content, type_label
from xds.control.publisher import PushResult
from xds.control.rollout import Rollout
from xds.control.translation import Unexpressed
from xds.control.waiting import verdict
from xds.fleet.event_log import FleetEvent
from xds.fleet.state import Convergence, NackRecord, NodeState, StreamState, Sync, TypeState
from xds.model.snapshot import Change
from xds.store.base import Meta, RevisionInfo

Json = dict[str, Any]

WILDCARD = "*"


class ChangeItem(TypedDict):
    added: list[str]
    changed: list[str]
    removed: list[str]


class ProgressItem(TypedDict):
    """How far a push has come; ``verdict`` is ``done``, ``pending`` or ``refused``. Lists are bounded, counts not."""

    verdict: str
    synced: int
    pending: int
    nacked: int
    pending_nodes: list[str]
    nacks: list[NackItem]


class FindingItem(TypedDict):
    """An error or a warning; ``index`` is the position among the pushed resources, -1 for none of them."""

    code: str
    severity: str
    resource: str
    pointer: str
    source: str
    detail: str
    hint: str
    index: int


class TypeRolloutItem(TypedDict):
    """Connected nodes by their state."""

    synced: int
    pending: int
    nacked: int
    not_subscribed: int


class RolloutItem(TypedDict):
    """The connected nodes of a group against its head; those that subscribe to nothing do not count."""

    group: str
    revision: int
    synced: int
    pending: int
    nacked: int
    types: dict[str, TypeRolloutItem]
    pending_nodes: list[str]
    nacks: list[NackItem]


class PushAnswer(TypedDict):
    group: str
    revision: int
    etag: str
    versions: dict[str, str]
    changes: dict[str, ChangeItem]
    changed: bool
    warnings: list[FindingItem]
    dry_run: NotRequired[bool]
    progress: NotRequired[ProgressItem]


class TransactionAnswer(TypedDict):
    """The results in the order of the changes."""

    results: list[PushAnswer]


class GroupSettingsItem(TypedDict):
    """``on_nack`` is empty where the server's setting holds.

    ``selector_failures`` counts the nodes for which the selector could not be answered.
    """

    selector: str
    priority: int
    on_nack: str
    selector_failures: int


class GroupItem(GroupSettingsItem):
    """``resources`` counts by type alias; ``nodes`` counts the connected ones.

    Of a group that has settings only, ``revision`` is 0 and ``etag`` and ``time`` are empty: it takes no nodes.
    """

    group: str
    revision: int
    etag: str
    versions: dict[str, str]
    resources: dict[str, int]
    nodes: int
    author: str
    message: str
    time: str


class RevisionItem(TypedDict):
    """``deleted`` is true for the revision that deleted the group; ``content`` is false where it is no longer kept."""

    revision: int
    author: str
    message: str
    time: str
    versions: dict[str, str]
    resources: int
    deleted: bool
    content: bool


class ResourceItem(TypedDict):
    type: str
    name: str
    version: str
    resource: dict[str, Any]


class SnapshotItem(TypedDict):
    """What PUT takes, and where it comes from."""

    group: str
    revision: int
    etag: str
    versions: dict[str, str]
    resources: list[dict[str, Any]]


class LocalityItem(TypedDict):
    region: str
    zone: str
    sub_zone: str


class UnexpressedItem(TypedDict):
    name: str
    problem: str


class TypeItem(TypedDict):
    """``subscribed`` lists names, ``*`` for everything; ``subscribed_total`` counts when the list is cut off.

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
    unexpressed: NotRequired[list[UnexpressedItem]]
    since: str


class ReportsItem(TypedDict):
    """What came on a load report stream: how often, when last, what could not be, what a bound kept out."""

    reports: int
    reported: str | None
    refused: int
    left_out: int


class StreamItem(TypedDict):
    """``api`` is ``v2`` on the old transport, else ``v3``. A stream of load reports has ``load``, and no types."""

    id: int
    peer: str
    service: str
    variant: str
    api: str
    opened: str
    types: dict[str, TypeItem]
    load: NotRequired[ReportsItem]


class NodeItem(TypedDict):
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


class DisconnectedItem(TypedDict):
    """``streams`` is how many were ended; the client may come back at once."""

    node: str
    streams: int


class NackItem(TypedDict):
    """``code`` is a gRPC status number, ``message`` the client's own words, ``resources`` how many were refused."""

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
    count: int
    state: str
    first: str
    last: str
    resolved: str | None


class EventItem(TypedDict):
    """``action`` says what happened; ``details`` holds what only some actions have."""

    id: int
    time: str
    kind: str
    action: str
    group: NotRequired[str]
    node: NotRequired[str]
    type: NotRequired[str]
    revision: NotRequired[int]
    message: NotRequired[str]
    details: NotRequired[dict[str, str | int]]


class GroupPage(TypedDict):
    items: list[GroupItem]
    next_page_token: NotRequired[str]


class RevisionPage(TypedDict):
    items: list[RevisionItem]
    next_page_token: NotRequired[str]


class ResourcePage(TypedDict):
    items: list[ResourceItem]
    next_page_token: NotRequired[str]


class NodePage(TypedDict):
    items: list[NodeItem]
    next_page_token: NotRequired[str]


class NackPage(TypedDict):
    items: list[NackItem]
    next_page_token: NotRequired[str]


class ValidationAnswer(TypedDict):
    valid: bool
    resources: int
    errors: list[FindingItem]
    warnings: list[FindingItem]


def push_answer(result: PushResult) -> PushAnswer:
    return {
        "group": result.group,
        "revision": result.revision,
        "etag": result.etag,
        "versions": dict(result.versions),
        "changes": change_items(result.changes),
        "changed": result.changed,
        "warnings": [],
    }


def change_items(changes: Mapping[str, Change]) -> dict[str, ChangeItem]:
    """Changes by type alias."""
    return {
        label: {"added": list(change.added), "changed": list(change.changed), "removed": list(change.removed)}
        for label, change in changes.items()
    }


def progress_item(found: Convergence) -> ProgressItem:
    return {
        "verdict": verdict(found).value,
        "synced": found.synced,
        "pending": found.pending,
        "nacked": found.nacked,
        "pending_nodes": list(found.pending_nodes),
        "nacks": [nack_item(record) for record in found.nacks],
    }


def rollout_item(found: Rollout) -> RolloutItem:
    return {
        "group": found.group,
        "revision": found.revision,
        "synced": found.states.get(Sync.SYNCED, 0),
        "pending": found.states.get(Sync.PENDING, 0),
        "nacked": found.states.get(Sync.NACKED, 0),
        "types": {alias: _type_rollout(states) for alias, states in sorted(found.types.items())},
        "pending_nodes": list(found.pending_nodes),
        "nacks": [nack_item(record) for record in found.nacks],
    }


def _type_rollout(states: Mapping[Sync, int]) -> TypeRolloutItem:
    return {
        "synced": states.get(Sync.SYNCED, 0),
        "pending": states.get(Sync.PENDING, 0),
        "nacked": states.get(Sync.NACKED, 0),
        "not_subscribed": states.get(Sync.NOT_SUBSCRIBED, 0),
    }


def group_item(group: str, content: Content | None, nodes: int, settings: GroupSettingsItem) -> GroupItem:
    meta: _MetaItem = _meta(content.meta) if content is not None else {"author": "", "message": "", "time": ""}
    sets = list(content.snapshot) if content is not None else []
    return {
        "group": group,
        "revision": content.revision if content is not None else 0,
        "etag": content.etag if content is not None else "",
        "versions": content.versions() if content is not None else {},
        "resources": {type_label(found.type.type_url): len(found) for found in sets},
        "nodes": nodes,
        **settings,
        **meta,
    }


def revision_item(info: RevisionInfo) -> RevisionItem:
    return {
        "revision": info.revision,
        "versions": _by_label(info.versions),
        "resources": info.resources,
        "deleted": not info.live,
        "content": info.content,
        **_meta(info.meta),
    }


def node_item(
    node: NodeState, unexpressed: Mapping[str, Sequence[Unexpressed]], reporting: Sequence[StreamItem] = ()
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
        "count": record.count,
        "state": record.state.value,
        "first": timestamp(record.first),
        "last": timestamp(record.last),
        "resolved": timestamp(record.resolved) if record.resolved is not None else None,
    }


def event_item(event: FleetEvent) -> EventItem:
    item: EventItem = {
        "id": event.id,
        "time": timestamp(event.time),
        "kind": event.kind.value,
        "action": event.action,
    }
    if event.group:
        item["group"] = event.group
    if event.node:
        item["node"] = event.node
    if event.type:
        item["type"] = event.type
    if event.revision is not None:
        item["revision"] = event.revision
    if event.message:
        item["message"] = event.message
    if event.details:
        item["details"] = dict(event.details)
    return item


def timestamp(seconds: float) -> str:
    """RFC 3339 in UTC, milliseconds."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _stream_item(stream: StreamState) -> StreamItem:
    return {
        "id": stream.id,
        "peer": stream.peer,
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
    return item


def _by_label(versions: Mapping[str, str]) -> dict[str, str]:
    return {type_label(type_url): version for type_url, version in versions.items()}


class _MetaItem(TypedDict):
    author: str
    message: str
    time: str


def _meta(meta: Meta) -> _MetaItem:
    return {"author": meta.author, "message": meta.message, "time": timestamp(meta.time_s)}
