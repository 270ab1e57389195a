"""Command ``check``."""

from __future__ import annotations

from typing import Annotated

import typer

from xds.cli.app import Command, app, shared
from xds.cli.commands.options import TimeoutOption
from xds.cli.errors import CommandError, Exit


@app.command(cls=Command)
def check(
    context: typer.Context,
    wait: Annotated[bool, typer.Option("--wait", help="Wait until the server is ready.")] = False,
    timeout: TimeoutOption = "60s",
    ready: Annotated[
        bool, typer.Option("--ready", help="Only check that the server is ready (/readyz); needs no token.")
    ] = False,
) -> None:
    """Check the server's health, point by point; exits 1 if a check fails.

    \b
    Examples:
      xds check
      xds check --wait --timeout 2m
      xds check --ready
    """
    from xds.cli.arguments import parse_duration
    from xds.cli.health import CHECKS, FAILED, check_all, check_ready, wait_until_ready
    from xds.cli.table import write_items

    options = shared(context)
    client, timeout_s = options.connect(), parse_duration(timeout)
    if wait:
        wait_until_ready(client, timeout_s)
    found = check_ready(client) if ready else check_all(client)
    write_items(found, CHECKS, options.style())
    failed = [item["check"] for item in found if item["state"] == FAILED]
    if failed:
        raise CommandError(Exit.NEGATIVE, f"failed: {', '.join(failed)}")
