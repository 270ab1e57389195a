"""``xds destination get``, ``profile`` and ``explain``: the answers to a Linkerd proxy."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

from xds.calls.server import config
from xds.cli.additions import ADDITIONS, ExplanationPart
from xds.cli.app import Command, command_family, shared
from xds.cli.arguments import parse_address
from xds.cli.client import Client
from xds.cli.output import Format, write_document
from xds.cli.shared_options import Shared
from xds.cli.table import Style, rendered
from xds.linkerd import calls
from xds.linkerd.tables import DESTINATIONS, streams_text

destination = command_family("destination", "Request destinations as a Linkerd proxy does.")

Authority = Annotated[str, typer.Argument(help="Name or address, with a port: web.default.svc.cluster.local:80.")]
Token = Annotated[str, typer.Option("--token", help='Context token, such as {"ns": "shop"}.', metavar="JSON")]
Address = Annotated[
    str,
    typer.Option("--xds-addr", help="The gRPC port (default: as the admin API reports it).", metavar="HOST:PORT"),
]
Watch = Annotated[bool, typer.Option("-w", "--watch", help="Print changes until interrupted.")]


@destination.command(cls=Command)
def get(
    context: typer.Context,
    authority: Authority,
    token: Token = "",
    xds_addr: Address = "",
    watch: Watch = False,
    conduit: Annotated[bool, typer.Option("--conduit", help="Use the API of 2018.")] = False,
) -> None:
    """Request the endpoints of a destination as a proxy does. Prints one line per added or removed endpoint.

    \b
    Examples:
      xds destination get web.default.svc.cluster.local:80
      xds destination get web:80 --watch
      xds destination get web:80 -o json
    """
    from xds.linkerd.grpc_client import endpoint_lines, follow_endpoints

    options = shared(context)
    is_json = options.output in {Format.JSON, Format.JSONL}
    for update in follow_endpoints(_target(options, xds_addr), authority, token, conduit=conduit, follows=watch):
        if is_json:
            typer.echo(json.dumps(update))
        else:
            for line in endpoint_lines(update):
                typer.echo(line)


@destination.command(cls=Command)
def profile(
    context: typer.Context,
    authority: Authority,
    token: Token = "",
    xds_addr: Address = "",
    watch: Watch = False,
) -> None:
    """Request the profile of a destination as a proxy does. Prints each version of it.

    \b
    Examples:
      xds destination profile web.default.svc.cluster.local:80
      xds destination profile 10.96.0.10:80 -o json
    """
    from xds.linkerd.grpc_client import follow_profiles

    options = shared(context)
    for version in follow_profiles(_target(options, xds_addr), authority, token, follows=watch):
        write_document(version, options.document_format())


@destination.command(cls=Command)
def explain(context: typer.Context, authority: Authority, token: Token = "") -> None:
    """Explain a Linkerd proxy's answers for a destination. That is their origin, and what Linkerd's API cannot express.

    \b
    Examples:
      xds destination explain web.default.svc.cluster.local:80
    """
    options = shared(context)
    explanation = options.connect().run(calls.destination(authority, token=token))
    write_document(explanation, options.document_format())


def _target(options: Shared, address: str) -> Any:
    from xds.linkerd.grpc_client import GrpcTarget

    if address:
        parse_address(address)
        return GrpcTarget(address, *options.files)
    server, files = options.access()
    client = Client(server, *files)
    port = client.run(config())["server"]["grpc"]["port"]
    return GrpcTarget(f"{client.host}:{port}", *files)


# Additions to the kernel's commands


def _answers(explanation: dict[str, Any], style: Style) -> str:
    return rendered(explanation["linkerd"], DESTINATIONS, style) if explanation.get("linkerd") else ""


ADDITIONS.node_notes.append(streams_text)
ADDITIONS.explanation_parts.append(ExplanationPart(_answers, "Linkerd proxies are served services without a group"))
