"""The SQL statements of the store, one function for each call. They run in the transaction of the caller."""

from __future__ import annotations

import json
import secrets
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from dataclasses import replace as with_fields
from typing import Any, NamedTuple

from xds.model.errors import NotFoundError
from xds.store import revisions
from xds.store.audit_entries import AuditNote
from xds.store.base import (
    EVENTS_KEPT,
    OBSERVED,
    PUSH_IDS_KEPT_S,
    SKIPPED,
    ChangeItem,
    Commit,
    CorruptError,
    Delta,
    DocumentChanged,
    DocumentWrite,
    Drop,
    FullSet,
    GroupChange,
    GroupCommitted,
    GroupPush,
    Head,
    Lifetime,
    Manifest,
    Meta,
    Reset,
    RevisionInfo,
    Rollback,
    StoredDocument,
    WatchItem,
    check_may_write,
)
from xds.store.document_keys import document_id
from xds.store.feed import resumable
from xds.store.revisions import ContentEdit, Key, RollbackStep
from xds.store.sql import audit_rows, blob_rows, content_rows, sequences
from xds.store.sql.connection import SqlConnection

MARK_BYTES = 8
_PRUNED_PER_PUSH = 2  # more than the one that is added, so that a backlog of old push ids shrinks


@dataclass(frozen=True, slots=True)
class GroupRow:
    """A row of ``grp`` with the row of its head in ``revision``."""

    id: int
    head: Head
    last_rank: int
    floor: int
    versions: Mapping[str, str]
    resources: int


@dataclass(frozen=True, slots=True)
class CommitCall:
    """One call of ``Store.commit_all``. ``now_s`` is the store's clock, in seconds since the epoch."""

    pushes: Sequence[GroupPush]
    push_id: str
    meta: Meta
    now_s: float


class EventRow(NamedTuple):
    """A row of ``event`` without its cursor. ``kind`` is empty for a commit to a group.

    Then ``body`` is random: it tells the event from one that has taken its cursor after a loss.
    """

    kind: str
    name: str
    revision: int
    live: bool
    body: bytes | None = None

    def item(self, cursor: int) -> ChangeItem:
        """The item for watchers, with the row's cursor."""
        if self.kind:
            return DocumentChanged(self.kind, self.name, self.body, self.revision, cursor)
        return GroupCommitted(Head(self.name, self.revision, bool(self.live)), cursor)


def commit_all(connection: SqlConnection, push: CommitCall) -> tuple[list[Commit], list[ChangeItem]]:
    """``Store.commit_all``, and the items for the watches."""
    revisions.check_groups(push.pushes)
    for one in push.pushes:
        check_may_write(one.may_write)
    digest = revisions.push_digest(push.pushes)
    done = _replay(connection, push.pushes, push.push_id, digest)
    if done is not None:
        return done, []
    commits: list[Commit] = []
    events: list[ChangeItem] = []
    for one in push.pushes:
        group, result, event = _commit(connection, one, push.meta)
        _insert_push(connection, group, push, digest, result)
        events += [event] if event is not None else []
        written = _write_docs(connection, one)
        commits.append(with_fields(result, documents={(each.kind, each.id): each.revision for each in written}))
        events += written
    _prune_pushes(connection, push.now_s, _PRUNED_PER_PUSH * len(commits))
    return commits, events


def committed(connection: SqlConnection, pushes: Sequence[GroupPush], push_id: str) -> list[Commit] | None:
    """``Store.committed``."""
    return _replay(connection, pushes, push_id, revisions.push_digest(pushes))


def find_group(connection: SqlConnection, name: str) -> GroupRow | None:
    """A live or deleted group; None for one that never existed."""
    row = connection.execute(
        "SELECT grp.id, grp.revision, grp.live, last_rank, floor, versions, resources FROM grp"
        " JOIN revision ON revision.grp = grp.id AND revision.revision = grp.revision WHERE name = ?",
        (name,),
    ).fetchone()
    if row is None:
        return None
    group, revision, live, last_rank, floor, versions, resources = row
    return GroupRow(group, Head(name, revision, bool(live)), last_rank, floor, versions_of(versions), resources)


def groups(connection: SqlConnection) -> list[Head]:
    """``Store.groups``."""
    rows = connection.execute("SELECT name, revision FROM grp WHERE live ORDER BY name")
    return [Head(name, revision) for name, revision in rows]


def manifest(connection: SqlConnection, name: str, revision: int | None) -> Manifest:
    """``Store.manifest``."""
    group = find_group(connection, name)
    if group is None:
        raise NotFoundError(f"no such group: {name!r}")
    wanted = group.head.revision if revision is None else revision
    line = next(iter(_history(connection, group, wanted + 1, 1)), None)
    if line is None or line.revision != wanted or not line.live:
        raise NotFoundError(f"group {name!r} has no content at revision {wanted}")
    revisions.check_kept(name, wanted, line.content)
    content = tuple(content_rows.entries_at(connection, group.id, wanted))
    if len(content) != line.resources:
        raise CorruptError(
            f"group {name!r} at revision {wanted}: {len(content)} of {line.resources} resources are left"
        )
    return Manifest(name, wanted, content, line.versions, line.meta)


