"""The options of ``xds bootstrap`` and ``xds envoy`` about a proxy."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from xds.envoy.bootstrap import BootstrapMode

# Envoy takes these from its own command line, where the bootstrap leaves them out.
ENVOY_FLAGS = "--service-node ID --service-cluster CLUSTER --service-zone ZONE"

InsecureFlag = Annotated[
    bool, typer.Option("--insecure", help="Let the proxy send its token without TLS beyond the loopback.")
]
LoadReportsFlag = Annotated[bool, typer.Option("--lrs/--no-lrs", help="Report load; not with --mode rest.")]


@dataclass(frozen=True, slots=True)
class ProxyArguments:
    """Who the proxy is, how it reaches the server, and what it shows there."""

    node_id: Annotated[
        str | None, typer.Option(help="The proxy's node id (envoy-1). It also chooses the group of that name.")
    ] = None
    cluster: Annotated[
        str | None, typer.Option(help="The proxy's cluster (default). It also chooses the group of that name.")
    ] = None
    service_node: Annotated[
        bool, typer.Option("--service-node", help=f"Leave id, cluster and zone to Envoy's own flags: {ENVOY_FLAGS}.")
    ] = False
    xds_addr: Annotated[str, typer.Option(help="HOST:PORT of the server (gRPC; HTTP with --mode rest).")] = ""
    mode: Annotated[
        BootstrapMode, typer.Option(help="The protocol between proxy and server; grpc: bootstrap of a gRPC library.")
    ] = BootstrapMode.ADS_DELTA
    admin_port: Annotated[
        int, typer.Option(help="Envoy's admin port on its loopback; 0: Envoy takes a free one.", min=0, max=65535)
    ] = 0
    region: Annotated[str, typer.Option(help="The region of the proxy's locality.")] = ""
    zone: Annotated[str, typer.Option(help="The zone of the locality.")] = ""
    sub_zone: Annotated[str, typer.Option(help="The sub-zone of the locality.")] = ""
    metadata: Annotated[
        list[str] | None,
        typer.Option(
            help="A field of the node's metadata, for selectors; VALUE may be JSON. Dots in KEY nest, `\\.` does not.",
            metavar="KEY=VALUE",
        ),
    ] = None
    ca: Annotated[str, typer.Option(help="PEM file of trusted certificate authorities; turns TLS on.")] = ""
    cert: Annotated[str, typer.Option("--cert", help="PEM file of the proxy's certificate.")] = ""
    key: Annotated[str, typer.Option("--key", help="PEM file of its key.")] = ""
    token: Annotated[str, typer.Option(help="The proxy's bearer token; others may see it in the process list.")] = ""
    token_file: Annotated[
        Path | None, typer.Option(help="File with the proxy's bearer token; it is written into the bootstrap.")
    ] = None
