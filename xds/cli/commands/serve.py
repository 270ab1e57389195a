"""Commands ``serve``, ``bootstrap`` and ``version``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from xds.cli.app import Command, ServerCommand, app, shared
from xds.cli.errors import CommandError, Exit
from xds.control.bootstrap import BootstrapMode

DEV_DIRECTORY = "xds.d"


@app.command(cls=ServerCommand)
def serve(
    grpc: Annotated[str, typer.Option(help="HOST:PORT for xDS clients (default 127.0.0.1:18000).")] = "",
    http: Annotated[str, typer.Option(help="HOST:PORT of the admin API and REST xDS (default 127.0.0.1:18080).")] = "",
    data: Annotated[str, typer.Option(help="Directory of the embedded store (default ./xds-data).")] = "",
    store: Annotated[str, typer.Option(help="memory or sqlite (default).")] = "",
    config: Annotated[Path | None, typer.Option(help="YAML file of settings.", envvar="XDS_CONFIG")] = None,
    watch: Annotated[
        Path | None,
        typer.Option(
            help="Apply the files of this directory whenever they change; each file or subdirectory is a group."
        ),
    ] = None,
    prune: Annotated[
        bool, typer.Option("--prune", help="With --watch: when a file is deleted, delete its group.")
    ] = False,
    dev: Annotated[
        bool, typer.Option("--dev", help=f"For experiments: store nothing, and watch ./{DEV_DIRECTORY}.")
    ] = False,
    lrs_interval: Annotated[
        str, typer.Option(help="How often clients report their load (default 10s).", metavar="DURATION")
    ] = "",
    insecure: Annotated[
        bool, typer.Option("--insecure", help="Listen beyond the loopback without TLS and credentials.")
    ] = False,
    log_level: Annotated[str, typer.Option(help="debug, info, warning or error.")] = "",
) -> None:
    """Run the server until SIGTERM or SIGINT.

    \b
    Examples:
      xds serve
      xds serve --dev
      xds serve --store memory --watch ./snapshots
      xds serve --grpc 0.0.0.0:18000 --config xds.yaml
    """
    from xds.cli.arguments import serve_flags
    from xds.control.settings import SettingsError, auth_files, load_settings
    from xds.model.errors import XdsError

    if dev:
        store = store or "memory"
        watch = watch or (Path(DEV_DIRECTORY) if Path(DEV_DIRECTORY).is_dir() else None)
    flags = serve_flags(grpc, http, data, store, insecure, log_level, str(watch or ""), prune, lrs_interval)
    try:
        settings = load_settings(config, flags)
    except SettingsError as error:
        raise CommandError(Exit.USAGE, str(error)) from None
    from xds.cli.serve import serve as run

    try:
        run(settings, read=lambda: load_settings(config, flags), files=auth_files(config))
    except (XdsError, OSError, ValueError) as error:
        raise CommandError(Exit.NEGATIVE, f"cannot serve: {error}") from None


@app.command(cls=Command)
def bootstrap(
    context: typer.Context,
    node_id: Annotated[
        str, typer.Option(help="The proxy's node id. It also chooses the group of that name.")
    ] = "envoy-1",
    cluster: Annotated[
        str, typer.Option(help="The proxy's cluster. It also chooses the group of that name.")
    ] = "default",
    xds_addr: Annotated[str, typer.Option(help="HOST:PORT of the server (gRPC; HTTP with --mode rest).")] = "",
    mode: Annotated[
        BootstrapMode, typer.Option(help="The protocol between proxy and server; grpc: bootstrap of a gRPC library.")
    ] = BootstrapMode.ADS_DELTA,
    admin_port: Annotated[
        int, typer.Option(help="Envoy's admin port on its loopback; 0: Envoy takes a free one.", min=0, max=65535)
    ] = 0,
    region: Annotated[str, typer.Option(help="The region of the proxy's locality.")] = "",
    zone: Annotated[str, typer.Option(help="The zone of the locality.")] = "",
    sub_zone: Annotated[str, typer.Option(help="The sub-zone of the locality.")] = "",
    ca: Annotated[str, typer.Option(help="PEM file of trusted certificate authorities; turns TLS on.")] = "",
    cert: Annotated[str, typer.Option("--cert", help="PEM file of the proxy's certificate.")] = "",
    key: Annotated[str, typer.Option("--key", help="PEM file of its key.")] = "",
    token: Annotated[str, typer.Option(help="Bearer token for the server.", envvar="XDS_TOKEN")] = "",
    lrs: Annotated[bool, typer.Option("--lrs/--no-lrs", help="Report load; not with --mode rest.")] = True,
) -> None:
    """Write a bootstrap for Envoy or a gRPC library; needs no running server.

    \b
    Examples:
      xds bootstrap --node-id edge-1 --cluster edge > envoy.yaml && envoy -c envoy.yaml
      xds bootstrap --mode grpc -o json > bootstrap.json
    """
    from xds.cli.arguments import parse_address
    from xds.cli.output import say, write_document
    from xds.control.bootstrap import ADMIN_HOST, BootstrapOptions, ClientTls
    from xds.control.bootstrap import bootstrap as build
    from xds.control.settings_sections import GRPC_PORT, HTTP_PORT, LOOPBACK
    from xds.model.node import Locality

    default = f"{LOOPBACK}:{HTTP_PORT if mode is BootstrapMode.REST else GRPC_PORT}"
    host, port = parse_address(xds_addr or default)
    if not node_id:
        raise CommandError(Exit.USAGE, "--node-id: a proxy without an id is refused")
    try:
        tls = ClientTls.of(ca, cert, key)
    except ValueError as error:
        raise CommandError(Exit.USAGE, f"--ca, --cert, --key: {error}") from None
    locality = Locality(region, zone, sub_zone)
    options = BootstrapOptions(
        node_id, cluster, host, port, mode, admin_port, locality, tls, token=token, load_reports=lrs
    )
    write_document(build(options), shared(context).document_format())
    if mode is BootstrapMode.GRPC:
        return
    if admin_port:
        say(f"Envoy's admin page: http://{ADMIN_HOST}:{admin_port}, also in `xds describe node {node_id}`")
    else:
        say("Envoy takes a free port for its admin page and logs it as `admin address`; --admin-port sets one")


@app.command(cls=Command)
def version(context: typer.Context) -> None:
    """Show the version of this command, and of the server if one answers.

    \b
    Examples:
      xds version
      xds version -o json
    """
    from xds.cli.commands.health import versions
    from xds.cli.output import Format, write, write_document

    known_versions = versions(shared(context).connect())
    if shared(context).output in {Format.JSON, Format.YAML, Format.JSONL}:
        write_document(known_versions, shared(context).document_format())
    else:
        write(f"client {known_versions['client']}\nserver {known_versions['server'] or '-'}\n")
