"""Files to push: which they are, what group they are for, what they hold together."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from xds.cli.client import RefusedError, finding_line, problem_text
from xds.cli.failure import CommandError, Exit
from xds.cli.paths import files_of, group_of, read_bytes, shown_name
from xds.codec.document import Document, parse_document
from xds.codec.positions import locate
from xds.model.errors import ValidationError, Violation
from xds.model.resource_type import alias_of

Json = dict[str, Any]


_CHANGE = re.compile(r"/changes/(\d+)(?:/snapshot(?:/resources/\d+)?|/put(?:/\d+)?)?")


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

    def origin(self, index: int) -> tuple[Document, int] | None:
        """The file that a resource comes from, and its position there; None for what is none of ours."""
        first = 0
        for document in self.documents:
            if first <= index < first + len(document.resources):
                return document, index - first
            first += len(document.resources)
        return None


def refused(error: RefusedError, sources: Sequence[Source]) -> RefusedError:
    """A refusal of the server that names the places in our files."""
    found = placed(error.problem.get("errors", []), sources)
    problem = {**error.problem, "errors": found}
    return RefusedError(error.status, problem_text(problem) or str(error), problem)


def placed(findings: Sequence[Json], sources: Sequence[Source]) -> list[Json]:
    """Findings of the server about what was sent, with ``file:line:column`` of our files.

    Several sources were the changes of one transaction, and pointers begin with their number.
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
    for key, pairs in wanted.items():  # each text is gone through once
        violations = locate(documents[key].layout, [violation for _, violation in pairs])
        for (finding, _), violation in zip(pairs, violations, strict=True):
            finding["source"] = violation.source
    return found


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
        return parse_document(read_bytes(file), source=shown_name(file))
    except ValidationError as error:
        found = [replace(violation, source=violation.source or str(file)) for violation in error.violations]
        raise CommandError(Exit.INVALID, "\n".join(finding_line(asdict(violation)) for violation in found)) from None
