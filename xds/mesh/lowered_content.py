"""The lowered resources of a group's upstreams, as a part of its snapshot beside the pushed resources. Pure.

A push replaces pushed resources only. A change of config entries, or of the upstreams, replaces lowered resources only.
A name has one owner: a change that would give it a second one is refused with both named.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from hashlib import blake2b
from types import MappingProxyType
from weakref import WeakValueDictionary

from xds.codec.record import blob_id, dump_record
from xds.codec.resources import ResourceDecoder
from xds.mesh.core.lower.lowered import Lowered, LoweredAssignment, LoweredResource, decode_lowered
from xds.mesh.core.lower.lowering import UpstreamChain
from xds.mesh.core.lower.upstreams import ProxySettings, Upstream
from xds.model.errors import ValidationError, Violation
from xds.model.resource import Resource, short_hash
from xds.model.resource_type import ENDPOINT
from xds.push.content import Blobs, GroupContent, JoinedBlobs, Key, type_label
from xds.store.base import Delta, Drop, Entry, FullSet, GroupChange, Rollback

OWNED_NAME = "owned_name"  # the code of a finding: a name has another owner
_DIGEST_BYTES = 20
_ENTRIES_NAMED = 5


@dataclass(frozen=True, slots=True, weakref_slot=True)
class LoweredRecord:
    """A lowered resource with its blob id. Equal resources of all groups are one object."""

    resource: Resource
    blob_id: str


class LoweredRecords:
    """Makes records of lowered resources. Equal ones are decoded and checked once while a group has them."""

    def __init__(self, decoder: ResourceDecoder) -> None:
        self._decoder = decoder
        self._records: WeakValueDictionary[bytes, LoweredRecord] = WeakValueDictionary()

    def of(self, lowered: LoweredResource) -> LoweredRecord:
        """The record of a resource. Raises ``ValidationError`` with the places in the entries."""
        text = json.dumps([lowered.type_url, lowered.content], sort_keys=True).encode()
        key = blake2b(text, digest_size=_DIGEST_BYTES).digest()
        record = self._records.get(key)
        if record is None:
            resource = replace(decode_lowered(lowered, self._decoder), is_lowered=True)
            record = self._records[key] = LoweredRecord(resource, blob_id(dump_record(resource)))
        return record


@dataclass(frozen=True, slots=True)
class LoweredPart:
    """The ``lowered`` resources of one upstream, and the values that they depend on."""

    upstream: Upstream
    chain: UpstreamChain
    proxies: ProxySettings
    lowered: Lowered


@dataclass(frozen=True, slots=True, eq=False)
class LoweredContent:
    """The lowered resources of a group.

    ``records`` are by type URL and name; ``origins`` says where each resource comes from. ``assignments`` are those of
    the clusters: their endpoints are observed, so they are not part of ``records``. ``parts`` are by the name of the
    upstream.
    """

    records: Mapping[Key, LoweredRecord] = field(default_factory=dict)
    origins: Mapping[Key, LoweredResource] = field(default_factory=dict)
    assignments: Mapping[str, LoweredAssignment] = field(default_factory=dict)
    parts: Mapping[str, LoweredPart] = field(default_factory=dict)
    warnings: tuple[Violation, ...] = ()

    def __len__(self) -> int:
        return len(self.records)

    def owns(self, key: Key) -> bool:
        """Whether this is the type URL and name of a lowered resource or assignment."""
        return key in self.records or (key[0] == ENDPOINT and key[1] in self.assignments)

    def origin(self, key: Key) -> str:
        """Where a resource or an assignment comes from, such as ``upstream 'web' by service-splitter/web``."""
        origin = self.origins.get(key) or (self.assignments.get(key[1]) if key[0] == ENDPOINT else None)
        if origin is None:
            return "the upstreams of the group"
        upstreams = " and ".join(map(repr, origin.upstreams)) or "?"
        entries = [f"{kind}/{name}" for kind, name in origin.entries[:_ENTRIES_NAMED]]
        more = len(origin.entries) - len(entries)
        by = f" by {', '.join(entries)}{f' and {more} more' if more else ''}" if entries else ""
        return f"upstream{'s' if len(origin.upstreams) > 1 else ''} {upstreams}{by}"


NOTHING_LOWERED = LoweredContent()


def stored_content(content: GroupContent | None, lowered: LoweredContent) -> LoweredContent:
    """The lowered resources in the stored ``content`` of a group; ``lowered`` itself if they are the same."""
    marked = [one for one in content.resources() if one.is_lowered] if content is not None else []
    ids: Mapping[Key, str] = content.blob_ids if content is not None else {}
    records = {key: LoweredRecord(one, ids[key]) for one in marked if (key := (one.type_url, one.name))}
    if {key: one.blob_id for key, one in records.items()} == {key: one.blob_id for key, one in lowered.records.items()}:
        return lowered
    return replace(lowered, records=records, parts={})  # without parts, so that all upstreams are lowered again


@dataclass(frozen=True, eq=False)
class LoweringChange:
    """The lowered resources of a group ``before`` and ``after`` a change. ``label`` is the label of changed types."""

    before: LoweredContent = NOTHING_LOWERED
    after: LoweredContent = NOTHING_LOWERED
    label: str = ""

    @cached_property
    def put(self) -> dict[Key, LoweredRecord]:
        """The new and changed resources."""
        before, after = self.before.records, self.after.records
        maybe_changed = {key: one for key, one in after.items() if before.get(key) is not one}
        return {key: one for key, one in maybe_changed.items() if before.get(key) != one}

    @cached_property
    def removed(self) -> tuple[Key, ...]:
        """The keys of resources that are no longer lowered."""
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


NO_LOWERING = LoweringChange()
NO_RESOURCES: Mapping[Key, Resource] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class ExtendedChange:
    """A change of pushed resources, extended by the lowered ones. ``resources`` are the resources that it puts."""

    change: GroupChange
    resources: Mapping[Key, Resource]


def extend(
    group: str,
    change: GroupChange,
    resources: Mapping[Key, Resource],
    lowering: LoweringChange,
    current: GroupContent | None,
    target: GroupContent | None = None,
) -> ExtendedChange:
    """Extend a change of pushed resources, so that afterwards the group has the lowered resources of ``lowering`` too.

    ``current`` is the content of the group; ``target`` is the content that a rollback restores. Raises
    ``ValidationError`` if a name has two owners.
    """
    if isinstance(change, Drop) or (lowering is NO_LOWERING and not isinstance(change, Rollback)):
        return ExtendedChange(change, resources)
    match change:
        case FullSet():
            _refuse(_clashes(group, (entry[:2] for entry in change.entries), lowering.after))
            return _extended_set(change, resources, lowering.after)
        case Delta():
            return _extended_delta(group, change, resources, lowering, current)
        case Rollback():
            return ExtendedChange(_extended_rollback(group, change, lowering, target), resources)


def _extended_set(change: FullSet, resources: Mapping[Key, Resource], after: LoweredContent) -> ExtendedChange:
    entries = (*change.entries, *(Entry(*key, one.blob_id) for key, one in after.records.items()))
    extended = replace(change, entries=entries, blobs=JoinedBlobs(change.blobs, _blobs(after.records.values())))
    return ExtendedChange(extended, {**resources, **_resources(after.records)})


def _extended_delta(
    group: str,
    change: Delta,
    resources: Mapping[Key, Resource],
    lowering: LoweringChange,
    current: GroupContent | None,
) -> ExtendedChange:
    put = lowering.put
    pushed = dict.fromkeys(entry[:2] for entry in change.put)
    clashes = list(_clashes(group, (*pushed, *change.delete), lowering.after))
    clashes += _pushed_clashes(group, lowering, current, change)
    _refuse(clashes)
    present = current.blob_ids if current is not None else {}
    deleted = [key for key in lowering.removed if key in present and key not in pushed]
    extended = replace(
        change,
        put=(*change.put, *(Entry(*key, one.blob_id) for key, one in put.items())),
        delete=tuple(dict.fromkeys((*change.delete, *deleted))),
        blobs=JoinedBlobs(change.blobs, _blobs(put.values())),
    )
    return ExtendedChange(extended, {**resources, **_resources(put)})


def _extended_rollback(group: str, change: Rollback, lowering: LoweringChange, target: GroupContent | None) -> Rollback:
    assert target is not None
    after = lowering.after
    restored = [(one.type_url, one.name) for one in target.resources() if not one.is_lowered]
    _refuse(_clashes(group, restored, after))
    omit = tuple(
        key for one in target.resources() if one.is_lowered and (key := (one.type_url, one.name)) not in after.records
    )
    return replace(change, keep=tuple(after.records), omit=omit)


def _clashes(group: str, keys: Iterable[Key], after: LoweredContent) -> Iterator[Violation]:
    """Findings for names in a change of pushed resources that belong to lowered resources."""
    for index, key in enumerate(keys):
        if after.owns(key):
            label = f"{type_label(key[0])}/{key[1]}"
            detail = f"this name is lowered from {after.origin(key)} of group {group!r}: it cannot be pushed or deleted"
            hint = "change the config entries or the upstreams, or push under another name"
            yield Violation(OWNED_NAME, detail, label, hint=hint, index=index)


def _pushed_clashes(
    group: str, lowering: LoweringChange, current: GroupContent | None, change: Delta
) -> Iterator[Violation]:
    """Findings for names of newly lowered resources that pushed resources of the group have."""
    if current is None or lowering.after is lowering.before:
        return
    lowered = dict.fromkeys((*lowering.put, *((ENDPOINT, name) for name in lowering.after.assignments)))
    for key in lowered:
        if key in current.blob_ids and key not in lowering.before.records and key not in change.delete:
            label = f"{type_label(key[0])}/{key[1]}"
            origin = lowering.after.origin(key)
            detail = f"{origin} of group {group!r} would be lowered to {label}, which is pushed to this group"
            hint = "delete the pushed one, or give it another name"
            yield Violation(OWNED_NAME, detail, label, hint=hint)


def _refuse(clashes: Iterable[Violation]) -> None:
    violations = list(clashes)
    if violations:
        raise ValidationError(violations)


def _resources(records: Mapping[Key, LoweredRecord]) -> dict[Key, Resource]:
    return {key: one.resource for key, one in records.items()}


def _blobs(records: Iterable[LoweredRecord]) -> Blobs:
    blobs = Blobs()
    for one in records:
        blobs.add(one.resource, one.blob_id)
    return blobs
