"""Command ``version``."""

from __future__ import annotations

import typer

from xds.cli.app import Command, app, shared
from xds.cli.health import versions
from xds.cli.output import write_answer


@app.command(cls=Command)
def version(context: typer.Context) -> None:
    """Show the versions of this command and of the server.

    \b
    Examples:
      xds version
      xds version -o json
    """
    known = versions(shared(context).connect())
    text = f"client {known['client']}\nserver {known['server'] or '-'}\n"
    write_answer(shared(context).output, known, lambda: text)
