"""``xds explain``: what a node is served, and why."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import quote

from xds.cli.arguments import given
from xds.cli.client import Client
from xds.cli.files import read_object
from xds.cli.output import printable
from xds.cli.resources import known_type
from xds.cli.table import Column, Style, TableLayout, rendered

Json = dict[str, Any]

NODE_LIMIT_BYTES = 1 << 20

CANDIDATES = TableLayout(
    name=lambda item: str(item["group"]),
    columns=(
        Column("GROUP", lambda item: item["group"]),
        Column("RULE", lambda item: item["rule"]),
        Column("PRIORITY", lambda item: str(item.get("priority", ""))),
        Column(
            "MATCHED", lambda item: "yes" if item["matched"] else "no", lambda item: "good" if item["matched"] else ""
        ),
        Column("DETAIL", lambda item: item.get("detail") or item.get("selector") or ""),
    ),
)

ANSWERS = TableLayout(
    name=lambda item: str(item["name"]),
    columns=(
        Column("TYPE", lambda item: item["type"]),
        Column("NAME", lambda item: item["name"]),
        Column("ANSWER", lambda item: item["answer"], lambda item: "good" if item["answer"] == "sent" else "warn"),
        Column("VERSION", lambda item: item.get("version") or ""),
        Column("DETAIL", lambda item: item.get("detail") or ""),
        Column("OWNER", lambda item: item["owner"]["kind"] if "owner" in item else "", is_wide=True),
    ),
)


def explain_node(client: Client, node: str | Json, type: str, name: str) -> Json:
    """The server's explanation for a known node, or for a node that is described as in a bootstrap."""
    query = given(type=known_type(type) if type else "", name=name)
    if isinstance(node, str):
        return client.call("GET", f"/nodes/{quote(node, safe='')}/explain", query)
    return client.call("POST", "/explain", query, body=node)


def explanation_text(found: Json, style: Style) -> str:
    """An explanation for people."""
    head = [f"node:     {found['node'].get('id', '')}"]
    if found["node"].get("principals"):
        head.append(f"principal: {', '.join(found['node']['principals'])}")
    if found["group"]:
        head += [f"group:    {found['group']} (by {found['rule']})", f"revision: {found['revision']}"]
        if found["overlay"] is not None:
            place = "/".join(filter(None, found["overlay"].values()))
            head += [f"overlay:  traffic assignment for {place}"]
    else:
        head += ["group:    none; the node is answered when a group matches"]
    parts = ["".join(f"{printable(line)}\n" for line in head), rendered(found["candidates"], CANDIDATES, style)]
    if found["resources"]:
        parts.append(rendered(found["resources"], ANSWERS, style))
    return "\n".join(parts)


def read_node(file: Path) -> Json:
    """Read a node from a file that has a node or a bootstrap. Raises ``CommandError``."""
    found = read_object(file, "one node, as in a bootstrap,", NODE_LIMIT_BYTES)
    node = found.get("node")
    return node if isinstance(node, dict) else found
