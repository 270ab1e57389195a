"""``xds endpoints``: assignments as they are served, and live endpoints set by hand."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from xds.calls import endpoints as of_endpoints
from xds.calls.call import ApiCall
from xds.cli.app import Command, command_family, shared
from xds.cli.arguments import (
    GroupOption,
    NoEndpointFlag,
    StrictFlag,
    WatchFlag,
    YesFlag,
    etag_option,
    given,
    parse_duration,
)
from xds.cli.client import Client, group_option
from xds.cli.commands.events import show_again
from xds.cli.completion import complete_assignment
from xds.cli.errors import CommandError, Exit
from xds.cli.output import DOCUMENTS, Format, say, write, write_document
from xds.cli.push_options import confirm, print_warnings, write_options
from xds.cli.table import Column, Style, TableLayout, locality_text, rendered

Json = dict[str, Any]

FILE_LIMIT_BYTES = 16 << 20
_PARTS = ("region", "zone", "sub_zone")
_HEALTH_STYLES = {"HEALTHY": "good", "UNHEALTHY": "bad", "TIMEOUT": "bad", "DRAINING": "warn", "DEGRADED": "warn"}


def owner_text(owner: Json) -> str:
    """``pushed``, ``by hand (alice)``, ``service web``, ``upstream web``, ``leaving (alice)``."""
    if owner["kind"] == "binding":
        return f"service {owner.get('service', '')}".strip()
    if owner["kind"] == "lowered":
        return f"upstream {owner.get('upstream', '')}".strip()
    if owner["kind"] in {"hand", "leaving"}:
        who = owner.get("actor") or owner.get("author") or ""
        what = "by hand" if owner["kind"] == "hand" else "leaving"
        return f"{what} ({who})" if who else what
    return str(owner["kind"])


ASSIGNMENTS = TableLayout(
    name="name",
    columns=(
        Column("NAME", "name"),
        Column("OWNER", lambda item: owner_text(item["owner"])),
        Column("ENDPOINTS", "endpoints_n"),
        Column("DRAINING", lambda item: str(item["draining_n"] or ""), lambda item: "warn"),
        Column("AGE", lambda item: item["owner"].get("time") or "", is_time=True),
        Column("VERSION", "version", is_wide=True),
        Column("ETAG", "etag", is_wide=True),
    ),
)

ENDPOINTS = TableLayout(
    name="address",
    columns=(
        Column("ADDRESS", "address"),
        Column("HEALTH", "health", lambda item: _HEALTH_STYLES.get(item["health"], "")),
        Column("WEIGHT", lambda item: "" if item["weight"] is None else str(item["weight"])),
        Column("LOCALITY", lambda item: locality_text(item["locality"])),
        Column("PRIORITY", "priority"),
        Column("UNTIL", lambda item: item.get("until") or ""),
        Column("HOSTNAME", lambda item: item.get("hostname") or "", is_wide=True),
    ),
)


def list_text(client: Client, group: str, live: bool, style: Style) -> str:
    """The assignments of a group. Raises ``CommandError``."""
    assignments = client.items(of_endpoints.assignments(group, live=live))
    what, command = ("live assignments", "endpoints list") if live else ("assignments", "get resources")
    empty = f"group {group} has no {what}: `xds {command}{group_option(group)}` shows what it has"
    return rendered(assignments, ASSIGNMENTS, style, empty)


def show_assignment(item: Json, style: Style, format: Format | None) -> None:
    """Print one assignment: its endpoints, with its owner and warnings as messages; or the whole item."""
    if format in DOCUMENTS:
        write_document(item, format)
    else:
        command = f"xds endpoints add {item['name']} ADDRESS{group_option(item['group'])}"
        empty = f"{item['name']} has no endpoints: `{command}` adds one"
        write(rendered(item["endpoints"], ENDPOINTS, style, empty))
        for line in _messages(item):
            say(line)
    print_warnings(item.get("warnings", ()))


def put_items(
    addresses: Sequence[str], weight: int | None, health: str, locality: str, priority: int | None, hostname: str
) -> list[Json]:
    """The endpoints to put; values that are None or empty are not changed. Raises ``CommandError``."""
    fields: Json = {**given(health=health, hostname=hostname)}
    if weight is not None:
        fields["weight"] = weight
    if priority is not None:
        fields["priority"] = priority
    if locality:
        fields["locality"] = read_locality(locality)
    return [{"address": address, **fields} for address in addresses]


def read_locality(text: str) -> Json:
    """``REGION/ZONE/SUB_ZONE``; parts from the end may be left out. Raises ``CommandError``."""
    parts = text.split("/", len(_PARTS) - 1)
    if not any(parts):
        raise CommandError(Exit.USAGE, f"not a locality: {text!r} (REGION/ZONE/SUB_ZONE)")
    return dict(zip(_PARTS, parts, strict=False))


def _messages(item: Json) -> Iterator[str]:
    if item.get("dry_run"):
        yield "dry run: nothing was changed"
    elif item.get("changed") is False:
        yield "unchanged"
    owner = item["owner"]
    since = f" since {owner['time']}" if "time" in owner else ""
    yield f"{item['name']} of group {item['group']}: {owner_text(owner)}{since}"
    if item["leaving"]:
        yield "deleted, or no longer bound: the pushed assignment is served when all endpoints have drained"


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
    options = shared(context)
    show_assignment(options.connect().run(of_endpoints.assignment(group, name)), options.style(), options.output)


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
    from xds.cli.files import read_object

    how = write_options("", if_match, allow_empty=allow_empty, dry_run=dry_run, strict=strict)
    drain_s = drain_time_s(drain, now)
    assignment = read_object(file, "one ClusterLoadAssignment", FILE_LIMIT_BYTES)
    _write(context, of_endpoints.set_endpoints(group, name, assignment, drain_s=drain_s, **how))


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
    put = put_items(addresses, weight, health, locality, priority, hostname)
    how = write_options("", if_match, allow_empty=allow_empty, dry_run=dry_run, strict=strict)
    _write(context, of_endpoints.change_endpoints(group, name, put=put, **how))


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
    how = write_options("", if_match, allow_empty=allow_empty, dry_run=dry_run, strict=strict)
    drain_s = drain_time_s(for_, now=False)
    _write(context, of_endpoints.change_endpoints(group, name, remove=addresses, drain_s=drain_s, **how))


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
    how = write_options("", if_match, allow_empty=allow_empty, dry_run=dry_run, strict=strict)
    drain_s = drain_time_s("", now)
    _write(context, of_endpoints.change_endpoints(group, name, remove=addresses, drain_s=drain_s, **how))


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
    how = write_options("", if_match, allow_empty=allow_empty, dry_run=dry_run)
    _write(context, of_endpoints.reset_endpoints(group, name, drain_s=drain_time_s(drain, now), **how))


def _write(context: typer.Context, call: ApiCall[Any]) -> None:
    """Write an assignment, and print it as it is served afterwards."""
    options = shared(context)
    show_assignment(options.connect().run(call), options.style(), options.output)


def drain_time_s(text: str, now: bool) -> float | None:
    """The requested time to drain; None: the server's setting. Raises ``CommandError``."""
    if now and text:
        raise CommandError(Exit.USAGE, "give a time to drain or --now, not both")
    if now:
        return 0.0
    return parse_duration(text) if text else None
