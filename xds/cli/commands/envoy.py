"""``xds envoy``: an Envoy that takes its configuration from the server, without a bootstrap file of one's own."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from xds.cli.app import ServerCommand, app
from xds.cli.commands.bootstrap import (
    AddressOption,
    AdminPortOption,
    CaOption,
    CertificateOption,
    ClusterOption,
    InsecureFlag,
    KeyOption,
    LoadReportsFlag,
    MetadataOption,
    ModeOption,
    NodeIdOption,
    RegionOption,
    ServiceNodeFlag,
    SubZoneOption,
    TokenFileOption,
    TokenOption,
    ZoneOption,
)
from xds.cli.errors import CommandError, Exit
from xds.envoy.bootstrap import BootstrapMode
from xds.model.node import Locality


@app.command(cls=ServerCommand)
def envoy(
    flags: Annotated[
        list[str] | None, typer.Argument(help="Flags of Envoy, behind `--`.", metavar="[-- FLAG...]")
    ] = None,
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
    insecure: InsecureFlag = False,
    lrs: LoadReportsFlag = True,
    binary: Annotated[
        Path,
        typer.Option("--envoy", help="This binary; auto: the one of the extra `envoy`, or on the path.", metavar="BIN"),
    ] = Path("auto"),
) -> None:
    """Run an Envoy that this server configures, until it is ended.

    Takes the options of `xds bootstrap`. The bootstrap is in a file that only you may read, and that is removed at the
    end. Envoy gets the signals that this command gets, and its exit code is that of this command; without an Envoy it
    is 4.

    \b
    Examples:
      xds envoy
      xds envoy --node-id edge-1 --admin-port 19000 -- -l warning
      xds envoy --token-file edge.token --ca ca.pem --xds-addr xds.example:18000
    """
    from xds.cli.bootstrap import bootstrap_options, proxy_token
    from xds.cli.envoy_binary import envoy_binary
    from xds.cli.envoy_process import run_envoy

    if mode is BootstrapMode.GRPC:
        raise CommandError(Exit.USAGE, "--mode grpc: a bootstrap of a gRPC library, which Envoy does not read")
    options = bootstrap_options(
        *(node_id, cluster, xds_addr, mode, admin_port),
        *(Locality(region, zone, sub_zone), metadata or (), (ca, cert, key)),
        proxy_token(token, token_file, mode),
        is_left_to_envoy=service_node,
        is_insecure=insecure,
        load_reports=lrs,
    )
    raise typer.Exit(run_envoy(envoy_binary(binary, Exit.NOT_FOUND), options, flags or ()))
