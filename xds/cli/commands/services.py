"""Commands ``services``, ``service NAME``, ``source accept``, ``endpoints bind``, ``unbind``, ``bindings``."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from xds.cli.app import Command, app, shared
from xds.cli.arguments import GroupOption, YesFlag
from xds.cli.commands.endpoints import endpoints

EtagOption = Annotated[
    str, typer.Option("--if-match", help="Only if the present binding has this etag.", metavar="ETAG")
]
AssignmentArgument = Annotated[
    str, typer.Argument(help="The assignment: the name of the cluster, or its EDS service name.")
]


class ServiceGroup(TyperGroup):
    """``xds service NAME`` means ``xds service show NAME``."""

    def parse_args(self, context: Any, args: list[str]) -> list[str]:
        """Read the arguments; a name that is no command is that of a service."""
        if args and not args[0].startswith("-") and args[0] not in self.commands:
            args = ["show", *args]
        return super().parse_args(context, args)


service = typer.Typer(
    cls=ServiceGroup, help="One service of the catalog: xds service NAME.", no_args_is_help=True, rich_markup_mode=None
)
app.add_typer(service, name="service")
source = typer.Typer(help="One source of instances.", no_args_is_help=True, rich_markup_mode=None)
app.add_typer(source, name="source")


@app.command(cls=Command)
def services(
    context: typer.Context,
    source: Annotated[str, typer.Option("--source", help="Only services that this source shows.", metavar="NAME")] = "",
) -> None:
    """Show the services of the catalog, with their instances counted by health.

    \b
    Examples:
      xds services
      xds services --source targets
    """
    from xds.cli.services import list_services

    options = shared(context)
    list_services(options.connect(), {"source": source} if source else {}, options.style())


@service.command(cls=Command)
def show(context: typer.Context, name: Annotated[str, typer.Argument(help="The service.")]) -> None:
    """Show the instances of a service with health, source, locality and age.

    \b
    Examples:
      xds service web
      xds service show web -o wide
    """
    from xds.cli.services import show_service

    options = shared(context)
    show_service(options.connect(), name, options.style(), options.output)


@source.command(cls=Command)
def accept(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="The source.")],
    service: Annotated[str, typer.Option("--service", help="Only the loss of this service.", metavar="NAME")] = "",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would go; change nothing.")] = False,
    yes: YesFlag = False,
) -> None:
    """Accept that a source lost most of a service's instances at once. They drain and go. Asks first on a terminal.

    \b
    Examples:
      xds source accept targets --dry-run
      xds source accept targets --service web
    """
    from urllib.parse import quote

    from xds.cli.push_options import confirm, push_query
    from xds.cli.services import tell_accepted

    options = shared(context)
    if not dry_run:
        what = f"the loss of service {service}" if service else "all losses"
        confirm(f"accept {what} of source {name}?", yes)
    query = {**push_query(dry_run=dry_run), **({"service": service} if service else {})}
    tell_accepted(options.connect().call("POST", f"/sources/{quote(name, safe='')}/accept", query))


@endpoints.command(cls=Command)
def bindings(context: typer.Context, group: GroupOption = "default") -> None:
    """Show the assignments that follow a service.

    \b
    Examples:
      xds endpoints bindings
      xds endpoints bindings -g edge -o yaml
    """
    from xds.cli.services import list_bindings

    options = shared(context)
    list_bindings(options.connect(), group, options.style())


@endpoints.command(cls=Command)
def bind(
    context: typer.Context,
    assignment: AssignmentArgument,
    service: Annotated[str, typer.Argument(help="The service of the catalog.")],
    group: GroupOption = "default",
    filter: Annotated[
        str, typer.Option("--filter", help="Only instances that match (docs/filter.md).", metavar="EXPRESSION")
    ] = "",
    port: Annotated[str, typer.Option("--port", help="The name of the port.", metavar="NAME")] = "",
    datacenter: Annotated[str, typer.Option("--datacenter", help="Only instances there.", metavar="NAME")] = "",
    only_passing: Annotated[
        bool, typer.Option("--only-passing", help="No requests to instances with a warning either.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what it would select; change nothing.")] = False,
    strict: Annotated[bool, typer.Option("--strict", help="Warnings are errors.")] = False,
    if_match: EtagOption = "",
) -> None:
    """Let an assignment follow a service: its endpoints are the instances of the service from now on.

    \b
    Examples:
      xds endpoints bind web web
      xds endpoints bind web-v2 web --filter 'Service.Meta.version == 2' -g edge
      xds endpoints bind api shop.default --port grpc --dry-run
    """
    from xds.cli.push_options import if_match as header
    from xds.cli.push_options import push_query
    from xds.cli.services import binding_path, tell_binding

    options = shared(context)
    given = {"filter": filter, "port": port, "datacenter": datacenter, "only_passing": only_passing}
    document = {"service": service, **{name: value for name, value in given.items() if value}}
    query = push_query(dry_run=dry_run, strict=strict)
    item = options.connect().call("PUT", binding_path(group, assignment), query, header(if_match), document)
    tell_binding(item, options.style(), options.output)


@endpoints.command(cls=Command)
def unbind(
    context: typer.Context,
    assignment: AssignmentArgument,
    group: GroupOption = "default",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Check whether it could end; change nothing.")] = False,
    if_match: EtagOption = "",
    yes: YesFlag = False,
) -> None:
    """End a binding: what was pushed is served again. Asks first on a terminal.

    \b
    Examples:
      xds endpoints unbind web -g edge
    """
    from xds.cli.output import say
    from xds.cli.push_options import confirm, push_query
    from xds.cli.push_options import if_match as header
    from xds.cli.services import binding_path

    options = shared(context)
    if not dry_run:
        confirm(f"end the binding of assignment {assignment} of group {group}?", yes)
    query = push_query(dry_run=dry_run)
    options.connect().call("DELETE", binding_path(group, assignment), query, header(if_match))
    say(f"assignment {assignment} of group {group}: its binding {'would be' if dry_run else 'is'} ended")
