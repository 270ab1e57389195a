"""``whoami``."""

from __future__ import annotations

import typer

from xds.cli.app import Command, app, shared


@app.command(cls=Command)
def whoami(context: typer.Context) -> None:
    """Show who the server takes you for, and what you may do.

    \b
    Examples:
      xds whoami
      xds whoami --token-file ci.token -o json
    """
    from xds.cli.output import Format, write, write_document
    from xds.cli.whoami import caller_line

    options = shared(context)
    found = options.connect().call("GET", "/whoami")
    if options.output in {Format.JSON, Format.YAML, Format.JSONL}:
        write_document(found, options.document_format())
    else:
        write(f"{found['name'] if options.output is Format.NAME else caller_line(found)}\n")
