"""A private copy of a database, for who may not, or must not, write the file itself."""

from __future__ import annotations

import shutil
import sqlite3
import tempfile
from collections.abc import Callable
from pathlib import Path

from xds.store.base import UnavailableError
from xds.store.write_ahead_log import log_path

_MEMORY = Path("/dev/shm")  # noqa: S108 - a folder of mode 0700 is made in it


def connect_copy(path: Path, connect: Callable[[Path], sqlite3.Connection]) -> sqlite3.Connection:
    """A connection to a copy of the database with its log; the copy has no name and goes with the connection.

    ``connect`` opens it. Raises ``UnavailableError`` where there is no room for it either.
    """
    problem = ""
    for place in (None, _MEMORY):
        try:
            with tempfile.TemporaryDirectory(prefix="xds-store-", dir=place) as folder:
                copied = Path(folder) / path.name
                for source, target in ((path, copied), (log_path(path), log_path(copied))):
                    if source.exists():
                        shutil.copyfile(source, target)
                connection = connect(copied)
                connection.execute("SELECT count(*) FROM sqlite_master").fetchone()  # now both files are open
                return connection
        except OSError as error:
            problem = error.strerror or str(error)
    raise UnavailableError(f"{path} cannot be written, and there is no room for a copy of it to read: {problem}")
