"""``service register``, ``deregister``, ``maintain``, ``registered``: instances that are registered over HTTP."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from xds.cli.app import Command, shared
from xds.cli.arguments import YesFlag
from xds.cli.client import Client
from xds.cli.errors import CommandError, Exit
from xds.cli.output import say, write
from xds.cli.push_options import confirm
from xds.cli.table import Column, TableLayout, rendered
from xds.model.ip_address import address_text
from xds.services import calls
from xds.services.commands.completion import complete_service
from xds.services.commands.services import HEALTH_STYLES, service

Json = dict[str, Any]

SERVICE_LIMIT_BYTES = 256 * 1024
NO_REGISTRATIONS = "no registered instances: `xds service register -f FILE` registers one"


def _checks(item: Json) -> str:
    """The checks that do not pass, or their number."""
    wrong = [f"{check['id']} {check['status']}" for check in item["checks"] if check["status"] != "passing"]
    return ", ".join(wrong) if wrong else f"{len(item['checks'])} passing" if item["checks"] else ""


INSTANCES = TableLayout(
    name=lambda item: f"{item['node']}/{item['id']}",
    columns=(
        Column("ID", "id"),
        Column("SERVICE", "service"),
        Column("ADDRESS", lambda item: address_text(item["address"], item["port"])),
        Column("HEALTH", "health", lambda item: HEALTH_STYLES.get(item["health"], "")),
        Column("CHECKS", _checks, is_prose=True),
        Column("AGE", "registered_at", is_time=True),
        Column("NODE", "node", is_wide=True),
        Column("TAGS", lambda item: ",".join(item["tags"]), is_wide=True, is_prose=True),
        Column("WEIGHT", "weight", is_wide=True),
        Column("ZONE", lambda item: "/".join(filter(None, item["locality"].values())), is_wide=True),
        Column("BY", "actor", is_wide=True),
    ),
)


_CHECKS = frozenset({"check", "checks"})


def _put(client: Client, file: Path, without_checks: bool) -> Json:
    """Register the instance that a file describes, without its checks if so. Raises ``CommandError``."""
    from xds.cli.files import read_object

    definition = read_object(file, "one service", SERVICE_LIMIT_BYTES)
    inner = next((definition[key] for key in definition if key.lower() == "service" and len(definition) == 1), None)
    if isinstance(inner, dict):  # the form of files that Consul's agent reads
        definition = inner
    given = {str(key).lower(): value for key, value in definition.items()}
    id = given.get("id") or given.get("name")
    if not isinstance(id, str) or not id:
        raise CommandError(Exit.INVALID, f"{file}: a service needs a Name")
    if without_checks:
        definition = {key: value for key, value in definition.items() if str(key).lower() not in _CHECKS}
        say("registered without checks: health_checks of the cluster let proxies check health themselves")
    return client.run(calls.register(id, definition))


def _report(item: Json, verb: str) -> None:
    """Print what was done to an instance."""
    place = address_text(item["address"], item["port"])
    say(f"instance {item['id']} of service {item['service']} at {place}: {verb}, {item['health']}")


IdArgument = Annotated[str, typer.Argument(help="The id of the instance.")]


@service.command(cls=Command)
def registered(
    context: typer.Context,
    name: Annotated[
        str, typer.Argument(help="Only instances of this service.", metavar="SERVICE", autocompletion=complete_service)
    ] = "",
) -> None:
    """Show all registered instances, and checks that do not pass. -o yaml shows when checks expire.

    \b
    Examples:
      xds service registered
      xds service registered web -o wide
    """
    options = shared(context)
    items = options.connect().items(calls.registrations(service=name))
    write(rendered(items, INSTANCES, options.style(), NO_REGISTRATIONS))


@service.command(cls=Command)
def register(
    context: typer.Context,
    file: Annotated[
        Path, typer.Option("-f", "--file", help="File with the service (YAML or JSON), or - (standard input).")
    ],
    without_checks: Annotated[
        bool, typer.Option("--without-checks", help="Leave out the checks of the file, such as those by HTTP.")
    ] = False,
) -> None:
    """Register an instance, or change it. The file has the fields of Consul's service definitions.

    \b
    Examples:
      xds service register -f web-1.yaml
      echo '{Name: web, ID: web-1, Address: 10.0.0.1, Port: 80}' | xds service register -f -
    """
    _report(_put(shared(context).connect(), file, without_checks), "registered")


@service.command(cls=Command)
def deregister(context: typer.Context, id: IdArgument, yes: YesFlag = False) -> None:
    """Deregister an instance with its checks; it drains. Asks first on a terminal.

    \b
    Examples:
      xds service deregister web-1
    """
    confirm(f"deregister the instance {id}?", yes)
    item = shared(context).connect().run(calls.deregister(id))
    say(f"instance {id} of service {item['service']}: deregistered")


@service.command(cls=Command)
def maintain(
    context: typer.Context,
    id: IdArgument,
    end: Annotated[bool, typer.Option("--end", help="End the maintenance.")] = False,
    reason: Annotated[str, typer.Option(help="The reason, shown with the check.")] = "",
) -> None:
    """Take an instance out of service. It is unhealthy for proxies until the maintenance ends.

    \b
    Examples:
      xds service maintain web-1 --reason 'new disk'
      xds service maintain web-1 --end
    """
    client = shared(context).connect()
    if end:
        _report(client.run(calls.end_maintenance(id)), "back from maintenance")
    else:
        _report(client.run(calls.begin_maintenance(id, reason=reason)), "in maintenance")
