"""The rows of a group's content: what is now in ``entry``, what was in ``past`` (see ``schema``).

``group`` is the row id of a group throughout.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from xds.store import rank
from xds.store.base import Entry
from xds.store.revisions import Edit, Key

Connection = sqlite3.Connection
_MANY_ROWS = 50
Place = tuple[int, int, str]  # the key of a row: group, type, name


class Held(NamedTuple):
    """What a group holds of one resource."""

    blob_id: str
    rank: int


def held(connection: Connection, group: int) -> dict[Key, Held]:
    """All that a group holds now, in no order."""
    urls = dict(connection.execute("SELECT id, url FROM type"))
    rows = connection.execute("SELECT type, name, h, rank FROM entry WHERE grp = ?", (group,))
    return {(urls[type_id], name): Held(h.hex(), place) for type_id, name, h, place in rows}


def held_of(connection: Connection, group: int, keys: Iterable[Key]) -> dict[Key, Held]:
    """What a group holds now of ``keys``."""
    found: dict[Key, Held] = {}
    for key in keys:
        row = connection.execute(
            "SELECT h, rank FROM entry WHERE grp = ? AND type = (SELECT id FROM type WHERE url = ?) AND name = ?",
            (group, *key),
        ).fetchone()
        if row is not None:
            found[key] = Held(row[0].hex(), row[1])
    return found


def write(
    connection: Connection,
    group: int,
    revision: int,
    *,
    edit: Edit,
    ranks: Mapping[Key, int],
    before: Mapping[Key, Held],
    resources: int,
) -> None:
    """Bring a group up to ``revision``.

    ``ranks`` as ``edited_ranks`` tells; ``before``: what it held of ``edit``; ``resources``: how many it held in all.
    """
    stale = [key for key in (*edit.removed, *ranks) if key in before]
    types = {url: _type_id(connection, url) for url in {key[0] for key in (*stale, *ranks)}}
    if len(stale) == resources:
        _retire_all(connection, group, revision)
    else:
        whole = _whole_types(connection, group, types, stale)
        for type_id in whole:
            _retire_type(connection, group, type_id, revision)
        removed, moved = (
            [(group, types[url], name) for url, name in keys if types[url] not in whole]
            for keys in (stale[: len(edit.removed)], stale[len(edit.removed) :])
        )
        _retire(connection, revision, [*removed, *moved], len(removed))
    blobs = {key: edit.put.get(key) or before[key].blob_id for key in ranks}
    connection.executemany(
        # An upsert, since REPLACE costs half as much again: it looks the row up, checks the references, and deletes.
        "INSERT INTO entry (grp, type, name, h, rank, born) VALUES (?, ?, ?, ?, ?, ?)"
        " ON CONFLICT DO UPDATE SET h = excluded.h, rank = excluded.rank, born = excluded.born",
        # In the order of the key, so that rows are appended to the table rather than strewn over it.
        [(group, types[key[0]], key[1], bytes.fromhex(blobs[key]), ranks[key], revision) for key in sorted(ranks)],
    )


def _retire_all(connection: Connection, group: int, revision: int) -> None:
    """Move all rows of a group to ``past``: one statement costs a fifth of one per row."""
    connection.execute(
        "INSERT INTO past (grp, type, name, h, rank, born, died)"
        " SELECT grp, type, name, h, rank, born, ? FROM entry WHERE grp = ?",
        (revision, group),
    )
    connection.execute("DELETE FROM entry WHERE grp = ?", (group,))


def _whole_types(connection: Connection, group: int, types: Mapping[str, int], stale: Sequence[Key]) -> frozenset[int]:
    """The types of which all that a group holds is stale; only those of many rows are looked for."""
    counts = Counter(types[url] for url, _ in stale)
    many = {type_id: count for type_id, count in counts.items() if count >= _MANY_ROWS}
    held = "SELECT count(*) FROM entry WHERE grp = ? AND type = ?"
    return frozenset(
        type_id for type_id, count in many.items() if connection.execute(held, (group, type_id)).fetchone()[0] == count
    )


def _retire_type(connection: Connection, group: int, type_id: int, revision: int) -> None:
    """As ``_retire_all``, of one type."""
    connection.execute(
        "INSERT INTO past (grp, type, name, h, rank, born, died)"
        " SELECT grp, type, name, h, rank, born, ? FROM entry WHERE grp = ? AND type = ?",
        (revision, group, type_id),
    )
    connection.execute("DELETE FROM entry WHERE grp = ? AND type = ?", (group, type_id))


def _retire(connection: Connection, revision: int, places: Sequence[Place], removed: int) -> None:
    """Copy rows to ``past``; the first ``removed`` of them leave ``entry``, the others are about to be written over."""
    connection.executemany(
        "INSERT INTO past (grp, type, name, h, rank, born, died)"
        " SELECT grp, type, name, h, rank, born, ? FROM entry WHERE grp = ? AND type = ? AND name = ?",
        [(revision, *place) for place in places],
    )
    connection.executemany("DELETE FROM entry WHERE grp = ? AND type = ? AND name = ?", places[:removed])


def edited_ranks(edit: Edit, before: Mapping[Key, Held], last_rank: int) -> dict[Key, int]:
    """The rank of every entry that must be written: those put, and those that move."""
    if edit.order is None:
        fresh = iter(range(last_rank + rank.GAP, last_rank + rank.GAP * (len(edit.put) + 1), rank.GAP))
        return {key: before[key].rank if key in before else next(fresh) for key in edit.put}
    ranks = rank.assign([before[key].rank if key in before else None for key in edit.order])
    placed = zip(edit.order, ranks, strict=True)
    return {key: place for key, place in placed if key in edit.put or before[key].rank != place}


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
