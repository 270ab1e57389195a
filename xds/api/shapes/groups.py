"""The JSON of groups, revisions, pushes and events, as typed dictionaries.

mypy checks them, and the OpenAPI description documents them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NotRequired

from typing_extensions import TypedDict

from xds.api.shapes.config_entries import EntryAnswer
from xds.api.shapes.endpoints import OwnerItem
from xds.api.shapes.fleet import (
    HeldBackItem,
    NackItem,
    held_item,
    nack_item,
)
from xds.api.shapes.upstreams import LoweredOrigin
from xds.api.shapes.values import FindingItem, timestamp
from xds.control.group_content import GroupContent, type_label
from xds.control.progress import RolloutStatus, verdict_of
from xds.control.publisher import PushResult
from xds.control.undo import UndoPlan
from xds.fleet.event_log import FleetEvent
from xds.fleet.state import Convergence, HeldResources, Sync
from xds.model.snapshot import Change
from xds.store.base import Meta, RevisionInfo

Json = dict[str, Any]


class ChangeItem(TypedDict):
    """The names of one type that a push added, changed and removed."""

    added: list[str]
    changed: list[str]
    removed: list[str]


class NodeHeldItem(HeldBackItem):
    """Resources that are held for a pending node."""

    node: str


class ProgressItem(TypedDict):
    """The progress of a push; ``verdict`` is ``done``, ``pending`` or ``refused``.

    Lists are bounded, counts are not.
    """

    verdict: str
    synced: int
    pending: int
    nacked: int
    pending_nodes: list[str]
    nacks: list[NackItem]
    held: list[NodeHeldItem]


class TypeRolloutItem(TypedDict):
    """Connected nodes by their state."""

    synced: int
    pending: int
    nacked: int
    not_subscribed: int


class RolloutItem(TypedDict):
    """The connected nodes of a group by their state. Nodes without subscriptions do not count."""

    group: str
    revision: int
    synced: int
    pending: int
    nacked: int
    types: dict[str, TypeRolloutItem]
    pending_nodes: list[str]
    nacks: list[NackItem]
    held: list[NodeHeldItem]


class PushAnswer(TypedDict):
    """``moves`` is present for a deleted group: its connected nodes by the group that they move to, empty for none."""

    group: str
    revision: int
    etag: str
    versions: dict[str, str]
    changes: dict[str, ChangeItem]
    changed: bool
    warnings: list[FindingItem]
    dry_run: NotRequired[bool]
    moves: NotRequired[dict[str, int]]
    progress: NotRequired[ProgressItem]


class TransactionAnswer(TypedDict):
    """The results in the order of the changes. ``config_entries`` is there where config entries were written."""

    results: list[PushAnswer]
    config_entries: NotRequired[EntryAnswer]


class GroupSettingsItem(TypedDict):
    """``on_nack`` is empty, and the times are null, where the server's setting applies.

    ``removal_delay_s`` is how long removed resources linger, ``listener_drain_s`` how much longer if a listener
    changed; a change affects lingering that has no end yet. ``selector_failures`` counts the nodes for which the
    selector could not be evaluated. ``settings_etag`` identifies the settings, for `If-Match`; empty if there are none.
    """

    selector: str
    priority: int
    on_nack: str
    removal_delay_s: float | None
    listener_drain_s: float | None
    selector_failures: int
    settings_etag: str


class GroupItem(GroupSettingsItem):
    """``resources`` counts by type alias; ``nodes`` counts the connected nodes.

    For a group that has only settings, ``revision`` is 0, and ``etag`` and ``time`` are empty. No nodes belong to it.
    """

    group: str
    revision: int
    etag: str
    versions: dict[str, str]
    resources: dict[str, int]
    nodes: int
    actor: str
    author: str
    message: str
    time: str


class RevisionItem(TypedDict):
    """``deleted`` is true for the revision that deleted the group.

    ``content`` is false if retention deleted the content.

    ``kind`` is `push`, `rollback`, `restore`, `delete`, or `lowered` for a change of config entries or of the upstreams
    of the group, which does not change the pushed resources. ``content_of`` is the revision that a rollback took its
    content from; with ``keeps_endpoints`` it kept the assignments of the time. ``undone_by`` is the revision that undid
    this one, 0 if none did. ``refused`` of ``nodes`` rejected it, as far as that was recorded. ``actor`` was
    authenticated; ``author`` is what the client said.
    """

    revision: int
    kind: str
    content_of: int
    keeps_endpoints: bool
    undone_by: int
    endpoints_only: bool
    nodes: int
    refused: int
    actor: str
    author: str
    message: str
    time: str
    versions: dict[str, str]
    resources: int
    deleted: bool
    content: bool


class UndoCandidateItem(RevisionItem):
    """A revision to go back to; ``reason`` says why it is not chosen, empty if it can be."""

    reason: str


class UndoItem(TypedDict):
    """``etag`` is that of the group. Send it as `If-Match` with the rollback, so that nothing else is undone.

    ``last_undo`` is the rollback that the group's configuration is at now; null where it is at none.
    """

    group: str
    revision: int
    etag: str
    takes_back: RevisionItem
    to: int | None
    candidates: list[UndoCandidateItem]
    last_undo: RevisionItem | None


class ResourceItem(TypedDict):
    """A resource with its document, as it was pushed. ``live`` is the owner of what is laid over an assignment.

    ``lowered`` is the origin of a resource that was not pushed.
    """

    type: str
    name: str
    version: str
    resource: dict[str, Any]
    live: NotRequired[OwnerItem]
    lowered: NotRequired[LoweredOrigin]


class SnapshotItem(TypedDict):
    """The document that PUT accepts, with its origin.

    ``lowered`` counts the resources of the group that come from its upstreams.
    """

    group: str
    revision: int
    etag: str
    versions: dict[str, str]
    lowered: int
    resources: list[dict[str, Any]]


class EventItem(TypedDict):
    """``action`` is what happened; ``details`` has values of this action. ``id`` is opaque."""

    id: str
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
    """A page of groups."""

    items: list[GroupItem]
    next_page_token: NotRequired[str]


class RevisionPage(TypedDict):
    """A page of revisions."""

    items: list[RevisionItem]
    next_page_token: NotRequired[str]


class ResourcePage(TypedDict):
    """A page of resources."""

    items: list[ResourceItem]
    next_page_token: NotRequired[str]


class ValidationAnswer(TypedDict):
    """The result of a validation without errors."""

    valid: bool
    resources: int
    errors: list[FindingItem]
    warnings: list[FindingItem]


def push_answer(result: PushResult) -> PushAnswer:
    """The answer to a push."""
    answer: PushAnswer = {
        "group": result.group,
        "revision": result.revision,
        "etag": result.etag,
        "versions": dict(result.versions),
        "changes": change_items(result.changes),
        "changed": result.changed,
        "warnings": [],
    }
    if result.moves:
        answer["moves"] = dict(result.moves)
    return answer


def change_items(changes: Mapping[str, Change]) -> dict[str, ChangeItem]:
    """Changes by type alias."""
    return {
        label: {"added": list(change.added), "changed": list(change.changed), "removed": list(change.removed)}
        for label, change in changes.items()
    }


def progress_item(found: Convergence) -> ProgressItem:
    """The progress of a push as JSON."""
    return {
        "verdict": verdict_of(found).value,
        "synced": found.synced,
        "pending": found.pending,
        "nacked": found.nacked,
        "pending_nodes": list(found.pending_nodes),
        "nacks": [nack_item(record) for record in found.nacks],
        "held": held_items(found.held),
    }


def held_items(found: Sequence[tuple[str, HeldResources]]) -> list[NodeHeldItem]:
    """Resources that are held for pending nodes, as JSON."""
    return [{"node": node, **held_item(held)} for node, held in found]


def rollout_item(found: RolloutStatus) -> RolloutItem:
    """The rollout of a group as JSON."""
    return {
        "group": found.group,
        "revision": found.revision,
        "synced": found.states.get(Sync.SYNCED, 0),
        "pending": found.states.get(Sync.PENDING, 0),
        "nacked": found.states.get(Sync.NACKED, 0),
        "types": {alias: _type_rollout(states) for alias, states in sorted(found.types.items())},
        "pending_nodes": list(found.pending_nodes),
        "nacks": [nack_item(record) for record in found.nacks],
        "held": held_items(found.held),
    }


def _type_rollout(states: Mapping[Sync, int]) -> TypeRolloutItem:
    return {
        "synced": states.get(Sync.SYNCED, 0),
        "pending": states.get(Sync.PENDING, 0),
        "nacked": states.get(Sync.NACKED, 0),
        "not_subscribed": states.get(Sync.NOT_SUBSCRIBED, 0),
    }


def group_item(group: str, content: GroupContent | None, nodes: int, settings: GroupSettingsItem) -> GroupItem:
    """A group as JSON. ``content`` is None for a group that has only settings."""
    meta: _MetaItem = _meta(content.meta) if content is not None else _NO_META
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
    """A revision as JSON."""
    return {
        "revision": info.revision,
        "versions": _by_label(info.versions),
        "resources": info.resources,
        "deleted": not info.live,
        "content": info.content,
        "kind": info.kind,
        "content_of": info.content_of,
        "keeps_endpoints": info.keeps_endpoints,
        "undone_by": info.undone_by,
        "endpoints_only": info.endpoints_only,
        "nodes": info.nodes,
        "refused": info.refused,
        **_meta(info.meta),
    }


def undo_item(plan: UndoPlan) -> UndoItem:
    """The plan of an undo as JSON."""
    return {
        "group": plan.group,
        "revision": plan.revision,
        "etag": plan.etag,
        "takes_back": revision_item(plan.takes_back),
        "to": plan.to.revision if plan.to is not None else None,
        "candidates": [{**revision_item(each.line), "reason": each.reason} for each in plan.candidates],
        "last_undo": revision_item(plan.last_undo) if plan.last_undo is not None else None,
    }


def event_item(event: FleetEvent) -> EventItem:
    """An event as JSON."""
    item: EventItem = {
        "id": str(event.id),
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


def _by_label(versions: Mapping[str, str]) -> dict[str, str]:
    return {type_label(type_url): version for type_url, version in versions.items()}


class _MetaItem(TypedDict):
    actor: str
    author: str
    message: str
    time: str


_NO_META: _MetaItem = {"actor": "", "author": "", "message": "", "time": ""}


def _meta(meta: Meta) -> _MetaItem:
    return {"actor": meta.actor, "author": meta.author, "message": meta.message, "time": timestamp(meta.time_s)}
