"""``xds diff``: the differences between two sets of resources, by content. The layout of files does not matter.

Secrets are redacted. The schema is loaded only when a document is printed.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import unified_diff
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from xds.calls import fleet
from xds.cli.app import Command, app, shared
from xds.cli.arguments import DescriptorsOption, GroupFilter
from xds.cli.client import Client, RefusedError
from xds.cli.errors import CommandError, Exit
from xds.cli.output import DOCUMENTS, Format, is_colored, paint, say, to_yaml, write, write_document
from xds.cli.resources import snapshot
from xds.cli.shared_options import Shared

Json = dict[str, Any]
Key = tuple[str, str]  # (type, name)

T = TypeVar("T")

FORBIDDEN = 403
_STYLES = {"+": "good", "-": "bad", "@": "dim"}


@dataclass(frozen=True, slots=True)
class DiffSide:
    """One of the two sets of resources: its label and its documents."""

    label: str
    documents: Mapping[Key, Json]


@dataclass(frozen=True, slots=True)
class Difference:
    """The two sets of resources of one group."""

    group: str
    old: DiffSide
    new: DiffSide

    def changes(self) -> Iterator[tuple[Key, Json | None, Json | None]]:
        """The differences by type and name: the documents before and after, None where there is none."""
        for key in sorted({*self.old.documents, *self.new.documents}):
            before, after = self.old.documents.get(key), self.new.documents.get(key)
            if before != after:
                yield key, before, after


def of_files(client: Client, paths: Sequence[Path], group: str) -> list[Difference]:
    """The changes that a push of the files would make, group by group. Raises ``CommandError``."""
    from xds.cli.files import read_sources

    differences = []
    for source in read_sources(paths, group):
        new = DiffSide(f"{source.group} (files)", _by_key(source.resources))
        differences.append(Difference(source.group, _served(client, source.group), new))
    return differences


def between_revisions(client: Client, group: str, old: int, new: int) -> Difference:
    """The changes between two revisions. Raises ``CommandError``."""
    newer = _snapshot(client, group, new)
    older = _snapshot(client, group, old or newer["revision"] - 1)
    return Difference(group, _side(older), _side(newer))


def of_node(client: Client, node: str) -> Difference:
    """The resources that a node has, compared with the same resources of its group. Raises ``CommandError``."""
    has, served = (_node_documents(client, node, side) for side in ("acked", "served"))
    group = str(client.run(fleet.node(node))["group"])
    return Difference(group, DiffSide(f"{node} (has)", has), DiffSide(f"{group} (served)", served))


def _node_documents(client: Client, node: str, side: str) -> dict[Key, Json]:
    def read(secrets: bool) -> list[Json]:
        return list(client.items(fleet.node_resources(node, side=side, contents=True, show_secrets=secrets)))

    items = _with_secrets(read)
    # Lingering resources are not a difference: they are removed later.
    lasting = (item for item in items if "resource" in item and not item.get("lingers"))
    return {(item["type"], item["name"]): item["resource"] for item in lasting}


def _snapshot(client: Client, group: str, revision: int = 0) -> Json:
    return _with_secrets(lambda secrets: snapshot(client, group, revision, secrets))


def _with_secrets(read: Callable[[bool], T]) -> T:
    """Read with secrets if the caller may: they are compared, although they are not printed."""
    try:
        return read(True)
    except RefusedError as error:
        if error.status != FORBIDDEN:
            raise
    say("the token may not read secrets (scope secrets:read): changes of secrets are not shown")
    return read(False)


def show_differences(differences: Sequence[Difference], options: Shared) -> None:
    """Print the differences. Raises ``CommandError`` with exit 1 if there are any."""
    if options.output in DOCUMENTS:
        shown = [_document(difference, options.show_secrets) for difference in differences]
        write_document(shown[0] if len(shown) == 1 else shown, options.document_format())
    elif options.output is Format.NAME:
        write("".join(f"{type}/{name}\n" for difference in differences for (type, name), _, _ in difference.changes()))
    else:
        write("".join(_text(difference, options) for difference in differences))
    if any(True for difference in differences for _ in difference.changes()):
        raise CommandError(Exit.NEGATIVE, "")


def _text(difference: Difference, options: Shared) -> str:
    colored = is_colored(options.color, sys.stdout)
    lines = [
        line
        for (type, name), before, after in difference.changes()
        for line in _hunks(difference, f"{type}/{name}", (before, after), options.show_secrets)
    ]
    return "".join(f"{paint(line, _STYLES.get(line[:1], '')) if colored else line}\n" for line in lines)


def _hunks(difference: Difference, name: str, sides: tuple[Json | None, Json | None], secrets: bool) -> Iterable[str]:
    old, new = (_lines(side, secrets) for side in sides)
    labels = [
        "/dev/null" if side is None else f"{label}/{name}"
        for side, label in zip(sides, (difference.old.label, difference.new.label), strict=True)
    ]
    lines = list(unified_diff(old, new, labels[0], labels[1], lineterm=""))
    return lines or [f"--- {labels[0]}", f"+++ {labels[1]}", "@@ only redacted values differ @@"]


def _lines(document: Json | None, secrets: bool) -> list[str]:
    if document is None:
        return []
    return to_yaml(document if secrets else without_secrets(document)).splitlines()


def _document(difference: Difference, secrets: bool) -> Json:
    def shown(document: Json | None) -> Json | None:
        return document if document is None or secrets else without_secrets(document)

    changes = [
        {
            "type": type,
            "name": name,
            "change": "added" if before is None else "removed" if after is None else "changed",
            "from": shown(before),
            "to": shown(after),
        }
        for (type, name), before, after in difference.changes()
    ]
    return {"group": difference.group, "from": difference.old.label, "to": difference.new.label, "changes": changes}


def _served(client: Client, group: str) -> DiffSide:
    """The snapshot of a group; an empty set if the group does not exist."""
    try:
        return _side(_snapshot(client, group))
    except RefusedError as error:
        if error.code is not Exit.NOT_FOUND:
            raise
        return DiffSide(f"{group} (none)", {})


def _side(snapshot_document: Json) -> DiffSide:
    return DiffSide(
        f"{snapshot_document['group']} (revision {snapshot_document['revision']})",
        _by_key(snapshot_document["resources"], is_served=True),
    )


def _by_key(documents: Iterable[object], is_served: bool = False) -> dict[Key, Json]:
    """The documents by type and name, in normal form, so that equal content compares equal. Raises ``CommandError``.

    Documents of the server (``is_served``) have this form; those with redacted values cannot be decoded.
    """
    from xds.codec.render import render_resource
    from xds.codec.resources import decode_resource
    from xds.model.errors import ValidationError
    from xds.push.content import type_label

    by_key: dict[Key, Json] = {}
    problems: list[str] = []
    for document in documents:
        try:
            resource = decode_resource(document)
        except ValidationError as error:
            problems += [str(violation) for violation in error.violations]
            if is_served and isinstance(document, dict):
                by_key[type_label(document["@type"]), str(document.get("name"))] = document
        else:
            by_key[type_label(resource.type_url), resource.name] = render_resource(resource)
    if problems and not is_served:
        raise CommandError(Exit.INVALID, "\n".join(problems))
    return by_key


def without_secrets(document: Json) -> Json:
    """A copy of a resource's document with secret values replaced. It cannot be applied again."""
    from xds.codec.redaction import redact

    return redact(document)


