"""Tables of documents, as the publisher needs them."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import Protocol

from xds.access.caller import Caller
from xds.store.known_documents import KnownDocuments


class FollowedDocuments(Protocol):
    """Documents of ``kinds`` that follow the store, because other servers write them too.

    ``known`` are the revisions that the table has. ``lock`` is held while a document is changed, while one is applied,
    and while the whole store is restored.
    """

    lock: asyncio.Lock
    known: KnownDocuments

    @property
    def kinds(self) -> Collection[str]:
        """The kinds of its documents."""

    async def apply(self, kind: str, id: str, body: bytes | None) -> None:
        """Take over a document that another server has stored, or deleted (None). The caller holds ``lock``.

        What the table has already changes nothing. A document that cannot be read is logged and not used.
        """


class GroupDocuments(FollowedDocuments, Protocol):
    """Documents that are loaded before their groups are served, and deleted with them.

    ``is_within``: each is about something of a group, and has a key as its id (`document_keys`). Else the id is the
    group.
    """

    @property
    def is_within(self) -> bool:
        """As above."""

    async def load(self) -> None:
        """Replace all documents by the stored ones. Raises ``StoreError``."""

    async def forget(self, group: str, by: Caller) -> object:
        """Delete the documents of a group that has settings and no resources. Raises ``StoreError``."""

    def dropped(self, group: str) -> None:
        """Forget the documents of a group; the store has deleted them with the group."""
