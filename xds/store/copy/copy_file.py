"""The file of a copy, as its writer uses it."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from pathlib import Path

from xds.store.base import CorruptError
from xds.store.copy import copy_rows
from xds.store.copy.copy_rows import GroupNews
from xds.store.sql.connection import ContradictionError, Job
from xds.store.sqlite.engine import SqliteStore
from xds.store.sqlite.files import NothingAcknowledged


class CopyFile(SqliteStore):
    """A store file that takes over the rows of another store, revision numbers included."""

    def __init__(self, path: Path, *, max_bytes: int | None = None) -> None:
        super().__init__(path, max_bytes=max_bytes)
        self._acknowledged = NothingAcknowledged(path)

    def no_collection(self) -> AbstractAsyncContextManager[object]:
        """Nobody collects meanwhile."""
        return self._no_collection()

    async def write(self, job: Job[None]) -> None:
        """Run a job that writes, as one short transaction. Raises ``StoreError``."""
        await self._step(job)

    async def put_group(self, news: GroupNews) -> bool:
        """Write what is new in a group; False if it does not fit what the copy has: all of it is needed."""
        try:
            await self.write(lambda connection: copy_rows.put_group(connection, news))
        except (CorruptError, ContradictionError):
            if not news.since:
                raise
            return False
        return True
