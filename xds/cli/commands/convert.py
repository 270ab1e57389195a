"""``convert``."""

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
        bool, typer.Option("--split", help="Endpoints and routes as resources of their own (EDS, RDS).")
    ] = False,
    snapshot: Annotated[Path | None, typer.Option(help="Write the snapshot here, not to standard output.")] = None,
    bootstrap: Annotated[Path | None, typer.Option(help="Write the bootstrap that is left of it here.")] = None,
    node_id: Annotated[str, typer.Option(help="The node's id where the file names none.")] = "envoy-1",
    cluster: Annotated[str, typer.Option(help="Its cluster likewise.")] = "default",
    xds_addr: Annotated[str, typer.Option(help="HOST:PORT of the server, for the bootstrap.")] = "",
) -> None:
    """Make a snapshot of the static resources of an existing Envoy configuration.

    \b
    Examples:
      xds convert envoy.yaml --snapshot edge.yaml --bootstrap bootstrap.yaml
      xds convert envoy.yaml | xds apply -g edge -f -
    """
    from xds.cli.arguments import parse_address
    from xds.cli.convert import Outputs, convert_file
    from xds.control.bootstrap import BootstrapOptions
    from xds.control.settings import GRPC_PORT, LOOPBACK

    host, port = parse_address(xds_addr) if xds_addr else (LOOPBACK, GRPC_PORT)
    outputs = Outputs(snapshot, bootstrap, shared(context).document_format())
    convert_file(file, BootstrapOptions(node_id, cluster, host, port), split, outputs)
