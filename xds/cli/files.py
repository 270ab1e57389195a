"""The files to push: which files a path names, the group of each, and their resources."""

from __future__ import annotations

import re
import sys
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from xds.cli.client import RefusedError, finding_line
from xds.cli.errors import CommandError, Exit, file_errors
from xds.codec import snapshot_directory
from xds.codec.document import Document, parse_document, read_values
from xds.codec.positions import TextLayout, locate, other_resource, with_other
from xds.model.errors import ValidationError, Violation
from xds.model.node import DEFAULT_GROUP
from xds.model.resource_type import alias_of

STANDARD_INPUT = Path("-")
F = TypeVar("F", dict[str, list[Path]], list[Path])


def files_by_group(paths: Iterable[Path], group: str = "") -> dict[str, list[Path]]:
    """The files of each group: all paths for ``group``, or each file for the group of its name (``-``: ``default``).

    A directory stands for its JSON and YAML files: all for ``group``, or as ``serve --watch`` reads it, where each file
    and each subdirectory is a group. Raises ``CommandError``.
    """
    files: dict[str, list[Path]] = {}
    for path in paths:
        if group or not path.is_dir():
            files.setdefault(group or group_of(path), []).extend(files_of(path))
            continue
        for name, described in _with_files(path, snapshot_directory.files_by_group(path)).items():
            files.setdefault(name, []).extend(described)
    return files


def group_of(path: Path) -> str:
    """The group of the name of a file."""
    return DEFAULT_GROUP if path == STANDARD_INPUT else path.resolve().stem


def files_of(path: Path) -> Iterator[Path]:
    """The path itself, or the JSON and YAML files of a directory. Raises ``CommandError`` when it has none."""
    yield from _with_files(path, snapshot_directory.files_below(path)) if path.is_dir() else [path]


def _with_files(directory: Path, files: F) -> F:
    """The files that were found. Raises ``CommandError`` if there are none."""
    if not files:
        suffixes = ", ".join(sorted(snapshot_directory.SUFFIXES))
        raise CommandError(Exit.USAGE, f"{directory}: the directory has no {suffixes} files")
    return files


def read_bytes(file: Path) -> bytes:
    """The content of a file, or of standard input. Raises ``CommandError``."""
    with file_errors(file):
        return sys.stdin.buffer.read() if file == STANDARD_INPUT else file.read_bytes()


@dataclass(frozen=True, slots=True)
class LocatedObject:
    """The only document of a file, with the layout of its text."""

    document: dict[str, Any]
    layout: TextLayout

    def lines(self, violations: Iterable[Violation]) -> list[str]:
        """Findings as lines with ``file:line:column``; those about a resource have no place in the file."""
        originals = list(violations)
        with_places = locate(self.layout, [replace(one, index=-1) for one in originals])
        return [str(one if one.resource else other) for one, other in zip(originals, with_places, strict=True)]

    def located(self, error: RefusedError, below: str = "") -> RefusedError:
        """The refusal of the document with the places of its findings in the file.

        ``below`` is the pointer of the part that was sent.
        """
        findings = error.problem.get("errors", [])
        placed = locate(self.layout, [Violation("", "", pointer=f"{below}{each['pointer']}") for each in findings])
        return error.with_findings([{**each, "source": one.source} for each, one in zip(findings, placed, strict=True)])


def read_object(file: Path, wanted: str, limit_bytes: int = sys.maxsize) -> dict[str, Any]:
    """Read a JSON or YAML file with one object; ``wanted`` is its name in errors. Raises ``CommandError``."""
    return read_located(file, wanted, limit_bytes).document


def read_located(file: Path, wanted: str, limit_bytes: int = sys.maxsize) -> LocatedObject:
    """As `read_object`, with what `LocatedObject.lines` needs."""
    name, text = shown_name(file), read_bytes(file)
    if len(text) > limit_bytes:
        raise CommandError(Exit.INVALID, f"{name}: larger than {limit_bytes} bytes")
    try:
        texts = read_values(text, source=name, content="all")  # the server says where it takes no NUL
    except ValidationError as error:
        shown = [str(with_excerpt(violation, text)) for violation in error.violations]
        raise CommandError(Exit.INVALID, "\n".join(shown)) from None
    values = list(texts.documents.values())
    document = values[0] if len(values) == 1 else None
    if not isinstance(document, dict):
        raise CommandError(Exit.INVALID, f"{name}: expected {wanted}")
    return LocatedObject(document, texts.layout)


def shown_name(file: Path) -> str:
    """The name of a file in messages."""
    return "standard input" if file == STANDARD_INPUT else str(file)


Json = dict[str, Any]


_CHANGE = re.compile(r"/changes/(\d+)(?:/snapshot(?:/resources/\d+)?|/put(?:/\d+)?)?")


@dataclass(frozen=True, slots=True)
class Text:
    """A file. Its resources are those of a group from index ``first`` on."""

    name: str
    body: bytes
    first: int

    def layout(self) -> TextLayout:
        """Where its resources stand."""
        return parse_document(self.body, source=self.name).layout


