"""Command ``sources``."""

from __future__ import annotations

from typing import Annotated

import typer

from xds.cli.app import Command, app, shared


@app.command(cls=Command)
def sources(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="Only this source, with what of it is left out.")] = "",
) -> None:
    """Show where the instances of services come from, and whether each source can be read.

    \b
    Examples:
      xds sources
      xds sources targets
      xds sources -o wide
    """
    from xds.cli.sources import list_sources, show_source

    options = shared(context)
    client, style = options.connect(), options.style()
    if name:
        show_source(client, name, style, options.output)
    else:
        list_sources(client, style)
