"""``xds auth``: which principal may be which node, and the caller's own principal."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from time import time
from typing import Annotated, Any

import typer

from xds.access.certificate import Certificate, read_pem
from xds.calls import server
from xds.cli.app import Command, app, command_family, shared
from xds.cli.errors import CommandError, Exit, file_errors
from xds.cli.output import write_answer
from xds.cli.table import Column, Style, TableLayout, rendered

Json = dict[str, Any]

FILE_LIMIT_BYTES = 1 << 20

RULES = TableLayout(
    name="rule",
    columns=(
        Column("RULE", "rule"),
        Column("PRINCIPAL", "principal"),
        Column("ALLOWS", lambda item: "yes" if item["allows"] else "no", lambda item: "good" if item["allows"] else ""),
        Column("DETAIL", "detail", is_prose=True),
    ),
)

auth = command_family("auth", "Test which principal may be which node; show your own.")


def question(
    node_id: str, cert: Path | None, token: str, cluster: str, metadata: Sequence[str], place: tuple[str, str, str]
) -> Json:
    """The request for the server: the names in the certificate, never its file. Raises ``CommandError``."""
    if (cert is None) == (not token):
        raise CommandError(Exit.USAGE, "give either --cert or --token")
    body: Json = {
        "node": {
            "id": node_id,
            "cluster": cluster,
            "metadata": dict(map(_pair, metadata)),
            "locality": dict(zip(("region", "zone", "sub_zone"), place, strict=True)),
        }
    }
    if cert is not None:
        certificate = _certificate(cert)
        body["certificate"] = {"uris": list(certificate.uris), "dns": list(certificate.dns), "cn": certificate.cn}
    if token:
        body["token"] = token
    return body


def verdict_text(verdict: Json, style: Style) -> str:
    """The answer as text."""
    group = f"{verdict['group']} (by {verdict['chosen_by']})" if verdict["group"] else "none matches"
    head = [
        f"principal: {', '.join(verdict['principals']) or 'none'}",
        f"scopes:    {', '.join(verdict['scopes'])}",
        f"node:      {verdict['node']}",
        f"group:     {group}",
        f"mode:      {verdict['mode']}",
        f"allowed:   {'yes' if verdict['allowed'] else 'no'}",
    ]
    text = "".join(f"{line}\n" for line in head)
    return f"{text}\n{rendered(verdict['rules'], RULES, style)}" if verdict["rules"] else text


def caller_text(caller: Json) -> str:
    """The principal and the scopes of the caller as text."""
    if not caller["authenticated"]:
        who = "none; the server requires no credentials"
    else:
        who = ", ".join(caller["principals"]) or "a token without a name"
    return f"principal: {who}\nname:      {caller['name'] or '-'}\nscopes:    {', '.join(caller['scopes'])}\n"


def _certificate(file: Path) -> Certificate:
    try:
        with file_errors(file), file.open("rb") as stream:
            certificate = read_pem(stream.read(FILE_LIMIT_BYTES).decode("ascii"))
    except ValueError as error:
        raise CommandError(Exit.USAGE, f"{file}: {error}") from None
    if certificate.not_after <= time():
        raise CommandError(Exit.NEGATIVE, f"{file}: the certificate has expired")
    return certificate


def _pair(text: str) -> tuple[str, str]:
    key, mark, value = text.partition("=")
    if not key or not mark:
        raise CommandError(Exit.USAGE, f"--metadata {text!r}: expected KEY=VALUE")
    return key, value


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
    region: Annotated[str, typer.Option(help="The region of the proxy's locality.")] = "",
    zone: Annotated[str, typer.Option(help="The zone of the locality.")] = "",
    sub_zone: Annotated[str, typer.Option(help="The sub-zone of the locality.")] = "",
) -> None:
    """Test whether a certificate or token may be a node. Exits 1 if not.

    --cert is the proxy's certificate. Set your own, if the server requires one, in XDS_CERT and XDS_KEY.

    \b
    Examples:
      xds auth test --cert edge-1.pem --node-id edge-1
      xds auth test --token edge-fleet --node-id edge-1 --cluster edge --metadata NAMESPACE=shop
    """
    options = shared(context)
    body = question(node_id, cert, token, cluster, metadata or [], (region, zone, sub_zone))
    verdict = options.connect().run(server.test_access(body))
    write_answer(options.output, verdict, lambda: verdict_text(verdict, options.style()))
    if not verdict["allowed"]:
        raise CommandError(Exit.NEGATIVE, verdict["reason"])


@app.command(cls=Command)
@auth.command(cls=Command)
def whoami(context: typer.Context) -> None:
    """Show your principal and scopes, as the server sees them.

    \b
    Examples:
      xds whoami
      xds whoami --token-file ci.token -o json
    """
    options = shared(context)
    caller = options.connect().run(server.whoami())
    write_answer(options.output, caller, lambda: caller_text(caller), [caller["name"]])
