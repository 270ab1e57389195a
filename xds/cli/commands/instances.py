"""``instance list``, ``show``, ``register``, ``deregister``, ``maintain``: instances that are registered over HTTP."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any
from urllib.parse import quote

import typer

from xds.cli.app import Command, app, shared
from xds.cli.arguments import YesFlag
from xds.cli.client import Client
from xds.cli.errors import CommandError, Exit
from xds.cli.files import read_object
from xds.cli.output import say, write, write_document
from xds.cli.push_options import confirm
from xds.cli.table import Column, TableLayout, rendered

Json = dict[str, Any]

SERVICE_LIMIT_BYTES = 256 * 1024
PATH = "/registrations"
_STYLES = {"passing": "good", "warning": "warn", "critical": "bad"}


def _checks(item: Json) -> str:
    """The checks that do not pass, or their number."""
    wrong = [f"{check['id']} {check['status']}" for check in item["checks"] if check["status"] != "passing"]
    return ", ".join(wrong) if wrong else f"{len(item['checks'])} passing" if item["checks"] else ""


INSTANCES = TableLayout(
    name=lambda item: f"{item['node']}/{item['id']}",
    columns=(
        Column("ID", lambda item: item["id"]),
        Column("SERVICE", lambda item: item["service"]),
        Column("ADDRESS", lambda item: _place(item["address"], item["port"])),
        Column("HEALTH", lambda item: item["health"], lambda item: _STYLES.get(item["health"], "")),
        Column("CHECKS", _checks),
        Column("AGE", lambda item: item["registered_at"], is_time=True),
        Column("NODE", lambda item: item["node"], is_wide=True),
        Column("TAGS", lambda item: ",".join(item["tags"]), is_wide=True),
        Column("WEIGHT", lambda item: str(item["weight"]), is_wide=True),
        Column("ZONE", lambda item: "/".join(filter(None, item["locality"].values())), is_wide=True),
        Column("BY", lambda item: item["actor"], is_wide=True),
    ),
)


def _place(address: str, port: int) -> str:
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


def _path(id: str) -> str:
    """The path of an instance."""
    return f"{PATH}/{quote(id, safe='')}"


def _put(client: Client, file: Path) -> Json:
    """Register the instance that a file describes. Raises ``CommandError``."""
    service = read_object(file, "one service", SERVICE_LIMIT_BYTES)
    inner = next((service[key] for key in service if key.lower() == "service" and len(service) == 1), None)
    if isinstance(inner, dict):  # the form of files that Consul's agent reads
        service = inner
    given = {str(key).lower(): value for key, value in service.items()}
    id = given.get("id") or given.get("name")
    if not isinstance(id, str) or not id:
        raise CommandError(Exit.INVALID, f"{file}: a service needs a Name")
    return client.call("PUT", _path(id), None, None, service)


def _tell(item: Json, verb: str) -> None:
    """Say what was done to an instance."""
    place = _place(item["address"], item["port"])
    say(f"instance {item['id']} of service {item['service']} at {place}: {verb}, {item['health']}")


instance = typer.Typer(
    help="Instances of services that are registered here: their health, and registering by hand.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
app.add_typer(instance, name="instance")

IdArgument = Annotated[str, typer.Argument(help="The id of the instance.")]


@instance.command("list", cls=Command)
def list_instances(
    context: typer.Context,
    service: Annotated[str, typer.Argument(help="Only instances of this service.")] = "",
) -> None:
    """Show all registered instances, and which of their checks do not pass.

    \b
    Examples:
      xds instance list
      xds instance list web -o wide
    """
    options = shared(context)
    items = options.connect().items(PATH, {"service": service} if service else {})
    write(rendered(items, INSTANCES, options.style()))


@instance.command(cls=Command)
def show(context: typer.Context, id: IdArgument) -> None:
    """Show one registered instance with its checks, and when they expire.

    \b
    Examples:
      xds instance show web-1
    """
    options = shared(context)
    write_document(options.connect().call("GET", _path(id)), options.document_format())


@instance.command(cls=Command)
def register(
    context: typer.Context,
    file: Annotated[
        Path, typer.Option("-f", "--file", help="File with the service (YAML or JSON), or - (standard input).")
    ],
) -> None:
    """Register an instance, or change it. The file has the fields of Consul's service definitions.

    \b
    Examples:
      xds instance register -f web-1.yaml
      echo '{Name: web, ID: web-1, Address: 10.0.0.1, Port: 80}' | xds instance register -f -
    """
    _tell(_put(shared(context).connect(), file), "registered")


@instance.command(cls=Command)
def deregister(context: typer.Context, id: IdArgument, yes: YesFlag = False) -> None:
    """Deregister an instance with its checks; it drains. Asks first on a terminal.

    \b
    Examples:
      xds instance deregister web-1
    """
    confirm(f"deregister the instance {id}?", yes)
    item = shared(context).connect().call("DELETE", _path(id))
    say(f"instance {id} of service {item['service']}: deregistered")


@instance.command(cls=Command)
def maintain(
    context: typer.Context,
    id: IdArgument,
    end: Annotated[bool, typer.Option("--end", help="End the maintenance.")] = False,
    reason: Annotated[str, typer.Option(help="Why; shown with the check.")] = "",
) -> None:
    """Take an instance out of service: proxies are told that it is not healthy, until the maintenance ends.

    \b
    Examples:
      xds instance maintain web-1 --reason 'new disk'
      xds instance maintain web-1 --end
    """
    client, path = shared(context).connect(), f"{_path(id)}/maintenance"
    if end:
        _tell(client.call("DELETE", path), "back from maintenance")
    else:
        _tell(client.call("PUT", path, {"reason": reason} if reason else {}), "in maintenance")
