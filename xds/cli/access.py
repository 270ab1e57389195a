"""``xds auth``: which principal may be which node, and the caller's own principal."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from time import time
from typing import Any

from xds.cli.errors import CommandError, Exit
from xds.cli.table import Column, Style, TableLayout, rendered
from xds.control.certificate import Certificate, read_pem

Json = dict[str, Any]

FILE_LIMIT_BYTES = 1 << 20

RULES = TableLayout(
    name=lambda item: str(item["rule"]),
    columns=(
        Column("RULE", lambda item: str(item["rule"])),
        Column("PRINCIPAL", lambda item: item["principal"]),
        Column("ALLOWS", lambda item: "yes" if item["allows"] else "no", lambda item: "good" if item["allows"] else ""),
        Column("DETAIL", lambda item: item["detail"]),
    ),
)


def question(
    node_id: str, cert: Path | None, token: str, cluster: str, metadata: Sequence[str], place: tuple[str, str, str]
) -> Json:
    """The question for the server: the names in the certificate, never its file. Raises ``CommandError``."""
    if (cert is None) == (not token):
        raise CommandError(Exit.USAGE, "either --cert or --token")
    asked: Json = {
        "node": {
            "id": node_id,
            "cluster": cluster,
            "metadata": dict(map(_pair, metadata)),
            "locality": dict(zip(("region", "zone", "sub_zone"), place, strict=True)),
        }
    }
    if cert is not None:
        found = _certificate(cert)
        asked["certificate"] = {"uris": list(found.uris), "dns": list(found.dns), "cn": found.cn}
    if token:
        asked["token"] = token
    return asked


def verdict_text(found: Json, style: Style) -> str:
    """The answer for people."""
    group = f"{found['group']} (by {found['chosen_by']})" if found["group"] else "none matches"
    head = [
        f"principal: {', '.join(found['principals']) or 'none'}",
        f"scopes:    {', '.join(found['scopes'])}",
        f"node:      {found['node']}",
        f"group:     {group}",
        f"mode:      {found['mode']}",
        f"allowed:   {'yes' if found['allowed'] else 'no'}",
    ]
    text = "".join(f"{line}\n" for line in head)
    return f"{text}\n{rendered(found['rules'], RULES, style)}" if found["rules"] else text


def caller_text(found: Json) -> str:
    """The caller's own principal and scopes, for people."""
    if not found["authenticated"]:
        who = "principal: none; the server asks for no credentials"
    else:
        who = ", ".join(found["principals"]) or "a token without a name"
    return f"principal: {who}\nname:      {found['name'] or '-'}\nscopes:    {', '.join(found['scopes'])}\n"


def _certificate(file: Path) -> Certificate:
    try:
        with file.open("rb") as stream:
            found = read_pem(stream.read(FILE_LIMIT_BYTES).decode("ascii"))
    except OSError as error:
        raise CommandError(Exit.USAGE, f"{file}: {error.strerror}") from None
    except ValueError as error:
        raise CommandError(Exit.USAGE, f"{file}: {error}") from None
    if found.not_after <= time():
        raise CommandError(Exit.NEGATIVE, f"{file}: the certificate has expired")
    return found


def _pair(text: str) -> tuple[str, str]:
    key, mark, value = text.partition("=")
    if not key or not mark:
        raise CommandError(Exit.USAGE, f"--metadata {text!r}: expected KEY=VALUE")
    return key, value
