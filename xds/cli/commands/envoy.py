"""``xds envoy``: an Envoy that takes its configuration from the server, without a bootstrap file of one's own."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from xds.cli.app import ServerCommand, app
from xds.cli.errors import CommandError, Exit
from xds.cli.option_group import takes
from xds.cli.proxy_arguments import InsecureFlag, LoadReportsFlag, ProxyArguments
from xds.envoy.bootstrap import BootstrapMode


@app.command(cls=ServerCommand)
@takes(ProxyArguments, "proxy")
def envoy(
    proxy: ProxyArguments,
    flags: Annotated[
        list[str] | None, typer.Argument(help="Flags of Envoy, behind `--`.", metavar="[-- FLAG...]")
    ] = None,
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
    from xds.cli.bootstrap import bootstrap_options
    from xds.cli.envoy_binary import envoy_binary
    from xds.cli.envoy_process import run_envoy

    if proxy.mode is BootstrapMode.GRPC:
        raise CommandError(Exit.USAGE, "--mode grpc: a bootstrap of a gRPC library, which Envoy does not read")
    options = bootstrap_options(proxy, proxy.token_file, is_insecure=insecure, load_reports=lrs)
    raise typer.Exit(run_envoy(envoy_binary(binary, Exit.NOT_FOUND), options, flags or ()))