@dataclass(slots=True)
class GroupInput:
    """The push to one group. ``texts`` are the files that the resources come from, in order."""

    group: str
    resources: list[object] = field(default_factory=list)
    label: str = ""
    labels: dict[str, str] = field(default_factory=dict)
    texts: list[Text] = field(default_factory=list)

    def add(self, file: Path) -> None:
        """Add one file. Raises ``CommandError``, also if its version differs from that of another file."""
        body = read_bytes(file)
        document = _parsed(file, body)
        if self.label and document.label and self.label != document.label:
            raise CommandError(Exit.INVALID, f"{file}: version {document.label!r} differs from {self.label!r} before")
        self.texts.append(Text(shown_name(file), body, len(self.resources)))
        self.resources.extend(document.resources)
        self.label = self.label or document.label
        self.labels.update(document.labels)

    def body(self) -> Json:
        """The push in the form of the API."""
        versions: Mapping[str, str] = {alias_of(type_url): label for type_url, label in self.labels.items()}
        return {
            "resources": self.resources,
            **({"version": self.label} if self.label else {}),
            **({"versions": versions} if versions else {}),
        }


def with_file_places(error: RefusedError, sources: Sequence[GroupInput]) -> RefusedError:
    """The refusal of a push, with the places of its findings in the files."""
    return error.with_findings(with_places(error.problem.get("errors", []), sources))


def with_places(findings: Sequence[Json], sources: Sequence[GroupInput]) -> list[Json]:
    """Findings of the server about pushed resources, with their places in the files (``file:line:column``).

    Several sources are changes of one transaction, so pointers begin with the number of the change.
    """
    shown = [dict(finding) for finding in findings]
    by_source: dict[int, list[Json]] = {}
    for finding in shown:
        change = _CHANGE.match(finding["pointer"])
        finding["pointer"] = finding["pointer"][change.end() if change is not None else 0 :]
        by_source.setdefault(int(change[1]) if change is not None else 0, []).append(finding)
    for number, members in by_source.items():
        asked = [
            Violation("", "", pointer=each["pointer"], index=each.get("index", -1), hint=str(each.get("hint", "")))
            for each in members
        ]
        for finding, placed in zip(members, located(asked, sources[number].texts), strict=True):
            finding["hint"] = placed.hint
            if placed.source:
                finding["source"] = placed.source
    return shown


def located(findings: Iterable[Violation], texts: Sequence[Text]) -> list[Violation]:
    """Findings about the resources of a group, each with its place in a file if it has one.

    A hint that names another resource by its index names the place of that.
    """
    placed = [_with_other(finding, texts) for finding in findings]
    by_text: dict[int, list[int]] = {}
    for at, finding in enumerate(placed):
        by_text.setdefault(_owner(texts, finding.index), []).append(at)
    by_text.pop(-1, None)
    for owner, places in by_text.items():  # each text is searched once
        text = texts[owner]
        within = [replace(placed[at], index=placed[at].index - text.first) for at in places]
        for at, found in zip(places, locate(text.layout(), within), strict=True):
            placed[at] = replace(placed[at], source=found.source)
    return placed


def _with_other(finding: Violation, texts: Sequence[Text]) -> Violation:
    other = other_resource(finding.hint)
    if other is None or (owner := _owner(texts, other)) < 0:
        return finding
    text = texts[owner]
    return with_other(finding, locate(text.layout(), [Violation("", "", index=other - text.first)])[0].source)


def _owner(texts: Sequence[Text], index: int) -> int:
    """The position of the text with a resource; -1 for none."""
    return bisect_right([text.first for text in texts], index) - 1


def read_sources(paths: Iterable[Path], group: str = "") -> list[GroupInput]:
    """Read the files to push (`files_by_group`). Raises ``CommandError``."""
    sources = []
    for name, files in files_by_group(paths, group).items():
        source = GroupInput(name)
        for file in files:
            source.add(file)
        sources.append(source)
    return sources


_PLACE = re.compile(r":(\d+):(\d+)$")
_EXCERPT_LIMIT = 100


_MAY_BE_SECRET = re.compile(rb"secret|private|password|token|key", re.IGNORECASE)


def with_excerpt(violation: Violation, body: bytes) -> Violation:
    """A syntax error with the line where it was detected, and a caret below the column.

    Not of a text that may hold a secret: the line would be in the log of a build.
    """
    if _MAY_BE_SECRET.search(body):
        return violation
    place = _PLACE.search(violation.source)
    lines = body.decode(errors="replace").splitlines()
    if violation.code != "syntax" or place is None or not 0 < int(place[1]) <= len(lines):
        return violation
    line, column = lines[int(place[1]) - 1].replace("\t", " "), int(place[2])
    if len(line) > _EXCERPT_LIMIT:
        start = max(0, column - _EXCERPT_LIMIT // 2)
        line, column = line[start : start + _EXCERPT_LIMIT], column - start
    return replace(violation, detail=f"{violation.detail}\n    {line}\n    {' ' * (column - 1)}^")


def _parsed(file: Path, body: bytes) -> Document:
    try:
        return parse_document(body, source=shown_name(file))
    except ValidationError as error:
        named = [replace(violation, source=violation.source or str(file)) for violation in error.violations]
        violations = [with_excerpt(violation, body) for violation in named]
        raise CommandError(
            Exit.INVALID, "\n".join(finding_line(asdict(violation)) for violation in violations)
        ) from None
