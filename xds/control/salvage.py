"""What of a store on disk is sound, and an archive of that (`xds.store.salvage`); without a server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import xds
from xds.codec.record import load_record
from xds.control.archive_file import About, ArchiveWriter
from xds.model.errors import ValidationError
from xds.store.engines import SQLITE_FILE
from xds.store.salvage import Salvaged, examine

_RECORDS_AT_A_TIME = 1_000


def examine_directory(data_dir: Path) -> Salvaged:
    """Look at the store of a data directory. Raises ``StoreError``."""
    return examine(data_dir / SQLITE_FILE, _fits)


def archived(found: Salvaged, now_s: float) -> Iterator[bytes]:
    """The bytes of an archive with all that is sound."""
    writer = ArchiveWriter(About(xds.__version__, now_s, history=False))
    yield writer.begin()
    for start in range(0, len(found.records), _RECORDS_AT_A_TIME):
        yield writer.add(found.records[start : start + _RECORDS_AT_A_TIME])
    yield writer.end()


def _fits(type_url: str, name: str, body: bytes) -> bool:
    try:
        found = load_record(body)
    except ValidationError:
        return False
    return (found.type_url, found.name) == (type_url, name)
