"""A directory of snapshot files kept applied: every file, or subdirectory with its files, is one group.

What is applied is what a ``PUT`` of the files would be. A broken file is told with its place and leaves what the group
has. Who pushes to such a group by the API wins until its files change, a backup is restored, or the server starts
again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from time import time

import structlog
from watchfiles import awatch

from xds.codec.crosscheck import check_unique
from xds.codec.findings import Findings
from xds.codec.resources import DecodedPush, ResourceDecoder
from xds.control.audit import SERVER, Caller
from xds.control.publisher import Publisher, PushOptions
from xds.control.refused_files import FILES_SHOWN, RefusedFilesTable
from xds.model.errors import ValidationError, Violation, XdsError
from xds.model.resource import Resource
from xds.store.base import Meta, UnavailableError

SUFFIXES = frozenset({".json", ".yaml", ".yml"})
FILES_LIMIT = 10_000
AUTHOR = "watch"
DEBOUNCE_MS = 300  # an editor or a checkout writes many files, and a file in many pieces
RESCAN_MS = 1_000  # not every file system tells of changes; what the store refused is tried again
FINDINGS_LOGGED = 20

Stamp = tuple[tuple[str, int, int, int], ...]  # of each file: path, inode, size, time of change in ns

_log = structlog.get_logger(logger_name="xds.control.directory")


@dataclass(frozen=True, slots=True)
class Applied:
    """What was applied of a group. ``round`` grows with ``WatchedDirectory.apply_again``."""

    stamp: Stamp
    round: int


@dataclass(frozen=True, slots=True)
class GroupFiles:
    """The files of one group, and what tells that one of them changed."""

    files: tuple[Path, ...]
    stamp: Stamp


class WatchedDirectory:
    """Applies the files of ``root`` now and whenever they change.

    With ``prune`` a group goes when its files go, even while nodes are connected; but not when no file at all is left:
    that looks more like a directory that is not mounted.
    """

    def __init__(self, publisher: Publisher, root: Path, *, prune: bool, decoder: ResourceDecoder) -> None:
        self._publisher = publisher
        self._root = root
        self._prune = prune
        self._decoder = decoder
        self.refused = RefusedFilesTable(publisher.journal)
        self._seen: dict[str, Applied] = {}
        self._round = 0
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Apply what is there, then watch. Raises ``OSError`` when the directory cannot be read."""
        found = await asyncio.to_thread(scan, self._root)
        await self._apply(found)
        self._task = asyncio.create_task(self._watch())

    async def close(self) -> None:
        """Stop watching; a push under way comes to its end."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait((self._task,))

    @property
    def root(self) -> Path:
        return self._root

    @property
    def groups(self) -> tuple[str, ...]:
        """The groups that have files."""
        return tuple(sorted(self._seen))

    def apply_again(self) -> None:
        """What the groups hold is no longer what was applied: all files are pushed anew, within `RESCAN_MS`."""
        self._round += 1

    async def _watch(self) -> None:
        while True:
            try:
                await self._follow()
            except Exception as error:  # else nobody would look at the files any more, and nobody know
                _log.exception("directory.unwatched", path=str(self._root))
                self.refused.refuse("", (str(self._root),), error, time())
            await asyncio.sleep(RESCAN_MS / 1000)

    async def _follow(self) -> None:
        async for _ in awatch(
            self._root,
            watch_filter=None,
            debounce=DEBOUNCE_MS,
            rust_timeout=RESCAN_MS,
            yield_on_timeout=True,
            ignore_permission_denied=True,
        ):
            try:
                await self._apply(await asyncio.to_thread(scan, self._root))
            except OSError as error:
                _log.warning("directory.unreadable", path=str(self._root), error_message=str(error))
                self.refused.refuse("", (str(self._root),), error, time())
            else:
                self.refused.accept("", time())

    async def _apply(self, found: Mapping[str, GroupFiles]) -> None:
        for group, there in found.items():
            now = Applied(there.stamp, self._round)
            if self._seen.get(group) != now and await self._push(group, there):
                self._seen[group] = now
        for group in self._seen.keys() - found.keys():
            await self._gone(group, is_all=not found)
        for refused in [each for each in self.refused if each.group and each.group not in found]:
            self.refused.accept(refused.group, time())

    async def _push(self, group: str, there: GroupFiles) -> bool:
        """Apply one group's files; False when that is to be tried again."""
        files = tuple(str(file.relative_to(self._root)) for file in there.files[:FILES_SHOWN])
        meta = Meta(AUTHOR, ", ".join(files), actor=SERVER)
        try:
            pushed = await asyncio.to_thread(_read, there.files, self._decoder)
            options = PushOptions(meta=meta)
            result = await self._publisher.push(
                group, pushed.resources, label=pushed.label, labels=pushed.labels, options=options
            )
        except ValidationError as error:
            self._refuse(group, files, error)
            _log_findings(group, error.violations)
        except UnavailableError as error:
            self.refused.refuse(group, files, error, time())
            _log.warning("directory.later", group=group, error_message=str(error))
            return False
        except (XdsError, OSError) as error:
            self._refuse(group, files, error)
            _log.error("directory.refused", group=group, error_message=str(error))
        else:
            self.refused.accept(group, time())
            _warn(group, (*pushed.warnings, *result.warnings))
            _log.info("directory.applied", group=group, revision=result.revision, changed=result.changed)
        return True

    def _refuse(self, group: str, files: tuple[str, ...], error: XdsError | OSError) -> None:
        self.refused.refuse(group, files, error, time())
        codes = {found.code for found in error.violations} if isinstance(error, ValidationError) else set()
        reason = ", ".join(sorted(codes)) or type(error).__name__
        self._publisher.audit.refused(Caller(SERVER, AUTHOR), "watched directory", group, reason)

    async def _gone(self, group: str, is_all: bool) -> None:
        if not self._prune or is_all:
            _log.warning("directory.group_kept", group=group, path=str(self._root), is_empty=is_all)
            del self._seen[group]
            return
        try:
            await self._publisher.delete_group(
                group, PushOptions(meta=Meta(AUTHOR, "files gone", actor=SERVER), allow_empty=True)
            )
        except UnavailableError as error:
            _log.warning("directory.later", group=group, error_message=str(error))
            return
        except XdsError as error:
            _log.warning("directory.not_pruned", group=group, error_message=str(error))
        else:
            _log.info("directory.pruned", group=group)
        del self._seen[group]


