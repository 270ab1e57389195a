"""Commands ``auth test`` and ``whoami``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from xds.cli.app import Command, app, shared
from xds.cli.errors import CommandError, Exit

auth = typer.Typer(
    help="Test which principal may be which node; show your own principal.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
app.add_typer(auth, name="auth")


@auth.command(cls=Command)
def test(
    context: typer.Context,
    node_id: Annotated[str, typer.Option(help="The proxy's node id.")],
    cert: Annotated[
        Path | None, typer.Option("--cert", help="PEM file of the proxy's certificate; its key is not needed.")
    ] = None,
    token: Annotated[
        str, typer.Option(help="Name of the proxy's token in the server's settings (not the token itself).")
    ] = "",
    cluster: Annotated[str, typer.Option(help="The proxy's node cluster.")] = "",
    metadata: Annotated[
        list[str] | None, typer.Option(help="A value of the node's metadata; may be repeated.", metavar="KEY=VALUE")
    ] = None,
    region: Annotated[str, typer.Option(help="The proxy's locality.")] = "",
    zone: Annotated[str, typer.Option(help="Likewise.")] = "",
    sub_zone: Annotated[str, typer.Option(help="Likewise.")] = "",
) -> None:
    """Test whether the node rules allow a certificate or token to be a node; exits 1 if not.

    --cert is the proxy's certificate. Your own, if the server asks for one, is in XDS_CERT and XDS_KEY.

    \b
    Examples:
      xds auth test --cert edge-1.pem --node-id edge-1
      xds auth test --token edge-fleet --node-id edge-1 --cluster edge --metadata NAMESPACE=shop
    """
    from xds.cli.access import question, verdict_text
    from xds.cli.output import Format, write, write_document

    options = shared(context)
    asked = question(node_id, cert, token, cluster, metadata or [], (region, zone, sub_zone))
    found = options.connect().call("POST", "/auth/test", body=asked)
    if options.output in {Format.JSON, Format.YAML, Format.JSONL}:
        write_document(found, options.document_format())
    else:
        write(verdict_text(found, options.style()))
    if not found["allowed"]:
        raise CommandError(Exit.NEGATIVE, found["reason"])


@app.command(cls=Command)
@auth.command(cls=Command)
def whoami(context: typer.Context) -> None:
    """Show your principal and scopes, as the server sees them.

    \b
    Examples:
      xds whoami
      xds whoami --token-file ci.token -o json
    """
    from xds.cli.access import caller_text
    from xds.cli.output import Format, write, write_document

    options = shared(context)
    found = options.connect().call("GET", "/whoami")
    if options.output in {Format.JSON, Format.YAML, Format.JSONL}:
        write_document(found, options.document_format())
    else:
        write(f"{found['name']}\n" if options.output is Format.NAME else caller_text(found))
