"""Command ``members``."""

from __future__ import annotations

from typing import Any

import typer

from xds.calls import server
from xds.cli.app import Command, app, shared
from xds.cli.errors import CommandError, Exit
from xds.cli.table import Column, TableLayout, write_items

Json = dict[str, Any]


def _state(item: Json) -> str:
    problem = item["problem"]
    return "does not answer" if problem is None else problem or "ok"


MEMBERS = TableLayout(
    name="id",
    columns=(
        Column("SERVER", "id"),
        Column("VERSION", "version"),
        Column("AGE", "started", is_time=True),
        Column("SEEN", lambda item: f"{item['silent_s']:.0f}s ago"),
        Column("STREAMS", lambda item: "-" if item["streams"] is None else str(item["streams"])),
        Column("LAG", lambda item: "-" if item["lag_s"] is None else f"{item['lag_s']:g}s"),
        Column("LEASE", lambda item: "holds" if item["is_holder"] else ""),
        Column("STATE", _state, lambda item: "good" if item["problem"] == "" else "bad", is_prose=True),
        Column("URL", "url", is_wide=True),
    ),
    in_order="id",
)


@app.command(cls=Command)
def members(context: typer.Context) -> None:
    """List the servers that share the database. Exits 1 if one does not answer.

    \b
    Examples:
      xds members
      xds members -o wide
    """
    options = shared(context)
    answer = options.connect().run(server.members())
    write_items(answer["items"], MEMBERS, options.style())
    if answer.get("partial"):
        raise CommandError(Exit.NEGATIVE, f"did not answer: {', '.join(answer['partial'])}")
