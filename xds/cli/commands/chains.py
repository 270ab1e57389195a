"""``chain``."""

from __future__ import annotations

from typing import Annotated

import typer

from xds.cli.app import Command, app, shared
from xds.cli.chains import ChainFormat


@app.command(cls=Command)
def chain(
    context: typer.Context,
    service: Annotated[str, typer.Argument(help="The service.")],
    path: Annotated[str, typer.Option(help="The path of a request, with or without a query.", metavar="PATH")] = "",
    method: Annotated[str, typer.Option(help="The method of the request; GET by default.")] = "",
    header: Annotated[
        list[str] | None, typer.Option(help="A header of the request; may be repeated.", metavar="NAME=VALUE")
    ] = None,
    query: Annotated[
        list[str] | None, typer.Option(help="A query parameter; may be repeated.", metavar="NAME=VALUE")
    ] = None,
    output: Annotated[ChainFormat | None, typer.Option("-o", "--output", help="How it is written.")] = None,
) -> None:
    """Show the discovery chain of a service, or, given a request, which way it goes and why.

    \b
    Examples:
      xds chain web
      xds chain web -o dot | dot -Tsvg > web.svg
      xds chain web --path /admin --header x-debug=1
      xds chain web --method POST --query page=2
    """
    from xds.cli.chains import chain_format, shown_chain, shown_walk, walk_query
    from xds.cli.output import write

    options = shared(context)
    format = chain_format(output, options.output)
    if path or method or header or query:
        request = walk_query(path, method, header or (), query or ())
        write(shown_walk(options.connect(), service, request, format))
    else:
        write(shown_chain(options.connect(), service, format))
