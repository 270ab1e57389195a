"""``xds check``: the health of the server."""

from __future__ import annotations

from typing import Annotated

import typer

from xds.cli.app import Command, app, shared
from xds.cli.arguments import TimeoutOption, parse_duration
from xds.cli.errors import CommandError, Exit
from xds.cli.fitting import terminal_width
from xds.cli.health import CHECKS, FAILED, WARNING, check_all, check_ready, wait_until_ready
from xds.cli.output import say
from xds.cli.table import write_items


@app.command(cls=Command)
def check(
    context: typer.Context,
    wait: Annotated[bool, typer.Option("--wait", help="Wait until the server is ready.")] = False,
    timeout: TimeoutOption = "60s",
    ready: Annotated[
        bool, typer.Option("--ready", help="Only check that the server is ready (/readyz); needs no token.")
    ] = False,
) -> None:
    """Check the server's health. Exits 1 if a check fails.

    docs/operations.md of the project has a section for each check.

    \b
    Examples:
      xds check
      xds check --wait --timeout 2m
      xds check --ready
    """
    options = shared(context)
    client, timeout_s = options.connect(), parse_duration(timeout)
    if wait:
        wait_until_ready(client, timeout_s)
    results = check_ready(client) if ready else check_all(client)
    write_items(results, CHECKS, options.style())
    if options.style().is_table and terminal_width():
        for item in results:
            if item["state"] == WARNING:  # whole, since the table shortens it; what has failed is told as the error
                hint = f"; next: {item['next']}" if item["next"] else ""
                say(f"warning: {item['check']} ({item['detail']}{hint})")
    failed = [f"{item['check']} ({item['detail']})" for item in results if item["state"] == FAILED]
    if failed:
        raise CommandError(Exit.NEGATIVE, f"failed: {', '.join(failed)}")
