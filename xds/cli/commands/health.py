"""``check``, ``watch``, ``audit``."""

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
    ready: Annotated[
        bool, typer.Option("--ready", help="Only whether it is ready (/readyz), which needs no token.")
    ] = False,
) -> None:
    """Check the server's health, point by point; exits 1 when one of them is bad.

    \b
    Examples:
      xds check
      xds check --wait --timeout 2m
      xds check --ready
    """
    from xds.cli.health import CHECKS, FAILED, check_all, check_ready, wait_until_ready
    from xds.cli.table import write_items
    from xds.cli.values import parse_duration

    options = shared(context)
    client, timeout_s = options.connect(), parse_duration(timeout)
    if wait:
        wait_until_ready(client, timeout_s)
    found = check_ready(client) if ready else check_all(client)
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
            help="push, rollback, group, nack, order, watch, node, stream, assignment, auth, store, ack;"
            " by default all but ack."
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
    for at, event in enumerate(read_events(options.connect(), given(kinds=kinds, group=group, node=node), since), 1):
        if options.output in {Format.JSON, Format.JSONL}:
            write_document(event, Format.JSONL)
        elif options.output is Format.YAML:
            write_document([event], Format.YAML)
        else:
            write(event_line(event))
        if at == options.limit:
            return


@app.command(cls=Command)
def audit(
    context: typer.Context,
    since: Annotated[str, typer.Option(help="Only the last 1h, 15m ..., or since a time (RFC 3339).")] = "",
    cursor: Annotated[str, typer.Option(help="Only what came behind an earlier list.")] = "",
    group: GroupFilter = "",
    actor: Annotated[str, typer.Option(help="Only by this authenticated name.")] = "",
    action: Annotated[str, typer.Option(help="Only this, such as push, rollback, group.configured.")] = "",
    refused: Annotated[
        bool | None, typer.Option("--refused/--no-refused", help="Only what was refused, or nothing of it.")
    ] = None,
) -> None:
    """Show who wrote what, when and from where, and who was turned away; the oldest first.

    \b
    Examples:
      xds audit --since 24h
      xds audit -g edge --no-refused -o jsonl
    """
    from xds.cli.audit import AUDIT, read_audit
    from xds.cli.table import write_items
    from xds.cli.values import given

    options = shared(context)
    chosen = "" if refused is None else str(refused).lower()
    filters = given(group=group, actor=actor, action=action, since=since, refused=chosen)
    write_items(read_audit(options.connect(), filters, cursor), AUDIT, options.style())
