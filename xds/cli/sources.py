"""Files to push: which they are, what group they are for, what they hold together."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from xds.cli.client import RefusedError, finding_line
from xds.cli.failure import CommandError, Exit
from xds.cli.paths import STANDARD_INPUT, files_of, group_of
from xds.codec.document import Document, parse_document
from xds.codec.places import locate
from xds.model.errors import ValidationError, Violation
from xds.model.resource_type import alias_of

Json = dict[str, Any]


@dataclass(slots=True)
class Source:
    """What goes to one group. ``documents`` are the files that the resources come from, in order."""

    group: str
    resources: list[object] = field(default_factory=list)
    label: str = ""
    labels: dict[str, str] = field(default_factory=dict)
    documents: list[Document] = field(default_factory=list)

    def add(self, document: Document, name: str) -> None:
        """Take in one file. Raises ``CommandError`` when it disagrees about the version."""
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

    def refused(self, error: RefusedError) -> RefusedError:
        """A refusal of the server that names the places in our files."""
        found = self.placed(error.problem.get("errors", []))
        lines = [finding_line(finding) for finding in found]
        return RefusedError(error.status, "\n".join(lines) or str(error), {**error.problem, "errors": found})

    def placed(self, findings: Sequence[Json]) -> list[Json]:
        """Findings of the server, about resources by ``index``, with ``file:line:column`` of our files."""
        found = list(findings)
        first = 0
        for document in self.documents:
            here = range(first, first + len(document.resources))
            positions = [at for at, finding in enumerate(found) if finding.get("index", -1) in here]
            sources = _sources(document, [(found[at]["index"] - first, found[at]["pointer"]) for at in positions])
            for at, source in zip(positions, sources, strict=True):
                found[at] = {**found[at], "source": source}
            first = here.stop
        return found


def _sources(document: Document, wanted: Sequence[tuple[int, str]]) -> list[str]:
    """``file:line:column`` of places in a file, by the position of the resource and a pointer within it."""
    if not wanted:
        return []
    violations = [Violation("", "", pointer=pointer, index=index) for index, pointer in wanted]
    return [violation.source for violation in locate(document.layout, violations)]


def read_sources(paths: Iterable[Path], group: str = "") -> list[Source]:
    """What to push where: all paths to ``group``, or each to the group it is named after (``-``: to ``default``).

    A directory stands for all its JSON and YAML files. Raises ``CommandError``.
    """
    found: dict[str, Source] = {}
    for path in paths:
        name = group or group_of(path)
        source = found.setdefault(name, Source(name))
        for file in files_of(path):
            source.add(_read(file), str(file))
    return list(found.values())


def _read(file: Path) -> Document:
    try:
        text = sys.stdin.buffer.read() if file == STANDARD_INPUT else file.read_bytes()
        return parse_document(text, source="standard input" if file == STANDARD_INPUT else str(file))
    except OSError as error:
        raise CommandError(Exit.USAGE, f"{file}: {error.strerror}") from None
    except ValidationError as error:
        found = [replace(violation, source=violation.source or str(file)) for violation in error.violations]
        raise CommandError(Exit.INVALID, "\n".join(finding_line(asdict(violation)) for violation in found)) from None
