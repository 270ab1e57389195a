"""The store engines by name, as settings have them."""

from __future__ import annotations

from pathlib import Path

from xds.store.base import Store
from xds.store.sqlite.engine import SqliteStore
from xds.store.sqlite.memory import MemoryStore

KINDS = ("memory", "sqlite", "postgres")
SQLITE_FILE = "xds.sqlite3"


def open_store(kind: str, data_dir: Path, max_bytes: int | None = None, url: str = "") -> Store:
    """The engine ``kind`` with its data in ``data_dir`` or at ``url``; the caller awaits its ``open``.

    ``max_bytes`` bounds the database file, where there is one. Raises ``ValueError``.
    """
    match kind:
        case "memory":
            return MemoryStore()
        case "sqlite":
            return SqliteStore(data_dir / SQLITE_FILE, max_bytes=max_bytes)
        case "postgres":
            return _postgres(url)
        case _:
            raise ValueError(f"no such store: {kind!r} (one of {', '.join(KINDS)})")


def _postgres(url: str) -> Store:
    try:
        from xds.store.postgres.connection import check_url
        from xds.store.postgres.engine import PostgresStore
    except ImportError as error:
        raise ValueError(f"PostgreSQL needs psycopg: pip install 'xds-server[postgres]' ({error})") from None
    check_url(url)
    return PostgresStore(url)