def scan(root: Path) -> dict[str, GroupFiles]:
    """The files of each group, by the name of the file (without its suffix) or of the subdirectory.

    A file and a subdirectory of one name are one group. Hidden ones are left out. Raises ``OSError``.
    """
    files: dict[str, list[Path]] = {}
    for entry in sorted(root.iterdir()):
        if entry.name.startswith("."):
            continue
        group = entry.name if entry.is_dir() else entry.stem
        for file in _files(entry):
            files.setdefault(group, []).append(file)
    if sum(map(len, files.values())) > FILES_LIMIT:
        raise OSError(f"{root}: more than {FILES_LIMIT} files")
    return {group: GroupFiles(tuple(found), _stamp(found)) for group, found in files.items()}


def _files(entry: Path) -> list[Path]:
    if not entry.is_dir():
        return [entry] if entry.suffix in SUFFIXES else []
    return sorted(
        file
        for file in entry.rglob("*")
        if file.suffix in SUFFIXES and file.is_file() and not _is_hidden(file.relative_to(entry))
    )


def _is_hidden(path: Path) -> bool:
    return any(part.startswith(".") for part in path.parts)


def _stamp(files: list[Path]) -> Stamp:
    found = []
    for file in files:
        try:
            state = file.stat()
        except OSError:  # gone since; the next look will show that
            continue
        found.append((str(file), state.st_ino, state.st_size, state.st_mtime_ns))
    return tuple(found)


def _read(files: tuple[Path, ...], decoder: ResourceDecoder) -> DecodedPush:
    """All files of a group as one push. Raises ``OSError``, ``ValidationError`` with the findings of all of them."""
    resources: list[Resource] = []
    labels: dict[str, str] = {}
    label = ""
    violations: list[Violation] = []
    warnings: list[Violation] = []
    for file in files:
        try:
            pushed = decoder.document(file.read_bytes(), source=str(file))
        except ValidationError as error:
            violations += error.violations
            continue
        resources += pushed.resources
        labels.update(pushed.labels)
        label = pushed.label or label
        warnings += pushed.warnings
    findings = Findings()
    check_unique(dict(enumerate(resources)), findings)
    if violations or findings:
        raise ValidationError([*violations, *findings.violations])
    return DecodedPush(resources, label, labels, tuple(warnings))


def _log_findings(group: str, violations: list[Violation]) -> None:
    for violation in violations[:FINDINGS_LOGGED]:
        _log.error(
            "directory.refused",
            group=group,
            source=violation.source,
            resource=violation.resource,
            pointer=violation.pointer,
            error_code=violation.code,
            error_message=violation.detail,
            hint=violation.hint,
        )


def _warn(group: str, warnings: tuple[Violation, ...]) -> None:
    for warning in warnings[:FINDINGS_LOGGED]:
        _log.warning(
            "directory.warning",
            group=group,
            source=warning.source,
            resource=warning.resource,
            pointer=warning.pointer,
            error_message=warning.detail,
        )
