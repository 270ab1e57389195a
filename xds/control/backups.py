"""Backups of a running server: one archive of all that is desired state, and the way back (`archive_file`).

What of a store on disk is sound, and an archive of that (`xds.store.sqlite.salvage`); without a server.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import IO

import structlog

import xds
from xds.codec.record import load_record
from xds.control import backup_archive
from xds.control.assignments import Assignments
from xds.control.audit import UNKNOWN_CALLER, Caller
from xds.control.backup_archive import ArchiveHeader, ArchiveWriter, CheckedArchive
from xds.control.publisher import Publisher
from xds.control.push import check_group_name
from xds.control.watched_directory import WatchedDirectory
from xds.model.errors import ValidationError, Violation
from xds.store.base import CorruptError, Store, UnavailableError
from xds.store.engines import SQLITE_FILE
from xds.store.records import GROUPS
from xds.store.sqlite.salvage import SalvageResult, examine

RESTORED = "backup.restored"
LONGEST_S = 3600.0  # the store collects nothing meanwhile

_log = structlog.get_logger(logger_name="xds.control.backups")


@dataclass(frozen=True, slots=True)
class BackupOptions:
    """``history``: earlier revisions too. ``redacted``: without secrets; it cannot be restored then."""

    history: bool = True
    redacted: bool = False


@dataclass(frozen=True, slots=True)
class RestoreResult:
    """What was in the archive, and the groups whose watched files are applied over it again."""

    checked: CheckedArchive
    watched: tuple[str, ...] = ()


class Backups:
    """Makes one backup or restore at a time. ``made`` and ``failed`` count backups, ``restored`` restores.

    ``last_s`` is when the last one was made, since the epoch, and ``last_bytes`` its size; 0 before the first.
    """

    def __init__(
        self,
        store: Store,
        publisher: Publisher,
        assignments: Assignments,
        watched: WatchedDirectory | None = None,
    ) -> None:
        self.made = 0
        self.failed = 0
        self.restored = 0
        self.last_s = 0.0
        self.last_bytes = 0
        self._store = store
        self._publisher = publisher
        self._assignments = assignments
        self._watched = watched
        self._busy = False

    async def stream(self, options: BackupOptions) -> AsyncGenerator[bytes, None]:
        """The bytes of an archive, as of the moment of the call; pushes go on meanwhile.

        Raises ``UnavailableError`` while another is under way, and after ``LONGEST_S``; ``StoreError``.
        """
        self._begin()
        began_s, size = time.monotonic(), 0
        try:
            writer = ArchiveWriter(ArchiveHeader(xds.__version__, time.time(), options.history, options.redacted))
            made = writer.begin()
            size += len(made)
            yield made
            async with aclosing(self._store.dump(options.history)) as batches:
                async for batch in batches:
                    made = await asyncio.to_thread(writer.add, batch)
                    size += len(made)
                    if made:
                        yield made
                    if time.monotonic() - began_s > LONGEST_S:
                        raise UnavailableError(f"the backup was not read within {LONGEST_S:g} seconds")
            made = writer.end()
            size += len(made)
            yield made
            self.made, self.last_s, self.last_bytes = self.made + 1, time.time(), size
            _log.info("backup.made", bytes=size, duration_ms=round((time.monotonic() - began_s) * 1000))
        except BaseException as error:
            self.failed += 1
            _log.warning("backup.failed", error_message=str(error) or type(error).__name__)
            raise
        finally:
            self._busy = False

    async def restore(
        self, file: IO[bytes], *, replace: bool = False, dry_run: bool = False, by: Caller = UNKNOWN_CALLER
    ) -> RestoreResult:
        """Put what an archive holds in place of all there is, and serve it; all of it or nothing.

        The audit list is added to: with a line that says who did so. A watched directory says what its groups are to
        hold: it is applied again, as at a start.

        Everything is verified first. Raises ``ValidationError`` for what is no whole archive, ``ConflictError`` where
        the server is not empty and ``replace`` is not said, ``UnavailableError``, ``StoreError``.
        """
        self._begin()
        try:
            checked = await asyncio.to_thread(_verified, file)
            watched = self._watched.groups if self._watched is not None else ()
            if not dry_run:
                await self._restore(file, checked, replace, by)
            return RestoreResult(checked, watched)
        finally:
            self._busy = False

    async def _restore(self, file: IO[bytes], checked: CheckedArchive, replace: bool, by: Caller) -> None:
        # Once the store has it, it is served, whether the caller waits or not.
        work = asyncio.ensure_future(self._replaced(file, checked, replace, by))
        try:
            await asyncio.shield(work)
        except asyncio.CancelledError:
            await asyncio.wait((work,))
            raise

    async def _replaced(self, file: IO[bytes], checked: CheckedArchive, replace: bool, by: Caller) -> None:
        publisher = self._publisher
        async with publisher.gate.alone(), publisher.settings.lock, publisher.policies.lock:
            old = {"groups": {head.group: head.revision for head in await self._store.groups()}}
            note = by.note(RESTORED, old=old, new={**asdict(checked.about), **checked.counts})
            try:
                await self._store.restore(partial(backup_archive.records, file), replace=replace, note=note)
            except CorruptError as error:
                raise ValidationError([Violation("invalid_archive", str(error))]) from None
            await publisher.reload()
            watched: tuple[str, ...] = ()
            if self._watched is not None:
                self._watched.apply_again()
                watched = self._watched.groups
        await self._assignments.reload()
        self.restored += 1
        publisher.journal.restored(checked.counts, checked.about.release, watched, by, time.time())

    def _begin(self) -> None:
        if self._busy:
            raise UnavailableError("a backup or a restore is under way; one is made at a time")
        self._busy = True


def _verified(file: IO[bytes]) -> CheckedArchive:
    """Raises ``ValidationError``."""
    checked = backup_archive.check(file)
    found = backup_archive.restorable(checked)
    if found:
        raise ValidationError(list(found))
    for kind, values in backup_archive.records(file):
        if kind != GROUPS.name:
            break
        check_group_name(values[0])
    return checked


_RECORDS_AT_A_TIME = 1_000


def examine_directory(data_dir: Path) -> SalvageResult:
    """Look at the store of a data directory. Raises ``StoreError``."""
    return examine(data_dir / SQLITE_FILE, _fits)


def archived(found: SalvageResult, now_s: float) -> Iterator[bytes]:
    """The bytes of an archive with all that is sound."""
    writer = ArchiveWriter(ArchiveHeader(xds.__version__, now_s, history=False))
    yield writer.begin()
    for start in range(0, len(found.records), _RECORDS_AT_A_TIME):
        yield writer.add(found.records[start : start + _RECORDS_AT_A_TIME])
    yield writer.end()


def _fits(type_url: str, name: str, body: bytes) -> bool:
    try:
        found = load_record(body)
    except ValidationError:
        return False
    return (found.type_url, found.name) == (type_url, name)
