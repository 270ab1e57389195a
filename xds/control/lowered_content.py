"""The lowered resources of a group's upstreams, as a part of its snapshot beside the pushed resources. Pure.

A push replaces only pushed resources: what is lowered stays. A change of config entries, or of the upstreams, replaces
only what is lowered. A name has one owner: where both want it, the change is refused with both named.
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
from xds.control.group_content import Blobs, GroupContent, JoinedBlobs, Key, type_label
from xds.lower.lowered import Lowered, LoweredAssignment, LoweredResource, decode_lowered
from xds.lower.lowering import UpstreamChain
from xds.lower.upstreams import ProxySettings, Upstream
from xds.model.errors import ValidationError, Violation
from xds.model.resource import Resource, short_hash
from xds.model.resource_type import ENDPOINT
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
    """Makes records of lowered resources; equal ones are decoded and checked once, as long as a group has them."""

    def __init__(self, decoder: ResourceDecoder) -> None:
        self._decoder = decoder
        self._known: WeakValueDictionary[bytes, LoweredRecord] = WeakValueDictionary()

    def of(self, lowered: LoweredResource) -> LoweredRecord:
        """The record of a resource. Raises ``ValidationError`` with the places in the entries."""
        text = json.dumps([lowered.type_url, lowered.content], sort_keys=True).encode()
        key = blake2b(text, digest_size=_DIGEST_BYTES).digest()
        found = self._known.get(key)
        if found is None:
            resource = replace(decode_lowered(lowered, self._decoder), is_lowered=True)
            found = self._known[key] = LoweredRecord(resource, blob_id(dump_record(resource)))
        return found


@dataclass(frozen=True, slots=True)
class LoweredPart:
    """What one upstream is lowered to, and the values that this depends on."""

    upstream: Upstream
    chain: UpstreamChain
    proxies: ProxySettings
    lowered: Lowered


@dataclass(frozen=True, slots=True, eq=False)
class LoweredContent:
    """All that is lowered in a group.

    ``origins`` says where each resource comes from. ``assignments`` are those of its clusters; their endpoints are
    observed. ``parts`` are by the name of the upstream.
    """

    records: Mapping[Key, LoweredRecord] = field(default_factory=dict)
    origins: Mapping[Key, LoweredResource] = field(default_factory=dict)
    assignments: Mapping[str, LoweredAssignment] = field(default_factory=dict)
    parts: Mapping[str, LoweredPart] = field(default_factory=dict)
    warnings: tuple[Violation, ...] = ()

    def __len__(self) -> int:
        return len(self.records)

    def owns(self, key: Key) -> bool:
        """Whether the name belongs to what is lowered."""
        return key in self.records or (key[0] == ENDPOINT and key[1] in self.assignments)

    def origin(self, key: Key) -> str:
        """Where a resource or an assignment comes from, such as ``upstream 'web' by service-splitter/web``."""
        found = self.origins.get(key) or (self.assignments.get(key[1]) if key[0] == ENDPOINT else None)
        if found is None:
            return "the upstreams of the group"
        upstreams = " and ".join(map(repr, found.upstreams)) or "?"
        entries = [f"{kind}/{name}" for kind, name in found.entries[:_ENTRIES_NAMED]]
        more = len(found.entries) - len(entries)
        by = f" by {', '.join(entries)}{f' and {more} more' if more else ''}" if entries else ""
        return f"upstream{'s' if len(found.upstreams) > 1 else ''} {upstreams}{by}"


NOTHING_LOWERED = LoweredContent()


def stored_content(content: GroupContent | None, made: LoweredContent) -> LoweredContent:
    """What is lowered in the content that a store holds: ``made`` itself where this is the same, as it usually is."""
    marked = [one for one in content.resources() if one.is_lowered] if content is not None else []
    ids: Mapping[Key, str] = content.blob_ids if content is not None else {}
    records = {key: LoweredRecord(one, ids[key]) for one in marked if (key := (one.type_url, one.name))}
    if {key: one.blob_id for key, one in records.items()} == {key: one.blob_id for key, one in made.records.items()}:
        return made
    return replace(made, records=records, parts={})  # without parts, so that all of it is made again next


@dataclass(frozen=True, eq=False)
class LoweringChange:
    """What is lowered in a group before and after a change. ``label`` is the version label of what changes with it."""

    before: LoweredContent = NOTHING_LOWERED
    after: LoweredContent = NOTHING_LOWERED
    label: str = ""

    @cached_property
    def put(self) -> dict[Key, LoweredRecord]:
        """What is new or other than before."""
        before, after = self.before.records, self.after.records
        changed = {key: one for key, one in after.items() if before.get(key) is not one}
        return {key: one for key, one in changed.items() if before.get(key) != one}

    @cached_property
    def gone(self) -> tuple[Key, ...]:
        """What is lowered no more."""
        return tuple(key for key in self.before.records if key not in self.after.records)

    @property
    def has_effect(self) -> bool:
        """Whether anything differs."""
        return bool(self.put or self.gone)

    def labels(self, digests: Mapping[str, bytes]) -> dict[str, str]:
        """The labels of the types that it changes. ``digests`` are those of the sets after the change."""
        if not self.label:
            return {}
        types = {type_url for type_url, _ in (*self.put, *self.gone)}
        return {url: f"{self.label}+{short_hash(digests[url])}" for url in types if url in digests}


NO_LOWERING = LoweringChange()
NO_RESOURCES: Mapping[Key, Resource] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class ExtendedChange:
    """A change of pushed resources, extended by the lowered ones. ``resources`` are those that are put."""

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
    """Extend a change so that it leaves in the group what is lowered after it.

    ``current`` is the content of the group, ``target`` the one that a rollback restores. Raises ``ValidationError``
    where a name has two owners.
    """
    if isinstance(change, Drop) or (lowering is NO_LOWERING and not isinstance(change, Rollback)):
        return ExtendedChange(change, resources)
    match change:
        case FullSet():
            found = _clashes(group, (entry[:2] for entry in change.entries), lowering.after)
            _refuse(found)
            return _extended_set(change, resources, lowering.after)
        case Delta():
            return _extended_delta(group, change, resources, lowering, current)
        case Rollback():
            return ExtendedChange(_extended_rollback(group, change, lowering, target), resources)


def _extended_set(change: FullSet, resources: Mapping[Key, Resource], after: LoweredContent) -> ExtendedChange:
    entries = (*change.entries, *(Entry(*key, one.blob_id) for key, one in after.records.items()))
    made = replace(change, entries=entries, blobs=JoinedBlobs(change.blobs, _blobs(after.records.values())))
    return ExtendedChange(made, {**resources, **_resources(after.records)})


def _extended_delta(
    group: str,
    change: Delta,
    resources: Mapping[Key, Resource],
    lowering: LoweringChange,
    current: GroupContent | None,
) -> ExtendedChange:
    put, gone = lowering.put, lowering.gone
    named = dict.fromkeys(entry[:2] for entry in change.put)
    found = list(_clashes(group, (*named, *change.delete), lowering.after))
    found += _pushed_clashes(group, lowering, current, change)
    _refuse(found)
    held = current.blob_ids if current is not None else {}
    deleted = [key for key in gone if key in held and key not in named]
    made = replace(
        change,
        put=(*change.put, *(Entry(*key, one.blob_id) for key, one in put.items())),
        delete=tuple(dict.fromkeys((*change.delete, *deleted))),
        blobs=JoinedBlobs(change.blobs, _blobs(put.values())),
    )
    return ExtendedChange(made, {**resources, **_resources(put)})


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
    """Names in a change of pushed resources that belong to lowered ones."""
    for index, key in enumerate(keys):
        if after.owns(key):
            label = f"{type_label(key[0])}/{key[1]}"
            detail = f"this name is lowered from {after.origin(key)} of group {group!r}: it cannot be pushed or deleted"
            hint = "change the config entries or the upstreams, or push under another name"
            yield Violation(OWNED_NAME, detail, label, hint=hint, index=index)


def _pushed_clashes(
    group: str, lowering: LoweringChange, current: GroupContent | None, change: Delta
) -> Iterator[Violation]:
    """Names that are lowered now, and that the group has as pushed ones."""
    if current is None or lowering.after is lowering.before:
        return
    wanted = dict.fromkeys((*lowering.put, *((ENDPOINT, name) for name in lowering.after.assignments)))
    for key in wanted:
        if key in current.blob_ids and key not in lowering.before.records and key not in change.delete:
            label = f"{type_label(key[0])}/{key[1]}"
            origin = lowering.after.origin(key)
            detail = f"{origin} of group {group!r} would be lowered to {label}, which is pushed to this group"
            hint = "delete the pushed one, or give it another name"
            yield Violation(OWNED_NAME, detail, label, hint=hint)


def _refuse(found: Iterable[Violation]) -> None:
    violations = list(found)
    if violations:
        raise ValidationError(violations)


def _resources(records: Mapping[Key, LoweredRecord]) -> dict[Key, Resource]:
    return {key: one.resource for key, one in records.items()}


def _blobs(records: Iterable[LoweredRecord]) -> Blobs:
    blobs = Blobs()
    for one in records:
        blobs.add(one.resource, one.blob_id)
    return blobs
