"""``xds bootstrap``: the configuration with which a proxy or a gRPC library connects to the server."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from xds.cli.app import Command, app, shared
from xds.cli.output import say
from xds.envoy.bootstrap import ADMIN_HOST, BootstrapMode
from xds.envoy.bootstrap import bootstrap as build
from xds.model.node import Locality

# Envoy takes these from its own command line, where the bootstrap leaves them out.
ENVOY_FLAGS = "--service-node ID --service-cluster CLUSTER --service-zone ZONE"

# Who the proxy is.
NodeIdOption = Annotated[
    str | None, typer.Option(help="The proxy's node id (envoy-1). It also chooses the group of that name.")
]
ClusterOption = Annotated[
    str | None, typer.Option(help="The proxy's cluster (default). It also chooses the group of that name.")
]
ServiceNodeFlag = Annotated[
    bool, typer.Option("--service-node", help=f"Leave id, cluster and zone to Envoy's own flags: {ENVOY_FLAGS}.")
]
RegionOption = Annotated[str, typer.Option(help="The region of the proxy's locality.")]
ZoneOption = Annotated[str, typer.Option(help="The zone of the locality.")]
SubZoneOption = Annotated[str, typer.Option(help="The sub-zone of the locality.")]
MetadataOption = Annotated[
    list[str] | None,
    typer.Option(
        help="A field of the node's metadata, for selectors; VALUE may be JSON. Dots in KEY nest, `\\.` does not.",
        metavar="KEY=VALUE",
    ),
]

# How it reaches the server, and what it shows there.
AddressOption = Annotated[str, typer.Option(help="HOST:PORT of the server (gRPC; HTTP with --mode rest).")]
ModeOption = Annotated[
    BootstrapMode, typer.Option(help="The protocol between proxy and server; grpc: bootstrap of a gRPC library.")
]
AdminPortOption = Annotated[
    int, typer.Option(help="Envoy's admin port on its loopback; 0: Envoy takes a free one.", min=0, max=65535)
]
CaOption = Annotated[str, typer.Option(help="PEM file of trusted certificate authorities; turns TLS on.")]
CertificateOption = Annotated[str, typer.Option("--cert", help="PEM file of the proxy's certificate.")]
KeyOption = Annotated[str, typer.Option("--key", help="PEM file of its key.")]
TokenOption = Annotated[str, typer.Option(help="The proxy's bearer token; others may see it in the process list.")]
TokenFileOption = Annotated[
    Path | None, typer.Option(help="File with the proxy's bearer token; it is written into the bootstrap.")
]
ProxyTokenFileOption = Annotated[
    str, typer.Option(help="File on the proxy's machine with its token, read when Envoy starts; not in the bootstrap.")
]
ReadyAddressOption = Annotated[
    str, typer.Option(help="HOST:PORT where Envoy answers GET /ready and /stats/prometheus to other machines.")
]
InsecureFlag = Annotated[
    bool, typer.Option("--insecure", help="Let the proxy send its token without TLS beyond the loopback.")
]
LoadReportsFlag = Annotated[bool, typer.Option("--lrs/--no-lrs", help="Report load; not with --mode rest.")]

OutputOption = Annotated[
    str, typer.Option("-o", "--output", help="json or yaml, or a file, which only you may read.", metavar="FILE")
]


@app.command(cls=Command)
def bootstrap(
    context: typer.Context,
    node_id: NodeIdOption = None,
    cluster: ClusterOption = None,
    service_node: ServiceNodeFlag = False,
    xds_addr: AddressOption = "",
    mode: ModeOption = BootstrapMode.ADS_DELTA,
    admin_port: AdminPortOption = 0,
    region: RegionOption = "",
    zone: ZoneOption = "",
    sub_zone: SubZoneOption = "",
    metadata: MetadataOption = None,
    ca: CaOption = "",
    cert: CertificateOption = "",
    key: KeyOption = "",
    token: TokenOption = "",
    token_file: TokenFileOption = None,
    proxy_token_file: ProxyTokenFileOption = "",
    ready_addr: ReadyAddressOption = "",
    insecure: InsecureFlag = False,
    lrs: LoadReportsFlag = True,
    output: OutputOption = "",
) -> None:
    """Write a bootstrap for Envoy or a gRPC library. Needs no running server.

    XDS_TOKEN and the token of a context are yours, and never get into a bootstrap.

    \b
    Examples:
      xds bootstrap --node-id edge-1 --cluster edge > envoy.yaml && envoy -c envoy.yaml
      xds bootstrap --token-file edge.token --ca ca.pem --xds-addr xds.example:18000 -o envoy.yaml
      xds bootstrap --service-node --metadata tier=web --metadata 'limits={"rps": 5}' > envoy.yaml
      xds bootstrap --mode grpc -o json > bootstrap.json
    """
    from xds.cli.bootstrap import bootstrap_options, proxy_token, with_token_file_and_probes, write_bootstrap

    options = bootstrap_options(
        *(node_id, cluster, xds_addr, mode, admin_port),
        *(Locality(region, zone, sub_zone), metadata or (), (ca, cert, key)),
        proxy_token(token, token_file or shared(context).token_file, mode),
        is_left_to_envoy=service_node,
        is_insecure=insecure,
        load_reports=lrs,
    )
    options = with_token_file_and_probes(options, proxy_token_file, ready_addr, is_insecure=insecure)
    write_bootstrap(build(options), output, shared(context).document_format())
    if mode is not BootstrapMode.GRPC:
        _say_next(options.node_id, admin_port, is_left_to_envoy=service_node)


def _say_next(name: str, admin_port: int, *, is_left_to_envoy: bool) -> None:
    """How to start the Envoy, and where its admin page will be."""
    if is_left_to_envoy:
        say(f"start the proxy with `envoy -c FILE {ENVOY_FLAGS}`: without an id it is refused")
    if admin_port:
        say(f"Envoy's admin page: http://{ADMIN_HOST}:{admin_port}, also in `xds describe node {name or 'ID'}`")
    else:
        say("Envoy takes a free port for its admin page and logs it as `admin address`; --admin-port sets one")