def lifetimes(connection: SqlConnection, name: str, since: int) -> list[Lifetime]:
    """``Store.lifetimes``."""
    group = find_group(connection, name)
    return content_rows.lifetimes(connection, group.id, since) if group is not None else []


def history(
    connection: SqlConnection, name: str, before: int | None, limit: int, endpoints: bool = True
) -> list[RevisionInfo]:
    """``Store.history``."""
    group = find_group(connection, name)
    if group is None:
        return []
    lines = _history(connection, group, group.head.revision + 1 if before is None else before, limit, endpoints)
    rollbacks, newest = _rollbacks(connection, group.id), group.head.revision
    return [with_fields(line, undone_by=revisions.undone_line_by(line, rollbacks, newest)) for line in lines]


def record_outcome(connection: SqlConnection, name: str, revision: int, nodes: int, refused: int) -> None:
    """``Store.record_outcome``."""
    connection.execute(
        "UPDATE revision SET nodes = ?, refused = ? WHERE grp = (SELECT id FROM grp WHERE name = ?) AND revision = ?",
        (nodes, refused, name, revision),
    )


def put_doc(
    connection: SqlConnection,
    kind: str,
    name: str,
    body: bytes | None,
    expect: int | None,
    note: AuditNote | None = None,
) -> tuple[int, list[DocumentChanged]]:
    """``Store.put_doc``, and the items for the watches."""
    row = connection.execute("SELECT revision, body FROM doc WHERE kind = ? AND name = ?", (kind, name)).fetchone()
    revision, current = row or (0, None)
    revisions.check_expect(f"{kind} {name!r}", revision if current is not None else 0, expect)
    if body is None and current is None:
        raise NotFoundError(f"no such {kind}: {name!r}")
    if body == current:
        return revision, []
    connection.execute(
        "INSERT INTO doc (kind, name, body, revision) VALUES (?, ?, ?, ?)"
        " ON CONFLICT (kind, name) DO UPDATE SET body = excluded.body, revision = excluded.revision",
        (kind, name, body, revision + 1),
    )
    audit_rows.write(connection, [note] if note is not None else [])
    event = _add_event(connection, EventRow(kind, name, revision + 1, body is not None, body))
    assert isinstance(event, DocumentChanged)
    return revision + 1, [event]


def docs(connection: SqlConnection, kind: str, prefix: str) -> list[StoredDocument]:
    """``Store.docs``."""
    documents: list[StoredDocument] = []
    rows = connection.execute(
        "SELECT name, body, revision FROM doc WHERE kind = ? AND name >= ? ORDER BY name", (kind, prefix)
    )
    for name, body, revision in rows:
        if not name.startswith(prefix):
            break
        if body is not None:
            documents.append(StoredDocument(kind, name, body, revision))
    return documents


def catch_up(connection: SqlConnection, cursor: int | None) -> list[WatchItem]:
    """The commits after ``cursor``, or a ``Reset`` where they are no longer stored."""
    oldest, newest = connection.execute(
        "SELECT coalesce(min(cursor), 1), coalesce(max(cursor), 0) FROM event"
    ).fetchone()
    if not resumable(cursor, oldest, newest):
        return [Reset(tuple(groups(connection)), newest)]
    rows = connection.execute(
        "SELECT cursor, kind, name, revision, live, body FROM event WHERE cursor > ? ORDER BY cursor", (cursor,)
    )
    return [EventRow(*row).item(at) for at, *row in rows]


def versions_of(text: str) -> dict[str, str]:
    """The version_info by type of a line of the history. Raises ``CorruptError``."""
    try:
        versions = json.loads(text)
    except (ValueError, TypeError):
        versions = None
    if not isinstance(versions, dict):
        raise CorruptError("a line of the history cannot be read")
    return versions


def newest_cursor(connection: SqlConnection) -> int:
    """The cursor of the newest commit, 0 for none."""
    return sequences.value(connection, sequences.EVENT)


def skip_cursors(connection: SqlConnection, to: int) -> None:
    """Use no cursor up to ``to`` again: they belong to lost commits, and watches may hold them.

    A watch that resumes then starts with a ``Reset``.
    """
    connection.execute("DELETE FROM event")
    sequences.put(connection, sequences.EVENT, to + 1)
    _add_event(connection, EventRow(SKIPPED, "", 0, False))


