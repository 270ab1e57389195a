"""``upstreams list``, ``get``, ``set``, ``delete``: the services that the proxies of a group call."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from xds.cli.app import Command, app, shared
from xds.cli.arguments import EmptyFlag, MessageOption, YesFlag
from xds.cli.client import RefusedError
from xds.cli.completion import complete_group
from xds.cli.output import Format, say, write_document
from xds.cli.push_options import confirm, print_warnings, show_answer, write_options
from xds.cli.table import Column, TableLayout, write_items
from xds.mesh import calls

Json = dict[str, Any]

upstreams = typer.Typer(
    help="Upstreams: the services that the proxies of a group call.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
app.add_typer(upstreams, name="upstreams")

GroupArgument = Annotated[str, typer.Argument(help="The group.", autocompletion=complete_group)]
EtagOption = Annotated[
    str, typer.Option("--if-match", help="Only if the current upstreams have this etag.", metavar="ETAG")
]
DryRunFlag = Annotated[bool, typer.Option("--dry-run", help="Show the resources that would change; change nothing.")]


def resources_text(item: Json) -> str:
    """The lowered resources of a group: ``2 clusters, 1 listeners``."""
    return ", ".join(f"{number} {label}" for label, number in item["resources"].items())


SUMMARIES = TableLayout(
    name="group",
    columns=(
        Column("GROUP", "group"),
        Column("NODES", "nodes"),
        Column("UPSTREAMS", "upstreams"),
        Column("RESOURCES", resources_text, is_prose=True),
        Column("SELECTOR", "selector", is_prose=True),
        Column("ETAG", "etag", is_wide=True),
        Column("ERROR", lambda item: item.get("error", ""), lambda item: "bad", is_prose=True),
    ),
)

LOWERED = TableLayout(
    name=lambda item: f"{item['type']}/{item['name']}",
    columns=(
        Column("TYPE", "type"),
        Column("NAME", "name"),
        Column("UPSTREAMS", lambda item: ", ".join(item["upstreams"]), is_prose=True),
        Column("ENTRIES", lambda item: ", ".join(item["entries"]), is_prose=True),
    ),
    in_order=lambda item: f"{item['type']} {item['name']}",
)


@upstreams.command("list", cls=Command)
def list_upstreams(context: typer.Context) -> None:
    """Show the groups with upstreams.

    \b
    Examples:
      xds upstreams list
      xds upstreams list -o wide
    """

    options = shared(context)
    empty = "no group has upstreams: `xds upstreams set GROUP -f FILE` names them"
    write_items(options.connect().items(calls.upstreams()), SUMMARIES, options.style(), empty)


@upstreams.command(cls=Command)
def get(context: typer.Context, group: GroupArgument) -> None:
    """Show the resources that upstreams are lowered to.

    -o yaml shows the upstreams document in the form that set accepts, and the assignments of the clusters.

    \b
    Examples:
      xds upstreams get shop
      xds upstreams get shop -o yaml
    """

    options = shared(context)
    item = options.connect().run(calls.group_upstreams(group))
    if options.output in {Format.JSON, Format.YAML, Format.JSONL}:
        write_document(item, options.output)
        return
    endpoints = [{"type": "endpoints", **one} for one in item["assignments"]]
    empty = f"the upstreams of {group} are lowered to nothing: `xds upstreams get {group} -o yaml` shows them"
    write_items([*item["lowered"], *endpoints], LOWERED, options.style(), empty)
    print_warnings(item["warnings"])


@upstreams.command("set", cls=Command)
def set_upstreams(
    context: typer.Context,
    group: GroupArgument,
    file: Annotated[Path, typer.Option("-f", "--file", help="File with the upstreams, or - (standard input).")],
    selector: Annotated[
        str | None,
        typer.Option("--selector", help="Also set which nodes belong to the group.", metavar="EXPRESSION"),
    ] = None,
    message: MessageOption = "",
    if_match: EtagOption = "",
    dry_run: DryRunFlag = False,
    strict: Annotated[bool, typer.Option("--strict", help="Warnings are errors.")] = False,
) -> None:
    """Set the upstreams of a group. Creates the group if it does not exist. Pushed resources stay.

    \b
    Examples:
      xds upstreams set shop -f upstreams.yaml
      xds upstreams set shop -f upstreams.yaml --selector 'node.cluster == shop'
      xds upstreams set shop -f upstreams.yaml --dry-run
    """
    from xds.cli.files import read_located

    options = shared(context)
    source = read_located(file, "upstreams")
    document = source.document
    is_wrapped = "document" in document and "upstreams" not in document
    given = write_options(message, if_match, dry_run=dry_run, strict=strict)
    if selector is not None:
        given["selector"] = selector
    body = document["document"] if is_wrapped else document
    try:
        answer = options.connect().run(calls.set_upstreams(group, body, **given))
    except RefusedError as error:
        raise source.located(error, "/document" if is_wrapped else "") from None
    show_answer(answer, options.output)


@upstreams.command(cls=Command)
def delete(
    context: typer.Context,
    group: GroupArgument,
    message: MessageOption = "",
    if_match: EtagOption = "",
    dry_run: DryRunFlag = False,
    allow_empty: EmptyFlag = False,
    yes: YesFlag = False,
) -> None:
    """Delete the upstreams of a group, and their resources. Pushed resources stay.

    Asks first on a terminal.

    \b
    Examples:
      xds upstreams delete shop
    """

    options = shared(context)
    if not dry_run:
        confirm(f"delete the upstreams of group {group}?", yes)
    given = write_options(message, if_match, dry_run=dry_run, allow_empty=allow_empty)
    answer = options.connect().run(calls.delete_upstreams(group, **given))
    show_answer(answer, options.output)
    if not dry_run:
        say(f"group {group}: its upstreams are deleted")
