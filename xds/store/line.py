"""One line of revisions of a store: of a group, or of the config entries."""

from __future__ import annotations

from collections.abc import AsyncIterator

from xds.store.base import RevisionInfo, Store

PAGE = 100
PAGES_LIMIT = 100  # pages of the history that are searched


class Line:
    """The revisions of the line ``name``. Everything raises ``StoreError``."""

    def __init__(self, store: Store, name: str) -> None:
        self._store = store
        self._name = name

    async def page(self, before: int | None = None, limit: int = 50, endpoints: bool = True) -> list[RevisionInfo]:
        """Revisions below ``before`` (None: all), newest first. ``endpoints`` False: not those of endpoints only."""
        return await self._store.history(self._name, before=before, limit=limit, endpoints=endpoints)

    async def find(self, revision: int) -> RevisionInfo | None:
        """Who made a revision, when and why; None if that is no longer kept."""
        lines = await self.page(revision + 1, 1)
        return lines[0] if lines and lines[0].revision == revision else None

    async def newest_first(self, before: int | None = None, endpoints: bool = True) -> AsyncIterator[RevisionInfo]:
        """Revisions below ``before``, newest first; at most ``PAGE`` times ``PAGES_LIMIT``."""
        for _ in range(PAGES_LIMIT):
            lines = await self.page(before, PAGE, endpoints)
            for line in lines:
                yield line
            if len(lines) < PAGE:
                return
            before = lines[-1].revision
