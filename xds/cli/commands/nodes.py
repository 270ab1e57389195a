"""``xds nodes``, ``nacks``, ``config`` and ``release``: the state of proxies, and their NACKs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Any

import typer

from xds.calls import fleet
from xds.calls.groups import release_group
from xds.cli.app import Command, app, shared
from xds.cli.arguments import GroupFilter, NodeArgument, WatchFlag, given
from xds.cli.client import Client
from xds.cli.commands.events import show_again
from xds.cli.completion import (
    NODE_ORDERS,
    complete_group,
    complete_node,
    complete_order,
    complete_type,
)
from xds.cli.errors import CommandError, Exit
from xds.cli.lingering import until
from xds.cli.nack_table import MERGED_NACKS, NACKS
from xds.cli.node_table import SYNC_STYLES, nodes_layout
from xds.cli.output import Format, counted, say, write, write_answer
from xds.cli.push_options import author
from xds.cli.resources import known_type
from xds.cli.table import Column, TableLayout, rendered, write_items

Json = dict[str, Any]

_XDS = frozenset({"sotw", "delta"})  # variants of streams that are answered by a group
STATES = ("synced", "pending", "nacked", "not_subscribed", "orphaned")
LINES = ("head", "base")

# Arguments of `kubectl config`, which users may expect here.
_CONTEXT_WORDS = frozenset({"contexts", "get-contexts", "current-context", "use-context", "view"})

NO_NODES = "no proxy is connected: `xds envoy` starts one, `xds bootstrap` writes the configuration of yours"
NO_NACKS = "no NACKs: `xds nodes` shows what each proxy runs"


def list_nodes(client: Client, query: Mapping[str, str], states: Sequence[str] = ()) -> Iterator[Json]:
    """Nodes with a type in one of ``states``; all nodes if that is empty. Raises ``CommandError``."""
    unknown = [state for state in states if state not in STATES]
    if unknown:
        raise CommandError(Exit.USAGE, f"no such state: {unknown[0]!r} (expected some of {', '.join(STATES)})")
    if len(states) == 1:
        query = {**query, "state": states[0]}
    for node in client.items(fleet.nodes(**query)):
        if not states or any(type["state"] in states for type in node["types"].values()):
            yield node


def counts(nodes: Iterable[Json], group: str = "") -> str:
    """The number of nodes, and how many of them are not in sync, or gone."""
    total = nacked = pending = disconnected = 0
    apart: list[str] = []
    for node in nodes:
        total += 1
        if not node["connected"]:
            disconnected += 1
            continue
        states = {type["state"] for type in node["types"].values()}
        nacked += "nacked" in states
        pending += "pending" in states and "nacked" not in states
        if not node["group"] and any(stream["variant"] in _XDS for stream in node["streams"]):
            apart.append(str(node["id"]))
    parts = [f"{counted(total, 'node')}"]
    by_state = ((nacked, "NACKed"), (pending, "pending"), (disconnected, "gone"), (len(apart), "without a group"))
    parts += [f"{count} {state}" for count, state in by_state if count]
    why = [f"xds nacks{f' -g {group}' if group else ''}"] if nacked else []
    why += [f"xds explain {apart[0]}"] if apart else []
    return " · ".join(parts) + (f"     why: {', '.join(why)}" if why else "")


def refused_note(client: Client) -> str:
    """How many streams were refused recently, and the last of them; empty if none was. Raises ``CommandError``."""
    summary = str(client.run(fleet.refused_streams(limit=1))["summary"])
    return f"{summary}: `xds check`" if summary else ""


def _lingers(item: Json) -> str:
    """Whether the resource lingers, and until when."""
    if not item.get("lingers"):
        return ""
    return until(item["until"]) if item["until"] else "yes"


HELD = TableLayout(
    name="name",
    columns=(
        Column("TYPE", "type"),
        Column("NAME", "name"),
        Column("STATE", "state", lambda item: SYNC_STYLES.get(item["state"], "dim")),
        Column("VERSION_INFO", "version_info"),
        Column("VERSION", "version"),
        Column("LINGERS", _lingers),
        Column("OVERLAY", lambda item: ",".join(item.get("overlay", ()))),
        Column("PUSHED", lambda item: item.get("pushed_version") or "", is_wide=True),
    ),
    in_order=lambda item: f"{item['type']} {item['name']}",
)


def end_lingering(client: Client, node: str, group: str) -> Json:
    """End lingering for a node or a group; the numbers of nodes and resources. Raises ``CommandError``."""
    if bool(node) == bool(group):
        raise CommandError(Exit.USAGE, "give either --node or --group")
    release = fleet.release_node if node else release_group
    return client.run(release(node or group, author=author()))


def release_text(released: Json) -> str:
    """``2 nodes released 3 clusters, 3 endpoints``."""
    if not released["nodes"]:
        return "nothing lingered"
    what = ", ".join(f"{count} {type}" for type, count in released["released"].items())
    return f"{counted(released['nodes'], 'node')} released {what}"


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
    line: Annotated[
        str, typer.Option(help="Only nodes that a careful rollout serves the head, or the base.", metavar="head|base")
    ] = "",
    text: Annotated[
        str, typer.Option(help="Only nodes with this text in id, cluster, locality, version or NACK.")
    ] = "",
    order: Annotated[
        str,
        typer.Option(
            help="trouble: nodes that NACKed first, then pending ones.",
            metavar="id|trouble",
            autocompletion=complete_order,
        ),
    ] = "",
    watch: WatchFlag = False,
) -> None:
    """Show all proxies, with the revision that each runs, by type.

    \b
    Examples:
      xds nodes
      xds nodes -g edge --state nacked,pending
      xds nodes --order trouble --text 1.36
      xds nodes -l 'node.locality.zone == "1a"' -o wide
    """
    options = shared(context)
    client, style = options.connect(), options.style()
    if line not in ("", *LINES):
        raise CommandError(Exit.USAGE, f"--line={line}: expected {' or '.join(LINES)}")
    if order not in ("", *NODE_ORDERS):
        raise CommandError(Exit.USAGE, f"--order={order}: expected {' or '.join(NODE_ORDERS)}")
    query = given(group=group, selector=selector, line=line, text=text, order=order)
    states = [word.strip() for word in state.split(",") if word.strip()]
    empty = "no node matches: `xds nodes` shows all" if query or states else NO_NODES

    def render() -> str:
        shown_nodes = list(list_nodes(client, query, states))
        return rendered(shown_nodes, nodes_layout(shown_nodes, order), style, empty)

    if watch:
        show_again(options.connect(), "push,rollback,rollout,group,node,nack,order,ack", "", render)
        return
    shown_nodes = list(list_nodes(client, query, states))
    if not shown_nodes and style.is_table:
        empty = "\n".join(filter(None, (empty, refused_note(client))))
    write(rendered(shown_nodes, nodes_layout(shown_nodes, order), style, empty))
    if shown_nodes and style.is_table:
        say(counts(shown_nodes, group))


@app.command(cls=Command)
def nacks(
    context: typer.Context,
    group: GroupFilter = "",
    node: Annotated[str, typer.Option(help="Only this node.", autocompletion=complete_node)] = "",
    type: Annotated[str, typer.Option(help="Only this type.", autocompletion=complete_type)] = "",
    since: Annotated[str, typer.Option(help="Only NACKs since this time (RFC 3339) or age, such as 1h or 15m.")] = "",
    state: Annotated[str, typer.Option(help="open or resolved.")] = "",
    each: Annotated[
        bool, typer.Option("--each", help="One row for each node; always so with -o wide and the formats for programs.")
    ] = False,
    watch: WatchFlag = False,
) -> None:
    """Show NACKs: which proxies rejected what, and why. Equal NACKs are one row.

    \b
    Examples:
      xds nacks
      xds nacks -g edge --since 1h --state open
      xds nacks --each
    """
    options = shared(context)
    client, style = options.connect(), options.style()
    query = given(group=group, node=node, type=known_type(type) if type else "", since=since, state=state)
    empty = "no NACK matches: `xds nacks` shows all" if query else NO_NACKS

    def render() -> str:
        if each or style.format is not Format.TABLE or style.columns or style.sort_by:
            return rendered(client.items(fleet.nacks(**query)), NACKS, style, empty)
        return rendered(client.items(fleet.nacks_by_message(**query)), MERGED_NACKS, style, empty)

    if watch:
        show_again(options.connect(), "nack", "", render)
    else:
        write(render())


@app.command(cls=Command)
def config(
    context: typer.Context,
    node: NodeArgument,
    type: Annotated[str, typer.Argument(help="Only this type.", autocompletion=complete_type)] = "",
    name: Annotated[
        str, typer.Option(help="Only names that match this pattern; * and ? are wildcards.", metavar="GLOB")
    ] = "",
    sent: Annotated[bool, typer.Option("--sent", help="The resources that were sent last, ACKed or not.")] = False,
    acked: Annotated[bool, typer.Option("--acked", help="The resources that were ACKed (default).")] = False,
) -> None:
    """Show the resources that a node has, as its ACKs prove.

    \b
    Examples:
      xds config edge-1
      xds config edge-1 clusters --name 'web-*'
      xds config edge-1 --sent -o yaml
    """
    if sent and acked:
        raise CommandError(Exit.USAGE, "either --sent or --acked")
    options = shared(context)
    style = options.style()
    if node in _CONTEXT_WORDS:
        say("the servers that you work with are in `xds context list`; this shows the configuration of a node")
    call = fleet.node_resources(
        node,
        type=known_type(type) if type else "",
        name=name,
        side="sent" if sent else "acked",
        contents=not style.is_table,
        show_secrets=options.show_secrets,
    )
    write_items(
        options.connect().items(call),
        HELD,
        style,
        f"node {node} has no such resource: `xds explain {node}` shows what it is served",
    )


@app.command(cls=Command)
def release(
    context: typer.Context,
    node: Annotated[str, typer.Option(help="This node.", metavar="ID", autocompletion=complete_node)] = "",
    group: Annotated[
        str, typer.Option("-g", "--group", help="All nodes of this group.", autocompletion=complete_group)
    ] = "",
) -> None:
    """End the lingering of removed resources of a node or group.

    Requests that still use them may fail. `xds nodes` shows what lingers, and until when.

    \b
    Examples:
      xds release --node edge-1
      xds release -g edge
    """
    options = shared(context)
    released = end_lingering(options.connect(), node, group)
    write_answer(options.output, released, lambda: f"{release_text(released)}\n")
