"""``xds bootstrap``: the configuration with which a proxy or a gRPC library connects to the server."""

from __future__ import annotations

from typing import Annotated

import typer

from xds.cli.app import Command, app, shared
from xds.cli.option_group import takes
from xds.cli.output import say
from xds.cli.proxy_arguments import ENVOY_FLAGS, InsecureFlag, LoadReportsFlag, ProxyArguments
from xds.envoy.bootstrap import ADMIN_HOST, BootstrapMode
from xds.envoy.bootstrap import bootstrap as build


@app.command(cls=Command)
@takes(ProxyArguments, "proxy")
def bootstrap(
    context: typer.Context,
    proxy: ProxyArguments,
    proxy_token_file: Annotated[
        str,
        typer.Option(help="File on the proxy's machine with its token, read when Envoy starts; not in the bootstrap."),
    ] = "",
    ready_addr: Annotated[
        str, typer.Option(help="HOST:PORT where Envoy answers GET /ready and /stats/prometheus to other machines.")
    ] = "",
    insecure: InsecureFlag = False,
    lrs: LoadReportsFlag = True,
    output: Annotated[
        str, typer.Option("-o", "--output", help="json or yaml, or a file, which only you may read.", metavar="FILE")
    ] = "",
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
    from xds.cli.bootstrap import bootstrap_options, with_token_file_and_probes, write_bootstrap

    token_file = proxy.token_file or shared(context).token_file
    options = bootstrap_options(proxy, token_file, is_insecure=insecure, load_reports=lrs)
    options = with_token_file_and_probes(options, proxy_token_file, ready_addr, is_insecure=insecure)
    write_bootstrap(build(options), output, shared(context).document_format())
    if proxy.mode is not BootstrapMode.GRPC:
        _say_next(options.node_id, proxy.admin_port, is_left_to_envoy=proxy.service_node)


def _say_next(name: str, admin_port: int, *, is_left_to_envoy: bool) -> None:
    """How to start the Envoy, and where its admin page will be."""
    if is_left_to_envoy:
        say(f"start the proxy with `envoy -c FILE {ENVOY_FLAGS}`: without an id it is refused")
    if admin_port:
        say(f"Envoy's admin page: http://{ADMIN_HOST}:{admin_port}, also in `xds describe node {name or 'ID'}`")
    else:
        say("Envoy takes a free port for its admin page and logs it as `admin address`; --admin-port sets one")
