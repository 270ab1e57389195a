"""``xds explain``: the group of a node, the rule that chose it, and each resource that it is served."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from xds.calls import fleet
from xds.cli.additions import ADDITIONS
from xds.cli.app import Command, app, shared
from xds.cli.client import Client
from xds.cli.completion import complete_node, complete_resource, complete_type
from xds.cli.errors import CommandError, Exit
from xds.cli.output import printable, write_answer
from xds.cli.resources import known_type
from xds.cli.table import Column, Style, TableLayout, locality_text, rendered

Json = dict[str, Any]

NODE_LIMIT_BYTES = 1 << 20

CANDIDATES = TableLayout(
    name="group",
    columns=(
        Column("GROUP", "group"),
        Column("RULE", "rule"),
        Column("PRIORITY", lambda item: str(item.get("priority", ""))),
        Column(
            "MATCHED", lambda item: "yes" if item["matched"] else "no", lambda item: "good" if item["matched"] else ""
        ),
        Column("DETAIL", lambda item: item.get("detail") or item.get("selector") or "", is_prose=True),
    ),
)

ANSWERS = TableLayout(
    name="name",
    columns=(
        Column("TYPE", "type"),
        Column("NAME", "name"),
        Column("ANSWER", "answer", lambda item: "good" if item["answer"] == "sent" else "warn"),
        Column("VERSION", lambda item: item.get("version") or ""),
        Column("DETAIL", lambda item: item.get("detail") or "", is_prose=True),
        Column("OWNER", lambda item: item["owner"]["kind"] if "owner" in item else "", is_wide=True),
        Column("SOURCES", lambda item: _by_source(item.get("sources", {})), is_wide=True, is_prose=True),
    ),
)

# The instances of an assignment that follows a service.
ORIGINS = TableLayout(
    name="instance",
    columns=(
        Column("ENDPOINT", lambda item: f"{item['address']}:{item['port']}"),
        Column("HEALTH", "health"),
        Column("SOURCE", "source"),
        Column("INSTANCE", "instance"),
        Column("AGE", "since", is_time=True),
    ),
)


def _by_source(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count} from {name}" for name, count in counts.items())


def explain_node(client: Client, node: str | Json, type: str, name: str) -> Json:
    """The server's explanation for a node id, or for a node as in a bootstrap."""
    wanted = known_type(type) if type else ""
    if isinstance(node, str):
        return client.run(fleet.explain(node, type=wanted, name=name))
    return client.run(fleet.explain_node(node, type=wanted, name=name))


def explanation_text(explanation: Json, style: Style) -> str:
    """An explanation as text."""
    texts = ((part, part.text(explanation, style)) for part in ADDITIONS.explanation_parts)
    added = [(part, text) for part, text in texts if text]
    head = [f"node:     {explanation['node'].get('id', '')}"]
    if explanation["node"].get("principals"):
        head.append(f"principal: {', '.join(explanation['node']['principals'])}")
    if explanation["group"]:
        head += [f"group:    {explanation['group']} (by {explanation['rule']})", f"revision: {explanation['revision']}"]
        if explanation.get("rollout"):
            head += [f"rollout:  {explanation['rollout']}"]
        if explanation["overlay"] is not None:
            head += [f"overlay:  traffic assignment for {locality_text(explanation['overlay'])}"]
    else:
        head += ["group:    none; the node is answered when a group matches"]
        head += [f"          {part.without_group}" for part, _ in added]
    parts = ["".join(f"{printable(line)}\n" for line in head), rendered(explanation["candidates"], CANDIDATES, style)]
    if explanation["resources"]:
        parts.append(rendered(explanation["resources"], ANSWERS, style))
    parts += [rendered(item["instances"], ORIGINS, style) for item in explanation["resources"] if item.get("instances")]
    return "\n".join((*parts, *(text for _, text in added)))


def explained_names(explanation: Json) -> list[str]:
    """The names that an explanation is about: the resources if a type was asked for, else the group of the node."""
    resources = explanation["resources"]
    return [item["name"] for item in resources] if resources else list(filter(None, [explanation["group"]]))


def read_node(file: Path) -> Json:
    """Read a node from a file that has a node or a bootstrap. Raises ``CommandError``."""
    from xds.cli.files import read_object

    document = read_object(file, "one node, as in a bootstrap,", NODE_LIMIT_BYTES)
    node = document.get("node")
    return node if isinstance(node, dict) else document


@app.command(cls=Command)
def explain(
    context: typer.Context,
    node: Annotated[
        str, typer.Argument(help="The node's id; not with --node-file.", autocompletion=complete_node)
    ] = "",
    type: Annotated[str, typer.Argument(help="Only this type.", autocompletion=complete_type)] = "",
    name: Annotated[str, typer.Argument(help="Only this resource.", autocompletion=complete_resource)] = "",
    node_file: Annotated[
        Path | None,
        typer.Option(
            help="File with a node or a bootstrap (JSON or YAML); the node need not be connected. -: standard input."
        ),
    ] = None,
) -> None:
    """Show what a node is served, and why. That is its group, the rule that chose it, each resource.

    \b
    Examples:
      xds explain edge-1 clusters web
      xds explain edge-1 endpoints web
      xds explain --node-file node.json listeners
    """
    options = shared(context)
    client = options.connect()
    if node_file is not None:
        # `--node-file` takes no node id, so the first argument is the type.
        explanation = explain_node(client, read_node(node_file), node, type)
    elif node:
        explanation = explain_node(client, node, type, name)
    else:
        raise CommandError(Exit.USAGE, "give a node, or a file with a node (--node-file)")
    names = explained_names(explanation)
    write_answer(options.output, explanation, lambda: explanation_text(explanation, options.style()), names)
