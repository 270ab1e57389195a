"""The pages of a SQLite file: how many there are, and the return of free ones."""

from __future__ import annotations

from xds.store.sql.connection import SqlConnection
from xds.store.sqlite.schema import PAGE_BYTES

PAGES_PER_STEP = 512
SPARE_SHARE = 16  # one in this many pages is left free for later pushes
SPARE_PAGES = 256


def sizes(connection: SqlConnection) -> tuple[int, int]:
    """The bytes of all pages and of the free ones."""
    return _pragma(connection, "page_count") * PAGE_BYTES, _pragma(connection, "freelist_count") * PAGE_BYTES


def shrink(connection: SqlConnection) -> int:
    """Return free pages to the file system; returns their number. Call it until it returns 0.

    Some pages are left for later pushes. A file that was created without incremental vacuum keeps all of them.
    """
    spare = max(SPARE_PAGES, _pragma(connection, "page_count") // SPARE_SHARE)
    surplus = min(_pragma(connection, "freelist_count") - spare, PAGES_PER_STEP)
    if _pragma(connection, "auto_vacuum") != 2 or surplus <= 0:
        return 0
    connection.execute(f"PRAGMA incremental_vacuum({surplus})").fetchall()  # each fetched row is a page
    return surplus


def _pragma(connection: SqlConnection, name: str) -> int:
    return int(connection.execute(f"PRAGMA {name}").fetchone()[0])
