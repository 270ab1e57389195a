"""A directory of snapshot files whose changes are pushed: each file, or subdirectory with its files, is one group.

Applying files has the effect of a ``PUT`` of the same resources. Invalid files are reported with the place of the error
and leave the group unchanged. A push by the API stays in effect until the files change, a backup is restored, or the
server restarts. Files that cannot be applied are listed for ``xds check``, events and a metric until they are applied.

Of several servers of a store, the holder of the lease applies the files. The next holder applies all of them again, as
after a restart.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from time import time

import structlog
from watchfiles import awatch

from xds.access.caller import SERVER, Caller
from xds.codec.crosscheck import check_unique
from xds.codec.document import TEXT_LIMIT
from xds.codec.findings import Findings
from xds.codec.regular_file import read_regular
from xds.codec.resources import DecodedPush, ResourceDecoder
from xds.codec.snapshot_directory import files_by_group
from xds.model.errors import ValidationError, Violation, XdsError
from xds.model.resource import Resource
from xds.push.journal import PushJournal
from xds.push.publisher import Publisher
from xds.push.request import PushOptions
from xds.store.base import LeaseLostError, Meta, UnavailableError
from xds.tasks.lifecycle import BackgroundTask, HoldsLease, alone
from xds.tasks.threads import run_detached

FILES_LIMIT = 10_000
AUTHOR = "watch"
DEBOUNCE_MS = 300  # an editor or a checkout writes many files, and a file in several steps
RESCAN_MS = 1_000  # for file systems that do not report changes, and to retry pushes that the store refused
FINDINGS_LOGGED = 20

Stamp = tuple[tuple[str, int, int, int], ...]  # per file: path, inode, size, modification time in ns

_log = structlog.get_logger(logger_name="xds.push.directory")


@dataclass(frozen=True, slots=True)
class AppliedFiles:
    """The applied files of a group. `WatchedDirectory.apply_again` increases ``round``."""

    stamp: Stamp
    round: int


@dataclass(frozen=True, slots=True)
class GroupFiles:
    """The files of one group. ``stamp`` changes when one of them does."""

    files: tuple[Path, ...]
    stamp: Stamp


class WatchedDirectory:
    """Applies the files of ``root`` at the start and whenever they change.

    With ``prune`` a group is deleted when its files are deleted, even while nodes are connected. If the directory has
    no file at all, nothing is deleted: then the directory is probably not mounted.
    """

    def __init__(
        self,
        publisher: Publisher,
        root: Path,
        *,
        prune: bool,
        decoder: ResourceDecoder,
        holds_lease: HoldsLease = alone,
    ) -> None:
        self._publisher = publisher
        self._root = root
        self._prune = prune
        self._decoder = decoder
        self.holds_lease = holds_lease
        self.refused = RefusedFilesTable(publisher.journal)
        self.groups: tuple[str, ...] = ()  # with files
        self._applied: dict[str, AppliedFiles] = {}
        self._round = 0
        self._task = BackgroundTask()

    async def start(self) -> None:
        """Apply all files, then watch them. Raises ``OSError`` when the directory cannot be read."""
        files_by_group = await run_detached(scan, self._root)
        await self._apply(files_by_group)
        self._task.start(self._watch())

    async def close(self) -> None:
        """Stop watching. A push in progress is completed."""
        await self._task.stop()

    @property
    def root(self) -> Path:
        """The watched directory."""
        return self._root

    def apply_again(self) -> None:
        """Push all files again, within `RESCAN_MS`: the groups no longer have the applied resources."""
        self._round += 1

    async def _watch(self) -> None:
        while True:
            try:
                await self._follow()
            except Exception as error:  # a bug must not end the watch silently
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
                await self._apply(await run_detached(scan, self._root))
            except OSError as error:
                _log.warning("directory.unreadable", path=str(self._root), error_message=str(error))
                self.refused.refuse("", (str(self._root),), error, time())
            else:
                self.refused.accept("", time())

    async def _apply(self, files_by_group: Mapping[str, GroupFiles]) -> None:
        self.groups = tuple(sorted(files_by_group))
        if not self.holds_lease():
            for group in self.refused.forget():
                self._applied.pop(group, None)
            return
        for group, present in files_by_group.items():
            now = AppliedFiles(present.stamp, self._round)
            if self._applied.get(group) != now and await self._push(group, present):
                self._applied[group] = now
        for group in self._applied.keys() - files_by_group.keys():
            await self._remove(group, is_all=not files_by_group)
        for refused in [each for each in self.refused if each.group and each.group not in files_by_group]:
            self.refused.accept(refused.group, time())

    async def _push(self, group: str, present: GroupFiles) -> bool:
        """Apply the files of a group; False when it has to be retried."""
        files = tuple(str(file.relative_to(self._root)) for file in present.files[:FILES_SHOWN])
        meta = Meta(AUTHOR, ", ".join(files), actor=SERVER)
        try:
            pushed = await run_detached(_read, self._root, present.files, self._decoder)
            options = PushOptions(meta=meta, may_write=self.holds_lease)
            result = await self._publisher.push(
                group, pushed.resources, label=pushed.label, labels=pushed.labels, options=options
            )
        except ValidationError as error:
            self._refuse(group, files, error)
            _log_findings(group, error.violations)
        except LeaseLostError:
            return False  # the next holder applies all files
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
        codes = {one.code for one in error.violations} if isinstance(error, ValidationError) else set()
        reason = ", ".join(sorted(codes)) or type(error).__name__
        self._publisher.audit.refused(Caller(SERVER, AUTHOR), "watched directory", group, reason)

    async def _remove(self, group: str, is_all: bool) -> None:
        """Delete a group whose files were deleted, if ``prune`` says so. ``is_all``: no group has files any more."""
        if not self._prune or is_all:
            _log.warning("directory.group_kept", group=group, path=str(self._root), is_empty=is_all)
            del self._applied[group]
            return
        try:
            meta = Meta(AUTHOR, "files gone", actor=SERVER)
            options = PushOptions(meta=meta, allow_empty=True, may_write=self.holds_lease)
            await self._publisher.delete_group(group, options)
        except UnavailableError as error:
            _log.warning("directory.later", group=group, error_message=str(error))
            return
        except XdsError as error:
            _log.warning("directory.not_pruned", group=group, error_message=str(error))
        else:
            _log.info("directory.pruned", group=group)
        del self._applied[group]


def scan(root: Path) -> dict[str, GroupFiles]:
    """The files of each group (`files_by_group`). Raises ``OSError``."""
    files = files_by_group(root)
    if sum(map(len, files.values())) > FILES_LIMIT:
        raise OSError(f"{root}: more than {FILES_LIMIT} files")
    return {group: GroupFiles(tuple(group_files), _stamp(group_files)) for group, group_files in files.items()}


def _stamp(files: list[Path]) -> Stamp:
    states = []
    for file in files:
        try:
            state = file.stat()
        except OSError:  # deleted since the scan; the next scan sees that
            continue
        states.append((str(file), state.st_ino, state.st_size, state.st_mtime_ns))
    return tuple(states)


def _read(root: Path, files: tuple[Path, ...], decoder: ResourceDecoder) -> DecodedPush:
    """The files of a group as one push. Raises ``OSError``, ``ValidationError`` with the findings in all files.

    Each is a regular file within ``root``.
    """
    resources: list[Resource] = []
    labels: dict[str, str] = {}
    label = ""
    violations: list[Violation] = []
    warnings: list[Violation] = []
    for file in files:
        try:
            pushed = decoder.document(read_regular(file, TEXT_LIMIT, root).data, source=str(file))
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
    for one in violations[:FINDINGS_LOGGED]:
        _log.error("directory.refused", group=group, **_fields(one), error_code=one.code, hint=one.hint)


def _warn(group: str, warnings: tuple[Violation, ...]) -> None:
    for one in warnings[:FINDINGS_LOGGED]:
        _log.warning("directory.warning", group=group, **_fields(one))


def _fields(one: Violation) -> dict[str, str]:
    return {"source": one.source, "resource": one.resource, "pointer": one.pointer, "error_message": one.detail}


DETAIL_LIMIT = 1_000
FILES_SHOWN = 3


@dataclass(frozen=True, slots=True)
class RefusedFiles:
    """Files that cannot be applied since ``since_s`` (epoch seconds). ``detail`` is the first of ``findings`` reasons.

    ``group`` is empty if the directory itself cannot be read. ``source`` is the file and position, if known.
    """

    group: str
    files: tuple[str, ...]
    since_s: float
    detail: str
    source: str = ""
    findings: int = 1

    def has_same_reason(self, other: RefusedFiles | None) -> bool:
        """Whether the files of ``other`` were refused for the same reason."""
        return other is not None and (self.detail, self.source, self.findings) == (
            other.detail,
            other.source,
            other.findings,
        )


class RefusedFilesTable:
    """The refused files by group. Each change is recorded as an event."""

    def __init__(self, journal: PushJournal) -> None:
        self._journal = journal
        self._refused: dict[str, RefusedFiles] = {}

    def __iter__(self) -> Iterator[RefusedFiles]:
        """The refused files, ordered by group."""
        return iter([self._refused[group] for group in sorted(self._refused)])

    def __len__(self) -> int:
        return len(self._refused)

    def refuse(self, group: str, files: tuple[str, ...], error: Exception, now: float) -> None:
        """The files of a group could not be applied."""
        before = self._refused.get(group)
        since_s = before.since_s if before is not None else now
        refused = _refused(group, files[:FILES_SHOWN], since_s, error)
        self._refused[group] = refused
        if not refused.has_same_reason(before):
            source = refused.source or ", ".join(refused.files)
            self._journal.files_refused(group, source, refused.detail, refused.findings, now)

    def forget(self) -> list[str]:
        """Forget all: another server applies the files. Returns the groups."""
        groups = list(self._refused)
        self._refused.clear()
        return groups

    def accept(self, group: str, now: float) -> None:
        """The files are applied or deleted."""
        if self._refused.pop(group, None) is not None:
            self._journal.files_applied(group, now)


def _refused(group: str, files: tuple[str, ...], since_s: float, error: Exception) -> RefusedFiles:
    if isinstance(error, ValidationError) and error.violations:
        first = error.violations[0]
        return RefusedFiles(group, files, since_s, first.detail[:DETAIL_LIMIT], first.source, len(error.violations))
    return RefusedFiles(group, files, since_s, str(error)[:DETAIL_LIMIT])
