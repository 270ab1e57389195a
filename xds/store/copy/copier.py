"""Keeps a copy of a store on this disk up to date, at most once a second.

It is a reader of the store's watch, beside those that serve. What it reads are short jobs among the others of the
store, and it writes in a thread of its own. It holds no content but what it is copying. Whatever fails, the copy stops,
says why, and begins again later; serving does not notice.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TypeVar

import structlog

from xds.store.base import (
    OBSERVED,
    SKIPPED,
    CorruptError,
    DocumentChanged,
    GroupCommitted,
    ObservedRecord,
    OpenNack,
    Reset,
    StoreError,
    UnavailableError,
    WatchItem,
)
from xds.store.copy import copy_rows
from xds.store.copy.copy_file import CopyFile
from xds.store.copy.copy_rows import CopiedDocument, CopiedHead, Kept
from xds.store.retention import Retention
from xds.store.sql.store import SqlStore

PAUSE_S = 1.0
RETRY_S = 10.0
OBSERVED_EVERY_S = 10.0
COLLECT_EVERY_S = 300.0
BLOBS_AT_ONCE = 50

Observed = TypeVar("Observed", OpenNack, ObservedRecord)

_log = structlog.get_logger(logger_name="xds.store")


class Copier:
    """Copies ``source`` to the file ``path``. ``kept`` says how far back. ``clock`` returns epoch seconds."""

    def __init__(
        self, source: SqlStore, path: Path, kept: Callable[[], Kept], clock: Callable[[], float] = time.time
    ) -> None:
        self.problem = ""  # why there is no copy of the present state; empty if there is
        self.copied_s = 0.0  # when all was copied last, by ``clock``; 0 for not yet
        self.copied_cursor = 0  # of the newest commit that is copied
        self._source = source
        self._path = path
        self._kept = kept
        self._clock = clock
        self._heads: dict[str, CopiedHead] = {}

    async def run(self) -> None:
        """Copy until cancelled."""
        while True:
            try:
                await self._copy()
            except Exception as error:  # also a bug must not end it: nobody would miss the copy until it is needed
                if isinstance(error, UnavailableError) and self._source.condition().cut_off_s:
                    problem = ""  # there is nothing to copy
                else:
                    problem = f"{self._path} is not up to date: {error}"
                if problem != self.problem:
                    _log.error("store.copy_failed", error_message=problem, exc_info=not isinstance(error, StoreError))
                self.problem = problem
            await asyncio.sleep(RETRY_S)

    async def _copy(self) -> None:
        copy = await self._open_sound()
        beside = [asyncio.create_task(each) for each in (self._copy_observed(copy), self._collect(copy))]
        try:
            self._heads = await copy.query(copy_rows.heads)
            await self._follow(copy)
        finally:
            for task in beside:
                task.cancel()
            await asyncio.gather(*beside, return_exceptions=True)
            await copy.close()

    async def _open_sound(self) -> CopyFile:
        """The file, or a new one in place of one that is damaged. Raises ``StoreError``."""
        copy = CopyFile(self._path)
        try:
            await copy.open()
            damage = await copy.query(copy_rows.find_damage)
        except CorruptError as error:
            damage = str(error)
        if damage:
            _log.error("store.copy_damaged", error_message=f"{self._path} is made anew: {damage}")
            await copy.close()
            for path in self._path.parent.glob(f"{self._path.name}*"):
                path.unlink()
            await copy.open()
        return copy

    async def _follow(self, copy: CopyFile) -> None:
        async for items in self._source.watch():
            if isinstance(items[0], Reset):
                await self._copy_everything(copy)
            else:
                await self._copy_items(copy, items)
            newest = items[-1].cursor
            await copy.write(partial(copy_rows.put_cursor, cursor=newest))
            self.problem, self.copied_s, self.copied_cursor = "", self._clock(), newest
            await asyncio.sleep(PAUSE_S)  # what is committed meanwhile comes in one piece

    async def _copy_everything(self, copy: CopyFile) -> None:
        heads, kept = await self._source.query(copy_rows.heads), self._kept()
        for group in self._heads.keys() - heads.keys():
            await copy.write(partial(copy_rows.remove_group, name=group))
        for group, head in heads.items():
            if self._heads.get(group) != head:
                known = self._heads.get(group)
                goes_back = known is not None and known.revision >= head.revision
                if not (goes_back and self._source.condition().behind):  # else it is kept until somebody decides
                    await self._copy_group(copy, group, kept, anew=goes_back)
        stored, copied = await self._source.query(copy_rows.documents), await copy.query(copy_rows.documents)
        changed = {key: each for key, each in stored.items() if copied.get(key) != each}
        await copy.write(partial(copy_rows.put_documents, put=changed, delete=copied.keys() - stored.keys()))

    async def _copy_items(self, copy: CopyFile, items: Sequence[WatchItem]) -> None:
        groups, documents = dict[str, None](), dict[tuple[str, str], CopiedDocument]()
        for item in items:
            match item:
                case GroupCommitted():
                    groups[item.head.group] = None
                case DocumentChanged() if item.kind not in {SKIPPED, OBSERVED}:
                    documents[item.kind, item.id] = CopiedDocument(item.body, item.revision)
        await copy.write(partial(copy_rows.put_documents, put=documents))
        kept = self._kept()
        for group in groups:
            await self._copy_group(copy, group, kept)

    async def _copy_group(self, copy: CopyFile, group: str, kept: Kept, *, anew: bool = False) -> None:
        known = self._heads.pop(group, None)
        since, now_s = known if not anew else None, self._clock()
        news = await self._source.query(lambda connection: copy_rows.news_of(connection, group, since, kept, now_s))
        if news is None:
            return
        async with copy.no_collection():  # which deletes bodies that no row names yet
            missing = await copy.query(partial(copy_rows.missing, hashes=news.hashes()))
            blobs = [each.hex() for each in missing]
            for at in range(0, len(blobs), BLOBS_AT_ONCE):
                some = await self._source.blobs(blobs[at : at + BLOBS_AT_ONCE])
                await copy.write(partial(copy_rows.put_blobs, blobs=some))
            is_put = await copy.put_group(news)
        if is_put:
            self._heads[group] = news.head
        else:
            await self._copy_group(copy, group, kept, anew=True)

    async def _copy_observed(self, copy: CopyFile) -> None:
        """Copy what is observed: the watch does not tell its changes."""
        while True:
            with suppress(StoreError):
                await copy_changed(self._source, copy)
            await asyncio.sleep(OBSERVED_EVERY_S)

    async def _collect(self, copy: CopyFile) -> None:
        """Delete what the copy need not keep any more."""
        while True:
            await asyncio.sleep(COLLECT_EVERY_S)
            kept = self._kept()
            policy = Retention(
                kept.revisions + 1,
                kept.seconds,
                kept.limit + 1,
                history_s=kept.seconds,
                history_limit=kept.limit + 1,
                pinned={group: (revision,) for group, revision in kept.pinned.items()},
                endpoint_revisions=kept.limit + 1,
                endpoint_lines=kept.limit + 1,
            )
            with suppress(StoreError):
                await copy.collect(policy, self._clock())


async def copy_changed(source: SqlStore, copy: CopyFile) -> None:
    """Copy open NACKs and the last good sets of sources, as far as they differ."""
    nacks, copied_nacks = await source.nacks(), await copy.nacks()
    if nacks != copied_nacks:
        gone = {each.id for each in copied_nacks} - {each.id for each in nacks}
        await copy.put_nacks(_new(nacks, copied_nacks), gone)
    records, copied = await source.observed(), await copy.observed()
    if records != copied:
        left = {(each.source, each.service) for each in copied} - {(each.source, each.service) for each in records}
        await copy.put_observed(_new(records, copied), left)


def _new(stored: Sequence[Observed], copied: Collection[Observed]) -> list[Observed]:
    known = set(copied)
    return [each for each in stored if each not in known]
