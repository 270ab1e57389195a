"""The store engines by name, as settings have them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from xds.store.base import Store
from xds.store.copy.copy_rows import Kept
from xds.store.sqlite.engine import SqliteStore
from xds.store.sqlite.memory import MemoryStore

KINDS = ("memory", "sqlite", "postgres")
SQLITE_FILE = "xds.sqlite3"
COPY_FILE = "copy.sqlite3"


def open_store(
    kind: str,
    data_dir: Path,
    max_bytes: int | None = None,
    url: str = "",
    kept: Callable[[], Kept] | None = None,
) -> Store:
    """The engine ``kind`` with its data in ``data_dir`` or at ``url``; the caller awaits its ``open``.

    ``max_bytes`` bounds the database file, where there is one. ``kept`` says how far back the copy of a shared
    database in ``data_dir`` goes; None: no copy. Raises ``ValueError``.
    """
    match kind:
        case "memory":
            return MemoryStore()
        case "sqlite":
            return SqliteStore(data_dir / SQLITE_FILE, max_bytes=max_bytes)
        case "postgres":
            return _postgres(url, data_dir / COPY_FILE, kept)
        case _:
            raise ValueError(f"no such store: {kind!r} (one of {', '.join(KINDS)})")


def _postgres(url: str, copy: Path, kept: Callable[[], Kept] | None) -> Store:
    try:
        from xds.store.postgres.connection import check_url
        from xds.store.postgres.engine import PostgresStore
    except ImportError as error:
        raise ValueError(f"PostgreSQL needs psycopg: pip install 'xds-server[postgres]' ({error})") from None
    check_url(url)
    return PostgresStore(url, copy, kept) if kept is not None else PostgresStore(url)
