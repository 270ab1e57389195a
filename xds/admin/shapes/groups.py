"""The JSON of groups, revisions and pushes, as typed dictionaries.

mypy checks them, and the OpenAPI description documents them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NotRequired

from typing_extensions import TypedDict

from xds.admin.models.nacks import Nack
from xds.admin.models.nodes import HeldOnNode
from xds.admin.models.writing import document_of
from xds.admin.shapes.endpoints import OwnerItem
from xds.admin.shapes.values import FindingItem, timestamp
from xds.fleet.state import Convergence, HeldResources, Sync
from xds.model.snapshot import Change
from xds.push.content import GroupContent, Key, type_label
from xds.push.derived import DerivedContent, DerivedOrigin
from xds.push.progress import RolloutStatus, verdict_of
from xds.push.request import PushResult
from xds.push.undo import UndoPlan
from xds.store.base import Meta, RevisionInfo

Json = dict[str, Any]


class ChangeItem(TypedDict):
    """The resources of one type that a push changed.

    * ``added``: the names of new resources;
    * ``changed``: the names of resources with other content;
    * ``removed``: the names of removed resources.
    """

    added: list[str]
    changed: list[str]
    removed: list[str]


class ProgressItem(TypedDict):
    """The progress of a push among the nodes that were connected at its commit. Lists are bounded, numbers are not.

    * ``verdict``: ``done`` if all nodes have ACKed the push, ``refused`` if a node has NACKed it, else ``pending``;
    * ``synced``: the number of nodes that have ACKed all changed types;
    * ``pending``: the number of nodes that have not answered yet;
    * ``nacked``: the number of nodes that have NACKed a changed type;
    * ``pending_nodes``: the ids of some pending nodes;
    * ``nacks``: some open NACKs of these nodes;
    * ``held``: resources that some pending nodes are not sent yet.
    """

    verdict: str
    synced: int
    pending: int
    nacked: int
    pending_nodes: list[str]
    nacks: list[Nack]
    held: list[HeldOnNode]


class TypeRolloutItem(TypedDict):
    """The connected nodes of a group by their state for one type.

    * ``synced``: the number of nodes that have ACKed it;
    * ``pending``: the number of nodes that have not answered yet;
    * ``nacked``: the number of nodes that have NACKed it;
    * ``not_subscribed``: the number of nodes that do not subscribe to it.
    """

    synced: int
    pending: int
    nacked: int
    not_subscribed: int


class RolloutItem(TypedDict):
    """The connected nodes of a group by their state at its present revision. Nodes without subscriptions do not count.

    * ``revision``: the present revision;
    * ``synced``: the number of nodes that have ACKed all types;
    * ``pending``: the number of nodes that have not answered yet;
    * ``nacked``: the number of nodes that have NACKed a type;
    * ``types``: the states for single types, by type alias;
    * ``pending_nodes``: the ids of some pending nodes;
    * ``nacks``: some open NACKs;
    * ``held``: resources that some pending nodes are not sent yet.
    """

    group: str
    revision: int
    synced: int
    pending: int
    nacked: int
    types: dict[str, TypeRolloutItem]
    pending_nodes: list[str]
    nacks: list[Nack]
    held: list[HeldOnNode]


class PushAnswer(TypedDict):
    """The result of a push; in a dry run, what it would change.

    * ``revision``: the revision of the group after the push; in a dry run, its present revision. 0: there is no group;
    * ``etag``: the etag of the group at this revision, without quotes; empty if there is no group;
    * ``versions``: the ``version_info`` of each type, by type alias;
    * ``changes``: the changed resources, by type alias;
    * ``changed``: false if the push changed nothing, so that it made no revision;
    * ``moves``: present if a group is deleted: the number of its connected nodes by the group that they move to. Nodes
      under the empty name match no group and keep their configuration;
    * ``progress``: present after ``Prefer: wait``: the progress of the push when the wait was over.
    """

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


class GroupSettingsItem(TypedDict):
    """The settings of a group.

    * ``selector``: the filter by which the group takes nodes; empty: nodes join by name only;
    * ``priority``: selectors of groups with a higher priority are tried first;
    * ``on_nack``: ``hold`` or ``proceed``: what a rejected cluster does to the listeners and routes that refer to it.
      Empty: the setting ``server.on_nack`` applies;
    * ``removal_delay_s``: how long nodes keep removed resources; null: the setting ``order.removal_delay_s`` applies.
      A change affects removed resources whose time has not begun;
    * ``listener_drain_s``: how much longer, if the push changed or removed a listener; null: the setting
      ``order.listener_drain_s`` applies;
    * ``selector_failures``: how often the selector could not be evaluated for a node, which then does not match;
    * ``settings_etag``: the etag of the settings for ``If-Match`` of ``PUT /groups/{group}``; empty if there are none.
    """

    selector: str
    priority: int
    on_nack: str
    removal_delay_s: float | None
    listener_drain_s: float | None
    selector_failures: int
    settings_etag: str


class GroupItem(GroupSettingsItem):
    """A group with its settings. No node belongs to a group that has settings alone.

    * ``revision``: its present revision; 0 for a group that has settings alone;
    * ``etag``: the etag of its snapshot, without quotes; empty for a group that has settings alone;
    * ``versions``: the ``version_info`` of each type, by type alias;
    * ``resources``: the number of resources, by type alias;
    * ``nodes``: the number of connected nodes;
    * ``message``: the message of the present revision; empty without one;
    * ``time``: when the present revision was made; empty for a group that has settings alone.
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
    """One revision in the history of a group.

    * ``revision``: its number;
    * ``kind``: ``push``, ``rollback``, ``restore`` (of a deleted group), ``delete``, or ``lowered`` after a change of
      config entries or upstreams, which leaves the pushed resources as they are;
    * ``content_of``: the revision that a rollback took its content from; 0 for other kinds;
    * ``keeps_endpoints``: true for a rollback that left assignments as they were;
    * ``undone_by``: the rollback that undid this revision; 0 if none did;
    * ``endpoints_only``: true if only assignments changed;
    * ``refused``: how many nodes rejected it, at most;
    * ``nodes``: how many nodes there were then; 0 if no node rejected it;
    * ``time``: when it was made;
    * ``versions``: the ``version_info`` of each type, by type alias;
    * ``resources``: the number of resources of the group at this revision;
    * ``deleted``: true for the revision that deleted the group;
    * ``content``: false if its content cannot be read: it deleted the group, or retention has deleted the content.
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
    """An earlier revision that an undo may go back to.

    * ``reason``: why the undo does not choose it; empty if it can be chosen.
    """

    reason: str


class UndoItem(TypedDict):
    """The plan of undoing the last configuration change of a group.

    * ``revision``: the present revision of the group;
    * ``etag``: the etag of the group. Send it as ``If-Match`` with the rollback, so that nothing else is undone;
    * ``takes_back``: the revision that would be undone;
    * ``to``: the revision to roll back to; null if there is none, so that a person has to choose among ``candidates``;
    * ``candidates``: the newest earlier revisions, newest first;
    * ``last_undo``: the rollback that the group is at now; null if it is at none.
    """

    group: str
    revision: int
    etag: str
    takes_back: RevisionItem
    to: int | None
    candidates: list[UndoCandidateItem]
    last_undo: RevisionItem | None


class LoweredOrigin(TypedDict):
    """Where a lowered resource comes from.

    * ``upstreams``: the names of upstreams in the document of the group;
    * ``entries``: the config entries, as ``kind/name``.
    """

    upstreams: list[str]
    entries: list[str]


class ResourceItem(TypedDict):
    """A resource of a group as it was pushed.

    * ``version``: its version: a hash of its content;
    * ``resource``: the resource as protobuf JSON, with its ``@type``;
    * ``live``: present for an assignment that a live one replaces: the owner of the live assignment;
    * ``lowered``: present if the resource was not pushed, but lowered from upstreams: where it comes from.
    """

    type: str
    name: str
    version: str
    resource: dict[str, Any]
    live: NotRequired[OwnerItem]
    lowered: NotRequired[LoweredOrigin]


class SnapshotItem(TypedDict):
    """The resources of a group at one revision. ``PUT /groups/{group}/snapshot`` accepts this document.

    * ``revision``: the revision;
    * ``etag``: the etag of this revision, without quotes;
    * ``versions``: the ``version_info`` of each type, by type alias;
    * ``lowered``: the number of resources that are lowered from upstreams. They are in ``resources`` only on request;
    * ``resources``: the resources as protobuf JSON, each with its ``@type``, in pushed order.
    """

    group: str
    revision: int
    etag: str
    versions: dict[str, str]
    lowered: int
    resources: list[dict[str, Any]]


class GroupPage(TypedDict):
    """A page of groups."""

    items: list[GroupItem]
    next_page_token: NotRequired[str]


class RevisionPage(TypedDict):
    """A page of revisions, newest first."""

    items: list[RevisionItem]
    next_page_token: NotRequired[str]


class ResourcePage(TypedDict):
    """A page of resources, by name."""

    items: list[ResourceItem]
    next_page_token: NotRequired[str]


class ValidationAnswer(TypedDict):
    """The result of a validation without errors. With errors the answer is 422.

    * ``valid``: true;
    * ``resources``: the number of resources;
    * ``errors``: empty;
    * ``warnings``: the warnings.
    """

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
        "nacks": document_of([Nack.from_domain(record) for record in found.nacks]),
        "held": _held(found.held),
    }


def _held(found: Sequence[tuple[str, HeldResources]]) -> Any:
    return document_of([HeldOnNode.of_node(node, held) for node, held in found])


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
        "nacks": document_of([Nack.from_domain(record) for record in found.nacks]),
        "held": _held(found.held),
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


def origin_of(content: DerivedContent, key: Key) -> LoweredOrigin | None:
    """Where a resource or an assignment comes from; None for one that is not derived."""
    if not content.owns(key):
        return None
    origin = content.origin(key) or DerivedOrigin()
    return {"upstreams": list(origin.upstreams), "entries": ["/".join(entry) for entry in origin.entries]}
