"""Command ``version``."""

from __future__ import annotations

import typer

from xds.cli.app import Command, app, shared
from xds.cli.output import Format, write, write_document


@app.command(cls=Command)
def version(context: typer.Context) -> None:
    """Show the versions of this command and of the server.

    \b
    Examples:
      xds version
      xds version -o json
    """
    from xds.cli.health import versions

    known_versions = versions(shared(context).connect())
    if shared(context).output in {Format.JSON, Format.YAML, Format.JSONL}:
        write_document(known_versions, shared(context).document_format())
    else:
        write(f"client {known_versions['client']}\nserver {known_versions['server'] or '-'}\n")
