"""Documents that belong to groups, as the publisher needs them."""

from __future__ import annotations

import asyncio
from typing import Protocol

from xds.access.caller import Caller


class GroupDocuments(Protocol):
    """Documents that are loaded before their groups are served, and deleted with them.

    ``lock`` is held while a document is changed, and while the whole store is restored.
    """

    lock: asyncio.Lock

    async def load(self) -> None:
        """Replace all documents by the stored ones. Raises ``StoreError``."""

    def documents(self, group: str) -> tuple[tuple[str, str], ...]:
        """Kind and id of all documents of a group."""

    async def forget(self, group: str, by: Caller) -> None:
        """Delete the documents of a group that has settings and no resources. Raises ``StoreError``."""

    def dropped(self, group: str) -> None:
        """Forget the documents of a group; the store has deleted them with the group."""
