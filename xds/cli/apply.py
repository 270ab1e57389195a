"""``xds apply``: push files and wait until the fleet has them. ``xds put``: push single resources."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from xds.calls import groups
from xds.cli.careful_rollouts import wait_for_push
from xds.cli.client import Client, RefusedError
from xds.cli.errors import CommandError, Exit
from xds.cli.files import GroupInput, read_sources, with_file_places, with_places
from xds.cli.output import Format, counted, say, write_answer
from xds.cli.push_options import confirm, precondition, print_rest, summary, write_options

Json = dict[str, Any]


class DryRun(StrEnum):
    """Where the dry run is computed: by the server, or by the command from the files alone."""

    NO = ""
    SERVER = "server"
    CLIENT = "client"


@dataclass(frozen=True, slots=True)
class ApplyOptions:
    """Options of ``apply``. It waits for ``wait_percent`` of the connected nodes (0: it does not wait), at most
    ``timeout_s`` (`wait_for_push`).

    When it waits, a group without nodes is an error unless ``allow_none``. ``prune`` deletes the groups of the server
    that have no source. ``rollout`` are the options of the call about a careful rollout.
    """

    message: str = ""
    if_match: str = ""
    dry_run: DryRun = DryRun.NO
    allow_empty: bool = False
    strict: bool = False
    prune: bool = False
    yes: bool = False
    wait_percent: float = 0.0
    allow_none: bool = False
    timeout_s: float = 0.0
    rollout: Json = field(default_factory=dict)
    format: Format = Format.TABLE


def apply(client: Client, sources: list[GroupInput], options: ApplyOptions) -> None:
    """Push all sources or none, delete the groups to prune, then wait for all groups. Raises ``CommandError``."""
    if options.if_match and (options.prune or len(sources) > 1):
        raise CommandError(Exit.USAGE, "--if-match applies to one group; name it with -g")
    pruned = _groups_to_prune(client, sources, options) if options.prune else []
    answers = [_push(client, sources[0], options)] if len(sources) == 1 else _push_all(client, sources, options)
    answers += [_delete(client, group, options) for group in pruned]
    names, shown = [answer["group"] for answer in answers], answers[0] if len(answers) == 1 else answers
    write_answer(options.format, shown, lambda: "".join(f"{summary(answer)}\n" for answer in answers), names)
    for answer in answers:
        print_rest(answer)
    if options.wait_percent and not options.dry_run:
        _wait(client, answers[: len(sources)], options)


def _wait(client: Client, answers: Sequence[Json], options: ApplyOptions) -> None:
    """Wait for all groups, also after one that has no node. Raises ``CommandError``."""
    began_s, percent, timeout_s = time.monotonic(), options.wait_percent, options.timeout_s
    without_nodes: list[CommandError] = []
    for answer in answers:
        try:
            wait_for_push(client, answer, percent, timeout_s, began_s, allow_none=options.allow_none)
        except CommandError as error:
            if error.code is not Exit.NO_NODE:
                raise
            without_nodes.append(error)
    if without_nodes:
        raise CommandError(Exit.NO_NODE, "\n".join(map(str, without_nodes)))


def _push(client: Client, source: GroupInput, options: ApplyOptions) -> Json:
    call = groups.apply_document(source.group, source.body(), **_write_options(options, options.if_match))
    try:
        answer = client.run(call)
    except RefusedError as error:
        raise with_file_places(error, [source]) from None
    return {**answer, "warnings": with_places(answer.get("warnings", []), [source])}


def _push_all(client: Client, sources: Sequence[GroupInput], options: ApplyOptions) -> list[Json]:
    """Push all groups, or none of them."""
    changes = [{"group": source.group, "snapshot": source.body()} for source in sources]
    try:
        answer = client.run(groups.transact_document({"changes": changes}, **_write_options(options)))
    except RefusedError as error:
        raise with_file_places(error, sources) from None
    return [{**result, "warnings": with_places(result.get("warnings", []), sources)} for result in answer["results"]]


def _write_options(options: ApplyOptions, if_match: str = "") -> Json:
    flags = {"allow_empty": options.allow_empty, "strict": options.strict}
    given = write_options(options.message, if_match, dry_run=options.dry_run is DryRun.SERVER, **flags)
    return {**given, **options.rollout}


def _groups_to_prune(client: Client, sources: Sequence[GroupInput], options: ApplyOptions) -> list[str]:
    """The groups without files, which ``--prune`` deletes; asks for confirmation on a terminal."""
    sourced = {source.group for source in sources}
    pruned = [item["group"] for item in client.items(groups.groups()) if item["group"] not in sourced]
    if pruned:
        say(f"groups without files: {', '.join(pruned)}")
    if pruned and not options.dry_run:
        confirm(f"delete {counted(len(pruned), 'group')}?", options.yes)
    return pruned


def _delete(client: Client, group: str, options: ApplyOptions) -> Json:
    given = write_options(options.message, dry_run=options.dry_run is DryRun.SERVER, allow_empty=options.allow_empty)
    return {**client.run(groups.delete_group(group, **given)), "deleted": True}


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
