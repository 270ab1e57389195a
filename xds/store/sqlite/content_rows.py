"""The rows of a group's content: what is now in ``entry``, what was in ``past`` (see ``schema``).

``group`` is the row id of a group throughout.
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
    """The blob ids of all that a group holds now, in pushed order."""
    urls = dict(connection.execute("SELECT id, url FROM type"))
    rows = connection.execute("SELECT type, name, h FROM entry WHERE grp = ? ORDER BY rank", (group,))
    return {(urls[type_id], name): h.hex() for type_id, name, h in rows}


def held_of(connection: Connection, group: int, keys: Iterable[Key]) -> dict[Key, str]:
    """The blob ids of what a group holds now of ``keys``."""
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
    """Bring a group up to ``revision``.

    ``held``: blob ids of what it held of ``edit``. ``last_rank`` is the highest rank that it has had; the one that it
    has had then is returned.
    """
    ranks = _ranks(connection, group, edit, held, last_rank)
    types = {url: _type_id(connection, url) for url in {*edit.types(), *(url for url, _ in ranks)}}
    kept = [key for key in edit.put if key not in ranks]
    moved = [key for key in ranks if key in held]
    removed = _places(group, types, edit.removed)
    _retire(connection, group, revision, [*removed, *_places(group, types, (*kept, *moved))])
    _remove(connection, group, removed)
    _overwrite(connection, revision, [edit.put[key] for key in kept], _places(group, types, kept))
    # In the order of the key, so that rows are appended to the table rather than strewn over it.
    placed = sorted(ranks)
    rows = zip(_places(group, types, placed), placed, strict=True)
    connection.executemany(
        # An upsert, since REPLACE costs half as much again: it looks the row up, checks the references, and deletes.
        "INSERT INTO entry (grp, type, name, h, rank, born) VALUES (?, ?, ?, ?, ?, ?)"
        " ON CONFLICT DO UPDATE SET h = excluded.h, rank = excluded.rank, born = excluded.born",
        [(*place, bytes.fromhex(edit.put.get(key) or held[key]), ranks[key], revision) for place, key in rows],
    )
    return max(last_rank, *ranks.values(), 0)


def _ranks(
    connection: Connection, group: int, edit: ContentEdit, held: Mapping[Key, str], last_rank: int
) -> dict[Key, int]:
    """The ranks of what is new and of what moves; what else is put keeps its own."""
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
    """Copy rows to ``past``: one statement for all of a type costs a fifth of one per row."""
    whole = _whole_types(connection, group, places)
    copy = (
        "INSERT INTO past (grp, type, name, h, rank, born, died)"
        " SELECT grp, type, name, h, rank, born, ? FROM entry WHERE grp = ? AND type = ?"
    )
    connection.executemany(copy, [(revision, group, type_id) for type_id in whole])
    connection.executemany(copy + " AND name = ?", [(revision, *place) for place in places if place[1] not in whole])


def _remove(connection: Connection, group: int, places: Sequence[RowKey]) -> None:
    """Delete rows, as many at a time as ``_retire`` copies."""
    whole = _whole_types(connection, group, places)
    delete = "DELETE FROM entry WHERE grp = ? AND type = ?"
    connection.executemany(delete, [(group, type_id) for type_id in whole])
    connection.executemany(delete + " AND name = ?", [place for place in places if place[1] not in whole])


def _whole_types(connection: Connection, group: int, places: Iterable[RowKey]) -> frozenset[int]:
    """The types of which ``places`` are all that a group holds; only those of many rows are looked for."""
    counts = Counter(type_id for _, type_id, _ in places)
    many = {type_id: count for type_id, count in counts.items() if count >= _MANY_ROWS}
    held = "SELECT count(*) FROM entry WHERE grp = ? AND type = ?"
    return frozenset(
        type_id for type_id, count in many.items() if connection.execute(held, (group, type_id)).fetchone()[0] == count
    )


def _overwrite(connection: Connection, revision: int, blobs: Iterable[str], places: Sequence[RowKey]) -> None:
    """Put other blobs into rows that keep their ranks. Raises ``CorruptError`` for rows that are not there."""
    found = connection.executemany(
        "UPDATE entry SET h = ?, born = ? WHERE grp = ? AND type = ? AND name = ?",
        [(bytes.fromhex(blob), revision, *place) for blob, place in zip(blobs, places, strict=True)],
    ).rowcount
    if places and found != len(places):
        raise CorruptError(f"{found} of {len(places)} resources are there to be changed")


def entries_at(connection: Connection, group: int, revision: int) -> list[Entry]:
    """The content at a revision, in pushed order; wrong for a revision that is no longer kept."""
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