def _commit(connection: SqlConnection, push: GroupPush, meta: Meta) -> tuple[GroupRow, Commit, ChangeItem | None]:
    """One group's part of a push."""
    group_row = find_group(connection, push.group)
    head = group_row.head if group_row is not None else None
    revisions.check_expect(f"group {push.group!r}", revisions.position(head), push.expect, push.group)
    group = group_row or _add_group(connection, push.group)
    current = _current_blob_ids(connection, group, push)
    edit = _edit(connection, group, push.change, current)
    if group.head.live and not edit and not isinstance(push.change, Drop):
        return group, Commit(push.group, group.head.revision, changed=False, versions=group.versions), None
    return group, *_advance(connection, group, push, meta, edit=edit, current=current)


def _write_docs(connection: SqlConnection, push: GroupPush) -> list[DocumentChanged]:
    events: list[DocumentChanged] = []
    dropped = _docs_of_group(connection, push.group, push.change) if isinstance(push.change, Drop) else ()
    for write in (*(DocumentWrite(*key, None) for key in dropped), *push.writes):
        with suppress(NotFoundError):
            events += put_doc(connection, write.kind, write.id, write.body, write.expect, write.note)[1]
    return events


def _docs_of_group(connection: SqlConnection, group: str, drop: Drop) -> list[tuple[str, str]]:
    """Kind and id of what is to be deleted with a group, where it exists."""
    within = document_id((group, ""))
    return [
        *((kind, group) for kind in drop.kinds),
        *((kind, one.id) for kind in drop.kinds_within for one in docs(connection, kind, within)),
    ]


def _current_blob_ids(connection: SqlConnection, group: GroupRow, push: GroupPush) -> Mapping[Key, str]:
    """The present blob ids: of the whole group in pushed order, or for a delta at least of the keys that it names."""
    given, at = push.head_content, revisions.position(group.head)
    if given is not None and (given.revision, len(given.blob_ids)) == (at, group.resources):
        return given.blob_ids
    if isinstance(push.change, Delta):
        return content_rows.blob_ids_of(connection, group.id, revisions.delta_keys(push.change))
    return content_rows.all_blob_ids(connection, group.id)


def _edit(connection: SqlConnection, group: GroupRow, change: GroupChange, current: Mapping[Key, str]) -> ContentEdit:
    match change:
        case FullSet():
            return revisions.replace(change.entries, current)
        case Delta():
            return revisions.amend(change, current)
        case Rollback():
            target = manifest(connection, group.head.group, change.to).entries
            return revisions.replace(revisions.rolled_back_entries(target, change, current), current)
        case Drop():
            if not group.head.live:
                raise NotFoundError(f"no such group: {group.head.group!r}")
            return revisions.replace((), current)


def _advance(
    connection: SqlConnection,
    group: GroupRow,
    push: GroupPush,
    meta: Meta,
    *,
    edit: ContentEdit,
    current: Mapping[Key, str],
) -> tuple[Commit, ChangeItem]:
    """Write the next revision of a group."""
    head = Head(push.group, group.head.revision + 1, live=not isinstance(push.change, Drop))
    blob_rows.insert(connection, edit.put.values(), revisions.given_blobs(edit, push.change))
    last_rank = content_rows.write(
        connection, group.id, head.revision, edit=edit, current=current, last_rank=group.last_rank
    )
    connection.execute(
        "UPDATE grp SET revision = ?, live = ?, last_rank = ? WHERE id = ?",
        (head.revision, head.live, last_rank, group.id),
    )
    versions = revisions.next_versions(group.versions, edit.types(), push, head.revision) if head.live else {}
    resources = group.resources + sum(key not in current for key in edit.put) - len(edit.removed)
    line = revisions.revision_line(
        push, group.head, head, edit, RevisionInfo(head.group, head.revision, meta, versions, resources)
    )
    _add_revision(connection, group, line)
    audit_rows.write(connection, revisions.audit_notes(push.note, line))
    mark = secrets.token_bytes(MARK_BYTES)
    event = _add_event(connection, EventRow("", push.group, head.revision, head.live, mark))
    return Commit(push.group, head.revision, versions=versions), event


def _add_group(connection: SqlConnection, name: str) -> GroupRow:
    (row,) = connection.execute(
        "INSERT INTO grp (name, revision, live, last_rank) VALUES (?, 0, FALSE, 0) RETURNING id", (name,)
    ).fetchone()
    return GroupRow(row, Head(name, 0, live=False), 0, 1, {}, 0)


def _add_revision(connection: SqlConnection, group: GroupRow, info: RevisionInfo) -> None:
    meta = info.meta
    connection.execute(
        "INSERT INTO revision (grp, revision, live, resources, versions, author, message, time_s, actor,"
        " kind, content_of, keeps_endpoints, endpoints_only) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            group.id,
            info.revision,
            info.live,
            info.resources,
            json.dumps(dict(info.versions)),
            meta.author,
            meta.message,
            meta.time_s,
            meta.actor,
            info.kind,
            info.content_of,
            info.keeps_endpoints,
            info.endpoints_only,
        ),
    )