@app.command(cls=Command)
def diff(
    context: typer.Context,
    file: Annotated[
        list[Path] | None, typer.Option("-f", "--file", help="Compare files with the served resources.")
    ] = None,
    group: GroupFilter = "",
    from_revision: Annotated[int, typer.Option("--from", help="Old revision; 0: the one before --to.", min=0)] = 0,
    to_revision: Annotated[int, typer.Option("--to", help="New revision; 0: the current one.", min=0)] = 0,
    node: Annotated[str, typer.Option(help="Compare the resources of this node with the served ones.")] = "",
    descriptor_set: DescriptorsOption = None,
) -> None:
    """Compare two states, resource by resource. Exits 0 if they are equal, 1 if they differ.

    \b
    Examples:
      xds diff -g edge -f edge/
      xds diff -g edge --from 41 --to 42
      xds diff --node edge-1
    """
    from xds.cli.validate import add_descriptors

    options = shared(context)
    is_history = bool(from_revision or to_revision)
    if bool(file) + is_history + bool(node) != 1:
        raise CommandError(Exit.USAGE, "give files (-f), revisions (--from, --to) or a node (--node), only one of them")
    add_descriptors(descriptor_set or ())
    client = options.connect()
    if file:
        differences = of_files(client, file, group)
    elif node:
        differences = [of_node(client, node)]
    else:
        differences = [between_revisions(client, group or "default", from_revision, to_revision)]
    show_differences(differences, options)
