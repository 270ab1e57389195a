"""``xds sources``: the sources of instances and their states."""

from __future__ import annotations

from typing import Annotated

import typer

from xds.cli.app import Command, app, shared
from xds.cli.output import DOCUMENTS, write_document
from xds.cli.table import Column, TableLayout, write_items
from xds.services import calls
from xds.services.commands.completion import complete_source

_STYLES = {"reading": "good", "starting": "dim", "failing": "bad", "removed": "warn"}


SOURCES = TableLayout(
    name="name",
    columns=(
        Column("NAME", "name"),
        Column("KIND", "kind"),
        Column("STATE", "state", lambda item: _STYLES.get(item["state"], "")),
        Column("SERVICES", "services_n"),
        Column("INSTANCES", "instances_n"),
        Column("READ", "read_at", is_time=True),
        Column("HELD", "held_n", lambda item: "bad" if item["held_n"] else ""),
        Column(
            "LEFT OUT",
            "findings_n",
            lambda item: "warn" if item["findings_n"] else "",
            is_prose=True,
        ),
        Column("DETAIL", "trouble", is_prose=True),
        Column("CHANGES", "changes_n", is_wide=True),
        Column("FAILURES", "failures_n", is_wide=True),
        Column("RESTARTS", "restarts_n", is_wide=True),
        Column("WAITING", "waiting_n", is_wide=True),
    ),
)

FINDINGS = TableLayout(
    name=lambda item: f"{item['source']} {item['service']}".strip(),
    columns=(
        Column("SERVICE", "service"),
        Column("PLACE", lambda item: " ".join(part for part in (item["source"], item["pointer"]) if part)),
        Column(
            "LEFT OUT",
            lambda item: f"{item['detail']}; {item['hint']}" if item["hint"] else item["detail"],
            is_prose=True,
        ),
    ),
)


@app.command(cls=Command)
def sources(
    context: typer.Context,
    name: Annotated[
        str, typer.Argument(help="Only this source, with the findings about it.", autocompletion=complete_source)
    ] = "",
) -> None:
    """Show the sources of instances, and whether each is readable.

    \b
    Examples:
      xds sources
      xds sources targets
      xds sources -o wide
    """
    options = shared(context)
    client, style = options.connect(), options.style()
    if not name:
        hint = "no sources: docs/services.md describes how to configure one"
        write_items(client.items(calls.sources()), SOURCES, style, hint)
        return
    item = client.run(calls.source(name))
    if options.output in DOCUMENTS:
        write_document(item, options.output)
        return
    write_items([item], SOURCES, style)
    if item["findings"] and style.is_table:
        write_items(item["findings"], FINDINGS, style)
