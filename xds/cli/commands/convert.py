"""Command ``convert``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from xds.cli.app import Command, app, shared


@app.command(cls=Command)
def convert(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(help="An Envoy configuration (YAML or JSON), or - (standard input).")],
    split: Annotated[
        bool, typer.Option("--split", help="Make endpoints and routes separate resources (EDS, RDS).")
    ] = False,
    snapshot: Annotated[Path | None, typer.Option(help="File for the snapshot (default: standard output).")] = None,
    bootstrap: Annotated[Path | None, typer.Option(help="File for the bootstrap, which has everything else.")] = None,
    node_id: Annotated[str, typer.Option(help="Node id for the bootstrap if the file has none.")] = "envoy-1",
    cluster: Annotated[str, typer.Option(help="Node cluster for the bootstrap if the file has none.")] = "default",
    xds_addr: Annotated[str, typer.Option(help="HOST:PORT of the xDS server, for the bootstrap.")] = "",
) -> None:
    """Convert the static resources of an Envoy configuration to a snapshot.

    \b
    Examples:
      xds convert envoy.yaml --snapshot edge.yaml --bootstrap bootstrap.yaml
      xds convert envoy.yaml | xds apply -g edge -f -
    """
    from xds.cli.arguments import parse_address
    from xds.cli.convert import Outputs, convert_file
    from xds.control.bootstrap import BootstrapOptions
    from xds.control.settings_sections import GRPC_PORT, LOOPBACK

    host, port = parse_address(xds_addr) if xds_addr else (LOOPBACK, GRPC_PORT)
    outputs = Outputs(snapshot, bootstrap, shared(context).document_format())
    convert_file(file, BootstrapOptions(node_id, cluster, host, port), split, outputs)
