"""Command ``load``."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from xds.cli.app import Command, app, shared


class By(StrEnum):
    """How the load of a cluster is broken down."""

    LOCALITY = "locality"
    NODE = "node"
    ENDPOINT = "endpoint"


@app.command(cls=Command)
def load(
    context: typer.Context,
    cluster: Annotated[str, typer.Argument(help="Only this cluster, broken down.")] = "",
    by: Annotated[By, typer.Option(help="One row per locality, node or endpoint.")] = By.LOCALITY,
    window: Annotated[
        str, typer.Option(help="Time over which load is averaged, such as 60s or 5m; at most 1h.", metavar="DURATION")
    ] = "60s",
    service: Annotated[str, typer.Option(help="Only this EDS service name.")] = "",
    watch: Annotated[bool, typer.Option("-w", "--watch", help="Refresh every two seconds.")] = False,
) -> None:
    """Show the load that proxies report: requests per second, errors, requests in progress, drops.

    \b
    Examples:
      xds load
      xds load web --by node --window 5m
      xds load web -w
    """
    from xds.cli.arguments import given, parse_duration
    from xds.cli.events import show_regularly
    from xds.cli.load import cluster_load, cluster_text, load_text, summary
    from xds.cli.output import say, write

    options = shared(context)
    client, style = options.connect(), options.style()
    query = {"window": f"{parse_duration(window):g}"}
    if not cluster:
        if watch:
            show_regularly(lambda: load_text(client, query, style))
        else:
            write(load_text(client, query, style))
        return
    query |= given(by=by.value, service_name=service)
    if watch:
        show_regularly(lambda: cluster_text(cluster_load(client, cluster, query), style))
        return
    found = cluster_load(client, cluster, query)
    write(cluster_text(found, style))
    if style.is_table:
        say(summary(found))
