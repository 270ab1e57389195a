"""One push, from request to result.

A `PushRequest` says what a caller wants. `plan_change` compares it with the current content of the group and makes a
`PlannedChange`. Once the store has committed it and the snapshot is built, it is `Published`, and `PushResult` is the
answer to the caller.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from xds.codec.crosscheck import STILL_REFERENCED
from xds.model.errors import GuardedError, NotFoundError, ValidationError, Violation, XdsError
from xds.model.resource import Resource, short_hash
from xds.model.snapshot import Change
from xds.push.content import (
    BlobIds,
    Blobs,
    GroupContent,
    Key,
    amended,
    blob_ids,
    build_next_content,
    changes,
    digests_of,
    encode_resources,
    type_label,
)
from xds.push.derived import NOTHING_CHANGES, DerivedChange, extend
from xds.push.group_names import check_group_name
from xds.push.rollout_step import NO_STEP, RolloutStep, ServedRollout
from xds.push.undo import with_kept_endpoints
from xds.rollouts.rollout import Rollout
from xds.rollouts.server_facts import ServerFacts
from xds.snapshots.cache import NOTHING_PRECOMPUTED, Precomputed, SnapshotCache
from xds.store.base import (
    DERIVED,
    NO_META,
    Commit,
    Delta,
    DocumentWrite,
    Drop,
    Entry,
    FullSet,
    GroupChange,
    GroupPush,
    Manifest,
    MayWrite,
    Meta,
    Rollback,
    StoredContent,
    always,
)
from xds.store.etags import check_group_etag
from xds.tasks.threads import run_sized


class StillReferencedError(GuardedError):
    """Resources that the change deletes are named by others of the group."""

    override = "force"


class ChangeError(XdsError):
    """A change of a transaction cannot be applied, so no change is. ``index`` counts from 0; ``cause`` says why."""

    def __init__(self, index: int, group: str, cause: XdsError) -> None:
        super().__init__(f"changes[{index}], group {group!r}: {cause}")
        self.index = index
        self.group = group
        self.cause = cause


@dataclass(frozen=True, slots=True)
class PushResult:
    """The result of a push. ``versions`` and ``changes`` are by type label.

    * ``changed``: False when the push changed nothing and made no revision;
    * ``warnings``: findings that did not stop the push;
    * ``moves``: the connected nodes of a deleted group, counted by the group that they move to. Nodes under the empty
      name match no group and keep their resources;
    * ``rollout``: what it does to the rollout of the group.
    """

    group: str
    revision: int
    etag: str
    versions: Mapping[str, str]
    changes: Mapping[str, Change]
    changed: bool = True
    warnings: tuple[Violation, ...] = ()
    moves: Mapping[str, int] = field(default_factory=dict)
    rollout: RolloutStep = NO_STEP

    @property
    def touched(self) -> int:
        """The number of resources in ``changes``."""
        return sum(len(change.added) + len(change.changed) + len(change.removed) for change in self.changes.values())


@dataclass(frozen=True, slots=True)
class PushOptions:
    """How a push is made.

    * ``push_id``: a push with the same id is applied once; a repeated one gets the first result;
    * ``expect``: the revision that the group must have; 0: the group must not exist;
    * ``etag``: the etag that the group must have. ``*``: the group must exist. Without a hash only the revision counts;
    * ``dry_run``: report what would change, change nothing;
    * ``allow_empty``: the group may become empty while nodes are connected;
    * ``force``: resources that others of the group name may be deleted;
    * ``strict``: warnings are errors;
    * ``peer``: the address of the caller, for the audit list;
    * ``may_write``: whether the server still does the work that the push belongs to, when it is committed;
    * ``rollout``: the plan of a careful rollout, as far as the caller names it: the rest is that of the group, or the
      default. None: the group's setting alone decides;
    * ``all_at_once``: to all nodes now, although the group has a plan;
    * ``retry``: content that a rollout has taken back is pushed again;
    * ``nodes``: what all servers know of nodes, by group, where a rollout may begin (`UnknownNodesError`).

    In a transaction ``expect`` and ``etag`` are those of each request.
    """

    push_id: str = ""
    expect: int | None = None
    meta: Meta = NO_META
    dry_run: bool = False
    allow_empty: bool = False
    etag: str = ""
    strict: bool = False
    peer: str = ""
    force: bool = False
    may_write: MayWrite = always
    rollout: Mapping[str, object] | None = None
    all_at_once: bool = False
    retry: bool = False
    nodes: Mapping[str, ServerFacts] = field(default_factory=dict)

    def check_warnings(self, warnings: Sequence[Violation], change: GroupChange | None = None) -> None:
        """Raises ``ValidationError`` for warnings of a strict push, ``StillReferencedError`` for deletions."""
        if self.strict and warnings:
            raise ValidationError(list(warnings))
        if isinstance(change, Delta) and not (self.force or self.dry_run):
            self._check_deletions(warnings)

    def _check_deletions(self, warnings: Sequence[Violation]) -> None:
        """Raises ``StillReferencedError`` for a resource that is deleted by name, and that another one refers to.

        A whole snapshot that leaves a resource out is warned of instead.
        """
        referenced = [one for one in warnings if one.code == STILL_REFERENCED]
        if referenced:
            others = f" (and {len(referenced) - 1} more)" if len(referenced) > 1 else ""
            raise StillReferencedError(f"{referenced[0]}{others}")


DEFAULT_OPTIONS = PushOptions()


NO_CHANGE = Delta((), (), {})  # of pushed resources


@dataclass(frozen=True, slots=True)
class PushRequest:
    """A requested change of a group. ``resources`` are the decoded resources of the request.

    ``expect`` and ``etag`` are those of `PushOptions`. ``derived`` is the change of the group's derived resources, with
    documents that are stored in the same transaction. ``is_derived``: only derived resources change, as a result of a
    change of other documents. ``requested_change`` is the change without derived resources; None until ``extended``.
    ``ends`` is for the roll-back of a rollout: the rollout as it is, and as it is afterwards.
    """

    group: str
    change: GroupChange
    resources: Mapping[Key, Resource] = field(default_factory=dict)
    expect: int | None = None
    etag: str = ""
    derived: DerivedChange = NOTHING_CHANGES
    is_derived: bool = False
    requested_change: GroupChange | None = None
    ends: tuple[Rollout, Rollout] | None = None

    @property
    def changes_derived_only(self) -> bool:
        """Whether no pushed resource changes."""
        return self.is_derived or (bool(self.derived.writes) and (self.requested_change or self.change) == NO_CHANGE)

    def extended(self, current: GroupContent | None, target: GroupContent | None) -> PushRequest:
        """The request with the derived resources. Raises ``ValidationError`` if a name has two owners."""
        extended = extend(self.group, self.change, self.resources, self.derived, current, target)
        requested = self.requested_change or self.change
        return replace(self, change=extended.change, resources=extended.resources, requested_change=requested)


@dataclass(frozen=True, slots=True)
class PlannedChange:
    """A request compared with the current content of its group, which is locked until the change is published.

    * ``current``: the content of the group now; None if it has no snapshot;
    * ``blob_ids``: all resources after the change; ``resources``: at least those that are new or changed;
    * ``expect``: the revision of ``current``, which the store has to check, because other servers push as well;
    * ``difference``: what changes, by type URL; ``digests``: the digests of these types after the change;
    * ``warnings``: the findings of the review; ``moves`` and ``rollout``: see `PushResult`.
    """

    request: PushRequest
    current: GroupContent | None
    blob_ids: BlobIds
    resources: Mapping[Key, Resource]
    expect: int
    difference: Mapping[str, Change]
    digests: Mapping[str, bytes]
    warnings: tuple[Violation, ...] = ()
    moves: Mapping[str, int] = field(default_factory=dict)
    rollout: RolloutStep = NO_STEP

    @property
    def group(self) -> str:
        """The group of the request."""
        return self.request.group

    @property
    def writes(self) -> tuple[DocumentWrite, ...]:
        """The documents that are written with the change."""
        own = self.rollout.write
        return self.request.derived.writes if own is None else (*self.request.derived.writes, own)

    def names(self, type_url: str) -> Iterator[str]:
        """The names of all resources of a type after the change."""
        return (name for of_type, name in self.blob_ids if of_type == type_url)

    def after(self, type_url: str, name: str) -> Resource | None:
        """A resource of the group as it is after the change."""
        key = (type_url, name)
        if key not in self.blob_ids:
            return None
        known = self.resources.get(key)
        return known if known is not None or self.current is None else self.current.get(key)

    @property
    def touched(self) -> int:
        """How many resources have to be compared to build the new content from the current one."""
        touched = self.blob_ids.touched_since(self.current.blob_ids) if self.current is not None else None
        return len(self.blob_ids if touched is None else touched)

    def group_push(self) -> GroupPush:
        """The call to the store, with the current content so that the store need not read it."""
        current = self.current
        known = StoredContent(current.revision, current.blob_ids) if current is not None else None
        hashes = {type_url: short_hash(digest) for type_url, digest in self.digests.items()}
        request = self.request
        return GroupPush(
            self.group,
            request.change,
            self.expect,
            known,
            hashes,
            requested_change=request.requested_change,
            is_derived=request.is_derived,
            kind=DERIVED if request.changes_derived_only else "",
            writes=self.writes,
        )


@dataclass(frozen=True, slots=True)
class Published:
    """A committed change with the content to serve. ``content`` is None for a deleted group.

    ``precomputed`` is what the streams will need of the new snapshot, computed before it is published. ``rollout`` is
    the rollout by which it is served.
    """

    planned: PlannedChange
    commit: Commit
    content: GroupContent | None
    precomputed: Precomputed = NOTHING_PRECOMPUTED
    rollout: ServedRollout | None = None

    @property
    def difference(self) -> Mapping[str, Change]:
        """What changed, by type URL."""
        return self.planned.difference if self.commit.changed else {}

    def result(self) -> PushResult:
        """The answer to the caller."""
        planned, commit, warnings, rollout = self.planned, self.commit, self.planned.warnings, self.planned.rollout
        if self.content is None:
            difference = by_type_label(self.difference)
            return PushResult(commit.group, commit.revision, "", {}, difference, warnings=warnings, moves=planned.moves)
        result = result_of(self.content, self.difference, commit.changed)
        return replace(result, warnings=warnings, rollout=rollout)


async def replace_all(
    group: str,
    resources: Iterable[Resource],
    label: str = "",
    labels: Mapping[str, str] | None = None,
    base: GroupContent | None = None,
) -> PushRequest:
    """A request that replaces all pushed resources of a group. ``base`` as in ``encode_resources``.

    Raises ``ValidationError`` for a bad group name.
    """
    check_group_name(group)
    members = list(resources)
    entries, blobs, by_key = await run_sized(_encoded, members, base, resources=len(members))
    return PushRequest(group, FullSet(entries, blobs, label, dict(labels or {})), by_key)


async def patch(group: str, put: Sequence[Resource], delete: Sequence[Key] = ()) -> PushRequest:
    """A request that puts and deletes single resources. Raises as ``replace_all``."""
    check_group_name(group)
    entries, blobs, by_key = await run_sized(_encoded, list(put), resources=len(put))
    return PushRequest(group, Delta(entries, tuple(delete), blobs), by_key)


def plan_change(request: PushRequest, current: GroupContent | None, target: GroupContent | None) -> PlannedChange:
    """Compare a request with the current content of its group. ``target`` is the content that a rollback restores.

    Raises ``ConflictError``, ``NotFoundError``, ``ValidationError`` if a name has two owners.
    """
    expect = _expected_revision(request, current)
    request = request.extended(current, target)
    if isinstance(request.change, Rollback) and target is not None:
        request = replace(request, change=with_kept_endpoints(request.change, current, target))
    ids, resources = _content_after(request, current, target)
    difference = changes(current.blob_ids if current is not None else BlobIds(), ids)
    digests = {} if isinstance(request.change, Drop) else digests_of(difference, current, resources)
    if isinstance(request.change, FullSet | Delta) and (labels := request.derived.labels(digests)):
        request = replace(request, change=replace(request.change, labels={**request.change.labels, **labels}))
    return PlannedChange(request, current, ids, resources, expect, difference, digests)


def _content_after(
    request: PushRequest, current: GroupContent | None, target: GroupContent | None
) -> tuple[BlobIds, Mapping[Key, Resource]]:
    """The content after a request, and at least its resources that are new."""
    match request.change:
        case FullSet():
            return blob_ids(
                request.change.entries, current.blob_ids if current is not None else None
            ), request.resources
        case Delta():
            if request.change.delete:
                _check_exists(request.group, current)
            return amended(current.blob_ids if current is not None else BlobIds(), request.change), request.resources
        case Rollback():
            assert target is not None
            return _content_after_rollback(request.change, current, target)
        case Drop():
            _check_exists(request.group, current)
            return BlobIds(), {}


def _content_after_rollback(
    change: Rollback, current: GroupContent | None, target: GroupContent
) -> tuple[BlobIds, Mapping[Key, Resource]]:
    """The content of ``target``, except for the resources that the rollback keeps as they are."""
    resources = _by_key(target.resources())
    if not (change.keep or change.omit):
        return target.blob_ids, resources
    not_restored = frozenset(change.omit)
    ids = {key: blob for key, blob in target.blob_ids.items() if key not in not_restored}
    # What another server derived may be known here before the group has it: the store refuses this plan then.
    present = current.blob_ids if current is not None else BlobIds()
    kept_ids = {key: present[key] for key in change.keep if key in present}
    kept = {key: one for key in kept_ids if current is not None and (one := current.get(key)) is not None}
    return BlobIds({**ids, **kept_ids}), {**resources, **kept}


def result_of(content: GroupContent, difference: Mapping[str, Change], changed: bool = True) -> PushResult:
    """The result of a push that led to ``content``. ``difference`` is by type URL."""
    shown = by_type_label(difference)
    return PushResult(content.group, content.revision, content.etag, content.versions(), shown, changed)


def dry_run_result(planned: PlannedChange) -> PushResult:
    """The result of a dry run: the current revision, and what would change."""
    difference = planned.difference
    if planned.current is None:
        return PushResult(planned.group, 0, "", {}, by_type_label(difference), warnings=planned.warnings)
    changed = bool(difference) or isinstance(planned.request.change, Drop)
    result = result_of(planned.current, difference, changed)
    return replace(result, warnings=planned.warnings, moves=planned.moves, rollout=planned.rollout)


def by_type_label(difference: Mapping[str, Change]) -> dict[str, Change]:
    """``difference`` by type label."""
    return {type_label(type_url): change for type_url, change in difference.items()}


def _check_exists(group: str, current: GroupContent | None) -> None:
    if current is None:
        raise NotFoundError(f"no such group: {group!r}")


def _expected_revision(request: PushRequest, current: GroupContent | None) -> int:
    """The revision that the store has to check. Raises ``ConflictError`` if the group does not have it now."""
    group, revision = request.group, current.revision if current is not None else 0
    present = current.etag if current is not None and request.etag else ""
    check_group_etag(request.etag, request.expect, revision, present, group)
    return revision


def _encoded(
    resources: list[Resource], base: GroupContent | None = None
) -> tuple[tuple[Entry, ...], Blobs, dict[Key, Resource]]:
    """The entries and blobs for the store, and the resources by key."""
    return *encode_resources(resources, base), _by_key(resources)


def _by_key(resources: Iterable[Resource]) -> dict[Key, Resource]:
    return {(item.type_url, item.name): item for item in resources}


async def build(cache: SnapshotCache, planned: PlannedChange, commit: Commit, meta: Meta) -> Published:
    """Build the content of a commit. Unchanged resources and sets stay the same objects."""
    if not commit.changed:
        return Published(planned, commit, planned.current)
    if isinstance(planned.request.change, Drop):
        return Published(planned, commit, None)
    manifest = Manifest(commit.group, commit.revision, (), commit.versions, meta)
    known = (planned.resources, planned.current, planned.digests, cache.precompute)
    content, computed = await run_sized(
        build_next_content, manifest, planned.blob_ids, *known, resources=planned.touched
    )
    if cache.is_overlaid(commit.group):
        await asyncio.to_thread(cache.prepare_overlays, content.snapshot)
    return Published(planned, commit, content, computed)


async def precomputed(cache: SnapshotCache, content: GroupContent) -> Precomputed:
    """What the streams of a group will need of this content."""
    return await run_sized(cache.precompute, content.snapshot, resources=len(content.blob_ids))
