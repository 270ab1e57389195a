"""The files to push: which files a path names, the group of each, and their resources."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from xds.cli.client import RefusedError, finding_line, problem_text
from xds.cli.errors import CommandError, Exit
from xds.codec.document import Document, parse_document
from xds.codec.positions import locate
from xds.model.errors import ValidationError, Violation
from xds.model.node import DEFAULT_GROUP
from xds.model.resource_type import alias_of

STANDARD_INPUT = Path("-")
SUFFIXES = frozenset({".json", ".yaml", ".yml"})


def files_by_group(paths: Iterable[Path], group: str = "") -> dict[str, list[Path]]:
    """The files of each group: all paths for ``group``, or each for the group that it is named after (``-``:

    ``default``).

    A directory stands for all its JSON and YAML files. Raises ``CommandError``.
    """
    found: dict[str, list[Path]] = {}
    for path in paths:
        found.setdefault(group or group_of(path), []).extend(files_of(path))
    return found


def group_of(path: Path) -> str:
    """The group that a path is named after."""
    if path == STANDARD_INPUT:
        return DEFAULT_GROUP
    resolved = path.resolve()
    return resolved.name if resolved.is_dir() else resolved.stem


def files_of(path: Path) -> Iterator[Path]:
    """The path itself, or the JSON and YAML files of a directory. Raises ``CommandError`` when it has none."""
    if not path.is_dir():
        yield path
        return
    files = sorted(file for file in path.rglob("*") if file.suffix in SUFFIXES and file.is_file())
    if not files:
        raise CommandError(Exit.USAGE, f"{path}: no {', '.join(sorted(SUFFIXES))} files in it")
    yield from files


def read_bytes(file: Path) -> bytes:
    """The content of a file, or of standard input. Raises ``CommandError``."""
    try:
        return sys.stdin.buffer.read() if file == STANDARD_INPUT else file.read_bytes()
    except OSError as error:
        raise CommandError(Exit.USAGE, f"{file}: {error.strerror}") from None


def read_object(file: Path, wanted: str, limit_bytes: int = sys.maxsize) -> dict[str, Any]:
    """Read a JSON or YAML file with one object; ``wanted`` is its name in errors. Raises ``CommandError``."""
    from xds.codec.document import parse_values
    from xds.model.errors import ValidationError

    name, text = shown_name(file), read_bytes(file)
    if len(text) > limit_bytes:
        raise CommandError(Exit.INVALID, f"{name}: larger than {limit_bytes} bytes")
    try:
        values = parse_values(text, source=name)
    except ValidationError as error:
        raise CommandError(Exit.INVALID, "\n".join(map(str, error.violations))) from None
    found = values[0] if len(values) == 1 else None
    if not isinstance(found, dict):
        raise CommandError(Exit.INVALID, f"{name}: expected {wanted}")
    return found


def shown_name(file: Path) -> str:
    """The name of a file in messages."""
    return "standard input" if file == STANDARD_INPUT else str(file)


Json = dict[str, Any]


_CHANGE = re.compile(r"/changes/(\d+)(?:/snapshot(?:/resources/\d+)?|/put(?:/\d+)?)?")


@dataclass(slots=True)
class GroupInput:
    """The push to one group. ``documents`` are the files that the resources come from, in order."""

    group: str
    resources: list[object] = field(default_factory=list)
    label: str = ""
    labels: dict[str, str] = field(default_factory=dict)
    documents: list[Document] = field(default_factory=list)

    def add(self, document: Document, name: str) -> None:
        """Add one file. Raises ``CommandError`` if its version differs from that of another file."""
        if self.label and document.label and self.label != document.label:
            raise CommandError(Exit.INVALID, f"{name}: version {document.label!r} differs from {self.label!r} before")
        self.resources.extend(document.resources)
        self.label = self.label or document.label
        self.labels.update(document.labels)
        self.documents.append(document)

    def body(self) -> Json:
        """The push as the API takes it."""
        versions: Mapping[str, str] = {alias_of(type_url): label for type_url, label in self.labels.items()}
        return {
            "resources": self.resources,
            **({"version": self.label} if self.label else {}),
            **({"versions": versions} if versions else {}),
        }

    def origin(self, index: int) -> tuple[Document, int] | None:
        """The file that a resource comes from, and its position there; None if it comes from no file."""
        first = 0
        for document in self.documents:
            if first <= index < first + len(document.resources):
                return document, index - first
            first += len(document.resources)
        return None


def refused(error: RefusedError, sources: Sequence[GroupInput]) -> RefusedError:
    """A refusal of the server with the places in our files."""
    found = placed(error.problem.get("errors", []), sources)
    problem = {**error.problem, "errors": found}
    return RefusedError(error.status, problem_text(problem) or str(error), problem)


def placed(findings: Sequence[Json], sources: Sequence[GroupInput]) -> list[Json]:
    """Findings of the server about pushed resources, with ``file:line:column`` of our files.

    Several sources are changes of one transaction, so pointers begin with the number of the change.
    """
    found = [dict(finding) for finding in findings]
    wanted: dict[int, list[tuple[Json, Violation]]] = {}
    documents: dict[int, Document] = {}
    for finding in found:
        change = _CHANGE.match(finding["pointer"])
        finding["pointer"] = finding["pointer"][change.end() if change is not None else 0 :]
        origin = sources[int(change[1]) if change is not None else 0].origin(finding.get("index", -1))
        if origin is not None:
            document, index = origin
            documents[id(document)] = document
            violation = Violation("", "", pointer=finding["pointer"], index=index)
            wanted.setdefault(id(document), []).append((finding, violation))
    for key, pairs in wanted.items():  # each text is searched once
        violations = locate(documents[key].layout, [violation for _, violation in pairs])
        for (finding, _), violation in zip(pairs, violations, strict=True):
            finding["source"] = violation.source
    return found


def read_sources(paths: Iterable[Path], group: str = "") -> list[GroupInput]:
    """Read what to push: all paths to ``group``, or each to the group that it is named after (``-``: ``default``).

    A directory stands for all its JSON and YAML files. Raises ``CommandError``.
    """
    found: dict[str, GroupInput] = {}
    for path in paths:
        name = group or group_of(path)
        source = found.setdefault(name, GroupInput(name))
        for file in files_of(path):
            source.add(_read(file), str(file))
    return list(found.values())


def _read(file: Path) -> Document:
    try:
        return parse_document(read_bytes(file), source=shown_name(file))
    except ValidationError as error:
        found = [replace(violation, source=violation.source or str(file)) for violation in error.violations]
        raise CommandError(Exit.INVALID, "\n".join(finding_line(asdict(violation)) for violation in found)) from None
