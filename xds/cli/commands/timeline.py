"""Command ``timeline``: what happened to a proxy."""

from __future__ import annotations

from typing import Any

import typer

from xds.calls import fleet
from xds.cli.app import Command, app, shared
from xds.cli.arguments import NodeArgument
from xds.cli.lingering import first_names
from xds.cli.output import say, write
from xds.cli.table import Column, TableLayout, rendered

Json = dict[str, Any]

_STYLES = {"nacked": "bad", "acked": "warn", "disconnected": "warn", "orphaned": "warn", "connected": "good"}


def _text(item: Json) -> str:
    """``head: wave 1 of 4``, ``from blue``, ``a, b: bad port``."""
    names = item.get("names", ())
    before = item.get("line", "") or (first_names(names, len(names)) if names else "")
    texts = (f"from {item['previous']}" if item.get("previous") else "", before, item.get("text", ""))
    by = f" (by {item['by']})" if item.get("by") else ""
    return ": ".join(filter(None, texts)) + by


TIMELINE = TableLayout(
    name="kind",
    columns=(
        Column("TIME", "time", is_time=True),
        Column("WHAT", "kind", lambda item: _STYLES.get(item["kind"], "")),
        Column("GROUP", "group"),
        Column("REVISION", lambda item: "" if item["revision"] is None else str(item["revision"])),
        Column("TYPE", lambda item: item.get("type", "")),
        Column("SERVER", lambda item: item.get("server", ""), is_wide=True),
        Column("NACK", lambda item: str(item.get("nack", "")), is_wide=True),
        Column("TEXT", _text, is_prose=True),
    ),
)


@app.command(cls=Command)
def timeline(context: typer.Context, node: NodeArgument) -> None:
    """Show what happened to a proxy, newest first. That is what it was sent, rejected and ACKed late, and its moves.

    \b
    Examples:
      xds timeline edge-1
      xds timeline edge-1 -o json
    """
    options = shared(context)
    style = options.style()
    found = options.connect().run(fleet.timeline(node, limit=options.limit or None))
    write(rendered(found["items"], TIMELINE, style, f"nothing is known of node {node} yet"))
    if found["truncated"] and style.is_table:
        say("earlier items are left out")
