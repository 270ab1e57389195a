"""``watch``, ``audit``."""

from __future__ import annotations

from typing import Annotated

import typer

from xds.cli.app import Command, app, shared
from xds.cli.commands.options import GroupFilter


@app.command(cls=Command)
def watch(
    context: typer.Context,
    kinds: Annotated[
        str,
        typer.Option(
            help="push, rollback, group, config_entries, nack, order, watch, node, stream, assignment, auth, store,"
            " ack; by default all but ack."
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
    from xds.cli.arguments import given
    from xds.cli.events import event_line, read_events
    from xds.cli.output import Format, write, write_document

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
    from xds.cli.arguments import given
    from xds.cli.events import AUDIT, read_audit
    from xds.cli.table import write_items

    options = shared(context)
    chosen = "" if refused is None else str(refused).lower()
    filters = given(group=group, actor=actor, action=action, since=since, refused=chosen)
    write_items(read_audit(options.connect(), filters, cursor), AUDIT, options.style())
