"""The documents that a server has read, each at its revision. Other servers write documents too.

A write states the revision that it was reviewed against. If another server has changed the document since, the write is
stale: the table takes over the newer document, and the write is reviewed again (`reviewed`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVar

from xds.model.errors import ConflictError
from xds.store.attempts import pause_after
from xds.store.audit_entries import AuditNote
from xds.store.base import Commit, DocumentChanged, DocumentWrite, Store, StoredDocument, StoreError
from xds.store.document_keys import key_of

Id = tuple[str, str]  # kind and id
T = TypeVar("T")


class Table(Protocol):
    """What has documents."""

    lock: asyncio.Lock

    async def apply(self, kind: str, id: str, body: bytes | None) -> None:
        """Take over a document that another server has stored, or deleted (None). The caller holds ``lock``."""


class StaleDocumentError(StoreError):
    """Another server has changed the document, or deleted it. ``known`` are the documents of its table."""

    def __init__(self, known: KnownDocuments, kind: str, id: str) -> None:
        super().__init__(f"{kind} {id!r} was changed by another server")
        self.known = known
        self.kind = kind
        self.id = id


class KnownDocuments:
    """The revisions of the documents of one table. Changes that are older than what is known are no news."""

    def __init__(self, store: Store, table: Table) -> None:
        self._store = store
        self._table = table
        self._revisions: dict[Id, int] = {}
        self._deleted: dict[Id, int] = {}  # the revisions of deletions, until the watch has shown them

    # Reading

    async def read(self, kind: str) -> list[StoredDocument]:
        """All documents of a kind. Raises ``StoreError``."""
        documents = await self._store.docs(kind)
        for revisions in (self._revisions, self._deleted):
            for key in [key for key in revisions if key[0] == kind]:
                del revisions[key]
        self._revisions.update(((kind, one.id), one.revision) for one in documents)
        return documents

    async def catch_up(self, kind: str, id: str) -> None:
        """Let the table take over what the store has of a document. Raises ``StoreError``."""
        async with self._table.lock:
            stored = await self._find(kind, id)
            await self._table.apply(kind, id, stored.body if stored is not None else None)
            self._forget(kind, id)
            if stored is not None:
                self._revisions[kind, id] = stored.revision

    async def catch_up_all(self, kind: str) -> list[str]:
        """The same for all documents of a kind that differ. Returns their ids. The caller holds the lock."""
        stored = {one.id: one for one in await self._store.docs(kind)}
        gone = [id for of_kind, id in self._revisions if of_kind == kind and id not in stored]
        changed = [id for id, one in stored.items() if self._revisions.get((kind, id)) != one.revision]
        for id in (*gone, *changed):
            await self._table.apply(kind, id, stored[id].body if id in stored else None)
            self._forget(kind, id)
            if id in stored:
                self._revisions[kind, id] = stored[id].revision
        return [*gone, *changed]

    async def is_level(self, kind: str, id: str) -> bool:
        """Whether the table has what the store has of a document. Raises ``StoreError``."""
        stored = await self._find(kind, id)
        return self._revisions.get((kind, id), 0) == (stored.revision if stored is not None else 0)

    async def _find(self, kind: str, id: str) -> StoredDocument | None:
        return next((one for one in await self._store.docs(kind, id) if one.id == id), None)

    # Following

    def is_news(self, changed: DocumentChanged) -> bool:
        """Whether a change is later than what is known of its document."""
        key = changed.kind, changed.id
        return changed.revision > self._revisions.get(key, self._deleted.get(key, 0))

    def note_shown(self, changed: DocumentChanged) -> None:
        """The watch has shown this change, and the table has it."""
        key = changed.kind, changed.id
        if self.is_news(changed):
            self._forget(*key)
            if changed.body is not None:
                self._revisions[key] = changed.revision
        elif self._deleted.get(key) == changed.revision:
            del self._deleted[key]  # nothing earlier comes any more

    def later_than(self, deletion: Commit, *, is_within: bool) -> list[Id]:
        """The known documents that were put after the deletion of their group; ``is_within`` as in `GroupDocuments`."""
        return [
            (kind, id)
            for (kind, id), revision in self._revisions.items()
            if (key_of(id)[0] if is_within else id) == deletion.group
            and revision > deletion.documents.get((kind, id), 0)
        ]

    # Writing

    async def put(self, kind: str, id: str, body: bytes | None, *, note: AuditNote | None = None) -> None:
        """Store (None: delete) a document that is as the table has it.

        Raises ``StaleDocumentError``, and as ``Store.put_doc``.
        """
        expect = self._revisions.get((kind, id), 0)
        try:
            revision = await self._store.put_doc(kind, id, body, expect=expect, note=note)
        except ConflictError as error:
            raise StaleDocumentError(self, kind, id) from error
        self._note_written(kind, id, body, revision)

    def write(self, kind: str, id: str, body: bytes | None, note: AuditNote | None = None) -> DocumentWrite:
        """The same as a part of a push."""
        return DocumentWrite(kind, id, body, note, self._revisions.get((kind, id), 0))

    def note_committed(self, write: DocumentWrite, commit: Commit) -> None:
        """The store has committed ``write`` with a push."""
        revision = commit.documents.get((write.kind, write.id))
        if revision is not None:
            self._note_written(write.kind, write.id, write.body, revision)

    def _note_written(self, kind: str, id: str, body: bytes | None, revision: int) -> None:
        self._forget(kind, id)
        (self._revisions if body is not None else self._deleted)[kind, id] = revision

    def _forget(self, kind: str, id: str) -> None:
        self._revisions.pop((kind, id), None)
        self._deleted.pop((kind, id), None)


async def reviewed(attempt: Callable[[], Awaitable[T]]) -> T:
    """The result of ``attempt``, a write that is reviewed anew whenever it was stale. Raises as ``attempt``."""
    number = 0
    while True:
        try:
            return await attempt()
        except StaleDocumentError as stale:
            await stale.known.catch_up(stale.kind, stale.id)
        number += 1
        await pause_after(number)
