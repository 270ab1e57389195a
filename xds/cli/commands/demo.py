"""Command ``demo``."""

from __future__ import annotations

from typing import Annotated

import typer

from xds.cli.app import ServerCommand, app


@app.command(cls=ServerCommand)
def demo(
    once: Annotated[bool, typer.Option("--once", help="End after the request, for scripts.")] = False,
) -> None:
    """Show a request through an Envoy that a server configures.

    Starts a server, an upstream and an Envoy on the loopback, pushes a snapshot, sends a request, and runs until
    Ctrl-C. Leaves nothing behind. Without an Envoy it says how to get one; with --once the exit code is 4 then.

    \b
    Examples:
      xds demo
      xds demo --once
    """
    from xds.cli.demo import run_demo

    run_demo(is_once=once)
