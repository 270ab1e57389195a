"""What of a watched directory cannot be applied, until it can be: shown by ``xds check``, events, a metric."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from xds.control.journal import Journal
from xds.model.errors import ValidationError

DETAIL_LIMIT = 1_000
FILES_SHOWN = 3


@dataclass(frozen=True, slots=True)
class RefusedFiles:
    """Files that are not applied, since when (epoch seconds), and the first reason of ``findings``.

    ``group`` is empty where the directory itself cannot be read. ``source`` is the place in a file, where there is one.
    """

    group: str
    files: tuple[str, ...]
    since_s: float
    detail: str
    source: str = ""
    findings: int = 1

    def says_as(self, other: RefusedFiles | None) -> bool:
        """Is it what is known already, whatever its time?"""
        return other is not None and (self.detail, self.source, self.findings) == (
            other.detail,
            other.source,
            other.findings,
        )


class RefusedFilesTable:
    """What is refused now, by group; each change of it is an event."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._refused: dict[str, RefusedFiles] = {}

    def __iter__(self) -> Iterator[RefusedFiles]:
        """By group."""
        return iter([self._refused[group] for group in sorted(self._refused)])

    def __len__(self) -> int:
        return len(self._refused)

    def refuse(self, group: str, files: tuple[str, ...], error: Exception, now: float) -> None:
        """The files of a group could not be applied."""
        before = self._refused.get(group)
        since_s = before.since_s if before is not None else now
        made = _refused(group, files[:FILES_SHOWN], since_s, error)
        self._refused[group] = made
        if not made.says_as(before):
            self._journal.files_refused(group, made.source or ", ".join(made.files), made.detail, made.findings, now)

    def accept(self, group: str, now: float) -> None:
        """They are applied, or gone."""
        if self._refused.pop(group, None) is not None:
            self._journal.files_applied(group, now)


def _refused(group: str, files: tuple[str, ...], since_s: float, error: Exception) -> RefusedFiles:
    if isinstance(error, ValidationError) and error.violations:
        first = error.violations[0]
        return RefusedFiles(group, files, since_s, first.detail[:DETAIL_LIMIT], first.source, len(error.violations))
    return RefusedFiles(group, files, since_s, str(error)[:DETAIL_LIMIT])
