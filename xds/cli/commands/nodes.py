"""Commands ``nodes``, ``nacks``, ``config``, ``explain`` and ``release``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from xds.cli.app import Command, app, shared
from xds.cli.commands.options import GroupFilter, WatchFlag
from xds.cli.errors import CommandError, Exit


@app.command(cls=Command)
def nodes(
    context: typer.Context,
    group: GroupFilter = "",
    selector: Annotated[
        str, typer.Option("-l", "--selector", help="Only nodes that match, such as 'node.cluster == \"edge\"'.")
    ] = "",
    state: Annotated[
        str,
        typer.Option(
            help="Only nodes with a type in one of these states: synced, pending, nacked, orphaned (comma-separated)."
        ),
    ] = "",
    watch: WatchFlag = False,
) -> None:
    """Show all proxies: the revision that each runs, type by type.

    \b
    Examples:
      xds nodes
      xds nodes -g edge --state nacked,pending
      xds nodes -l 'node.locality.zone == "1a"' -o wide
    """
    from xds.cli.arguments import given
    from xds.cli.events import show_again
    from xds.cli.nodes import NODES, counts, list_nodes
    from xds.cli.output import say, write
    from xds.cli.table import rendered

    options = shared(context)
    client, style = options.connect(), options.style()
    query = given(group=group, selector=selector)
    states = [word.strip() for word in state.split(",") if word.strip()]

    def render() -> str:
        return rendered(list_nodes(client, query, states), NODES, style)

    if watch:
        show_again(options.connect(), {"kinds": "push,rollback,group,node,nack,order,ack"}, render)
        return
    found = list(list_nodes(client, query, states))
    write(rendered(found, NODES, style))
    if style.is_table:
        say(counts(found, group))


@app.command(cls=Command)
def nacks(
    context: typer.Context,
    group: GroupFilter = "",
    node: Annotated[str, typer.Option(help="Only this node.")] = "",
    type: Annotated[str, typer.Option(help="Only this type.")] = "",
    since: Annotated[str, typer.Option(help="Only NACKs since this time (RFC 3339) or age, such as 1h or 15m.")] = "",
    state: Annotated[str, typer.Option(help="open or resolved.")] = "",
    watch: WatchFlag = False,
) -> None:
    """Show NACKs: which proxy rejected which resources, with its error message.

    \b
    Examples:
      xds nacks
      xds nacks -g edge --since 1h --state open
    """
    from xds.cli.arguments import given
    from xds.cli.events import show_again
    from xds.cli.nodes import NACKS
    from xds.cli.output import write
    from xds.cli.table import rendered

    options = shared(context)
    client, style = options.connect(), options.style()
    query = given(group=group, node=node, type=type, since=since, state=state)

    def render() -> str:
        return rendered(client.items("/nacks", query), NACKS, style)

    if watch:
        show_again(options.connect(), {"kinds": "nack"}, render)
    else:
        write(render())


@app.command(cls=Command)
def config(
    context: typer.Context,
    node: Annotated[str, typer.Argument(help="The node's id.")],
    type: Annotated[str, typer.Argument(help="Only this type.")] = "",
    name: Annotated[
        str, typer.Option(help="Only names that match this pattern; * and ? are wildcards.", metavar="GLOB")
    ] = "",
    sent: Annotated[bool, typer.Option("--sent", help="What the node was sent last, ACKed or not.")] = False,
    acked: Annotated[bool, typer.Option("--acked", help="What the node ACKed (default).")] = False,
) -> None:
    """Show the resources that a node holds, as its ACKs prove.

    \b
    Examples:
      xds config edge-1
      xds config edge-1 clusters --name 'web-*'
      xds config edge-1 --sent -o yaml
    """
    from xds.cli.arguments import given
    from xds.cli.nodes import HELD, held
    from xds.cli.resources import known_type, secrets_query
    from xds.cli.table import write_items

    if sent and acked:
        raise CommandError(Exit.USAGE, "either --sent or --acked")
    options = shared(context)
    style = options.style()
    query = given(type=known_type(type) if type else "", name=name, side="sent" if sent else "acked")
    if not style.is_table:
        query["contents"] = "true"
    write_items(held(options.connect(), node, {**query, **secrets_query(options.show_secrets)}), HELD, style)


@app.command(cls=Command)
def explain(
    context: typer.Context,
    node: Annotated[str, typer.Argument(help="The node's id; not with --node-file.")] = "",
    type: Annotated[str, typer.Argument(help="Only this type.")] = "",
    name: Annotated[str, typer.Argument(help="Only this resource.")] = "",
    node_file: Annotated[
        Path | None,
        typer.Option(
            help="File with a node or a bootstrap (JSON or YAML); the node need not be connected. -: standard input."
        ),
    ] = None,
) -> None:
    """Show what a node is served, and why: its group, the rule that chose it, each resource.

    \b
    Examples:
      xds explain edge-1 clusters web
      xds explain --node-file node.json listeners
    """
    from xds.cli.explain import explain_node, explanation_text, read_node
    from xds.cli.output import Format, write, write_document

    options = shared(context)
    client = options.connect()
    if node_file is not None:
        # `--node-file` takes no node id, so the first argument is the type.
        found = explain_node(client, read_node(node_file), node, type)
    elif node:
        found = explain_node(client, node, type, name)
    else:
        raise CommandError(Exit.USAGE, "name a node, or a file with one (--node-file)")
    if options.output in {Format.JSON, Format.YAML, Format.JSONL}:
        write_document(found, options.document_format())
    else:
        write(explanation_text(found, options.style()))


@app.command(cls=Command)
def release(
    context: typer.Context,
    node: Annotated[str, typer.Option(help="This node.", metavar="ID")] = "",
    group: Annotated[str, typer.Option("-g", "--group", help="All nodes of this group.")] = "",
) -> None:
    """End the lingering of removed resources now, for a node or a group.

    Requests that still use them may fail. `xds nodes` shows what lingers, and until when.

    \b
    Examples:
      xds release --node edge-1
      xds release -g edge
    """
    from xds.cli.nodes import release as let_go
    from xds.cli.nodes import release_text
    from xds.cli.output import Format, write, write_document

    options = shared(context)
    found = let_go(options.connect(), node, group)
    if options.output in {Format.JSON, Format.YAML, Format.JSONL}:
        write_document(found, options.document_format())
    else:
        write(f"{release_text(found)}\n")
