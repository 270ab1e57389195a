"""Backups of a running server, restores, and copies of what a data directory has undamaged.

A backup is one archive of all desired state (`archive`). A copy reads a store without a server, from a disk with
`xds.store.sqlite.examination`, and makes another of its undamaged groups, perhaps of another kind.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO

import structlog

from xds.access.caller import UNKNOWN_CALLER, Caller
from xds.backup import archive
from xds.backup.archive import ArchiveHeader, ArchiveWriter, CheckedArchive
from xds.backup.rollout_records import find_damages, paused
from xds.backup.stored_entries import kind_of_entry
from xds.codec.record import load_record
from xds.model.errors import ValidationError, Violation
from xds.push.directory import WatchedDirectory
from xds.push.group_names import CONFIG_ENTRIES_LINE, check_group_name
from xds.push.publisher import Publisher
from xds.settings.sections import DATABASE_SCHEMES
from xds.store.base import CorruptError, Store, UnavailableError
from xds.store.engines import SQLITE_FILE, open_store
from xds.store.records import GROUPS
from xds.store.sqlite.examination import Examination, examine
from xds.version import __version__

RESTORED = "backup.restored"
LONGEST_S = 3600.0  # of a backup: the store collects nothing meanwhile

_log = structlog.get_logger(logger_name="xds.backup.backups")


@dataclass(frozen=True, slots=True)
class BackupOptions:
    """``history`` includes earlier revisions. ``redacted`` omits secret values; such a backup cannot be restored."""

    history: bool = True
    redacted: bool = False


@dataclass(frozen=True, slots=True)
class RestoreResult:
    """The restored archive, and the groups whose watched files are applied again."""

    checked: CheckedArchive
    watched: tuple[str, ...] = ()


class Backups:
    """Makes one backup or restore at a time. ``made`` and ``failed`` count backups, ``restored`` counts restores.

    ``load_others`` loads the restored state of all that the publisher does not load.
    ``last_s`` (epoch seconds) and ``last_bytes`` are those of the last backup; 0 before the first.
    """

    def __init__(
        self,
        store: Store,
        publisher: Publisher,
        load_others: Callable[[], Awaitable[None]],
        watched: WatchedDirectory | None = None,
    ) -> None:
        self.made = 0
        self.failed = 0
        self.restored = 0
        self.last_s = 0.0
        self.last_bytes = 0
        self._store = store
        self._publisher = publisher
        self._load_others = load_others
        self._watched = watched
        self._is_busy = False

    async def stream(self, options: BackupOptions) -> AsyncGenerator[bytes, None]:
        """The bytes of an archive of the present state. Pushes are not blocked.

        Raises ``UnavailableError`` during another backup or restore, and after ``LONGEST_S``; ``StoreError``.
        """
        self._begin()
        began_s, size = time.monotonic(), 0
        try:
            writer = ArchiveWriter(ArchiveHeader(__version__, time.time(), options.history, options.redacted))
            begin = writer.begin()
            async with aclosing(self._store.dump(options.history)) as batches:
                async for batch in batches:
                    # The beginning goes with the first batch: a store that does not answer is told before any byte.
                    part, begin = begin + await asyncio.to_thread(writer.add, batch), b""
                    size += len(part)
                    if part:
                        yield part
                    if time.monotonic() - began_s > LONGEST_S:
                        raise UnavailableError(f"the backup was not read within {LONGEST_S:g} seconds")
            part = begin + writer.end()
            size += len(part)
            yield part
            self.made, self.last_s, self.last_bytes = self.made + 1, time.time(), size
            _log.info("backup.made", bytes=size, duration_ms=round((time.monotonic() - began_s) * 1000))
        except (asyncio.CancelledError, GeneratorExit):
            self.failed += 1
            _log.info("backup.failed", error_message="its reader has gone or reads nothing, or the server ends")
            raise
        except Exception as error:
            self.failed += 1
            _log.warning("backup.failed", error_message=str(error) or type(error).__name__)
            raise
        finally:
            self._is_busy = False

    async def restore(
        self, file: IO[bytes], *, replace: bool = False, dry_run: bool = False, by: Caller = UNKNOWN_CALLER
    ) -> RestoreResult:
        """Replace the whole state by that of an archive, and publish it; all or nothing.

        The audit list is kept and gets an entry about the restore. The files of a watched directory are applied again,
        as at the start.

        The archive is verified first. Raises ``ValidationError`` for an invalid archive, ``ConflictError`` when the
        server is not empty and ``replace`` is False, ``UnavailableError``, ``StoreError``.
        """
        self._begin()
        try:
            checked = await asyncio.to_thread(_verified, file)
            watched = self._watched.groups if self._watched is not None else ()
            if not dry_run:
                await self._restore(file, checked, replace, by)
            return RestoreResult(checked, watched)
        finally:
            self._is_busy = False

    async def _restore(self, file: IO[bytes], checked: CheckedArchive, replace: bool, by: Caller) -> None:
        # Once the store has committed the restore, it is published even if the caller is cancelled.
        work = asyncio.ensure_future(self._replaced(file, checked, replace, by))
        try:
            await asyncio.shield(work)
        except asyncio.CancelledError:
            await asyncio.wait((work,))
            raise

    async def _replaced(self, file: IO[bytes], checked: CheckedArchive, replace: bool, by: Caller) -> None:
        publisher = self._publisher
        async with publisher.stored.all_locked():
            heads = {head.group: head.revision for head in await self._store.groups()}
            entries = heads.pop(CONFIG_ENTRIES_LINE, 0)
            old = {"groups": heads, **({"config_entries": entries} if entries else {})}
            note = by.note(RESTORED, old=old, new={**asdict(checked.about), **checked.counts})
            try:
                await self._store.restore(lambda: paused(archive.records(file)), replace=replace, note=note)
            except CorruptError as error:
                raise ValidationError([Violation("invalid_archive", str(error))]) from None
            await publisher.following.note_restored()
            await publisher.reload()
            watched: tuple[str, ...] = ()
            if self._watched is not None:
                self._watched.apply_again()
                watched = self._watched.groups
        await self._load_others()
        self.restored += 1
        publisher.journal.restored(checked.counts, checked.about.release, watched, by, time.time())

    def _begin(self) -> None:
        if self._is_busy:
            raise UnavailableError("a backup or a restore is in progress; only one runs at a time")
        self._is_busy = True


def _verified(file: IO[bytes]) -> CheckedArchive:
    """The archive, if it can be restored. Raises ``ValidationError``."""
    checked = archive.check(file)
    findings = archive.why_not_restorable(checked)
    if findings:
        raise ValidationError(list(findings))
    for kind, values in archive.records(file):
        if kind != GROUPS.name:
            break
        if values[0] != CONFIG_ENTRIES_LINE:
            check_group_name(values[0])
    return checked


def examine_directory(data: Path) -> Examination:
    """Examine the store of a data directory, or a store file. Raises ``StoreError``."""
    examination = examine(data if data.is_file() else data / SQLITE_FILE, _is_resource)
    examination.findings += find_damages(examination.records)
    return examination


async def copy_store(source: str, target: str) -> Examination:
    """Make a store at ``target`` of what ``source`` has undamaged. Each is a data directory or the URL of a database.

    ``source`` may be a store file, such as the copy of a database. No server may use either. Raises ``StoreError``, and
    ``ConflictError`` if ``target`` is not empty.
    """
    if is_database(source):
        examination = await _dumped(source)
    else:
        examination = await asyncio.to_thread(examine_directory, Path(source))
    if not is_database(target) and (Path(target) / SQLITE_FILE).exists():
        raise UnavailableError(f"{target} has a store already: nothing is copied over it")
    async with _opened(target) as store:
        await store.restore(lambda: iter(examination.records))
    return examination


async def rotate_secret(url: str) -> None:
    """Make a new secret for the servers of a database, which may run. Raises ``StoreError``, ``ValueError``."""
    async with _opened(url) as store:
        register = store.register()
        if register is not None:
            await register.rotate_secret()


def is_database(place: str) -> bool:
    """Whether it is the URL of a database, and no data directory."""
    return place.startswith(DATABASE_SCHEMES)


async def _dumped(url: str) -> Examination:
    """All that a database has: what is damaged in it is its administrator's matter, and raises."""
    examination = Examination()
    async with _opened(url) as store:
        async for batch in store.dump():
            examination.records += batch
    for kind, values in examination.records:
        if kind == GROUPS.name:
            name, revision, is_live, _ = values
            examination.groups[name] = f"intact at revision {revision}" if is_live else "deleted"
    return examination


@asynccontextmanager
async def _opened(place: str) -> AsyncIterator[Store]:
    kind = "postgres" if is_database(place) else "sqlite"
    store = open_store(kind, Path(place), url=place)
    await store.open()
    try:
        yield store
    finally:
        await store.close()


def _is_resource(type_url: str, name: str, body: bytes) -> bool:
    if kind := kind_of_entry(body):
        return kind == type_url
    try:
        resource = load_record(body)
    except ValidationError:
        return False
    return (resource.type_url, resource.name) == (type_url, name)
