"""Commands ``rollout status``, ``history`` and ``undo``."""

from __future__ import annotations

from typing import Annotated

import typer

from xds.cli.app import Command, app, shared
from xds.cli.commands.options import EmptyFlag, IfMatchOption, MessageOption, NoneFlag, TimeoutOption, WaitOption

rollout = typer.Typer(
    help="Show the progress of a push and the history of a group; roll back.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
app.add_typer(rollout, name="rollout")

GroupArgument = Annotated[str, typer.Argument(help="The group.")]


@rollout.command(cls=Command)
def status(
    context: typer.Context,
    group: GroupArgument,
    wait: WaitOption = "",
    timeout: TimeoutOption = "60s",
    allow_none: NoneFlag = False,
) -> None:
    """Show how many nodes run the group's revision; exits 1 if a node rejects it.

    \b
    Examples:
      xds rollout status edge
      xds rollout status edge --wait=90% --timeout 2m
    """
    from xds.cli.arguments import parse_duration, parse_percent
    from xds.cli.rollout import show_status, wait_until_done

    options = shared(context)
    percent = parse_percent(wait) if wait else 0.0
    timeout_s = parse_duration(timeout)
    client = options.connect()
    if percent:
        wait_until_done(client, group, percent, timeout_s, allow_none=allow_none)
    show_status(client, group, options.style(), percent or 100.0)


@rollout.command(cls=Command)
def history(
    context: typer.Context,
    group: GroupArgument,
    endpoints: Annotated[bool, typer.Option(help="Include pushes that changed only endpoints.")] = True,
) -> None:
    """List the revisions of a group, newest first: kind, author, whether it was undone.

    \b
    Examples:
      xds rollout history edge
      xds rollout history edge --no-endpoints
      xds rollout history edge --limit 5 --timestamps
    """
    from xds.cli.client import group_path
    from xds.cli.rollout import HISTORY
    from xds.cli.table import write_items

    options = shared(context)
    query = {"endpoints": str(endpoints).lower()}
    write_items(options.connect().items(group_path(group, "/revisions"), query), HISTORY, options.style())


@rollout.command(cls=Command)
def undo(
    context: typer.Context,
    group: GroupArgument,
    to: Annotated[int, typer.Option(help="The revision to go back to; 0: chosen as described above.", min=0)] = 0,
    endpoints: Annotated[bool, typer.Option("--endpoints", help="Roll endpoints back too.")] = False,
    message: MessageOption = "",
    if_match: IfMatchOption = "",
    wait: WaitOption = "",
    timeout: TimeoutOption = "60s",
    allow_none: NoneFlag = False,
    allow_empty: EmptyFlag = False,
) -> None:
    """Roll back: make a new revision with the content of an earlier one.

    Without --to it takes back the last change of configuration: it goes to the last revision before that one that was
    neither undone nor refused, or asks. Clusters keep the endpoints that they have now.

    \b
    Examples:
      xds rollout undo edge --wait
      xds rollout undo edge --to 41 -m "502s since 42"
    """
    import time

    from xds.cli.arguments import parse_duration, parse_percent
    from xds.cli.push_options import if_match as header
    from xds.cli.push_options import push_query, show_answer
    from xds.cli.rollout import roll_back
    from xds.cli.wait import wait_for

    options = shared(context)
    percent = parse_percent(wait) if wait else 0.0
    end = time.monotonic() + parse_duration(timeout)
    client = options.connect()
    query = push_query(message, allow_empty=allow_empty)
    answer = roll_back(client, group, to, endpoints, query, header(if_match))
    show_answer(answer, options.output)
    if percent:
        wait_for(client, group, answer["revision"], percent, end, allow_none=allow_none)
