"""The store engines by name, as ``--store`` takes them."""

from __future__ import annotations

from pathlib import Path

from xds.store.base import Store
from xds.store.sqlite.engine import SqliteStore
from xds.store.sqlite.memory import MemoryStore

KINDS = ("memory", "sqlite")
SQLITE_FILE = "xds.sqlite3"


def open_store(kind: str, data_dir: Path, max_bytes: int | None = None) -> Store:
    """The engine ``kind`` with its data in ``data_dir``; the caller awaits its ``open``. Raises ``ValueError``.

    ``max_bytes`` bounds the database file, where there is one.
    """
    match kind:
        case "memory":
            return MemoryStore()
        case "sqlite":
            return SqliteStore(data_dir / SQLITE_FILE, max_bytes=max_bytes)
        case _:
            raise ValueError(f"no such store: {kind!r} (one of {', '.join(KINDS)})")
