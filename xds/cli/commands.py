"""The subcommands' arguments; what they do is in modules of their own, imported when they run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from xds.cli.failure import CommandError, Exit
from xds.cli.output import Format, say, write_document
from xds.control.bootstrap import Mode

Json = dict[str, Any]

app = typer.Typer(
    name="xds",
    help="An Envoy-compatible xDS management server, and its client.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

ServerOption = Annotated[str, typer.Option("--server", help="Admin API of the server, also by XDS_ADDR.")]
OutputOption = Annotated[Format, typer.Option("-o", "--output", help="How data is written.")]
MaybeOutputOption = Annotated[Format | None, typer.Option("-o", "--output", help="How data is written.")]
GroupFilter = Annotated[str, typer.Option("-g", "--group", help="Only this group.")]


@contextmanager
def _failing() -> Iterator[None]:
    """Errors as a message and an exit code."""
    try:
        yield
    except CommandError as error:
        say(f"xds: {error}")
        raise typer.Exit(error.code) from None
    except KeyboardInterrupt:
        raise typer.Exit(Exit.INTERRUPTED) from None


def _version(wanted: bool) -> None:
    if wanted:
        import xds

        typer.echo(f"xds-server {xds.__version__}")
        raise typer.Exit


@app.callback()
def _main(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    return


@app.command()
def serve(
    grpc: Annotated[str, typer.Option(help="HOST:PORT for xDS clients (default 127.0.0.1:18000).")] = "",
    http: Annotated[str, typer.Option(help="HOST:PORT of the admin API and REST xDS (default 127.0.0.1:18080).")] = "",
    data: Annotated[str, typer.Option(help="Directory of the embedded store (default ./xds-data).")] = "",
    store: Annotated[str, typer.Option(help="memory or sqlite (default).")] = "",
    config: Annotated[Path | None, typer.Option(help="YAML file of settings.", envvar="XDS_CONFIG")] = None,
    insecure: Annotated[bool, typer.Option(help="Allow other machines in without TLS and credentials.")] = False,
    log_level: Annotated[str, typer.Option(help="debug, info, warning or error.")] = "",
) -> None:
    """Run the server until SIGTERM or SIGINT."""
    from xds.cli.flags import serve_flags
    from xds.control.settings import SettingsError, load_settings
    from xds.model.errors import XdsError

    with _failing():
        flags = serve_flags(grpc, http, data, store, insecure, log_level)
        try:
            settings = load_settings(config, flags)
        except SettingsError as error:
            raise CommandError(Exit.USAGE, str(error)) from None
        from xds.cli.serve import serve as run

        try:
            run(settings)
        except (XdsError, OSError, ValueError) as error:
            raise CommandError(Exit.NEGATIVE, f"cannot serve: {error}") from None


@app.command()
def bootstrap(
    node_id: Annotated[str, typer.Option(help="How the proxy names itself; also a group that it follows.")] = "envoy-1",
    cluster: Annotated[str, typer.Option(help="The proxy's cluster; also a group that it follows.")] = "default",
    xds_addr: Annotated[str, typer.Option(help="HOST:PORT of the server (gRPC; HTTP with --mode rest).")] = "",
    mode: Annotated[Mode, typer.Option(help="How it talks to the server; grpc: a gRPC library.")] = Mode.ADS_DELTA,
    admin_port: Annotated[int, typer.Option(help="Envoy's admin port on the loopback; 0: any.", min=0, max=65535)] = 0,
    region: Annotated[str, typer.Option()] = "",
    zone: Annotated[str, typer.Option()] = "",
    sub_zone: Annotated[str, typer.Option()] = "",
    ca: Annotated[str, typer.Option(help="File of authorities to trust; turns TLS on.")] = "",
    cert: Annotated[str, typer.Option(help="File of the proxy's certificate.")] = "",
    key: Annotated[str, typer.Option(help="File of its key.")] = "",
    token: Annotated[str, typer.Option(help="Bearer token for the server.", envvar="XDS_TOKEN")] = "",
    lrs: Annotated[bool, typer.Option("--lrs", help="Report load.")] = False,
    output: OutputOption = Format.YAML,
) -> None:
    """Write a ready-to-run bootstrap for Envoy or a gRPC library."""
    from xds.cli.flags import parse_address
    from xds.control.bootstrap import BootstrapOptions, ClientTls
    from xds.control.bootstrap import bootstrap as build
    from xds.control.settings import GRPC_PORT, HTTP_PORT, LOOPBACK
    from xds.model.node import Locality

    with _failing():
        default = f"{LOOPBACK}:{HTTP_PORT if mode is Mode.REST else GRPC_PORT}"
        host, port = parse_address(xds_addr or default)
        tls = ClientTls(ca, cert, key) if ca else None
        locality = Locality(region, zone, sub_zone)
        options = BootstrapOptions(
            node_id, cluster, host, port, mode, admin_port, locality, tls, token=token, load_reports=lrs
        )
        write_document(build(options), Format.JSON if output is Format.JSON else Format.YAML)


@app.command()
def apply(
    file: Annotated[list[Path], typer.Option("-f", "--file", help="File, directory or - (standard input).")],
    group: Annotated[str, typer.Option("-g", "--group", help="Default: the name of the file or directory.")] = "",
    wait: Annotated[str, typer.Option(help="Until the connected nodes have it.", metavar="[=PERCENT]")] = "",
    timeout: Annotated[str, typer.Option(help="How long to wait.")] = "60s",
    message: Annotated[str, typer.Option("-m", "--message", help="Why; kept with the revision.")] = "",
    if_match: Annotated[str, typer.Option(help="Only if the group is at this revision or etag.")] = "",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would change, change nothing.")] = False,
    allow_empty: Annotated[bool, typer.Option("--allow-empty", help="The group may become empty.")] = False,
    server: ServerOption = "",
    output: OutputOption = Format.TABLE,
) -> None:
    """Replace the whole snapshot of a group."""
    from xds.cli.apply import ApplyOptions, parse_duration, parse_percent
    from xds.cli.apply import apply as push
    from xds.cli.client import Client
    from xds.cli.sources import read_sources

    with _failing():
        percent = parse_percent(wait) if wait else 0.0
        options = ApplyOptions(message, if_match, dry_run, allow_empty, percent, parse_duration(timeout), output)
        push(Client(server), read_sources(file, group), options)


@app.command()
def get(
    kind: Annotated[str, typer.Argument(help="groups, snapshot, resources, or a type such as clusters.")],
    name: Annotated[str, typer.Argument(help="One resource of the type.")] = "",
    group: Annotated[str, typer.Option("-g", "--group")] = "default",
    server: ServerOption = "",
    output: MaybeOutputOption = None,
) -> None:
    """Show groups, snapshots and resources."""
    from xds.cli import show
    from xds.cli.client import Client

    with _failing():
        client = Client(server)
        match kind:
            case "groups":
                show.show_groups(client, output or Format.TABLE)
            case "snapshot":
                show.show_snapshot(client, group, output)
            case "resources":
                show.show_resources(client, group, output or Format.TABLE)
            case _:
                show.show_type(client, group, kind, name, output)


@app.command()
def nodes(
    group: GroupFilter = "",
    state: Annotated[str, typer.Option(help="Only nodes with a type that is synced, pending or nacked.")] = "",
    server: ServerOption = "",
    output: OutputOption = Format.TABLE,
) -> None:
    """Show which proxy has what."""
    from xds.cli.client import Client
    from xds.cli.show import show_nodes

    with _failing():
        show_nodes(Client(server), _given(group=group, state=state), output)


@app.command()
def nacks(
    group: GroupFilter = "",
    node: Annotated[str, typer.Option(help="Only this node.")] = "",
    type: Annotated[str, typer.Option(help="Only this type.")] = "",
    since: Annotated[str, typer.Option(help="Only those of the last 1h, 15m ...")] = "",
    state: Annotated[str, typer.Option(help="open or resolved.")] = "",
    server: ServerOption = "",
    output: OutputOption = Format.TABLE,
) -> None:
    """Show who refused what, and why."""
    from xds.cli.client import Client
    from xds.cli.show import show_nacks

    with _failing():
        show_nacks(Client(server), _given(group=group, node=node, type=type, since=since, state=state), output)


def _given(**filters: str) -> dict[str, str]:
    return {name: value for name, value in filters.items() if value}


def run(arguments: list[str]) -> None:
    """Run one command and end the process with its exit code."""
    # An option whose value may be left out is beyond the argument parser.
    app(["--wait=100%" if argument == "--wait" else argument for argument in arguments], prog_name="xds")
