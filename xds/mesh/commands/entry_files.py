"""``xds config-entry``: config entries in files and on the server, their history, undo."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from difflib import unified_diff
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from xds.cli.client import Client, RefusedError, problem_text
from xds.cli.errors import CommandError, Exit
from xds.cli.files import files_of, read_bytes, shown_name
from xds.cli.output import Format, is_colored, paint, to_yaml, write, write_document
from xds.cli.push_options import print_warnings
from xds.cli.push_options import summary as group_summary
from xds.cli.shared_options import Shared
from xds.cli.table import Column, TableLayout, history_layout
from xds.mesh import calls

if TYPE_CHECKING:
    from xds.codec.positions import TextLayout

Json = dict[str, Any]
T = TypeVar("T")

NO_ENTRIES = "no config entries: `xds config-entry write -f FILE` writes them"
_HCL_SUFFIX = ".hcl"
_NAMES_SHOWN = 20
_SIGNS = {"added": "+", "changed": "~", "removed": "-"}
_STYLES = {"+": "good", "-": "bad", "@": "dim"}

LIST = TableLayout(
    name=lambda item: f"{item['kind']}/{item['name']}",
    columns=(
        Column("KIND", "kind"),
        Column("NAME", "name"),
        Column("REVISION", "modified_revision"),
        Column("CREATED", "created_revision", is_wide=True),
        Column("ETAG", "etag", is_wide=True),
    ),
)


def _what(item: Json) -> str:
    kind = f"rollback to {item['content_of']}" if item["content_of"] else str(item["kind"])
    return f"{kind} (undone by {item['undone_by']})" if item["undone_by"] else kind


HISTORY = history_layout(_what, Column("ENTRIES", "entries"))


@dataclass(frozen=True, slots=True)
class EntryFile:
    """A file with config entries: the values as written, and their places in the text."""

    layout: TextLayout
    values: list[object]


def read_files(paths: Iterable[Path]) -> list[EntryFile]:
    """The files, and those of directories. Raises ``CommandError`` with all of them that cannot be read."""
    from xds.mesh.core.entries.entry import read_entry_values

    return _read_each(paths, lambda text, source: EntryFile(*read_entry_values(text, source=source)))


def _read_each(paths: Iterable[Path], read: Callable[[bytes, str], T]) -> list[T]:
    """Read each file; ``read`` gets its text and its name. Raises ``CommandError`` with all that is wrong."""
    from xds.model.errors import ValidationError

    results: list[T] = []
    problems: list[str] = []
    for file in _files_of(paths):
        try:
            results.append(read(read_bytes(file), shown_name(file)))
        except ValidationError as error:
            problems += map(str, error.violations)
    if problems:
        raise CommandError(Exit.INVALID, "\n".join(problems))
    return results


def _files_of(paths: Iterable[Path]) -> Iterator[Path]:
    """The files of all paths, HCL files included: reading these is an error. Raises ``CommandError``."""
    for path in paths:
        written = sorted(path.rglob(f"*{_HCL_SUFFIX}")) if path.is_dir() else []
        yield from written or files_of(path)


def write_entries(client: Client, files: Sequence[EntryFile], options: Json) -> Json:
    """Write all entries of the files, or none. Raises ``CommandError`` with places in the files."""
    values: list[Any] = [value for file in files for value in file.values]
    try:
        answer = client.run(calls.put_config_entries(values, **options))
    except RefusedError as error:
        problem = {**error.problem, "errors": _with_places(error.problem.get("errors", []), files)}
        raise RefusedError(error.status, problem_text(problem) or str(error), problem) from None
    return {**answer, "warnings": _with_places(answer.get("warnings", []), files)}


def _with_places(findings: Sequence[Json], files: Sequence[EntryFile]) -> list[Json]:
    """Findings of the server with ``file:line:column`` of our files."""
    from xds.codec.positions import locate
    from xds.model.errors import Violation

    origins = [(file, index) for file in files for index in range(len(file.values))]
    located = []
    for finding in findings:
        at = finding.get("index", -1)
        source = ""
        if 0 <= at < len(origins):
            file, index = origins[at]
            (place,) = locate(file.layout, [Violation("", "", pointer=finding["pointer"], index=index)])
            source = place.source
        located.append({**finding, "source": source})
    return located


def show_written(answer: Json, format: Format | None) -> None:
    """Print the result of a write, and its warnings."""
    names = [f"{each['kind']}/{each['name']}" for each in answer["changes"]]
    changed = [each for each in answer.get("groups", []) if each["changes"]]
    if format in {Format.JSON, Format.YAML, Format.JSONL}:
        write_document(answer, format)
    elif format is Format.NAME:
        write("".join(f"{name}\n" for name in names))
    else:
        signs = [_SIGNS[each["change"]] for each in answer["changes"]]
        lines = [f"{sign} {name}\n" for sign, name in zip(signs, names, strict=True)]
        flags = {"changed": True, "dry_run": answer.get("dry_run")}
        groups = [f"{group_summary({**each, **flags})}\n" for each in changed]
        write("".join([*lines, f"{summary(answer)}\n", *groups]))
    print_warnings(answer.get("warnings", []))


def summary(answer: Json) -> str:
    """The result of a write on a line."""
    if not answer["changed"]:
        return f"config entries: revision {answer['revision']}, unchanged"
    outcome = "would change" if answer.get("dry_run") else f"revision {answer['revision']}"
    chains = answer["chains"]
    shown = ", ".join(chains[:_NAMES_SHOWN]) + (
        f" and {len(chains) - _NAMES_SHOWN} more" * (len(chains) > _NAMES_SHOWN)
    )
    return f"config entries: {outcome}; chains: {shown or 'none changes'}"


def shown_entry(item: Json) -> Json:
    """An entry as Consul shows it; ``write`` accepts it."""
    return {**item["entry"], "CreateIndex": item["created_revision"], "ModifyIndex": item["modified_revision"]}


@dataclass(frozen=True, slots=True)
class EntryDifference:
    """One entry that differs; None on the side that does not have it."""

    kind: str
    name: str
    before: Json | None
    after: Json | None


def between_revisions(client: Client, old: int, new: int) -> list[EntryDifference]:
    """The entries that differ between two revisions; ``new`` 0: the newest one. Raises ``CommandError``."""
    newest = new or client.run(calls.config_entries().limited(1))["revision"]
    if not newest:
        raise CommandError(Exit.NOT_FOUND, "config entries were never written")
    differences = client.run(calls.config_entry_difference(newest, old or None))["items"]
    return [EntryDifference(each["kind"], each["name"], each["before"], each["after"]) for each in differences]


def against_files(client: Client, paths: Iterable[Path]) -> list[EntryDifference]:
    """The entries that a write of the files would change. Raises ``CommandError``."""
    from xds.mesh.core.entries.entry import entry_json, entry_key, key_of, read_entries

    files = _read_each(paths, lambda text, source: read_entries(text, source=source).entries)
    given = {key_of(entry): entry_json(entry) for entries in files for entry in entries}
    stored = {entry_key(item["kind"], item["name"]): item["entry"] for item in client.items(calls.config_entries())}
    keys = (key for key in sorted(given) if stored.get(key) != given[key])
    return [EntryDifference(key[0], str(given[key]["Name"]), stored.get(key), given[key]) for key in keys]


def show_differences(differences: Sequence[EntryDifference], options: Shared) -> None:
    """Print the differences. Raises ``CommandError`` with exit 1 if there are any."""
    if options.output in {Format.JSON, Format.YAML, Format.JSONL}:
        items = [{"kind": each.kind, "name": each.name, "from": each.before, "to": each.after} for each in differences]
        write_document({"items": items}, options.document_format())
    elif options.output is Format.NAME:
        write("".join(f"{each.kind}/{each.name}\n" for each in differences))
    else:
        colored = is_colored(options.color, sys.stdout)
        lines = [line for each in differences for line in _hunks(each)]
        write("".join(f"{paint(line, _STYLES.get(line[:1], '')) if colored else line}\n" for line in lines))
    if differences:
        raise CommandError(Exit.NEGATIVE, "")


def _hunks(each: EntryDifference) -> Iterator[str]:
    name = f"{each.kind}/{each.name}"
    old, new = (to_yaml(side).splitlines() if side is not None else [] for side in (each.before, each.after))
    before, after = ("/dev/null" if side is None else name for side in (each.before, each.after))
    yield from unified_diff(old, new, before, after, lineterm="")
