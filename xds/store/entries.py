"""The rows of a group's content: what is now in ``entry``, what was in ``past`` (see ``schema``).

``group`` is the row id of a group throughout.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from xds.store import rank
from xds.store.base import Entry
from xds.store.revisions import Edit, Key

Connection = sqlite3.Connection


class Held(NamedTuple):
    """What a group holds of one resource."""

    blob_id: str
    rank: int
    born: int


def held(connection: Connection, group: int) -> dict[Key, Held]:
    """All that a group holds now, in no order."""
    urls = dict(connection.execute("SELECT id, url FROM type"))
    rows = connection.execute("SELECT type, name, h, rank, born FROM entry WHERE grp = ?", (group,))
    return {(urls[type_id], name): Held(h.hex(), place, born) for type_id, name, h, place, born in rows}


def held_of(connection: Connection, group: int, keys: Iterable[Key]) -> dict[Key, Held]:
    """What a group holds now of ``keys``."""
    found: dict[Key, Held] = {}
    for key in keys:
        row = connection.execute(
            "SELECT h, rank, born FROM entry WHERE grp = ? AND type = (SELECT id FROM type WHERE url = ?) AND name = ?",
            (group, *key),
        ).fetchone()
        if row is not None:
            found[key] = Held(row[0].hex(), *row[1:])
    return found


def write(
    connection: Connection,
    group: int,
    revision: int,
    *,
    edit: Edit,
    ranks: Mapping[Key, int],
    before: Mapping[Key, Held],
) -> None:
    """Bring a group up to ``revision``. ``ranks`` as ``edited_ranks`` tells; ``before``: what it held of ``edit``."""
    stale = [key for key in (*edit.removed, *ranks) if key in before]
    types = {url: _type_id(connection, url) for url in {key[0] for key in (*stale, *ranks)}}
    connection.executemany(
        "INSERT INTO past (grp, type, name, h, rank, born, died) VALUES (?, ?, ?, ?, ?, ?, ?)",
        (
            (group, types[k[0]], k[1], bytes.fromhex(h), place, born, revision)
            for k, (h, place, born) in ((key, before[key]) for key in stale)
        ),
    )
    connection.executemany(
        "DELETE FROM entry WHERE grp = ? AND type = ? AND name = ?",
        ((group, types[url], name) for url, name in edit.removed),
    )
    blobs = {key: edit.put.get(key) or before[key].blob_id for key in ranks}
    connection.executemany(
        "REPLACE INTO entry (grp, type, name, h, rank, born) VALUES (?, ?, ?, ?, ?, ?)",
        ((group, types[k[0]], k[1], bytes.fromhex(blobs[k]), place, revision) for k, place in ranks.items()),
    )


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
