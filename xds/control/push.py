"""What a push asks of a group, how it is made, and what it came to."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from xds.control.assembly import Blobs, encode
from xds.control.content import BlobIds, Content, Key, amended, blob_ids, changes, type_label
from xds.control.labels import digests_of
from xds.control.off_loop import off_loop
from xds.control.undo import keeping
from xds.model.errors import ConflictError, NotFoundError, ValidationError, Violation, XdsError
from xds.model.resource import Resource
from xds.model.snapshot import Change
from xds.model.versions import short_hash
from xds.store.base import NO_META, Delta, Drop, Entry, FullSet, GroupChange, GroupPush, Known, Meta, Rollback

GROUP_NAME_LIMIT = 256
# What paths, labels and command lines take as it is; ids of nodes may hold a slash. Groups from before this rule keep
# their names.
_SEGMENT = r"(?!\.+(?:/|\Z))[A-Za-z0-9._~:@+=-]+"
GROUP_NAME = re.compile(rf"(?=[A-Za-z0-9_]){_SEGMENT}(?:/{_SEGMENT})*")
ANY_ETAG = "*"


class EmptyingError(XdsError):
    """A change would take everything from connected nodes; ``allow_empty`` says that this is meant."""


class ChangeError(XdsError):
    """One change of a transaction is refused, and with it all: ``index`` counts from 0, ``cause`` says why."""

    def __init__(self, index: int, group: str, cause: XdsError) -> None:
        super().__init__(f"changes[{index}], group {group!r}: {cause}")
        self.index = index
        self.group = group
        self.cause = cause


@dataclass(frozen=True, slots=True)
class PushResult:
    """What a push came to. ``versions`` and ``changes`` are by type label; ``changed`` False made no revision.

    ``warnings`` is what was found in it and stopped nothing. ``moves`` counts the connected nodes of a deleted group by
    the group that they go to; the empty one: none matches, and they keep what they have.
    """

    group: str
    revision: int
    etag: str
    versions: Mapping[str, str]
    changes: Mapping[str, Change]
    changed: bool = True
    warnings: tuple[Violation, ...] = ()
    moves: Mapping[str, int] = field(default_factory=dict)

    @property
    def touched(self) -> int:
        """How many names are in ``changes``."""
        return sum(len(change.added) + len(change.changed) + len(change.removed) for change in self.changes.values())


@dataclass(frozen=True, slots=True)
class PushOptions:
    """How a push is made.

    * ``push_id``: the same id never applies twice; the first answer is given again;
    * ``expect``: the revision the group must be at, 0 for none;
    * ``etag``: what the group's etag must be, ``*`` for any: it must exist; without its hash only the revision counts;
    * ``dry_run``: say what would change, change nothing;
    * ``allow_empty``: the group may become empty although nodes are connected;
    * ``strict``: warnings are errors;
    * ``peer``: the address that asks for it, for the audit list.

    ``expect`` and ``etag`` of a transaction stand in its drafts.
    """

    push_id: str = ""
    expect: int | None = None
    meta: Meta = NO_META
    dry_run: bool = False
    allow_empty: bool = False
    etag: str = ""
    strict: bool = False
    peer: str = ""

    def heed(self, warnings: Sequence[Violation]) -> None:
        """Raises ``ValidationError`` where warnings are errors."""
        if self.strict and warnings:
            raise ValidationError(list(warnings))


DEFAULT_OPTIONS = PushOptions()


@dataclass(frozen=True, slots=True)
class Draft:
    """What a push asks of one group. ``known`` holds the resources that come with it; the rest as in options."""

    group: str
    change: GroupChange
    known: Mapping[Key, Resource] = field(default_factory=dict)
    expect: int | None = None
    etag: str = ""


@dataclass(frozen=True, slots=True)
class Step:
    """A draft put to a group that holds still: what it holds, and the content that the draft leads to.

    ``known`` holds at least the resources that the group does not hold yet, ``warnings`` what a review found.
    By type URL, ``difference`` is what changes, and ``digests`` are those that the sets of these types will have.
    ``moves`` as in `PushResult`.
    """

    draft: Draft
    held: Content | None
    blob_ids: BlobIds
    known: Mapping[Key, Resource]
    expect: int | None
    difference: Mapping[str, Change]
    digests: Mapping[str, bytes]
    warnings: tuple[Violation, ...] = ()
    moves: Mapping[str, int] = field(default_factory=dict)

    @property
    def group(self) -> str:
        return self.draft.group

    @property
    def touched(self) -> int:
        """How many resources have to be looked at to go from the one content to the other."""
        touched = self.blob_ids.touched_since(self.held.blob_ids) if self.held is not None else None
        return len(self.blob_ids if touched is None else touched)

    def asked(self) -> GroupPush:
        """What the store is asked for, with what it need not read of the group."""
        known = Known(self.held.revision, self.held.blob_ids) if self.held is not None else None
        hashes = {type_url: short_hash(digest) for type_url, digest in self.digests.items()}
        return GroupPush(self.group, self.draft.change, self.expect, known, hashes)


async def whole(
    group: str,
    resources: Iterable[Resource],
    label: str = "",
    labels: Mapping[str, str] | None = None,
    near: Content | None = None,
) -> Draft:
    """Replace the content of a group; ``near`` as in ``encode``. Raises ``ValidationError`` for a bad group name."""
    check_group_name(group)
    members = list(resources)
    entries, blobs, known = await off_loop(len(members), _encoded, members, near)
    return Draft(group, FullSet(entries, blobs, label, dict(labels or {})), known)


async def amendment(group: str, put: Sequence[Resource], delete: Sequence[Key] = ()) -> Draft:
    """Put and delete single resources. Raises as ``whole``."""
    check_group_name(group)
    entries, blobs, known = await off_loop(len(put), _encoded, list(put))
    return Draft(group, Delta(entries, tuple(delete), blobs), known)


def settle(draft: Draft, held: Content | None, target: Content | None) -> Step:
    """Put a draft to what its group holds; ``target`` is the content a rollback goes back to.

    Raises ``ConflictError``, ``NotFoundError``.
    """
    expect = _expected(draft, held)
    if isinstance(draft.change, Rollback) and target is not None:
        draft = replace(draft, change=keeping(draft.change, held, target))
    ids, known = _target(draft, held, target)
    difference = changes(held.blob_ids if held is not None else BlobIds(), ids)
    digests = {} if isinstance(draft.change, Drop) else digests_of(difference, held, known)
    return Step(draft, held, ids, known, expect, difference, digests)


def _target(draft: Draft, held: Content | None, target: Content | None) -> tuple[BlobIds, Mapping[Key, Resource]]:
    """The content that a draft leads to, and the resources that may be new in it."""
    match draft.change:
        case FullSet():
            return blob_ids(draft.change.entries, held.blob_ids if held is not None else None), draft.known
        case Delta():
            if draft.change.delete:
                _check_exists(draft.group, held)
            return amended(held.blob_ids if held is not None else BlobIds(), draft.change), draft.known
        case Rollback():
            assert target is not None
            return _brought_back(draft.change, held, target)
        case Drop():
            _check_exists(draft.group, held)
            return BlobIds(), {}


def _brought_back(change: Rollback, held: Content | None, target: Content) -> tuple[BlobIds, Mapping[Key, Resource]]:
    """What a rollback leads to; what it keeps stays as ``held`` has it."""
    known = _by_key(target.resources())
    if not change.keep or held is None:
        return target.blob_ids, known
    kept = {key: held.blob_ids[key] for key in change.keep}
    own = {key: resource for key in kept if (resource := held.get(key)) is not None}
    return BlobIds({**target.blob_ids, **kept}), {**known, **own}


def outcome(content: Content, difference: Mapping[str, Change], changed: bool = True) -> PushResult:
    """The result of a push that led to ``content``; ``difference`` by type URL."""
    return PushResult(content.group, content.revision, content.etag, content.versions(), labelled(difference), changed)


def preview(step: Step) -> PushResult:
    """The result of a dry run."""
    difference = step.difference
    if step.held is None:
        return PushResult(step.group, 0, "", {}, labelled(difference), warnings=step.warnings)
    changed = bool(difference) or isinstance(step.draft.change, Drop)
    return replace(outcome(step.held, difference, changed), warnings=step.warnings, moves=step.moves)


def labelled(difference: Mapping[str, Change]) -> dict[str, Change]:
    """``difference`` by type label."""
    return {type_label(type_url): change for type_url, change in difference.items()}


def check_group_name(group: str) -> None:
    """Raises ``ValidationError`` for a name that no node could belong to or that nobody could type."""
    if not 0 < len(group) <= GROUP_NAME_LIMIT or not group.isprintable():
        detail = f"a group is named by 1 to {GROUP_NAME_LIMIT} printable characters"
        raise ValidationError([Violation("invalid_group", detail, resource=group[:GROUP_NAME_LIMIT])])


def check_new_group_name(group: str) -> None:
    """Raises ``ValidationError`` for a name that a new group cannot have; groups that are there keep theirs."""
    if len(group) > GROUP_NAME_LIMIT or GROUP_NAME.fullmatch(group) is None:
        detail = f"a new group is named by 1 to {GROUP_NAME_LIMIT} of A-Z a-z 0-9 . _ ~ : @ + = - and / between them"
        hint = "it begins with a letter, a digit or _; nodes with other ids or clusters are taken by a selector"
        raise ValidationError([Violation("invalid_group", detail, resource=group[:GROUP_NAME_LIMIT], hint=hint)])


def _check_exists(group: str, held: Content | None) -> None:
    if held is None:
        raise NotFoundError(f"no such group: {group!r}")


def _expected(draft: Draft, held: Content | None) -> int | None:
    """The revision the store is to expect. Raises ``ConflictError`` where it is known to differ."""
    group, revision = draft.group, held.revision if held is not None else 0
    if draft.etag and held is None:
        raise ConflictError(f"there is no group {group!r}", 0, group)
    if draft.etag == ANY_ETAG:
        return revision
    tag, _, digest = draft.etag.partition("-")
    expect = int(tag[1:]) if tag else draft.expect
    if expect is not None and expect != revision:
        raise ConflictError(f"group {group!r} is at revision {revision}, not {expect}", revision, group)
    if digest and held is not None and held.etag != draft.etag:
        raise ConflictError(f"group {group!r} has other content at revision {revision}", revision, group)
    return expect


def _encoded(
    resources: list[Resource], near: Content | None = None
) -> tuple[tuple[Entry, ...], Blobs, dict[Key, Resource]]:
    """What the store is given, and the resources by key."""
    return *encode(resources, near), _by_key(resources)


def _by_key(resources: Iterable[Resource]) -> dict[Key, Resource]:
    return {(item.type_url, item.name): item for item in resources}
