"""``xds apply``: push files and wait until the fleet has them. ``xds put``: push single resources."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from xds.calls import groups
from xds.cli.careful_rollouts import wait_for_push
from xds.cli.client import Client, RefusedError
from xds.cli.errors import CommandError, Exit
from xds.cli.files import GroupInput, read_sources, with_file_places, with_places
from xds.cli.output import Format, counted, say, write_answer
from xds.cli.push_options import confirm, precondition, print_rest, summary

Json = dict[str, Any]


def apply(
    client: Client, sources: Sequence[GroupInput], options: Json, if_match: str, *, prune: bool, yes: bool
) -> tuple[list[Json], list[Json]]:
    """Push all sources or none, then with ``prune`` delete the groups of the server that have no source.

    ``options`` are those of the call. Returns the answers to the pushes, and to the deletions. Raises ``CommandError``.
    """
    if if_match and (prune or len(sources) > 1):
        raise CommandError(Exit.USAGE, "--if-match applies to one group; name it with -g")
    pruned = _groups_to_prune(client, sources, options, yes) if prune else []
    if len(sources) == 1:
        given = {**options, "if_match": precondition(if_match)} if if_match else options
        answers = [_push(client, sources[0], given)]
    else:
        answers = _push_all(client, sources, options)
    of_groups = {name: options[name] for name in _OF_GROUPS if name in options}
    deletions = [client.run(groups.delete_group(group, **of_groups)) for group in pruned]
    return answers, [{**answer, "deleted": True} for answer in deletions]


_OF_GROUPS = ("author", "message", "dry_run", "allow_empty")  # options of deleting a group


def show_answers(answers: Sequence[Json], format: Format) -> None:
    """Write the answers to pushes, and print what else is in them."""
    shown = answers[0] if len(answers) == 1 else answers
    text = "".join(f"{summary(answer)}\n" for answer in answers)
    write_answer(format, shown, lambda: text, [answer["group"] for answer in answers])
    for answer in answers:
        print_rest(answer)


def wait_for_pushes(
    client: Client, answers: Sequence[Json], percent: float, timeout_s: float, *, allow_none: bool
) -> None:
    """Wait for all groups (`wait_for_push`), also after one that has no node. Raises ``CommandError``."""
    began_s = time.monotonic()
    without_nodes: list[CommandError] = []
    for answer in answers:
        try:
            wait_for_push(client, answer, percent, timeout_s, began_s, allow_none=allow_none)
        except CommandError as error:
            if error.code is not Exit.NO_NODE:
                raise
            without_nodes.append(error)
    if without_nodes:
        raise CommandError(Exit.NO_NODE, "\n".join(map(str, without_nodes)))


def _push(client: Client, source: GroupInput, options: Json) -> Json:
    try:
        answer = client.run(groups.apply_document(source.group, source.body(), **options))
    except RefusedError as error:
        raise with_file_places(error, [source]) from None
    return {**answer, "warnings": with_places(answer.get("warnings", []), [source])}


def _push_all(client: Client, sources: Sequence[GroupInput], options: Json) -> list[Json]:
    """Push all groups, or none of them."""
    changes = [{"group": source.group, "snapshot": source.body()} for source in sources]
    try:
        answer = client.run(groups.transact_document({"changes": changes}, **options))
    except RefusedError as error:
        raise with_file_places(error, sources) from None
    return [{**result, "warnings": with_places(result.get("warnings", []), sources)} for result in answer["results"]]


def _groups_to_prune(client: Client, sources: Sequence[GroupInput], options: Json, yes: bool) -> list[str]:
    """The groups without files, which ``--prune`` deletes; asks for confirmation on a terminal."""
    sourced = {source.group for source in sources}
    pruned = [item["group"] for item in client.items(groups.groups()) if item["group"] not in sourced]
    if pruned:
        say(f"groups without files: {', '.join(pruned)}")
    if pruned and not options.get("dry_run"):
        confirm(f"delete {counted(len(pruned), 'group')}?", yes)
    return pruned


def put_resources(
    client: Client, files: Iterable[Path], group: str, options: Json, if_match: str, *, create: bool
) -> Json:
    """Put all resources of the files in one push; the answer of the server. Raises ``CommandError``."""
    (source,) = read_sources(files, group)
    if not source.resources:
        raise CommandError(Exit.INVALID, "the files given by -f have no resource")
    if source.label or source.labels:
        raise CommandError(Exit.INVALID, "version is for whole snapshots: remove it from the file, or use xds apply")
    change = {"group": group, "put": source.resources, **_precondition(client, group, if_match, create)}
    try:
        answer = client.run(groups.transact_document({"changes": [change]}, **options))
    except RefusedError as error:
        if error.status == 412 and not (if_match or create):
            raise CommandError(Exit.NOT_FOUND, f"there is no group {group!r}; pass --create to make it") from None
        raise with_file_places(error, [source]) from None
    result: Json = answer["results"][0]
    return {**result, "warnings": with_places(result.get("warnings", []), [source])}


def _precondition(client: Client, group: str, if_match: str, create: bool) -> dict[str, str]:
    """The precondition of the push: the group exists, unless ``create``. A mistyped name must not create a group."""
    if if_match and if_match != "0":
        given = precondition(if_match)
        return {"if_match": given if isinstance(given, str) else f"r{given}"}
    if if_match or (create and not (client.find(groups.group(group)) or {}).get("revision")):
        return {"if_none_match": "*"}
    return {"if_match": "*"}
