"""``endpoints list``, ``show``, ``set``, ``add``, ``drain``, ``remove``, ``delete``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from xds.calls import endpoints as of_endpoints
from xds.calls.call import ApiCall
from xds.cli.app import Command, command_family, shared
from xds.cli.arguments import GroupOption, NoEndpointFlag, StrictFlag, WatchFlag, YesFlag, etag_option, parse_duration
from xds.cli.commands.events import show_again
from xds.cli.completion import complete_assignment
from xds.cli.errors import CommandError, Exit
from xds.cli.output import write
from xds.cli.push_options import confirm, write_options

endpoints = command_family("endpoints", "Change the endpoints of a cluster without a push.")

NameArgument = Annotated[
    str,
    typer.Argument(
        help="The assignment: the name of the cluster, or its EDS service name.",
        metavar="NAME",
        autocompletion=complete_assignment,
    ),
]
AddressesArgument = Annotated[list[str], typer.Argument(help="Endpoints, such as 10.0.0.1:8080.", metavar="ADDRESS...")]
EtagOption = Annotated[str, etag_option("assignment")]
DryRunFlag = Annotated[bool, typer.Option("--dry-run", help="Show what would be served; change nothing.")]
NowFlag = Annotated[bool, typer.Option("--now", help="Do not drain: remove endpoints at once.")]
DrainOption = Annotated[
    str,
    typer.Option(
        "--drain", help="How long removed endpoints drain (default: the server's setting).", metavar="DURATION"
    ),
]


@endpoints.command("list", cls=Command)
def list_assignments(
    context: typer.Context,
    group: GroupOption = "default",
    live: Annotated[
        bool, typer.Option("--live", help="Only live assignments, which are not those of the push.")
    ] = False,
    watch: WatchFlag = False,
) -> None:
    """List the assignments of a group, each with its owner. That is the push, a person, or a service.

    \b
    Examples:
      xds endpoints list
      xds endpoints list -g edge --live
    """
    from xds.cli.endpoints import list_text

    options = shared(context)
    client, style = options.connect(), options.style()
    if watch:
        kinds = "endpoints,push,rollback"
        show_again(options.connect(), kinds, group, lambda: list_text(client, group, live, style))
    else:
        write(list_text(client, group, live, style))


@endpoints.command(cls=Command)
def show(context: typer.Context, name: NameArgument, group: GroupOption = "default") -> None:
    """Show the endpoints of an assignment as they are served. With health, weight, locality, and the end of a drain.

    \b
    Examples:
      xds endpoints show web
      xds endpoints show web -g edge -o yaml
    """
    from xds.cli.endpoints import show as show_one

    options = shared(context)
    show_one(options.connect().run(of_endpoints.assignment(group, name)), options.style(), options.output)


@endpoints.command("set", cls=Command)
def set_assignment(
    context: typer.Context,
    name: NameArgument,
    file: Annotated[
        Path,
        typer.Option("-f", "--file", help="File with a ClusterLoadAssignment (YAML or JSON), or - (standard input)."),
    ],
    group: GroupOption = "default",
    drain: DrainOption = "",
    now: NowFlag = False,
    allow_empty: NoEndpointFlag = False,
    dry_run: DryRunFlag = False,
    strict: StrictFlag = False,
    if_match: EtagOption = "",
) -> None:
    """Set all endpoints of an assignment. Later pushes do not change them. Removed endpoints drain first.

    \b
    Examples:
      xds endpoints set web -f web.yaml --dry-run
      xds endpoints set web -g edge -f - < web.json
    """
    from xds.cli.endpoints import FILE_LIMIT_BYTES
    from xds.cli.files import read_object

    given = write_options("", if_match, allow_empty=allow_empty, dry_run=dry_run, strict=strict)
    drain_s = drain_time_s(drain, now)
    assignment = read_object(file, "one ClusterLoadAssignment", FILE_LIMIT_BYTES)
    _write(context, of_endpoints.set_endpoints(group, name, assignment, drain_s=drain_s, **given))


@endpoints.command(cls=Command)
def add(
    context: typer.Context,
    name: NameArgument,
    addresses: AddressesArgument,
    group: GroupOption = "default",
    weight: Annotated[int | None, typer.Option(help="Their weight.", min=1)] = None,
    health: Annotated[str, typer.Option(help="healthy, unhealthy, draining, degraded or unknown.")] = "",
    locality: Annotated[
        str,
        typer.Option(
            help="Where they are (default: the only locality of the assignment).", metavar="REGION/ZONE/SUB_ZONE"
        ),
    ] = "",
    priority: Annotated[int | None, typer.Option(help="Their priority; 0 is used first.", min=0)] = None,
    hostname: Annotated[str, typer.Option(help="Their host name, for health checks and rewrites.")] = "",
    allow_empty: NoEndpointFlag = False,
    dry_run: DryRunFlag = False,
    strict: StrictFlag = False,
    if_match: EtagOption = "",
) -> None:
    """Add endpoints, or change existing ones. An endpoint that drains is put back into service.

    \b
    Examples:
      xds endpoints add web 10.0.0.3:8080 10.0.0.4:8080
      xds endpoints add web 10.0.0.3:8080 --weight 5
      xds endpoints add web 10.0.1.1:8080 --locality eu/eu-b --priority 1
    """
    from xds.cli.endpoints import put_items

    put = put_items(addresses, weight, health, locality, priority, hostname)
    given = write_options("", if_match, allow_empty=allow_empty, dry_run=dry_run, strict=strict)
    _write(context, of_endpoints.change_endpoints(group, name, put=put, **given))


@endpoints.command(cls=Command)
def drain(
    context: typer.Context,
    name: NameArgument,
    addresses: AddressesArgument,
    group: GroupOption = "default",
    for_: Annotated[
        str, typer.Option("--for", help="How long they drain (default: the server's setting).", metavar="DURATION")
    ] = "",
    allow_empty: NoEndpointFlag = False,
    dry_run: DryRunFlag = False,
    strict: StrictFlag = False,
    if_match: EtagOption = "",
) -> None:
    """Drain endpoints, then remove them. Proxies send them no new requests, and keep their connections meanwhile.

    `xds endpoints add` puts them back into service.

    \b
    Examples:
      xds endpoints drain web 10.0.0.3:8080
      xds endpoints drain web 10.0.0.3:8080 --for 10m
    """
    given = write_options("", if_match, allow_empty=allow_empty, dry_run=dry_run, strict=strict)
    drain_s = drain_time_s(for_, now=False)
    _write(context, of_endpoints.change_endpoints(group, name, remove=addresses, drain_s=drain_s, **given))


@endpoints.command(cls=Command)
def remove(
    context: typer.Context,
    name: NameArgument,
    addresses: AddressesArgument,
    group: GroupOption = "default",
    now: NowFlag = False,
    allow_empty: NoEndpointFlag = False,
    dry_run: DryRunFlag = False,
    strict: StrictFlag = False,
    if_match: EtagOption = "",
) -> None:
    """Remove endpoints. They drain first, as with `drain`, unless --now is given.

    \b
    Examples:
      xds endpoints remove web 10.0.0.3:8080
      xds endpoints remove web 10.0.0.3:8080 --now
    """
    given = write_options("", if_match, allow_empty=allow_empty, dry_run=dry_run, strict=strict)
    drain_s = drain_time_s("", now)
    _write(context, of_endpoints.change_endpoints(group, name, remove=addresses, drain_s=drain_s, **given))


@endpoints.command(cls=Command)
def delete(
    context: typer.Context,
    name: NameArgument,
    group: GroupOption = "default",
    drain: DrainOption = "",
    now: NowFlag = False,
    allow_empty: NoEndpointFlag = False,
    dry_run: DryRunFlag = False,
    if_match: EtagOption = "",
    yes: YesFlag = False,
) -> None:
    """Delete the endpoints that were set by hand. The pushed ones are served again. Asks first on a terminal.

    \b
    Examples:
      xds endpoints delete web -g edge
    """
    if not dry_run:
        confirm(f"serve the pushed endpoints of {name} of group {group} again?", yes)
    given = write_options("", if_match, allow_empty=allow_empty, dry_run=dry_run)
    _write(context, of_endpoints.reset_endpoints(group, name, drain_s=drain_time_s(drain, now), **given))


def _write(context: typer.Context, call: ApiCall[Any]) -> None:
    """Write an assignment, and print it as it is served afterwards."""
    from xds.cli.endpoints import show as show_one

    options = shared(context)
    show_one(options.connect().run(call), options.style(), options.output)


def drain_time_s(text: str, now: bool) -> float | None:
    """The requested time to drain; None: the server's setting. Raises ``CommandError``."""
    if now and text:
        raise CommandError(Exit.USAGE, "give a time to drain or --now, not both")
    if now:
        return 0.0
    return parse_duration(text) if text else None
