"""The JSON of answers about config entries, as typed dictionaries."""

from __future__ import annotations

from typing import Any, NotRequired

from typing_extensions import TypedDict

from xds.api.problem import finding_item
from xds.api.shapes.values import FindingItem, timestamp
from xds.catalog.entry import entry_json
from xds.control.entry_history import EntryUndoPlan
from xds.control.entry_records import EntryChange, EntryRecord, EntryResult
from xds.control.push import PushResult
from xds.store.base import RevisionInfo

Json = dict[str, Any]


class EntryItem(TypedDict):
    """A config entry. The two revisions are Consul's CreateIndex and ModifyIndex.

    ``actor``, ``author``, ``message`` and ``time`` are of the revision that modified it, in the answer about one entry,
    as far as they are kept.
    """

    kind: str
    name: str
    etag: str
    created_revision: int
    modified_revision: int
    entry: dict[str, Any]
    actor: NotRequired[str]
    author: NotRequired[str]
    message: NotRequired[str]
    time: NotRequired[str]


class EntryPage(TypedDict):
    """Entries by kind and name. ``revision`` and ``etag`` are of all config entries; 0 and empty before the first."""

    items: list[EntryItem]
    revision: int
    etag: str
    next_page_token: NotRequired[str]


class EntryChangeItem(TypedDict):
    """``change`` is `added`, `changed` or `removed`."""

    kind: str
    name: str
    change: str


class TypeChangeItem(TypedDict):
    """The names of one type that are added, changed and removed."""

    added: list[str]
    changed: list[str]
    removed: list[str]


class LoweredChangeItem(TypedDict):
    """What a write of config entries changes in a group with upstreams, by type. In a dry run, what it would change."""

    group: str
    revision: int
    changes: dict[str, TypeChangeItem]


class EntryAnswer(TypedDict):
    """What a write of config entries came to. ``chains`` are the services with a changed chain.

    ``etag`` is of all config entries; that of the written one is in the header. ``groups`` are the groups with
    upstreams and changed resources; they are left out for a repeated request.
    """

    revision: int
    etag: str
    changed: bool
    changes: list[EntryChangeItem]
    chains: list[str]
    groups: list[LoweredChangeItem]
    warnings: list[FindingItem]
    dry_run: NotRequired[bool]


class EntryRevisionItem(TypedDict):
    """``kind`` is `push` or `rollback`, which took its entries from ``content_of``.

    ``undone_by`` is the revision that took this one back, 0 while it is in effect. ``content`` is false where it is no
    longer kept. ``actor`` was authenticated, ``author`` is claimed by the client.
    """

    revision: int
    kind: str
    content_of: int
    undone_by: int
    content: bool
    entries: int
    actor: str
    author: str
    message: str
    time: str


class EntryRevisionPage(TypedDict):
    """The newest first."""

    items: list[EntryRevisionItem]
    next_page_token: NotRequired[str]


class EntryContentItem(TypedDict):
    """All entries at a revision, as Consul shows them: ``POST /config-entries`` takes the list again."""

    revision: int
    entries: list[dict[str, Any]]


class EntryDifferenceItem(EntryChangeItem):
    """``before`` or ``after`` is null on the side that does not have the entry."""

    before: dict[str, Any] | None
    after: dict[str, Any] | None


# Written so because one of its members is a word of the language.
EntryDifferenceAnswer = TypedDict("EntryDifferenceAnswer", {"from": int, "to": int, "items": list[EntryDifferenceItem]})


class EntryUndoItem(TypedDict):
    """``takes_back`` is the last change that is in effect, ``to`` the revision to roll back to.

    Send ``etag`` as `If-Match` of the rollback, so that nothing else is undone.
    """

    revision: int
    etag: str
    takes_back: EntryRevisionItem
    to: int


def entry_item(record: EntryRecord) -> EntryItem:
    """One entry in a list."""
    kind, name = record.key
    return {
        "kind": kind,
        "name": name,
        "etag": record.etag,
        "created_revision": record.created_revision,
        "modified_revision": record.modified_revision,
        "entry": entry_json(record.entry),
    }


def told_item(record: EntryRecord, line: RevisionInfo | None) -> EntryItem:
    """One entry, with who modified it."""
    item = entry_item(record)
    if line is not None:
        meta = line.meta
        item["actor"], item["author"], item["message"] = meta.actor, meta.author, meta.message
        item["time"] = timestamp(meta.time_s)
    return item


def change_item(change: EntryChange) -> EntryChangeItem:
    """An entry that differs."""
    return {"kind": change.key[0], "name": change.key[1], "change": change.change}


def entry_answer(result: EntryResult) -> EntryAnswer:
    """The answer to a write."""
    answer: EntryAnswer = {
        "revision": result.revision,
        "etag": result.etag,
        "changed": result.changed,
        "changes": [change_item(change) for change in result.changes],
        "chains": list(result.chains),
        "groups": [_lowered_change_item(each) for each in result.groups],
        "warnings": [finding_item(warning) for warning in result.warnings],
    }
    return {**answer, "dry_run": True} if result.dry_run else answer


def _lowered_change_item(result: PushResult) -> LoweredChangeItem:
    changes = {
        label: TypeChangeItem(added=list(one.added), changed=list(one.changed), removed=list(one.removed))
        for label, one in result.changes.items()
    }
    return {"group": result.group, "revision": result.revision, "changes": changes}


def entry_revision_item(line: RevisionInfo) -> EntryRevisionItem:
    """A line of the history."""
    return {
        "revision": line.revision,
        "kind": line.kind,
        "content_of": line.content_of,
        "undone_by": line.undone_by,
        "content": line.content,
        "entries": line.resources,
        "actor": line.meta.actor,
        "author": line.meta.author,
        "message": line.meta.message,
        "time": timestamp(line.meta.time_s),
    }


def difference_item(change: EntryChange) -> EntryDifferenceItem:
    """An entry that differs, before and after."""
    before, after = change.before, change.after
    return {
        **change_item(change),
        "before": entry_json(before.entry) if before is not None else None,
        "after": entry_json(after.entry) if after is not None else None,
    }


def entry_undo_item(plan: EntryUndoPlan, revision: int, etag: str) -> EntryUndoItem:
    """The plan of undo."""
    return {
        "revision": revision,
        "etag": etag,
        "takes_back": entry_revision_item(plan.takes_back),
        "to": plan.to.revision,
    }
