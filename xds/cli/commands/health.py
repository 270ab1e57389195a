"""``check``, ``watch``."""

from __future__ import annotations

from typing import Annotated

import typer

from xds.cli.app import Command, app, shared
from xds.cli.commands.options import GroupFilter, TimeoutOption
from xds.cli.failure import CommandError, Exit


@app.command(cls=Command)
def check(
    context: typer.Context,
    wait: Annotated[bool, typer.Option("--wait", help="Until the server is ready.")] = False,
    timeout: TimeoutOption = "60s",
) -> None:
    """Check the server's health, point by point; exits 1 when one of them is bad.

    \b
    Examples:
      xds check
      xds check --wait --timeout 2m
    """
    from xds.cli.health import CHECKS, FAILED, check_all, wait_until_ready
    from xds.cli.table import write_items
    from xds.cli.values import parse_duration

    options = shared(context)
    client, timeout_s = options.connect(), parse_duration(timeout)
    if wait:
        wait_until_ready(client, timeout_s)
    found = check_all(client)
    write_items(found, CHECKS, options.style())
    failed = [item["check"] for item in found if item["state"] == FAILED]
    if failed:
        raise CommandError(Exit.NEGATIVE, f"failed: {', '.join(failed)}")


@app.command(cls=Command)
def watch(
    context: typer.Context,
    kinds: Annotated[
        str,
        typer.Option(
            help="push, rollback, group, nack, order, node, stream, assignment, auth, ack; by default all but ack."
        ),
    ] = "",
    group: GroupFilter = "",
    node: Annotated[str, typer.Option(help="Only this node.")] = "",
    since: Annotated[str, typer.Option(help="Begin behind this event; 0: with the oldest known.", metavar="ID")] = "",
) -> None:
    """Show what happens, as it happens, until interrupted; nothing is missed across reconnects.

    \b
    Examples:
      xds watch
      xds watch --kinds nack,push -g edge -o json
    """
    from xds.cli.following import read_events
    from xds.cli.output import Format, write, write_document
    from xds.cli.values import given
    from xds.cli.watching import event_line

    options = shared(context)
    if since and not since.isdecimal():
        raise CommandError(Exit.USAGE, f"not the id of an event: {since!r}")
    for at, event in enumerate(read_events(options.connect(), given(kinds=kinds, group=group, node=node), since), 1):
        if options.output in {Format.JSON, Format.JSONL}:
            write_document(event, Format.JSONL)
        elif options.output is Format.YAML:
            write_document([event], Format.YAML)
        else:
            write(event_line(event))
        if at == options.limit:
            return
