"""Derived resources: resources of a group that are not pushed, but made from documents of a feature.

They are a part of the group's snapshot, beside the pushed resources. A push replaces pushed resources only; a change of
the documents replaces derived resources only (they are marked ``is_lowered``). A name has one owner: a change that
would give it a second one is refused with both named.

`Derived` is the hook: the publisher asks each feature that has one, and the feature never calls the publisher. A
`DerivedWrite` is a part of a transaction.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Protocol

from xds.model.errors import ValidationError, Violation
from xds.model.resource import Resource, short_hash
from xds.model.resource_type import ENDPOINT
from xds.push.content import Blobs, GroupContent, JoinedBlobs, Key, type_label
from xds.push.documents import GroupDocuments
from xds.push.groups import SettingsWrite
from xds.store.base import (
    Commit,
    Delta,
    DocumentWrite,
    Drop,
    Entry,
    FullSet,
    GroupChange,
    GroupPush,
    Meta,
    Rollback,
)

OWNED_NAME = "owned_name"  # the code of a finding: a name has another owner
# The id of a document that belongs to no group, and is changed by each write of what resources are derived from. So a
# write that was planned without one of another server is planned again, whatever groups the two touch.
ORDER_ID = ""


@dataclass(frozen=True, slots=True, weakref_slot=True)
class DerivedResource:
    """A derived resource with its blob id. Equal resources of all groups are one object."""

    resource: Resource
    blob_id: str


@dataclass(frozen=True, slots=True)
class DerivedOrigin:
    """Where a derived resource comes from, in the words of its feature, and how else a push could have its name.

    ``upstreams`` and config ``entries`` (by kind and name) are those of the mesh, which answers list.
    """

    text: str = "made from a document of the group"
    hint: str = "push under another name"
    upstreams: tuple[str, ...] = ()
    entries: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class DerivedContent:
    """The derived resources of a group.

    ``records`` are by type URL and name. ``assignments`` are the names of derived assignments: their endpoints are
    observed, so they are not part of ``records``.
    """

    records: Mapping[Key, DerivedResource] = field(default_factory=dict)
    assignments: Mapping[str, Any] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.records)

    def owns(self, key: Key) -> bool:
        """Whether this is the type URL and name of a derived resource or assignment."""
        return key in self.records or (key[0] == ENDPOINT and key[1] in self.assignments)

    def origin(self, key: Key) -> DerivedOrigin:
        """Where a resource or an assignment comes from."""
        return DerivedOrigin()


NOTHING_DERIVED = DerivedContent()


@dataclass(frozen=True, eq=False)
class DerivedChange:
    """The derived resources of a group ``before`` and ``after`` a change. ``label`` is the label of changed types.

    ``writes`` are documents of the group that are stored with the change.
    """

    before: DerivedContent = NOTHING_DERIVED
    after: DerivedContent = NOTHING_DERIVED
    label: str = ""
    writes: tuple[DocumentWrite, ...] = ()

    @cached_property
    def put(self) -> dict[Key, DerivedResource]:
        """The new and changed resources."""
        before, after = self.before.records, self.after.records
        maybe_changed = {key: one for key, one in after.items() if before.get(key) is not one}
        return {key: one for key, one in maybe_changed.items() if before.get(key) != one}

    @cached_property
    def removed(self) -> tuple[Key, ...]:
        """The keys of resources that are no longer derived."""
        return tuple(key for key in self.before.records if key not in self.after.records)

    @property
    def has_effect(self) -> bool:
        """Whether any resource differs."""
        return bool(self.put or self.removed)

    def labels(self, digests: Mapping[str, bytes]) -> dict[str, str]:
        """The labels of the changed types, by type URL. ``digests`` are those of the sets after the change."""
        if not self.label:
            return {}
        types = {type_url for type_url, _ in (*self.put, *self.removed)}
        return {url: f"{self.label}+{short_hash(digests[url])}" for url in types if url in digests}


NOTHING_CHANGES = DerivedChange()


@dataclass(frozen=True, slots=True)
class ExtendedChange:
    """A change of pushed resources, extended by the derived ones. ``resources`` are the resources that it puts."""

    change: GroupChange
    resources: Mapping[Key, Resource]


def extend(
    group: str,
    change: GroupChange,
    resources: Mapping[Key, Resource],
    derived: DerivedChange,
    current: GroupContent | None,
    target: GroupContent | None = None,
) -> ExtendedChange:
    """Extend a change of pushed resources, so that afterwards the group has the derived resources of ``derived`` too.

    ``current`` is the content of the group; ``target`` is the content that a rollback restores. Raises
    ``ValidationError`` if a name has two owners.
    """
    if isinstance(change, Drop) or (derived is NOTHING_CHANGES and not isinstance(change, Rollback)):
        return ExtendedChange(change, resources)
    match change:
        case FullSet():
            _refuse(_clashes(group, (entry[:2] for entry in change.entries), derived.after))
            return _extended_set(change, resources, derived.after)
        case Delta():
            return _extended_delta(group, change, resources, derived, current)
        case Rollback():
            return ExtendedChange(_extended_rollback(group, change, derived, target), resources)


def _extended_set(change: FullSet, resources: Mapping[Key, Resource], after: DerivedContent) -> ExtendedChange:
    entries = (*change.entries, *(Entry(*key, one.blob_id) for key, one in after.records.items()))
    extended = replace(change, entries=entries, blobs=JoinedBlobs(change.blobs, _blobs(after.records.values())))
    return ExtendedChange(extended, {**resources, **_resources(after.records)})


def _extended_delta(
    group: str,
    change: Delta,
    resources: Mapping[Key, Resource],
    derived: DerivedChange,
    current: GroupContent | None,
) -> ExtendedChange:
    put = derived.put
    pushed = dict.fromkeys(entry[:2] for entry in change.put)
    clashes = list(_clashes(group, (*pushed, *change.delete), derived.after))
    clashes += _pushed_clashes(group, derived, current, change)
    _refuse(clashes)
    present = current.blob_ids if current is not None else {}
    deleted = [key for key in derived.removed if key in present and key not in pushed]
    extended = replace(
        change,
        put=(*change.put, *(Entry(*key, one.blob_id) for key, one in put.items())),
        delete=tuple(dict.fromkeys((*change.delete, *deleted))),
        blobs=JoinedBlobs(change.blobs, _blobs(put.values())),
    )
    return ExtendedChange(extended, {**resources, **_resources(put)})


def _extended_rollback(group: str, change: Rollback, derived: DerivedChange, target: GroupContent | None) -> Rollback:
    assert target is not None
    after = derived.after
    restored = [(one.type_url, one.name) for one in target.resources() if not one.is_lowered]
    _refuse(_clashes(group, restored, after))
    omit = tuple(
        key for one in target.resources() if one.is_lowered and (key := (one.type_url, one.name)) not in after.records
    )
    return replace(change, keep=tuple(after.records), omit=omit)


def _clashes(group: str, keys: Iterable[Key], after: DerivedContent) -> Iterator[Violation]:
    """Findings for names in a change of pushed resources that belong to derived resources."""
    for index, key in enumerate(keys):
        if after.owns(key):
            label, origin = f"{type_label(key[0])}/{key[1]}", after.origin(key)
            detail = f"this name is {origin.text} of group {group!r}: it cannot be pushed or deleted"
            yield Violation(OWNED_NAME, detail, label, hint=origin.hint, index=index)


def _pushed_clashes(
    group: str, derived: DerivedChange, current: GroupContent | None, change: Delta
) -> Iterator[Violation]:
    """Findings for names of newly derived resources that pushed resources of the group have."""
    if current is None or derived.after is derived.before:
        return
    made = dict.fromkeys((*derived.put, *((ENDPOINT, name) for name in derived.after.assignments)))
    for key in made:
        if key in current.blob_ids and key not in derived.before.records and key not in change.delete:
            label = f"{type_label(key[0])}/{key[1]}"
            origin = derived.after.origin(key).text
            detail = f"{label}, which is pushed to this group, would be {origin} of group {group!r}"
            hint = "delete the pushed one, or give it another name"
            yield Violation(OWNED_NAME, detail, label, hint=hint)


def _refuse(clashes: Iterable[Violation]) -> None:
    violations = list(clashes)
    if violations:
        raise ValidationError(violations)


def _resources(records: Mapping[Key, DerivedResource]) -> dict[Key, Resource]:
    return {key: one.resource for key, one in records.items()}


def _blobs(records: Iterable[DerivedResource]) -> Blobs:
    blobs = Blobs()
    for one in records:
        blobs.add(one.resource, one.blob_id)
    return blobs


def unchanged(content: DerivedContent) -> DerivedChange:
    """A change that leaves the derived resources of a group as they are."""
    return DerivedChange(content, content) if content.records or content.assignments else NOTHING_CHANGES


class DerivedWrite(Protocol):
    """A write of the documents that resources are derived from, as a part of a transaction.

    The publisher holds the lock of the source from the first call to the last; it is taken before those of groups.
    ``settings`` are settings of a group that are written with it. What a write does not have stays as it is here.
    """

    settings: SettingsWrite | None = None

    @property
    def source(self) -> Derived:
        """The source of the resources that change."""

    async def repeated_push(self) -> GroupPush | None:
        """The call to the store that finds an earlier, equal write; None if a repeated write changes nothing."""
        return None

    async def plan(self) -> Collection[str]:
        """Compare the write with the present documents. Returns the groups that it touches. Nothing changes."""

    async def derive(self, deleted: Collection[str]) -> Mapping[str, DerivedChange]:
        """What changes of the source's resources, by group.

        The publisher holds the locks of the touched groups; it deletes those ``deleted``.
        """

    def pushes(self) -> Sequence[GroupPush]:
        """The calls to the store beside those of the groups."""
        return ()

    def begin(self, commits: Sequence[Commit], meta: Meta) -> Collection[str]:
        """Take over the committed documents, before the groups are published. ``commits`` are those of ``pushes``.

        Nothing is awaited. Returns the groups that are served other endpoints; the publisher wakes their streams.
        """

    def end(self) -> None:
        """Remove what the published groups no longer have. Nothing is awaited."""
        return

    async def replay(self, commit: Commit) -> None:
        """An equal write was committed before."""
        return

    def done(self, results: Sequence[Any]) -> None:
        """The results (`PushResult`) of the groups that the write has changed, or would change in a dry run."""
        return


class Derived(GroupDocuments, Protocol):
    """The documents that resources of groups are derived from."""

    def groups(self) -> Collection[str]:
        """The groups that have derived resources."""

    def content(self, group: str) -> DerivedContent:
        """The derived resources of a group."""

    async def catch_up(self) -> Collection[str]:
        """Take over what the store has, as ``load`` does. Returns the groups whose resources may differ.

        Raises ``StoreError``.
        """
        await self.load()
        return self.groups()

    def has(self, revision: int) -> bool:
        """Whether its documents are those of this revision of their line, or later ones. Without a line they are."""
        return True

    def end(self, groups: Collection[str]) -> None:
        """Remove what the published groups no longer have. Nothing is awaited."""
        return

    def adopt(self, group: str, stored: Mapping[Key, DerivedResource]) -> bool:
        """Take over the ``stored`` derived resources of a group; they are served until ``settle``.

        False if they differ from those that this server makes, as after an upgrade, or if the store has not taken
        these.
        """

    async def settle(self, group: str, apply: Callable[[DerivedWrite], Awaitable[None]]) -> Collection[str]:
        """Derive the resources of a group again, whose stored ones differ. On an error the group keeps these.

        ``apply`` publishes a write. Returns the groups that are served other endpoints by other means. Raises
        ``StoreError``.
        """


class DerivedSources:
    """All sources of derived resources. A group has the resources of all of them; a name has one source."""

    def __init__(self) -> None:
        self.sources: list[Derived] = []

    def groups(self) -> set[str]:
        """The groups that have derived resources."""
        return {group for source in self.sources for group in source.groups()}

    def kinds(self) -> set[str]:
        """The kinds of the documents of all sources."""
        return {kind for source in self.sources for kind in source.kinds}

    def has(self, revision: int) -> bool:
        """Whether all sources have the config entries of this revision, or later ones."""
        return all(source.has(revision) for source in self.sources)

    def end(self, groups: Collection[str]) -> None:
        """Remove what the published groups no longer have."""
        for source in self.sources:
            source.end(groups)

    def content(self, group: str) -> DerivedContent:
        """The derived resources of a group."""
        return _joined(self._contents(group))

    def change(self, source: Derived, group: str, change: DerivedChange) -> DerivedChange:
        """What a change of the resources of one source is for the group, which has resources of others too.

        Raises ``ValidationError`` if another source has a name of a new resource.
        """
        others = self._contents(group, besides=source)
        if not others:
            return change
        elsewhere = _joined(others)
        _refuse(_clashes(group, change.put, elsewhere))
        return replace(change, before=_joined((change.before, *others)), after=_joined((change.after, *others)))

    def adopt_stored(
        self, find: Callable[[str], GroupContent | None], groups: Collection[str] | None = None
    ) -> list[tuple[Derived, str]]:
        """Take over the stored derived resources of these groups (None: of all). ``find`` looks up their content.

        Returns the sources and groups for which this release makes other ones.
        """
        return [
            (source, group)
            for group in sorted(self.groups() if groups is None else self.groups().intersection(groups))
            for source, stored in self._shares(group, stored_derived(find(group)))
            if not source.adopt(group, stored)
        ]

    def _shares(
        self, group: str, stored: Mapping[Key, DerivedResource]
    ) -> Iterator[tuple[Derived, dict[Key, DerivedResource]]]:
        """The sources of a group with the ``stored`` resources that each one has.

        Those that no source makes any more belong to the first source that makes others than are stored.
        """
        sources = [source for source in self.sources if group in source.groups()]
        made = [source.content(group).records for source in sources]
        shares = [{key: one for key, one in stored.items() if key in records} for records in made]
        differs = (_ids(share) != _ids(records) for share, records in zip(shares, made, strict=True))
        heir = next((index for index, is_other in enumerate(differs) if is_other), 0)
        left = {key: one for key, one in stored.items() if not any(key in records for records in made)}
        for index, (source, share) in enumerate(zip(sources, shares, strict=True)):
            yield source, {**share, **left} if index == heir else share

    def _contents(self, group: str, besides: Derived | None = None) -> list[DerivedContent]:
        contents = (source.content(group) for source in self.sources if source is not besides)
        return [content for content in contents if content.records or content.assignments]


@dataclass(frozen=True, slots=True, eq=False)
class _JoinedContent(DerivedContent):
    """The derived resources of several sources."""

    parts: tuple[DerivedContent, ...] = ()

    def origin(self, key: Key) -> DerivedOrigin:
        """As the source says that has the name."""
        return next((part.origin(key) for part in self.parts if part.owns(key)), DerivedOrigin())


def _joined(contents: Sequence[DerivedContent]) -> DerivedContent:
    if not contents:
        return NOTHING_DERIVED
    if len(contents) == 1:
        return contents[0]
    records = {key: one for each in contents for key, one in each.records.items()}
    assignments = {name: one for each in contents for name, one in each.assignments.items()}
    return _JoinedContent(records, assignments, tuple(contents))


def stored_derived(content: GroupContent | None) -> dict[Key, DerivedResource]:
    """The derived resources in the stored content of a group."""
    if content is None:
        return {}
    marked = (((one.type_url, one.name), one) for one in content.resources() if one.is_lowered)
    return {key: DerivedResource(one, content.blob_ids[key]) for key, one in marked}


def _ids(records: Mapping[Key, DerivedResource]) -> dict[Key, str]:
    return {key: one.blob_id for key, one in records.items()}
