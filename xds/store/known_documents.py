"""The documents that a server has read, each at its revision. Other servers write documents too."""

from __future__ import annotations

from xds.store.audit_entries import AuditNote
from xds.store.base import DocumentChanged, Store, StoredDocument

Id = tuple[str, str]  # kind and id


class KnownDocuments:
    """The revisions of the documents of some kinds. Changes that are older than what is known are no news."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._revisions: dict[Id, int] = {}
        self._deleted: dict[Id, int] = {}  # the revisions of deletions, until the watch has shown them

    async def read(self, kind: str) -> list[StoredDocument]:
        """All documents of a kind. Raises ``StoreError``."""
        documents = await self._store.docs(kind)
        for revisions in (self._revisions, self._deleted):
            for key in [key for key in revisions if key[0] == kind]:
                del revisions[key]
        self._revisions.update(((kind, one.id), one.revision) for one in documents)
        return documents

    async def find(self, kind: str, id: str) -> StoredDocument | None:
        """One document as the store has it; None if there is none. Raises ``StoreError``."""
        return next((one for one in await self._store.docs(kind, id) if one.id == id), None)

    async def put(self, kind: str, id: str, body: bytes | None, *, note: AuditNote | None = None) -> None:
        """Store (None: delete) a document. Raises as ``Store.put_doc``."""
        revision = await self._store.put_doc(kind, id, body, note=note)
        for revisions in (self._revisions, self._deleted):
            revisions.pop((kind, id), None)
        (self._revisions if body is not None else self._deleted)[kind, id] = revision

    def is_news(self, changed: DocumentChanged) -> bool:
        """Whether a change is later than what is known of its document."""
        key = changed.kind, changed.id
        return changed.revision > self._revisions.get(key, self._deleted.get(key, 0))

    def note_read(self, kind: str, id: str, stored: StoredDocument | None) -> None:
        """The table has what the store has of a document, as ``find`` returned it."""
        self._revisions.pop((kind, id), None)
        self._deleted.pop((kind, id), None)
        if stored is not None:
            self._revisions[kind, id] = stored.revision

    def note_shown(self, changed: DocumentChanged) -> None:
        """The watch has shown this change, and the table has it."""
        key = changed.kind, changed.id
        if self.is_news(changed):
            self._deleted.pop(key, None)
            if changed.body is not None:
                self._revisions[key] = changed.revision
            else:
                self._revisions.pop(key, None)
        elif self._deleted.get(key) == changed.revision:
            del self._deleted[key]  # nothing earlier comes any more
