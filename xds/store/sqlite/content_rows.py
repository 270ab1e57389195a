"""The rows of the content of groups: the present content in ``entry``, earlier rows in ``past`` (see ``schema``).

``group`` is always the row id of a group.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from xds.store import rank
from xds.store.base import CorruptError, Entry
from xds.store.revisions import ContentEdit, Key

Connection = sqlite3.Connection
_MANY_ROWS = 50
RowKey = tuple[int, int, str]  # the key of a row: group, type, name


def held(connection: Connection, group: int) -> dict[Key, str]:
    """The blob ids of the present content of a group, in pushed order."""
    urls = dict(connection.execute("SELECT id, url FROM type"))
    rows = connection.execute("SELECT type, name, h FROM entry WHERE grp = ? ORDER BY rank", (group,))
    return {(urls[type_id], name): h.hex() for type_id, name, h in rows}


def held_of(connection: Connection, group: int, keys: Iterable[Key]) -> dict[Key, str]:
    """The blob ids of those ``keys`` that a group has now."""
    found: dict[Key, str] = {}
    for key in keys:
        row = connection.execute(
            "SELECT h FROM entry WHERE grp = ? AND type = (SELECT id FROM type WHERE url = ?) AND name = ?",
            (group, *key),
        ).fetchone()
        if row is not None:
            found[key] = row[0].hex()
    return found


def write(
    connection: Connection, group: int, revision: int, *, edit: ContentEdit, held: Mapping[Key, str], last_rank: int
) -> int:
    """Write the content of ``revision``.

    ``held`` are the present blob ids of the keys in ``edit``. ``last_rank`` is the highest rank that the group ever
    had; the new highest rank is returned.
    """
    ranks = _ranks(connection, group, edit, held, last_rank)
    types = {url: _type_id(connection, url) for url in {*edit.types(), *(url for url, _ in ranks)}}
    kept = [key for key in edit.put if key not in ranks]
    moved = [key for key in ranks if key in held]
    removed = _places(group, types, edit.removed)
    _retire(connection, group, revision, [*removed, *_places(group, types, (*kept, *moved))])
    _remove(connection, group, removed)
    _overwrite(connection, revision, [edit.put[key] for key in kept], _places(group, types, kept))
    # In the order of the primary key, so that new rows are appended to the table.
    placed = sorted(ranks)
    rows = zip(_places(group, types, placed), placed, strict=True)
    connection.executemany(
        # An upsert: REPLACE takes 1.5 times as long, since it also checks references and deletes the row.
        "INSERT INTO entry (grp, type, name, h, rank, born) VALUES (?, ?, ?, ?, ?, ?)"
        " ON CONFLICT DO UPDATE SET h = excluded.h, rank = excluded.rank, born = excluded.born",
        [(*place, bytes.fromhex(edit.put.get(key) or held[key]), ranks[key], revision) for place, key in rows],
    )
    return max(last_rank, *ranks.values(), 0)


def _ranks(
    connection: Connection, group: int, edit: ContentEdit, held: Mapping[Key, str], last_rank: int
) -> dict[Key, int]:
    """The ranks of new and of moved resources. Other resources keep theirs."""
    if edit.order is None:
        fresh = (key for key in edit.put if key not in held)
        return {key: last_rank + rank.GAP * number for number, key in enumerate(fresh, start=1)}
    urls = dict(connection.execute("SELECT id, url FROM type"))
    rows = connection.execute("SELECT type, name, rank FROM entry WHERE grp = ?", (group,))
    before = {(urls[type_id], name): place for type_id, name, place in rows}
    ranks = rank.assign([before.get(key) for key in edit.order])
    return {key: place for key, place in zip(edit.order, ranks, strict=True) if before.get(key) != place}


def _places(group: int, types: Mapping[str, int], keys: Iterable[Key]) -> list[RowKey]:
    return [(group, types[url], name) for url, name in keys]


def _retire(connection: Connection, group: int, revision: int, places: Sequence[RowKey]) -> None:
    """Copy rows to ``past``. One statement for a whole type takes a fifth of the time of one per row."""
    whole = _whole_types(connection, group, places)
    copy = (
        "INSERT INTO past (grp, type, name, h, rank, born, died)"
        " SELECT grp, type, name, h, rank, born, ? FROM entry WHERE grp = ? AND type = ?"
    )
    connection.executemany(copy, [(revision, group, type_id) for type_id in whole])
    connection.executemany(copy + " AND name = ?", [(revision, *place) for place in places if place[1] not in whole])


def _remove(connection: Connection, group: int, places: Sequence[RowKey]) -> None:
    """Delete rows, with one statement for a whole type where possible."""
    whole = _whole_types(connection, group, places)
    delete = "DELETE FROM entry WHERE grp = ? AND type = ?"
    connection.executemany(delete, [(group, type_id) for type_id in whole])
    connection.executemany(delete + " AND name = ?", [place for place in places if place[1] not in whole])


def _whole_types(connection: Connection, group: int, places: Iterable[RowKey]) -> frozenset[int]:
    """The types of which ``places`` are all rows of a group. Only types with many rows are considered."""
    counts = Counter(type_id for _, type_id, _ in places)
    many = {type_id: count for type_id, count in counts.items() if count >= _MANY_ROWS}
    held = "SELECT count(*) FROM entry WHERE grp = ? AND type = ?"
    return frozenset(
        type_id for type_id, count in many.items() if connection.execute(held, (group, type_id)).fetchone()[0] == count
    )


def _overwrite(connection: Connection, revision: int, blobs: Iterable[str], places: Sequence[RowKey]) -> None:
    """Change the blobs of rows that keep their ranks. Raises ``CorruptError`` for missing rows."""
    found = connection.executemany(
        "UPDATE entry SET h = ?, born = ? WHERE grp = ? AND type = ? AND name = ?",
        [(bytes.fromhex(blob), revision, *place) for blob, place in zip(blobs, places, strict=True)],
    ).rowcount
    if places and found != len(places):
        raise CorruptError(f"{found} of {len(places)} resources to change exist")


def entries_at(connection: Connection, group: int, revision: int) -> list[Entry]:
    """The content at a revision, in pushed order. The revision must still be kept."""
    rows = connection.execute(
        "SELECT url, name, h FROM ("
        " SELECT type, name, h, rank FROM entry WHERE grp = :grp AND born <= :at"
        " UNION ALL SELECT type, name, h, rank FROM past WHERE grp = :grp AND died > :at AND born <= :at"
        ") JOIN type ON id = type ORDER BY rank",
        {"grp": group, "at": revision},
    )
    return [Entry(url, name, h.hex()) for url, name, h in rows]


def _type_id(connection: Connection, url: str) -> int:
    row = connection.execute("SELECT id FROM type WHERE url = ?", (url,)).fetchone()
    if row is None:
        return int(connection.execute("INSERT INTO type (url) VALUES (?)", (url,)).lastrowid or 0)
    return int(row[0])
