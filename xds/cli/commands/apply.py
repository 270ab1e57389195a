"""Commands ``apply`` and ``put``."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from xds.cli.app import Command, app, shared
from xds.cli.arguments import (
    EmptyFlag,
    FilesArgument,
    FilesOption,
    GroupOption,
    IfMatchOption,
    MessageOption,
    NoneFlag,
    StrictFlag,
    TargetOption,
    WaitOption,
    YesFlag,
    named_files,
    parse_percent,
)
from xds.cli.careful_rollouts import wait_for_push
from xds.cli.errors import CommandError, Exit
from xds.cli.push_options import show_answer, write_options
from xds.cli.rollout_options import Json, PushTimeoutOption, takes_rollout, wait_limit_s


@app.command(cls=Command)
@takes_rollout
def apply(
    context: typer.Context,
    files: FilesArgument = None,
    file: FilesOption = None,
    group: TargetOption = "",
    wait: WaitOption = "",
    timeout: PushTimeoutOption = "",
    message: MessageOption = "",
    if_match: IfMatchOption = "",
    dry_run: Annotated[
        str,
        typer.Option(
            help="Change nothing: show what would change (server), or check the files only (client).", metavar="[=WHO]"
        ),
    ] = "",
    prune: Annotated[bool, typer.Option("--prune", help="Delete groups that have no file.")] = False,
    strict: StrictFlag = False,
    allow_empty: EmptyFlag = False,
    allow_none: NoneFlag = False,
    yes: YesFlag = False,
    *,
    rollout: Json,
) -> None:
    """Replace the snapshot of a group by files. What they do not contain is removed.

    Other groups are not changed, unless --prune is given.

    \b
    Examples:
      xds apply -g edge -f edge/ --wait
      xds apply edge.yaml --dry-run
      xds apply -f groups/ --prune -m "as in git"
      xds apply -g edge -f edge/ --canary 1,10%,50% --wait
    """
    from xds.cli.apply import apply as push
    from xds.cli.apply import show_answers, wait_for_pushes
    from xds.cli.files import read_sources

    options, given = shared(context), named_files(files, file)
    if dry_run not in {"", "server", "client"}:
        raise CommandError(Exit.USAGE, f"--dry-run={dry_run}: expected server or client")
    percent, timeout_s = parse_percent(wait) if wait else 0.0, wait_limit_s(timeout, rollout)
    if dry_run == "client":
        from xds.cli.checks import Checks
        from xds.cli.validate import check_files, show_checked

        show_checked(check_files(given, group, Checks()), options.output, "warning" if strict else "error")
        return
    client, sources = options.connect(), read_sources(given, group)
    how = {**write_options(message, dry_run=bool(dry_run), allow_empty=allow_empty, strict=strict), **rollout}
    answers, deletions = push(client, sources, how, if_match, prune=prune, yes=yes)
    show_answers([*answers, *deletions], options.output or options.style().format)
    if percent and not dry_run:
        wait_for_pushes(client, answers, percent, timeout_s, allow_none=allow_none)


@app.command(cls=Command)
@takes_rollout
def put(
    context: typer.Context,
    files: FilesArgument = None,
    file: FilesOption = None,
    group: GroupOption = "default",
    create: Annotated[bool, typer.Option("--create", help="Create the group if it does not exist.")] = False,
    wait: WaitOption = "",
    timeout: PushTimeoutOption = "",
    message: MessageOption = "",
    if_match: IfMatchOption = "",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would change; change nothing.")] = False,
    strict: StrictFlag = False,
    allow_none: NoneFlag = False,
    *,
    rollout: Json,
) -> None:
    """Add or replace single resources of a group. All others are kept.

    \b
    Examples:
      xds put -g edge -f cluster.yaml --wait
      xds get cluster web -g edge -o yaml | sed s/8080/8081/ | xds put -g edge -f -
    """
    from xds.cli.apply import put_resources

    options, given = shared(context), named_files(files, file)
    percent = parse_percent(wait) if wait else 0.0
    began_s, timeout_s = time.monotonic(), wait_limit_s(timeout, rollout)
    client = options.connect()
    how = {**write_options(message, dry_run=dry_run, strict=strict), **rollout}
    answer = put_resources(client, given, group, how, if_match, create=create)
    show_answer(answer, options.output)
    if percent and not dry_run:
        wait_for_push(client, answer, percent, timeout_s, began_s, allow_none=allow_none)
