"""Target files as a source: watched, and read when they have changed and rest.

A file with errors, or one that cannot be read, keeps the instances that were read last. If a file is deleted, its
instances are removed. But if a directory or a glob has no file left at all, or a file that is named itself is missing,
it is probably not mounted, and the instances that were read last stay.
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

from xds.catalog.instance import Instance
from xds.catalog.source import Sink
from xds.model.errors import ValidationError, Violation
from xds.sources.target_files import FILE_LIMIT_BYTES, Content, read_targets

SUFFIXES = frozenset({".json", ".yaml", ".yml"})
FILES_LIMIT = 10_000
REST_S = 0.2  # a file is read when it has not changed for this long: it may be written in several steps
PATIENCE_S = 2.0  # changes of several files are taken over together if they all rest within this time
RESTLESS_S = 10.0  # a file that has been changing for this long is reported
DEBOUNCE_MS = 50

Stamp = tuple[int, int, int]  # inode, size, modification time in ns


@dataclass(slots=True)
class _File:
    """A target file that ``entry`` of the settings named.

    ``stamp`` is that of the last look, ``read`` that of the content that was read. ``changes_since`` is when it was
    seen to change first since it was read (monotonic seconds).
    """

    entry: Path
    stamp: Stamp
    changes_since: float
    is_resting: bool = False  # the last two looks saw the same stamp
    read: Stamp | None = None
    content: Content | None = None  # the last one without errors
    findings: tuple[Violation, ...] = ()
    is_unreadable: bool = False  # it is tried again at each look: a right that is granted changes no stamp


@dataclass(slots=True)
class _Look:
    """The files that were found at one look, each with its entry; and why entries have none."""

    files: dict[Path, tuple[Path, Stamp]] = field(default_factory=dict)
    missing: dict[Path, str] = field(default_factory=dict)


class FilesSource:
    """``paths`` are files, directories (their ``.json``, ``.yaml`` and ``.yml`` files) and globs.

    Changes are seen at once where the file system reports them, and else within ``rescan_s``. ``service_label`` is for
    files in Prometheus' form: `read_targets`.
    """

    kind = "files"

    def __init__(self, name: str, paths: Sequence[Path], *, service_label: str = "job", rescan_s: float = 2.0) -> None:
        self._name = name
        self._paths = tuple(paths)
        self._service_label = service_label
        self._rescan_s = rescan_s

    @property
    def name(self) -> str:
        """As in `Source`."""
        return self._name

    async def run(self, sink: Sink) -> None:
        """As in `Source`."""
        reading = _Reading(self._paths, self._service_label, sink)
        while True:
            is_restless = await reading.look()
            if is_restless:
                await asyncio.sleep(REST_S)
            else:
                await self._change(reading.directories())

    async def _change(self, directories: Sequence[Path]) -> None:
        """Returns when something changes in the directories, and after ``rescan_s``."""
        if not directories:
            await asyncio.sleep(self._rescan_s)
            return
        try:
            await self._reported_change(directories)
        except (OSError, RuntimeError):  # a directory is gone, or the system allows no more watches
            await asyncio.sleep(self._rescan_s)

    async def _reported_change(self, directories: Sequence[Path]) -> None:
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


class _Reading:
    """What one run of the source has read."""

    def __init__(self, paths: Sequence[Path], service_label: str, sink: Sink) -> None:
        self._paths = paths
        self._service_label = service_label
        self._sink = sink
        self._files: dict[Path, _File] = {}
        self._affected: set[str] = set()  # the services that may have changed since the sink was told
        self._shown: dict[str, tuple[Instance, ...]] = {}
        self._has_all = False
        self._restless_since = inf  # monotonic seconds; infinite while all files rest

    def directories(self) -> list[Path]:
        """The directories in which changes matter."""
        found = {path.parent for path in self._files} | set(map(_base, self._paths))
        return sorted(path for path in found if path.is_dir())

    async def look(self) -> bool:
        """Read what has changed and rests, and tell the sink. True: a file changes at present, so look again soon."""
        try:
            seen = await asyncio.to_thread(_look, self._paths)
        except OSError as error:
            self._sink.failed(str(error))
            return False
        for path in [path for path, file in self._files.items() if _is_gone(path, file, seen)]:
            self._affected.update(self._files.pop(path).content or ())
        now = monotonic()
        for path, (entry, stamp) in seen.files.items():
            self._note(path, entry, stamp, now)
        resting = [path for path in seen.files if self._files[path].is_resting]
        if len(resting) == len(seen.files) or not self._is_early(now):
            for path in resting:
                await self._read(path, self._files[path])
        is_restless = any(self._files[path].read != stamp for path, (_, stamp) in seen.files.items())
        if not is_restless:
            self._restless_since = inf
        elif self._is_early(now):
            self._restless_since = min(self._restless_since, now)
            return True
        await self._tell(seen, now)
        return is_restless

    def _is_early(self, now: float) -> bool:
        """Whether the files have not been changing for long: then nothing is taken over before all of them rest.

        An instance that moves from one file to another would otherwise be gone as long as the other is written.
        """
        return now - min(self._restless_since, now) < PATIENCE_S

    def _note(self, path: Path, entry: Path, stamp: Stamp, now: float) -> None:
        """Remember the stamp of a file, and since when it changes."""
        file = self._files.setdefault(path, _File(entry, (0, 0, 0), now))
        file.is_resting = file.stamp == stamp
        if file.read == file.stamp:
            file.changes_since = now
        file.stamp = stamp

    async def _read(self, path: Path, file: _File) -> None:
        """Read a file that rests, if it has changed since it was read."""
        if file.read == file.stamp and not file.is_unreadable:
            return
        try:
            data, stamp = await asyncio.to_thread(_contents, path)
            if stamp != file.stamp:
                return  # it changes after all
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

    async def _tell(self, seen: _Look, now: float) -> None:
        """Tell the sink what has changed, what is wrong, and that the files were read."""
        findings = list(self._findings(seen, now))
        self._sink.rejected(findings)
        files = self._files
        if not any(files[path].content is not None and not files[path].findings for path in seen.files):
            if findings:
                self._sink.failed(str(findings[0]))
            return
        if not self._has_all and not seen.missing and all(file.content is not None for file in files.values()):
            self._has_all = True
            self._affected.clear()
            services = {service for file in files.values() for service in file.content or ()}
            self._shown = await asyncio.to_thread(self._merged, services)
            self._sink.replace(self._shown)
        elif not await self._put():
            self._sink.alive()

    def _findings(self, seen: _Look, now: float) -> Iterator[Violation]:
        for entry, told in seen.missing.items():
            yield Violation("no_files", told, source=str(entry))
        for path in sorted(self._files):
            file = self._files[path]
            yield from file.findings
            if file.read != file.stamp and now - file.changes_since > RESTLESS_S:
                told = f"has been changing for {now - file.changes_since:.0f} s, so it is not read"
                hint = "write another file and rename it"
                yield Violation("restless", told, source=str(path), hint=hint)

    async def _put(self) -> bool:
        """Put the services that have changed. True if any has."""
        affected, self._affected = self._affected, set()
        changed, merged = await asyncio.to_thread(self._changed, affected)  # there may be a million instances
        for service in changed:
            if service in merged:
                self._shown[service] = merged[service]
                self._sink.put(service, merged[service])
            elif self._has_all:  # before, a file that is not read yet may have it
                del self._shown[service]
                self._sink.remove(service)
        return bool(changed)

    def _changed(self, affected: Iterable[str]) -> tuple[list[str], dict[str, tuple[Instance, ...]]]:
        """Those of these services that are other than shown, and what all of them are now."""
        merged = self._merged(affected)
        return [name for name in sorted(affected) if merged.get(name) != self._shown.get(name)], merged

    def _merged(self, services: Iterable[str]) -> dict[str, tuple[Instance, ...]]:
        """The instances of these services in all files. Of two with one id, the first counts."""
        found: dict[str, dict[str, Instance]] = {}
        wanted = set(services)
        for path in sorted(self._files):
            content: Mapping[str, tuple[Instance, ...]] = self._files[path].content or {}
            for service in content.keys() & wanted:
                by_id = found.setdefault(service, {})
                for one in content[service]:
                    by_id.setdefault(one.id, one)
        return {service: tuple(by_id.values()) for service, by_id in found.items()}


def _is_gone(path: Path, file: _File, seen: _Look) -> bool:
    """Whether a file is deleted, and not with all files of its entry."""
    return path not in seen.files and file.entry not in seen.missing


def _look(paths: Sequence[Path]) -> _Look:
    """The files of all entries. Raises ``OSError`` for too many, and if a directory cannot be read."""
    look = _Look()
    for entry in paths:
        found = {path: (entry, stamp) for path in _files_of(entry) if (stamp := _stamp(path)) is not None}
        look.files = found | look.files
        if not found:
            look.missing[entry] = _missing(entry)
        if len(look.files) > FILES_LIMIT:
            raise OSError(f"{entry}: more than {FILES_LIMIT} files")
    return look


def _missing(entry: Path) -> str:
    if has_magic(str(entry)):
        return "no file matches"
    return "has no target files" if entry.is_dir() else "no such file"


def _files_of(entry: Path) -> Iterable[Path]:
    if has_magic(str(entry)):
        return map(Path, sorted(glob(str(entry))))  # noqa: PTH207  the pattern is absolute or not, as it was given
    if entry.is_dir():
        return sorted(path for path in entry.iterdir() if path.suffix in SUFFIXES and not path.name.startswith("."))
    return (entry,)


def _stamp(path: Path) -> Stamp | None:
    """None if it is no file, or gone."""
    try:
        state = path.stat()
    except OSError:
        return None
    return _stamp_of(state) if S_ISREG(state.st_mode) else None


def _stamp_of(state: os.stat_result) -> Stamp:
    return state.st_ino, state.st_size, state.st_mtime_ns


def _contents(path: Path) -> tuple[bytes, Stamp]:
    """A file, and its stamp after it was read."""
    with path.open("rb") as stream:
        return stream.read(FILE_LIMIT_BYTES + 1), _stamp_of(os.fstat(stream.fileno()))


def _base(entry: Path) -> Path:
    """The directory below which the files of an entry are."""
    while has_magic(str(entry)):
        entry = entry.parent
    return entry if entry.is_dir() else entry.parent
