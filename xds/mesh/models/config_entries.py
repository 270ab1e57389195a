"""Config entries: as they are stored, what a write changed, and their history."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, ClassVar

from xds.admin.models.findings import Finding
from xds.admin.models.pushes import PushOutcome
from xds.admin.models.values import Document, time_of
from xds.admin.models.writing import member, present_if

if TYPE_CHECKING:
    from xds.mesh.entry_history import EntryUndoPlan
    from xds.mesh.entry_records import EntryChange, EntryRecord, EntryResult
    from xds.push.request import PushResult
    from xds.store.base import RevisionInfo

_IF_KNOWN = present_if(lambda entry: entry.time is not None)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredEntry:
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

    schema_name: ClassVar[str] = "EntryItem"

    kind: str
    name: str
    etag: str
    created_revision: int
    modified_revision: int
    entry: Document
    actor: str = field(default="", metadata=_IF_KNOWN)
    author: str = field(default="", metadata=_IF_KNOWN)
    message: str = field(default="", metadata=_IF_KNOWN)
    time: datetime | None = None

    @classmethod
    def from_domain(cls, record: EntryRecord, line: RevisionInfo | None = None) -> StoredEntry:
        """A config entry; ``line`` is the revision that modified it."""
        kind, name = record.written
        meta = line.meta if line is not None else None
        return cls(
            kind=kind,
            name=name,
            etag=record.etag,
            created_revision=record.created_revision,
            modified_revision=record.modified_revision,
            entry=record.json(),
            actor=meta.actor if meta is not None else "",
            author=meta.author if meta is not None else "",
            message=meta.message if meta is not None else "",
            time=time_of(meta.time_s) if meta is not None else None,
        )


@dataclass(frozen=True, slots=True)
class EntryPage:
    """A page of config entries, by kind and name.

    * ``revision``: the present revision of the config entries; 0 before the first;
    * ``etag``: the etag of all config entries, without quotes; empty before the first.
    """

    items: tuple[StoredEntry, ...]
    revision: int
    etag: str
    next_page_token: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryChanged:
    """A config entry that differs.

    * ``name``: the name of the config entry;
    * ``change``: ``added``, ``changed`` or ``removed``.
    """

    schema_name: ClassVar[str] = "EntryChangeItem"

    kind: str
    name: str
    change: str

    @classmethod
    def from_domain(cls, change: EntryChange) -> EntryChanged:
        """A changed entry."""
        return cls(kind=change.written[0], name=change.written[1], change=change.change)


@dataclass(frozen=True, slots=True)
class LoweredNames:
    """The lowered resources of one type that differ.

    * ``added``: the names of new resources;
    * ``changed``: the names of resources with other content;
    * ``removed``: the names of removed resources.
    """

    schema_name: ClassVar[str] = "TypeChangeItem"

    added: tuple[str, ...]
    changed: tuple[str, ...]
    removed: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LoweredChange:
    """What a write of config entries changes in a group with upstreams; in a dry run, what it would change.

    * ``revision``: the revision of the group after the write; in a dry run, its present revision;
    * ``changes``: the changed resources, by type alias.
    """

    schema_name: ClassVar[str] = "LoweredChangeItem"

    group: str
    revision: int
    changes: Mapping[str, LoweredNames]

    @classmethod
    def from_domain(cls, result: PushResult) -> LoweredChange:
        """The change of one group."""
        changes = {
            alias: LoweredNames(tuple(one.added), tuple(one.changed), tuple(one.removed))
            for alias, one in result.changes.items()
        }
        return cls(group=result.group, revision=result.revision, changes=changes)


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryOutcome:
    """The result of a write of config entries; in a dry run, what it would change.

    * ``revision``: the revision of the config entries after the write; in a dry run, their present revision;
    * ``etag``: the etag of all config entries, without quotes. The etag of a single written entry is in the header
      ``ETag``;
    * ``changed``: false if nothing changed, so that no revision was made;
    * ``changes``: the entries that differ;
    * ``chains``: the services whose discovery chain changes;
    * ``groups``: the groups with upstreams whose resources change; empty for a repeated request.
    """

    schema_name: ClassVar[str] = "EntryAnswer"

    revision: int
    etag: str
    changed: bool
    changes: tuple[EntryChanged, ...]
    chains: tuple[str, ...]
    groups: tuple[LoweredChange, ...]
    warnings: tuple[Finding, ...]
    dry_run: bool = False

    @classmethod
    def from_domain(cls, result: EntryResult) -> EntryOutcome:
        """The result of a write."""
        return cls(
            revision=result.revision,
            etag=result.etag,
            changed=result.changed,
            changes=tuple(map(EntryChanged.from_domain, result.changes)),
            chains=tuple(result.chains),
            groups=tuple(map(LoweredChange.from_domain, result.groups)),
            warnings=tuple(map(Finding.from_domain, result.warnings)),
            dry_run=result.dry_run,
        )


@dataclass(frozen=True, slots=True)
class TransactionOutcome:
    """The results of a transaction.

    * ``results``: one for each change, in their order;
    * ``config_entries``: present if config entries were written.
    """

    schema_name: ClassVar[str] = "TransactionAnswer"

    results: tuple[PushOutcome, ...]
    config_entries: EntryOutcome | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryRevision:
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

    schema_name: ClassVar[str] = "EntryRevisionItem"

    revision: int
    kind: str
    content_of: int
    undone_by: int
    content: bool
    entries: int
    actor: str
    author: str
    message: str
    time: datetime

    @classmethod
    def from_domain(cls, line: RevisionInfo) -> EntryRevision:
        """A line of the history."""
        return cls(
            revision=line.revision,
            kind=line.kind,
            content_of=line.content_of,
            undone_by=line.undone_by,
            content=line.content,
            entries=line.resources,
            actor=line.meta.actor,
            author=line.meta.author,
            message=line.meta.message,
            time=time_of(line.meta.time_s),
        )


@dataclass(frozen=True, slots=True)
class EntryRevisionPage:
    """A page of revisions of the config entries, newest first."""

    items: tuple[EntryRevision, ...]
    next_page_token: str = ""


@dataclass(frozen=True, slots=True)
class EntryContent:
    """All config entries at a revision. ``POST /config-entries`` accepts the list.

    * ``revision``: the revision;
    * ``entries``: the entries as Consul shows them, with ``CreateIndex`` and ``ModifyIndex``.
    """

    schema_name: ClassVar[str] = "EntryContentItem"

    revision: int
    entries: tuple[Document, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedEntry(EntryChanged):
    """A config entry that differs between two revisions.

    * ``before``: the entry at the first revision; null if there is none;
    * ``after``: the entry at the second revision; null if there is none.
    """

    schema_name: ClassVar[str] = "EntryDifferenceItem"

    before: Document | None
    after: Document | None

    @classmethod
    def from_domain(cls, change: EntryChange) -> ComparedEntry:
        """An entry that differs, before and after."""
        return cls(
            kind=change.written[0],
            name=change.written[1],
            change=change.change,
            before=change.before.json() if change.before is not None else None,
            after=change.after.json() if change.after is not None else None,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryDifferences:
    """The difference between two revisions of the config entries.

    * ``from``: the first revision; 0: no entries;
    * ``to``: the second revision;
    * ``items``: the config entries that differ.
    """

    schema_name: ClassVar[str] = "EntryDifferenceAnswer"

    base: int = field(metadata=member("from"))
    to: int
    items: tuple[ComparedEntry, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryUndoProposal:
    """The plan of undoing the last change of the config entries.

    * ``revision``: the present revision of the config entries;
    * ``etag``: their etag. Send it as ``If-Match`` with the rollback, so that nothing else is undone;
    * ``takes_back``: the revision that would be undone;
    * ``to``: the revision to roll back to.
    """

    schema_name: ClassVar[str] = "EntryUndoItem"

    revision: int
    etag: str
    takes_back: EntryRevision
    to: int

    @classmethod
    def from_domain(cls, plan: EntryUndoPlan, revision: int, etag: str) -> EntryUndoProposal:
        """The plan of an undo."""
        takes_back = EntryRevision.from_domain(plan.takes_back)
        return cls(revision=revision, etag=etag, takes_back=takes_back, to=plan.to.revision)
