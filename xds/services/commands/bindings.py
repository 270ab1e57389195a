"""``endpoints bind``, ``unbind``, ``bindings``: assignments that follow services."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from xds.cli.app import Command, shared
from xds.cli.arguments import GroupOption, StrictFlag, YesFlag, etag_option
from xds.cli.client import group_option
from xds.cli.commands.endpoints import DrainOption, NowFlag, drain_time_s, endpoints
from xds.cli.completion import complete_assignment
from xds.cli.output import DOCUMENTS, say, write_document
from xds.cli.push_options import confirm, write_options
from xds.cli.table import Column, TableLayout, write_items
from xds.services import calls
from xds.services.commands.completion import complete_service

Json = dict[str, Any]


def selection_text(item: Json) -> str:
    """The selection of a binding within its service."""
    parts = [f"{name} {item[name]}" for name in ("datacenter", "port", "filter") if item[name]]
    return ", ".join([*parts, "passing only"] if item["only_passing"] else parts)


BINDINGS = TableLayout(
    name="assignment",
    columns=(
        Column("ASSIGNMENT", "assignment"),
        Column("SERVICE", "service"),
        Column("STATE", "state", lambda item: "good" if item["state"] == "live" else "warn"),
        Column("ENDPOINTS", "endpoints"),
        Column("SELECTS", selection_text, is_prose=True),
        Column("BY", "actor"),
        Column("SINCE", "time", is_time=True),
        Column(
            "WARNINGS",
            lambda item: "; ".join(each["detail"] for each in item["warnings"]),
            lambda item: "warn",
            is_prose=True,
        ),
    ),
)

EtagOption = Annotated[str, etag_option("current binding")]
AssignmentArgument = Annotated[
    str,
    typer.Argument(
        help="The assignment: the name of the cluster, or its EDS service name.", autocompletion=complete_assignment
    ),
]


@endpoints.command(cls=Command)
def bindings(context: typer.Context, group: GroupOption = "default") -> None:
    """Show the assignments that follow a service.

    \b
    Examples:
      xds endpoints bindings
      xds endpoints bindings -g edge -o yaml
    """

    options = shared(context)
    command = f"xds endpoints bind{group_option(group)}"
    empty = f"no assignment of group {group} follows a service: `{command}` makes one follow"
    write_items(options.connect().items(calls.bindings(group)), BINDINGS, options.style(), empty)


@endpoints.command(cls=Command)
def bind(
    context: typer.Context,
    assignment: AssignmentArgument,
    service: Annotated[str, typer.Argument(help="The service of the catalog.", autocompletion=complete_service)],
    group: GroupOption = "default",
    filter: Annotated[
        str, typer.Option("--filter", help="Only instances that match (docs/filter.md).", metavar="EXPRESSION")
    ] = "",
    port: Annotated[str, typer.Option("--port", help="The name of the port.", metavar="NAME")] = "",
    datacenter: Annotated[
        str, typer.Option("--datacenter", help="Only instances of this datacenter.", metavar="NAME")
    ] = "",
    only_passing: Annotated[
        bool, typer.Option("--only-passing", help="Exclude instances with a warning as well.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what it would select; change nothing.")] = False,
    strict: StrictFlag = False,
    if_match: EtagOption = "",
) -> None:
    """Let an assignment follow a service. Its endpoints are the instances of the service from now on.

    \b
    Examples:
      xds endpoints bind web web
      xds endpoints bind web-v2 web --filter 'Service.Meta.version == 2' -g edge
      xds endpoints bind api shop.default --port grpc --dry-run
    """

    options = shared(context)
    call = calls.bind(
        group,
        assignment,
        service,
        filter=filter,
        port=port,
        datacenter=datacenter,
        only_passing=only_passing,
        **write_options("", if_match, dry_run=dry_run, strict=strict),
    )
    item = options.connect().run(call)
    if options.output in DOCUMENTS:
        write_document(item, options.output)
        return
    write_items([item], BINDINGS, options.style())
    if dry_run:
        say("dry run: nothing was changed")
    for warning in item["warnings"]:
        hint = f" ({warning['hint']})" if warning["hint"] else ""
        say(f"warning: {warning['resource']}: {warning['detail']}{hint}")


@endpoints.command(cls=Command)
def unbind(
    context: typer.Context,
    assignment: AssignmentArgument,
    group: GroupOption = "default",
    drain: DrainOption = "",
    now: NowFlag = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check whether the binding could end; change nothing.")
    ] = False,
    if_match: EtagOption = "",
    yes: YesFlag = False,
) -> None:
    """End a binding: the pushed assignment is served again. Asks first on a terminal.

    Removed endpoints drain first, unless --now is given.

    \b
    Examples:
      xds endpoints unbind web -g edge
    """
    options = shared(context)
    if not dry_run:
        confirm(f"end the binding of assignment {assignment} of group {group}?", yes)
    given = write_options("", if_match, dry_run=dry_run)
    options.connect().run(calls.unbind(group, assignment, drain_s=drain_time_s(drain, now), **given))
    say(f"assignment {assignment} of group {group}: its binding {'would be' if dry_run else 'is'} ended")
