"""Command ``init``."""

from __future__ import annotations

from typing import Annotated

import typer

from xds.cli.app import ServerCommand, app
from xds.cli.templates import Template, write_template


@app.command(cls=ServerCommand)
def init(
    template: Annotated[
        Template,
        typer.Argument(
            help="hello: a route to an upstream; tls: a listener with a certificate; weighted: two versions behind one"
            " route; canary: to try careful rollouts; mesh: a folder with config entries.",
        ),
    ] = Template.HELLO,
    output: Annotated[
        str,
        typer.Option(
            "-o", "--output", help="Write here (TEMPLATE.yaml, or the folder mesh); -: print.", metavar="FILE"
        ),
    ] = "",
) -> None:
    """Write a commented snapshot to begin with.

    It listens on the loopback only, and says at its beginning how to use it. An existing file is never overwritten.

    \b
    Examples:
      xds init && xds apply -g default -f hello.yaml --wait
      xds init weighted -o split.yaml
      xds init tls -o -
    """
    write_template(template, output)
