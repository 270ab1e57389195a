"""Commands ``apply`` and ``put``."""

from __future__ import annotations

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
    TimeoutOption,
    WaitOption,
    YesFlag,
)
from xds.cli.errors import CommandError, Exit


@app.command(cls=Command)
def apply(
    context: typer.Context,
    files: FilesArgument = None,
    file: FilesOption = None,
    group: TargetOption = "",
    wait: WaitOption = "",
    timeout: TimeoutOption = "60s",
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
) -> None:
    """Replace the snapshot of a group by files. What they do not contain is removed.

    Other groups are not changed, unless --prune is given.

    \b
    Examples:
      xds apply -g edge -f edge/ --wait
      xds apply edge.yaml --dry-run
      xds apply -f groups/ --prune -m "as in git"
    """
    from xds.cli.apply import ApplyOptions, DryRun
    from xds.cli.apply import apply as push
    from xds.cli.arguments import named_files, parse_duration, parse_percent
    from xds.cli.files import read_sources
    from xds.cli.validate import Checks, check_files, show_checked

    options, given = shared(context), named_files(files, file)
    if dry_run not in set(DryRun):
        raise CommandError(Exit.USAGE, f"--dry-run={dry_run}: expected server or client")
    wanted = ApplyOptions(
        message=message,
        if_match=if_match,
        dry_run=DryRun(dry_run),
        allow_empty=allow_empty,
        strict=strict,
        prune=prune,
        yes=yes,
        wait_percent=parse_percent(wait) if wait else 0.0,
        allow_none=allow_none,
        timeout_s=parse_duration(timeout),
        format=options.output or options.style().format,
    )
    if wanted.dry_run is DryRun.CLIENT:
        show_checked(check_files(given, group, Checks()), options.output, "warning" if strict else "error")
    else:
        push(options.connect(), read_sources(given, group), wanted)


@app.command(cls=Command)
def put(
    context: typer.Context,
    files: FilesArgument = None,
    file: FilesOption = None,
    group: GroupOption = "default",
    create: Annotated[bool, typer.Option("--create", help="Create the group if it does not exist.")] = False,
    wait: WaitOption = "",
    timeout: TimeoutOption = "60s",
    message: MessageOption = "",
    if_match: IfMatchOption = "",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would change; change nothing.")] = False,
    strict: StrictFlag = False,
    allow_none: NoneFlag = False,
) -> None:
    """Add or replace single resources of a group. All others are kept.

    \b
    Examples:
      xds put -g edge -f cluster.yaml --wait
      xds get cluster web -g edge -o yaml | sed s/8080/8081/ | xds put -g edge -f -
    """
    import time

    from xds.cli.apply import put_resources
    from xds.cli.arguments import named_files, parse_duration, parse_percent
    from xds.cli.push_options import show_answer, write_options
    from xds.cli.wait import wait_for

    options, given = shared(context), named_files(files, file)
    percent = parse_percent(wait) if wait else 0.0
    end = time.monotonic() + parse_duration(timeout)
    client = options.connect()
    how = write_options(message, dry_run=dry_run, strict=strict)
    answer = put_resources(client, given, group, how, if_match, create=create)
    show_answer(answer, options.output)
    if percent and not dry_run:
        wait_for(client, group, answer["revision"], percent, end, allow_none=allow_none)
