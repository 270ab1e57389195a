"""``xds troubleshoot``: why requests through a proxy to a cluster fail, step by step."""

from __future__ import annotations

from typing import Annotated

import typer

from xds.cli.app import Command, app, shared
from xds.cli.completion import complete_held_cluster, complete_node
from xds.cli.errors import CommandError, Exit
from xds.cli.health import FAILED
from xds.cli.table import write_items


@app.command(cls=Command)
def troubleshoot(
    context: typer.Context,
    node: Annotated[str, typer.Argument(help="The node's id.", autocompletion=complete_node)],
    to: Annotated[
        str,
        typer.Option(
            "--to",
            help="The cluster that requests should reach.",
            metavar="CLUSTER",
            autocompletion=complete_held_cluster,
        ),
    ],
) -> None:
    """Follow a request through a proxy to a cluster. With listener, route, cluster, endpoints, certificates, load.

    Checks the configuration that the proxy has, as its ACKs prove. A step that is not ok names a command for
    details. Exits 1 if a step failed.

    \b
    Examples:
      xds troubleshoot edge-1 --to web
      xds troubleshoot edge-1 --to web -o json
    """
    from xds.cli.path_check import STEPS, check_path

    options = shared(context)
    steps = list(check_path(options.connect(), node, to))
    write_items(steps, STEPS, options.style())
    failed = [f"{item['step']} ({item['detail']})" for item in steps if item["state"] == FAILED]
    if failed:
        raise CommandError(Exit.NEGATIVE, f"failed: {', '.join(failed)}")
