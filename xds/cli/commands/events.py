"""Commands ``watch`` and ``audit``."""

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
    node: Annotated[str, typer.Option(help="Only events of this node.")] = "",
    since: Annotated[str, typer.Option(help="Start after this event id; 0: start with the oldest.", metavar="ID")] = "",
) -> None:
    """Print events as they happen, until interrupted. Reconnects lose no events.

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
    since: Annotated[str, typer.Option(help="Only entries since this time (RFC 3339) or age, such as 1h or 15m.")] = "",
    cursor: Annotated[str, typer.Option(help="Only entries after an earlier list (its cursor).")] = "",
    group: GroupFilter = "",
    actor: Annotated[str, typer.Option(help="Only entries of this authenticated actor.")] = "",
    action: Annotated[str, typer.Option(help="Only this action, such as push, rollback, group.configured.")] = "",
    refused: Annotated[
        bool | None, typer.Option("--refused/--no-refused", help="Only refused requests, or none of them.")
    ] = None,
) -> None:
    """List all writes and refused writes, with actor, time and address; oldest first.

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