def _history(
    connection: SqlConnection, group: GroupRow, before: int, limit: int, endpoints: bool = True
) -> list[RevisionInfo]:
    """Lines of the history without ``undone_by``."""
    end = group.head.revision + 1
    rows = connection.execute(
        "SELECT revision, author, message, time_s, actor, versions, resources, live, content, kind, content_of,"
        " keeps_endpoints, endpoints_only, nodes, refused FROM revision"
        " WHERE grp = ? AND revision < ? AND endpoints_only <= ? ORDER BY revision DESC LIMIT ?",
        (
            group.id,
            max(0, min(before, end)),
            endpoints,
            max(0, min(limit, end)),
        ),  # any given number fits the 64 bits of SQLite
    )
    return [_line(group, *row) for row in rows]


def _line(
    group: GroupRow, at: int, author: str, message: str, time_s: float, actor: str, *columns: Any
) -> RevisionInfo:
    versions, resources, live, content, kind, content_of, keeps_endpoints, endpoints_only, nodes, refused = columns
    if not all(isinstance(each, int | float) for each in (time_s, resources, content_of, nodes, refused)):
        raise CorruptError(f"the history of group {group.head.group!r} is damaged at revision {at}")
    return RevisionInfo(
        group.head.group,
        at,
        Meta(author, message, time_s, actor),
        versions_of(versions),
        resources,
        bool(live),
        content=bool(live and content) and at >= group.floor,
        kind=kind,
        content_of=content_of,
        keeps_endpoints=bool(keeps_endpoints),
        endpoints_only=bool(endpoints_only),
        nodes=nodes,
        refused=refused,
    )


def _rollbacks(connection: SqlConnection, group: int) -> list[RollbackStep]:
    """The rollbacks of a group, ordered by revision."""
    rows = connection.execute(
        "SELECT revision, content_of, keeps_endpoints FROM revision WHERE grp = ? AND content_of > 0 ORDER BY revision",
        (group,),
    )
    return [RollbackStep(revision, to, bool(keeps)) for revision, to, keeps in rows]


def _replay(connection: SqlConnection, pushes: Sequence[GroupPush], push_id: str, digest: bytes) -> list[Commit] | None:
    """The commits of these pushes if their push id was committed before, else None. Raises ``ReusedPushIdError``."""
    earlier = [_find_push(connection, push.group, push_id) for push in revisions.requested_pushes(pushes)]
    if not revisions.check_repeat(push_id, [each[1] if each is not None else None for each in earlier], digest):
        return None
    return [with_fields(each[0], replayed=True) for each in earlier if each is not None]


def _find_push(connection: SqlConnection, group: str, push_id: str) -> tuple[Commit, bytes] | None:
    """The commit of a push to a group, and the digest of the request."""
    row = connection.execute(
        "SELECT push.revision, changed, digest FROM push JOIN grp ON grp.id = push.grp WHERE name = ? AND push_id = ?",
        (group, push_id),
    ).fetchone()
    return (Commit(group, row[0], bool(row[1])), row[2]) if row is not None else None


def _insert_push(connection: SqlConnection, group: GroupRow, push: CommitCall, digest: bytes, result: Commit) -> None:
    connection.execute(
        "INSERT INTO push (grp, push_id, revision, changed, time_s, digest) VALUES (?, ?, ?, ?, ?, ?)",
        (group.id, push.push_id, result.revision, result.changed, push.now_s, digest),
    )


def _prune_pushes(connection: SqlConnection, now_s: float, limit: int) -> None:
    connection.execute(
        "DELETE FROM push WHERE id IN (SELECT id FROM push ORDER BY id LIMIT ?) AND time_s < ?",
        (limit, now_s - PUSH_IDS_KEPT_S),
    )


def _add_event(connection: SqlConnection, event: EventRow) -> ChangeItem:
    cursor = sequences.advance(connection, sequences.EVENT)
    connection.execute(
        "INSERT INTO event (cursor, kind, name, revision, live, body) VALUES (?, ?, ?, ?, ?, ?)", (cursor, *event)
    )
    connection.execute("DELETE FROM event WHERE cursor <= ?", (cursor - EVENTS_KEPT,))
    return event.item(cursor)


def tell_observed(connection: SqlConnection, changed: Collection[tuple[str, str]]) -> list[ChangeItem]:
    """The items for the watches of records that have changed, by source and service."""
    by_source: dict[str, list[str]] = {}
    for source, service in sorted(changed):
        by_source.setdefault(source, []).append(service)
    return [
        _add_event(connection, EventRow(OBSERVED, source, 0, True, json.dumps(services).encode()))
        for source, services in by_source.items()
    ]
