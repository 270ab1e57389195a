"""The JSON of answers about config entries, as typed dictionaries."""

from __future__ import annotations

from typing import Any, NotRequired

from typing_extensions import TypedDict

from xds.admin.problem import finding_item
from xds.admin.shapes.values import FindingItem, timestamp
from xds.mesh.core.entries.entry import entry_json
from xds.mesh.entry_history import EntryUndoPlan
from xds.mesh.entry_records import EntryChange, EntryRecord, EntryResult
from xds.push.request import PushResult
from xds.store.base import RevisionInfo

Json = dict[str, Any]


class EntryItem(TypedDict):
    """A config entry.

    * ``name``: the name of the config entry;
    * ``etag``: the etag of the entry, without quotes;
    * ``created_revision``: the revision that created it; Consul's ``CreateIndex``;
    * ``modified_revision``: the revision that modified it last; Consul's ``ModifyIndex``;
    * ``entry``: the entry as Consul writes it;
    * ``actor``: present for a single entry, as are the next three, if that revision is in the history: who modified
      it;
    * ``author``: present as ``actor``: the author as the client claims; not verified;
    * ``message``: present as ``actor``: the message of the change;
    * ``time``: present as ``actor``: when it was modified.
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
    """A page of config entries, by kind and name.

    * ``revision``: the present revision of the config entries; 0 before the first;
    * ``etag``: the etag of all config entries, without quotes; empty before the first.
    """

    items: list[EntryItem]
    revision: int
    etag: str
    next_page_token: NotRequired[str]


class EntryChangeItem(TypedDict):
    """A config entry that differs.

    * ``name``: the name of the config entry;
    * ``change``: ``added``, ``changed`` or ``removed``.
    """

    kind: str
    name: str
    change: str


class TypeChangeItem(TypedDict):
    """The lowered resources of one type that differ.

    * ``added``: the names of new resources;
    * ``changed``: the names of resources with other content;
    * ``removed``: the names of removed resources.
    """

    added: list[str]
    changed: list[str]
    removed: list[str]


class LoweredChangeItem(TypedDict):
    """What a write of config entries changes in a group with upstreams; in a dry run, what it would change.

    * ``revision``: the revision of the group after the write; in a dry run, its present revision;
    * ``changes``: the changed resources, by type alias.
    """

    group: str
    revision: int
    changes: dict[str, TypeChangeItem]


class EntryAnswer(TypedDict):
    """The result of a write of config entries; in a dry run, what it would change.

    * ``revision``: the revision of the config entries after the write; in a dry run, their present revision;
    * ``etag``: the etag of all config entries, without quotes. The etag of a single written entry is in the header
      ``ETag``;
    * ``changed``: false if nothing changed, so that no revision was made;
    * ``changes``: the entries that differ;
    * ``chains``: the services whose discovery chain changes;
    * ``groups``: the groups with upstreams whose resources change; empty for a repeated request.
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
    """One revision in the history of the config entries.

    * ``revision``: its number;
    * ``kind``: ``push`` or ``rollback``;
    * ``content_of``: the revision that a rollback took its entries from; 0 for a push, or for a rollback to no
      entries;
    * ``undone_by``: the rollback that undid this revision; 0 if none did;
    * ``content``: false if retention has deleted its content;
    * ``entries``: the number of config entries at this revision;
    * ``time``: when it was made.
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
    """A page of revisions of the config entries, newest first."""

    items: list[EntryRevisionItem]
    next_page_token: NotRequired[str]


class EntryContentItem(TypedDict):
    """All config entries at a revision. ``POST /config-entries`` accepts the list.

    * ``revision``: the revision;
    * ``entries``: the entries as Consul shows them, with ``CreateIndex`` and ``ModifyIndex``.
    """

    revision: int
    entries: list[dict[str, Any]]


class EntryDifferenceItem(EntryChangeItem):
    """A config entry that differs between two revisions.

    * ``before``: the entry at the first revision; null if there is none;
    * ``after``: the entry at the second revision; null if there is none.
    """

    before: dict[str, Any] | None
    after: dict[str, Any] | None


# The call form is needed, because one of the members is a Python keyword.
EntryDifferenceAnswer = TypedDict("EntryDifferenceAnswer", {"from": int, "to": int, "items": list[EntryDifferenceItem]})
EntryDifferenceAnswer.__doc__ = """The difference between two revisions of the config entries.

* ``from``: the first revision; 0: no entries;
* ``to``: the second revision;
* ``items``: the config entries that differ.
"""


class EntryUndoItem(TypedDict):
    """The plan of undoing the last change of the config entries.

    * ``revision``: the present revision of the config entries;
    * ``etag``: their etag. Send it as ``If-Match`` with the rollback, so that nothing else is undone;
    * ``takes_back``: the revision that would be undone;
    * ``to``: the revision to roll back to.
    """

    revision: int
    etag: str
    takes_back: EntryRevisionItem
    to: int


def entry_item(record: EntryRecord) -> EntryItem:
    """One entry in a list."""
    kind, name = record.written
    return {
        "kind": kind,
        "name": name,
        "etag": record.etag,
        "created_revision": record.created_revision,
        "modified_revision": record.modified_revision,
        "entry": entry_json(record.entry),
    }


def detailed_entry_item(record: EntryRecord, line: RevisionInfo | None) -> EntryItem:
    """One entry, with who modified it."""
    item = entry_item(record)
    if line is not None:
        meta = line.meta
        item["actor"], item["author"], item["message"] = meta.actor, meta.author, meta.message
        item["time"] = timestamp(meta.time_s)
    return item


def change_item(change: EntryChange) -> EntryChangeItem:
    """An entry that differs."""
    return {"kind": change.written[0], "name": change.written[1], "change": change.change}


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
