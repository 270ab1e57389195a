"""Between the manifests of a group and the rows of what it held from which revision to which. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from xds.store import rank
from xds.store.base import Entry, Manifest
from xds.store.records import ENTRIES, Record
from xds.store.revisions import Key

_Row = tuple[str, int, int]  # blob id, rank, born


def entry_records(group: str, newest: int, manifests: Mapping[int, Manifest]) -> list[Record]:
    """The records of all revisions in ``manifests``; one that is not among them, before ``newest``, is a deletion."""
    ended: list[Record] = []
    alive: dict[Key, _Row] = {}
    for revision in range(min(manifests, default=newest), newest + 1):
        made = manifests.get(revision)
        wanted = {(e.type_url, e.name): e.blob_id for e in made.entries} if made is not None else {}
        ranks = rank.assign([alive[key][1] if key in alive else None for key in wanted])
        following: dict[Key, _Row] = {}
        for (key, blob), at in zip(wanted.items(), ranks, strict=True):
            before = alive.get(key)
            following[key] = before if before is not None and before[:2] == (blob, at) else (blob, at, revision)
        gone = {key: row for key, row in alive.items() if following.get(key) != row}
        ended += [_record(group, key, row, revision) for key, row in gone.items()]
        alive = following
    return [*(_record(group, key, row, 0) for key, row in alive.items()), *ended]


def _record(group: str, key: Key, row: _Row, died: int) -> Record:
    return Record(ENTRIES.name, (group, *key, *row, died))


def entries_at(rows: Iterable[tuple[Any, ...]], revision: int) -> tuple[Entry, ...]:
    """What the rows of a group's records hold at a revision, in pushed order."""
    held = [row for row in rows if row[5] <= revision and (row[6] == 0 or row[6] > revision)]
    return tuple(Entry(url, name, blob) for _, url, name, blob, *_ in sorted(held, key=lambda row: row[4]))
