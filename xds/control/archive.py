"""Contents as the store keeps them: read back, whole, at any revision that is kept."""

from __future__ import annotations

import structlog

from xds.control.assembly import assemble, decode, shared
from xds.control.content import BlobIds, Content, blob_ids, changes
from xds.control.off_loop import off_loop
from xds.control.push import PushResult, labelled, outcome
from xds.model.errors import NotFoundError
from xds.protocol.cache import RETAINED_REVISIONS
from xds.store.base import Commit, CorruptError, GoneError, Manifest, Store

_log = structlog.get_logger(logger_name="xds.control.archive")


class Archive:
    """Reads a store. ``held`` is what a group is served now: resources that it has are shared, the others are read."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def content(self, group: str, revision: int | None, held: Content | None) -> Content:
        """A group's content at a revision (None: the head). Raises ``NotFoundError``, ``StoreError``."""
        return await self.restore(await self._store.manifest(group, revision), held, None)

    async def retained(self, group: str) -> list[Content]:
        """The contents that a reconnecting client may name, oldest first; the last is the head's.

        An earlier one that is damaged keeps no server from starting: it is left out, with those before it.
        """
        contents: list[Content] = []
        *earlier, head = reversed(await self._retained(group))
        for manifest in earlier:
            try:
                contents.append(await self.restore(manifest, None, contents[-1] if contents else None))
            except CorruptError as error:
                _log.error("store.revision_damaged", group=group, revision=manifest.revision, error_message=str(error))
                contents.clear()
        return [*contents, await self.restore(head, None, contents[-1] if contents else None)]

    async def replayed(self, commit: Commit, held: Content | None) -> PushResult:
        """The answer to a push that was committed before, as far as its revisions are still kept."""
        group, revision = commit.group, commit.revision
        try:
            content = await self.content(group, revision, held)
        except GoneError:
            return PushResult(group, revision, "", {}, {}, commit.changed)
        except NotFoundError:  # the revision that deleted the group
            return PushResult(group, revision, "", {}, labelled(changes(await self._before(commit), BlobIds())))
        if not commit.changed:
            return outcome(content, {}, changed=False)
        return outcome(content, changes(await self._before(commit), content.blob_ids))

    async def _before(self, commit: Commit) -> BlobIds:
        """What the group held before a commit; nothing where that is no longer kept."""
        try:
            return blob_ids((await self._store.manifest(commit.group, commit.revision - 1)).entries)
        except NotFoundError:
            return BlobIds()

    async def restore(self, manifest: Manifest, held: Content | None, near: Content | None) -> Content:
        """A manifest's content; sets equal to those of ``near`` are the same objects. Raises ``StoreError``."""
        known = {**shared(manifest, held), **shared(manifest, near)}
        wanted = [entry for entry in manifest.entries if (entry.type_url, entry.name) not in known]
        blobs = await self._store.blobs({entry.blob_id for entry in wanted})
        read = await off_loop(len(wanted), decode, wanted, blobs)
        return await off_loop(
            len(manifest.entries), assemble, manifest, blob_ids(manifest.entries), {**known, **read}, near
        )

    async def _retained(self, group: str) -> list[Manifest]:
        """The manifests of ``retained``, newest first."""
        try:
            manifests = [await self._store.manifest(group)]
        except NotFoundError as error:
            raise CorruptError(f"group {group!r} is in the store and cannot be found there: it is damaged") from error
        for info in await self._store.history(group, before=manifests[0].revision, limit=RETAINED_REVISIONS - 1):
            if not info.live:
                continue
            try:
                manifests.append(await self._store.manifest(group, info.revision))
            except NotFoundError:
                break
            except CorruptError as error:
                _log.error("store.revision_damaged", group=group, revision=info.revision, error_message=str(error))
                break
        return manifests
