"""``services``, ``service NAME``, ``source accept``: the services of the catalog, and held losses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from xds.cli.app import Command, app, shared
from xds.cli.arguments import YesFlag
from xds.cli.output import DOCUMENTS, say, write_document
from xds.cli.push_options import confirm, write_options
from xds.cli.table import Column, TableLayout, locality_text, write_items
from xds.model.ip_address import address_text
from xds.services import calls
from xds.services.commands.completion import complete_service, complete_source

Json = dict[str, Any]

HEALTH_STYLES = {"passing": "good", "warning": "warn", "critical": "bad", "draining": "dim"}


def _health(item: Json) -> str:
    return f"{item['health']} (held)" if item["is_held"] else str(item["health"])


def _pairs(values: Mapping[str, object]) -> str:
    return ",".join(f"{name}={value}" for name, value in values.items())


def _checks(item: Json) -> str:
    return ",".join(f"{each['id']}:{each['status']}" for each in item["checks"])


NO_SERVICES = "no services: `xds sources` shows where they come from, `xds service register` adds an instance"

SERVICES = TableLayout(
    name="service",
    columns=(
        Column("SERVICE", "service"),
        Column("INSTANCES", "instances"),
        Column("PASSING", "passing"),
        Column("WARNING", "warning", lambda item: "warn" if item["warning"] else ""),
        Column("CRITICAL", "critical", lambda item: "bad" if item["critical"] else ""),
        Column("DRAINING", "draining"),
        Column("HELD", "held", lambda item: "bad" if item["held"] else ""),
        Column("SOURCES", lambda item: ",".join(item["sources"])),
        Column("BINDINGS", "bindings"),
        Column("CHANGED", "changed_at", is_time=True),
    ),
)

INSTANCES = TableLayout(
    name="id",
    columns=(
        Column("ID", "id"),
        Column("ADDRESS", lambda item: address_text(item["address"], item["port"])),
        Column("HEALTH", _health, lambda item: HEALTH_STYLES.get(item["health"], "")),
        Column("WEIGHT", lambda item: str(item["weights"]["passing"])),
        Column("LOCALITY", lambda item: locality_text(item["locality"])),
        Column("SOURCE", "source"),
        Column("AGE", "since", is_time=True),
        Column("CHANGED", "changed_at", is_time=True),
        Column("READ", "source_read_at", is_time=True),
        Column("DATACENTER", "datacenter", is_wide=True),
        Column("NODE", "node", is_wide=True),
        Column("PORTS", lambda item: _pairs(item["ports"]), is_wide=True, is_prose=True),
        Column("TAGS", lambda item: ",".join(item["tags"]), is_wide=True, is_prose=True),
        Column("META", lambda item: _pairs(item["meta"]), is_wide=True, is_prose=True),
        Column("CHECKS", _checks, is_wide=True, is_prose=True),
    ),
)


class ServiceGroup(TyperGroup):
    """``xds service NAME`` means ``xds service show NAME``."""

    def parse_args(self, context: Any, args: list[str]) -> list[str]:
        """Read the arguments. A name that is not a command is the name of a service."""
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
    """Show the services of the catalog, and their health.

    \b
    Examples:
      xds services
      xds services --source targets
    """

    options = shared(context)
    write_items(options.connect().items(calls.services(source=source)), SERVICES, options.style(), NO_SERVICES)


@service.command(cls=Command)
def show(
    context: typer.Context, name: Annotated[str, typer.Argument(help="The service.", autocompletion=complete_service)]
) -> None:
    """Show the instances of a service, with health and source.

    \b
    Examples:
      xds service web
      xds service show web -o wide
    """
    options = shared(context)
    item = options.connect().run(calls.service(name))
    if options.output in DOCUMENTS:
        write_document(item, options.output)
        return
    empty = f"service {name} has no instances: `xds sources` shows why"
    write_items(item["instances"], INSTANCES, options.style(), empty)
    if not item["is_known"]:
        say(f"no source has the service {name} yet")
    for bound in item["bindings"]:
        say(f"assignment {bound['assignment']} of group {bound['group']} follows it")
    held = sum(each["is_held"] for each in item["instances"])
    if held:
        sources = sorted({each["source"] for each in item["instances"] if each["is_held"]})
        command = f"xds source accept {sources[0]} --service {name}"
        say(f"{held} instances are kept although their source lost them: {command}")


@source.command(cls=Command)
def accept(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="The source.", autocompletion=complete_source)],
    service: Annotated[str, typer.Option("--service", help="Only the loss of this service.", metavar="NAME")] = "",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be removed; change nothing.")] = False,
    yes: YesFlag = False,
) -> None:
    """Accept a held loss. The instances that the source lost drain and are removed. Asks first on a terminal.

    \b
    Examples:
      xds source accept targets --dry-run
      xds source accept targets --service web
    """

    options = shared(context)
    if not dry_run:
        what = f"the loss of service {service}" if service else "all losses"
        confirm(f"accept {what} of source {name}?", yes)
    item = options.connect().run(calls.accept_losses(name, service=service, **write_options(dry_run=dry_run)))
    for each, count in item["accepted"].items():
        say(f"{each}: {count} instances {'would go' if dry_run else 'go'}")
