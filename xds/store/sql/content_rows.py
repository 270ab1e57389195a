"""The rows of the content of groups: the present content in ``entry``, earlier rows in ``past`` (see ``schema``).

``group`` is always the row id of a group.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from xds.store import rank
from xds.store.base import CorruptError, Entry, Lifetime
from xds.store.revisions import ContentEdit, Key
from xds.store.sql.connection import SqlConnection

_MANY_ROWS = 50
RowKey = tuple[int, int, str]  # the key of a row: group, type, name


def all_blob_ids(connection: SqlConnection, group: int) -> dict[Key, str]:
    """The blob ids of the present content of a group, in pushed order."""
    urls = dict(connection.execute("SELECT id, url FROM type"))
    rows = connection.execute("SELECT type, name, h FROM entry WHERE grp = ? ORDER BY rank", (group,))
    return {(urls[type_id], name): h.hex() for type_id, name, h in rows}


def blob_ids_of(connection: SqlConnection, group: int, keys: Iterable[Key]) -> dict[Key, str]:
    """The blob ids of those ``keys`` that a group has now."""
    blob_ids: dict[Key, str] = {}
    for key in keys:
        row = connection.execute(
            "SELECT h FROM entry WHERE grp = ? AND type = (SELECT id FROM type WHERE url = ?) AND name = ?",
            (group, *key),
        ).fetchone()
        if row is not None:
            blob_ids[key] = row[0].hex()
    return blob_ids


def write(
    connection: SqlConnection,
    group: int,
    revision: int,
    *,
    edit: ContentEdit,
    current: Mapping[Key, str],
    last_rank: int,
) -> int:
    """Write the content of ``revision``.

    ``current`` has the present blob ids of the keys in ``edit``. ``last_rank`` is the highest rank that the group ever
    had; the new highest rank is returned.
    """
    ranks = _ranks(connection, group, edit, current, last_rank)
    types = {url: id_of_type(connection, url) for url in {*edit.types(), *(url for url, _ in ranks)}}
    in_place = [key for key in edit.put if key not in ranks]
    moved = [key for key in ranks if key in current]
    removed = _row_keys(group, types, edit.removed)
    _copy_to_past(connection, group, revision, [*removed, *_row_keys(group, types, (*in_place, *moved))])
    _remove(connection, group, removed)
    _overwrite(connection, revision, [edit.put[key] for key in in_place], _row_keys(group, types, in_place))
    # In the order of the primary key, so that new rows are appended to the table.
    placed = sorted(ranks)
    rows = zip(_row_keys(group, types, placed), placed, strict=True)
    connection.executemany(
        # An upsert: REPLACE takes 1.5 times as long, since it also checks references and deletes the row.
        "INSERT INTO entry (grp, type, name, h, rank, born) VALUES (?, ?, ?, ?, ?, ?)"
        " ON CONFLICT (grp, type, name) DO UPDATE SET h = excluded.h, rank = excluded.rank, born = excluded.born",
        [(*row_key, bytes.fromhex(edit.put.get(key) or current[key]), ranks[key], revision) for row_key, key in rows],
    )
    return max(last_rank, *ranks.values(), 0)


def _ranks(
    connection: SqlConnection, group: int, edit: ContentEdit, current: Mapping[Key, str], last_rank: int
) -> dict[Key, int]:
    """The ranks of new and of moved resources. Other resources keep theirs."""
    if edit.order is None:
        fresh = (key for key in edit.put if key not in current)
        return {key: last_rank + rank.GAP * number for number, key in enumerate(fresh, start=1)}
    urls = dict(connection.execute("SELECT id, url FROM type"))
    rows = connection.execute("SELECT type, name, rank FROM entry WHERE grp = ?", (group,))
    before = {(urls[type_id], name): at for type_id, name, at in rows}
    ranks = rank.assign([before.get(key) for key in edit.order])
    return {key: at for key, at in zip(edit.order, ranks, strict=True) if before.get(key) != at}


def _row_keys(group: int, types: Mapping[str, int], keys: Iterable[Key]) -> list[RowKey]:
    return [(group, types[url], name) for url, name in keys]


def _copy_to_past(connection: SqlConnection, group: int, revision: int, row_keys: Sequence[RowKey]) -> None:
    """Copy rows to ``past``. One statement for a whole type takes a fifth of the time of a statement per row."""
    whole = _whole_types(connection, group, row_keys)
    copy = (
        "INSERT INTO past (grp, type, name, h, rank, born, died)"
        " SELECT grp, type, name, h, rank, born, ? FROM entry WHERE grp = ? AND type = ?"
    )
    connection.executemany(copy, [(revision, group, type_id) for type_id in whole])
    connection.executemany(
        copy + " AND name = ?", [(revision, *row_key) for row_key in row_keys if row_key[1] not in whole]
    )


def _remove(connection: SqlConnection, group: int, row_keys: Sequence[RowKey]) -> None:
    """Delete rows, with one statement for a whole type where possible."""
    whole = _whole_types(connection, group, row_keys)
    delete = "DELETE FROM entry WHERE grp = ? AND type = ?"
    connection.executemany(delete, [(group, type_id) for type_id in whole])
    connection.executemany(delete + " AND name = ?", [row_key for row_key in row_keys if row_key[1] not in whole])


def _whole_types(connection: SqlConnection, group: int, row_keys: Iterable[RowKey]) -> frozenset[int]:
    """The types of which ``row_keys`` are all rows of a group. Only types with many rows are considered."""
    counts = Counter(type_id for _, type_id, _ in row_keys)
    many = {type_id: count for type_id, count in counts.items() if count >= _MANY_ROWS}
    count_all = "SELECT count(*) FROM entry WHERE grp = ? AND type = ?"
    return frozenset(
        type_id
        for type_id, count in many.items()
        if connection.execute(count_all, (group, type_id)).fetchone()[0] == count
    )


def _overwrite(connection: SqlConnection, revision: int, blobs: Iterable[str], row_keys: Sequence[RowKey]) -> None:
    """Change the blobs of rows that keep their ranks. Raises ``CorruptError`` for missing rows."""
    overwritten = connection.executemany(
        "UPDATE entry SET h = ?, born = ? WHERE grp = ? AND type = ? AND name = ?",
        [(bytes.fromhex(blob), revision, *row_key) for blob, row_key in zip(blobs, row_keys, strict=True)],
    ).rowcount
    if row_keys and overwritten != len(row_keys):
        raise CorruptError(f"{overwritten} of {len(row_keys)} resources to change exist")


def entries_at(connection: SqlConnection, group: int, revision: int) -> list[Entry]:
    """The content at a revision, in pushed order. The revision must still be kept."""
    rows = connection.execute(
        "SELECT url, name, h FROM ("
        " SELECT type, name, h, rank FROM entry WHERE grp = :grp AND born <= :at"
        " UNION ALL SELECT type, name, h, rank FROM past WHERE grp = :grp AND died > :at AND born <= :at"
        ") AS line JOIN type ON id = line.type ORDER BY rank",
        {"grp": group, "at": revision},
    )
    return [Entry(url, name, h.hex()) for url, name, h in rows]


def lifetimes(connection: SqlConnection, group: int, since: int) -> list[Lifetime]:
    """The rows that began or ended after a revision."""
    rows = connection.execute(
        "SELECT url, name, h, born, 0 FROM entry JOIN type ON id = entry.type WHERE grp = :grp AND born > :since"
        " UNION ALL"
        " SELECT url, name, h, born, died FROM past JOIN type ON id = past.type WHERE grp = :grp AND died > :since",
        {"grp": group, "since": since},
    )
    return [Lifetime(Entry(url, name, h.hex()), born, died) for url, name, h, born, died in rows]


def id_of_type(connection: SqlConnection, url: str) -> int:
    """The row id of a type, which is added here if it is new."""
    row = connection.execute("SELECT id FROM type WHERE url = ?", (url,)).fetchone()
    if row is None:
        row = connection.execute("INSERT INTO type (url) VALUES (?) RETURNING id", (url,)).fetchone()
    return int(row[0])
