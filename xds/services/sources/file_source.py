"""Target files as a source: watched, and read when they have changed and are stable.

A file with errors, or an unreadable file, keeps the instances that were read last. If a file is deleted, its instances
are removed. But if a directory or a glob has no file at all, or a file that is named itself is missing, it is probably
not mounted, and the instances that were read last stay.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from glob import glob, has_magic
from math import inf
from pathlib import Path
from stat import S_ISREG
from time import monotonic

from watchfiles import awatch

from xds.codec.regular_file import read_regular
from xds.model.errors import ValidationError, Violation
from xds.services.core.instance import Instance
from xds.services.core.source import Sink
from xds.services.sources.target_files import FILE_LIMIT_BYTES, Content, read_targets
from xds.tasks.threads import run_detached

SUFFIXES = frozenset({".json", ".yaml", ".yml"})
FILES_LIMIT = 10_000
STABLE_S = 0.2  # a file is read when it has not changed for this long, because it may be written in several steps
GATHER_S = 2.0  # changes of several files are used together if all files are stable within this time
UNSTABLE_S = 10.0  # a file that has been changing for this long is reported
DEBOUNCE_MS = 50

Stamp = tuple[int, int, int]  # inode, size, modification time in ns


@dataclass(slots=True)
class _File:
    """A target file that an ``entry`` of the settings names.

    ``stamp`` is from the last scan, ``read`` from when the content was read. ``changes_since`` is when the first change
    since then was seen (monotonic seconds).
    """

    entry: Path
    stamp: Stamp
    changes_since: float
    is_stable: bool = False  # the last two scans found the same stamp
    read: Stamp | None = None
    content: Content | None = None  # the last one without errors
    findings: tuple[Violation, ...] = ()
    is_unreadable: bool = False  # it is read again at each scan: a new permission does not change the stamp


@dataclass(slots=True)
class _Scan:
    """The files of one scan, each with its entry and stamp; and the reasons why entries have none."""

    files: dict[Path, tuple[Path, Stamp]] = field(default_factory=dict)
    missing: dict[Path, str] = field(default_factory=dict)


class FilesSource:
    """A `Source` that reads files, directories (their ``.json``, ``.yaml`` and ``.yml`` files) and globs.

    Changes are noticed at once where the file system reports them, else within ``rescan_s``. ``service_label`` is for
    files in Prometheus' form (`read_targets`).
    """

    kind = "files"

    def __init__(self, name: str, paths: Sequence[Path], *, service_label: str = "job", rescan_s: float = 2.0) -> None:
        self.name = name
        self._paths = tuple(paths)
        self._service_label = service_label
        self._rescan_s = rescan_s

    async def run(self, sink: Sink) -> None:
        """As in `Source`."""
        run = _Run(self._paths, self._service_label, sink)
        while True:
            is_unstable = await run.scan()
            if is_unstable:
                await asyncio.sleep(STABLE_S)
            else:
                await self._wait_for_change(run.directories())

    async def _wait_for_change(self, directories: Sequence[Path]) -> None:
        """Return when something changes in the directories, or after ``rescan_s``."""
        if not directories:
            await asyncio.sleep(self._rescan_s)
            return
        try:
            await self._wait_for_event(directories)
        except (OSError, RuntimeError):  # a directory was deleted, or the system allows no more watches
            await asyncio.sleep(self._rescan_s)

    async def _wait_for_event(self, directories: Sequence[Path]) -> None:
        changes = awatch(
            *directories,
            watch_filter=None,
            debounce=DEBOUNCE_MS,
            step=DEBOUNCE_MS,
            rust_timeout=max(int(self._rescan_s * 1000), 1),
            yield_on_timeout=True,
            recursive=False,
            ignore_permission_denied=True,
        )
        async with aclosing(changes):
            async for _ in changes:
                return


class _Run:
    """The files that one run of the source has read, and the instances that its sink has."""

    def __init__(self, paths: Sequence[Path], service_label: str, sink: Sink) -> None:
        self._paths = paths
        self._service_label = service_label
        self._sink = sink
        self._files: dict[Path, _File] = {}
        self._affected: set[str] = set()  # services that may have changed since the last put
        self._sent: dict[str, tuple[Instance, ...]] = {}
        self._has_all = False  # all files were read, and the sink has all services
        self._unstable_since = inf  # monotonic seconds; infinite while all files are stable

    def directories(self) -> list[Path]:
        """The directories in which changes matter."""
        folders = {path.parent for path in self._files} | set(map(_base, self._paths))
        return sorted(path for path in folders if path.is_dir())

    async def scan(self) -> bool:
        """Read the stable files that have changed, and report to the sink. True if a file is changing at present."""
        try:
            scan = await run_detached(_scan, self._paths)
        except OSError as error:
            self._sink.failed(str(error))
            return False
        for path in [path for path, file in self._files.items() if _is_deleted(path, file, scan)]:
            self._affected.update(self._files.pop(path).content or ())
        now = monotonic()
        for path, (entry, stamp) in scan.files.items():
            self._update_stamp(path, entry, stamp, now)
        stable = [path for path in scan.files if self._files[path].is_stable]
        if len(stable) == len(scan.files) or not self._may_gather(now):
            for path in stable:
                await self._read(path, self._files[path])
        is_unstable = any(self._files[path].read != stamp for path, (_, stamp) in scan.files.items())
        if not is_unstable:
            self._unstable_since = inf
        elif self._may_gather(now):
            self._unstable_since = min(self._unstable_since, now)
            return True
        await self._report(scan, now)
        return is_unstable

    def _may_gather(self, now: float) -> bool:
        """Whether to wait until all files are stable, because they began to change less than ``GATHER_S`` ago.

        Otherwise an instance that moves from one file to another would be missing while the other file is written.
        """
        return now - min(self._unstable_since, now) < GATHER_S

    def _update_stamp(self, path: Path, entry: Path, stamp: Stamp, now: float) -> None:
        """Record the stamp of a file, and since when it changes."""
        file = self._files.setdefault(path, _File(entry, (0, 0, 0), now))
        file.is_stable = file.stamp == stamp
        if file.read == file.stamp:
            file.changes_since = now
        file.stamp = stamp

    async def _read(self, path: Path, file: _File) -> None:
        """Read a stable file, if it has changed since it was last read."""
        if file.read == file.stamp and not file.is_unreadable:
            return
        try:
            data, state = await run_detached(read_regular, path, FILE_LIMIT_BYTES, _base(file.entry))
            if _stamp_of(state) != file.stamp:
                return  # it is changing again
            content = await asyncio.to_thread(read_targets, data, str(path), path.stem, self._service_label)
        except ValidationError as error:
            file.findings, file.is_unreadable = tuple(error.violations), False
        except OSError as error:
            file.findings = (Violation("unreadable", error.strerror or str(error), source=str(path)),)
            file.is_unreadable = True
        else:
            self._affected.update(file.content or (), content)
            file.content, file.findings, file.is_unreadable = content, (), False
        file.read = file.stamp

    async def _report(self, scan: _Scan, now: float) -> None:
        """Pass changes and findings to the sink, or report that the files were read without changes."""
        findings = list(self._findings(scan, now))
        self._sink.rejected(findings)
        files = self._files
        if not any(files[path].content is not None and not files[path].findings for path in scan.files):
            if findings:
                self._sink.failed(str(findings[0]))
            return
        if not self._has_all and not scan.missing and all(file.content is not None for file in files.values()):
            self._has_all = True
            self._affected.clear()
            services = {service for file in files.values() for service in file.content or ()}
            self._sent = await asyncio.to_thread(self._merge, services)
            self._sink.replace(self._sent)
        elif not await self._put():
            self._sink.alive()

    def _findings(self, scan: _Scan, now: float) -> Iterator[Violation]:
        for entry, detail in scan.missing.items():
            yield Violation("no_files", detail, source=str(entry))
        for path in sorted(self._files):
            file = self._files[path]
            yield from file.findings
            if file.read != file.stamp and now - file.changes_since > UNSTABLE_S:
                detail = f"has been changing for {now - file.changes_since:.0f} s, so it is not read"
                hint = "write another file and rename it"
                yield Violation("restless", detail, source=str(path), hint=hint)

    async def _put(self) -> bool:
        """Put the services that have changed. True if any has."""
        affected, self._affected = self._affected, set()
        changed, merged = await asyncio.to_thread(self._compare, affected)  # there may be a million instances
        for service in changed:
            if service in merged:
                self._sent[service] = merged[service]
                self._sink.put(service, merged[service])
            elif self._has_all:  # before, a file that was not read yet may have it
                del self._sent[service]
                self._sink.remove(service)
        return bool(changed)

    def _compare(self, affected: Iterable[str]) -> tuple[list[str], dict[str, tuple[Instance, ...]]]:
        """The services that differ from what the sink has, and the instances of all ``affected`` services."""
        merged = self._merge(affected)
        return [name for name in sorted(affected) if merged.get(name) != self._sent.get(name)], merged

    def _merge(self, services: Iterable[str]) -> dict[str, tuple[Instance, ...]]:
        """The instances of these services in all files. Of two with one id, the first counts."""
        merged: dict[str, dict[str, Instance]] = {}
        wanted = set(services)
        for path in sorted(self._files):
            content: Mapping[str, tuple[Instance, ...]] = self._files[path].content or {}
            for service in content.keys() & wanted:
                by_id = merged.setdefault(service, {})
                for one in content[service]:
                    by_id.setdefault(one.id, one)
        return {service: tuple(by_id.values()) for service, by_id in merged.items()}


def _is_deleted(path: Path, file: _File, scan: _Scan) -> bool:
    """Whether a file is deleted, while its entry still has other files."""
    return path not in scan.files and file.entry not in scan.missing


def _scan(paths: Sequence[Path]) -> _Scan:
    """The files of all entries. Raises ``OSError`` for too many, and if a directory cannot be read."""
    scan = _Scan()
    for entry in paths:
        stamps = {path: (entry, stamp) for path in _files_of(entry) if (stamp := _stamp(path)) is not None}
        scan.files = stamps | scan.files
        if not stamps:
            scan.missing[entry] = _missing(entry)
        if len(scan.files) > FILES_LIMIT:
            raise OSError(f"{entry}: more than {FILES_LIMIT} files")
    return scan


def _missing(entry: Path) -> str:
    if has_magic(str(entry)):
        return "no file matches"
    return "has no target files" if entry.is_dir() else "no such file"


def _files_of(entry: Path) -> Iterable[Path]:
    if has_magic(str(entry)):
        return map(Path, sorted(glob(str(entry))))  # noqa: PTH207  the pattern may be relative
    if entry.is_dir():
        return sorted(path for path in entry.iterdir() if path.suffix in SUFFIXES and not path.name.startswith("."))
    return (entry,)


def _stamp(path: Path) -> Stamp | None:
    """The stamp of a file; None if the path is not a file, or does not exist."""
    try:
        state = path.stat()
    except OSError:
        return None
    return _stamp_of(state) if S_ISREG(state.st_mode) else None


def _stamp_of(state: os.stat_result) -> Stamp:
    return state.st_ino, state.st_size, state.st_mtime_ns


def _base(entry: Path) -> Path:
    """The directory below which the files of an entry are."""
    while has_magic(str(entry)):
        entry = entry.parent
    return entry if entry.is_dir() else entry.parent
