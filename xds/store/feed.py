"""Delivers commits to the watches of one process, each with a bounded buffer.

A reader registers first and then reads the earlier commits, so that it misses none. Its cursor tells which commits it
has already. All methods belong to the event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

from xds.store.base import READER_BUFFER, ChangeItem, UnavailableError, WatchItem


class Feed:
    """All watches of one store."""

    def __init__(self, buffer: int = READER_BUFFER) -> None:
        self._buffer = buffer
        self._readers: set[_Reader] = set()

    def publish(self, items: Sequence[ChangeItem]) -> None:
        """Deliver whole commits to every reader. Cursors must increase from item to item."""
        for reader in self._readers:
            reader.put(items)

    def interrupt(self) -> None:
        """Restart every reader with a ``Reset``, because a commit may not have been delivered."""
        for reader in self._readers:
            reader.fall_behind()

    def close(self) -> None:
        """Let every reader drain its buffer and then raise ``UnavailableError``."""
        for reader in self._readers:
            reader.close()

    async def follow(
        self, cursor: int | None, catch_up: Callable[[int | None], Awaitable[Sequence[WatchItem]]]
    ) -> AsyncIterator[Sequence[WatchItem]]:
        """``Store.watch``. ``catch_up(cursor)`` reads the commits after a cursor, or returns one ``Reset``."""
        reader = _Reader(self._buffer)
        self._readers.add(reader)
        try:
            while True:
                if earlier := await catch_up(cursor):
                    cursor = earlier[-1].cursor
                    yield earlier
                while (items := await reader.get()) is not None:
                    if news := [item for item in items if cursor is None or item.cursor > cursor]:
                        cursor = news[-1].cursor
                        yield news
                cursor = None  # the reader missed commits and gets a Reset
        finally:
            self._readers.discard(reader)


def resumable(cursor: int | None, oldest: int, newest: int) -> bool:
    """Whether all commits after ``cursor`` are kept; ``oldest`` to ``newest`` are kept."""
    return cursor is not None and oldest - 1 <= cursor <= newest


class _Reader:
    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._items: list[ChangeItem] = []
        self._fell_behind = False
        self._closed = False
        self._wake = asyncio.Event()

    def put(self, items: Sequence[ChangeItem]) -> None:
        if len(self._items) + len(items) > self._limit:
            self.fall_behind()
        self._items += items
        self._wake.set()

    def fall_behind(self) -> None:
        self._fell_behind = True
        self._items.clear()
        self._wake.set()

    def close(self) -> None:
        self._closed = True
        self._wake.set()

    async def get(self) -> Sequence[ChangeItem] | None:
        """What was committed since the last call; None, once, when commits were missed."""
        while not self._items and not self._fell_behind:
            if self._closed:
                raise UnavailableError("the store was closed")
            self._wake.clear()
            await self._wake.wait()
        if self._fell_behind:
            self._fell_behind = False
            return None
        items, self._items = self._items, []
        return items
