"""The file of a copy, as its writer uses it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path

from xds.store.base import CorruptError
from xds.store.copy import copy_rows
from xds.store.copy.copy_rows import CopiedDocument, CopiedHead, GroupNews
from xds.store.sql.connection import ContradictionError, SqlConnection
from xds.store.sqlite.engine import SqliteStore
from xds.store.sqlite.files import NothingAcknowledged


class CopyFile(SqliteStore):
    """A store file that takes over the rows of another store, revision numbers included."""

    def __init__(self, path: Path, *, max_bytes: int | None = None) -> None:
        super().__init__(path, max_bytes=max_bytes)
        self._acknowledged = NothingAcknowledged(path)

    async def heads(self) -> dict[str, CopiedHead]:
        """The heads of all groups by name, deleted ones included."""
        return await self.query(copy_rows.heads)

    async def documents(self) -> dict[tuple[str, str], CopiedDocument]:
        """All documents by kind and id."""
        return await self.query(copy_rows.documents)

    async def missing(self, hashes: Iterable[bytes]) -> list[bytes]:
        """Those of the blobs that it does not have."""
        wanted = list(hashes)
        return await self.query(lambda connection: copy_rows.missing(connection, wanted))

    async def put_blobs(self, blobs: Mapping[str, bytes]) -> None:
        """Write blobs that the next group names."""
        await self._step(lambda connection: copy_rows.put_blobs(connection, blobs))

    async def put_group(self, news: GroupNews) -> bool:
        """Write what is new in a group; False if it does not fit what the copy has: all of it is needed."""
        try:
            await self._step(lambda connection: copy_rows.put_group(connection, news))
        except (CorruptError, ContradictionError):
            if not news.since:
                raise
            return False
        return True

    async def remove_groups(self, names: Collection[str]) -> None:
        """Remove groups that the source does not have."""
        for name in names:
            await self._step(_remover(name))

    async def put_documents(
        self, put: Mapping[tuple[str, str], CopiedDocument], delete: Collection[tuple[str, str]] = ()
    ) -> None:
        """Write documents."""
        await self._step(lambda connection: copy_rows.put_documents(connection, put, delete))

    async def put_cursor(self, cursor: int) -> None:
        """Note the newest commit of the source that it has."""
        await self._step(lambda connection: copy_rows.put_cursor(connection, cursor))


def _remover(name: str) -> Callable[[SqlConnection], None]:
    return lambda connection: copy_rows.remove_group(connection, name)
