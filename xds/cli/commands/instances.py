"""``instance list``, ``show``, ``register``, ``deregister``, ``maintain``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from xds.cli.app import Command, app, shared
from xds.cli.commands.options import YesFlag

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
    from xds.cli.instances import list_text
    from xds.cli.output import write

    options = shared(context)
    write(list_text(options.connect(), service, options.style()))


@instance.command(cls=Command)
def show(context: typer.Context, id: IdArgument) -> None:
    """Show one registered instance with its checks, and when they expire.

    \b
    Examples:
      xds instance show web-1
    """
    from xds.cli.instances import path_of
    from xds.cli.output import write_document

    options = shared(context)
    write_document(options.connect().call("GET", path_of(id)), options.document_format())


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
    from xds.cli.instances import register as put
    from xds.cli.instances import tell

    tell(put(shared(context).connect(), file), "registered")


@instance.command(cls=Command)
def deregister(context: typer.Context, id: IdArgument, yes: YesFlag = False) -> None:
    """Deregister an instance with its checks; it drains. Asks first on a terminal.

    \b
    Examples:
      xds instance deregister web-1
    """
    from xds.cli.instances import path_of
    from xds.cli.output import say
    from xds.cli.push_options import confirm

    confirm(f"deregister the instance {id}?", yes)
    item = shared(context).connect().call("DELETE", path_of(id))
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
    from xds.cli.instances import path_of, tell

    client, path = shared(context).connect(), f"{path_of(id)}/maintenance"
    if end:
        tell(client.call("DELETE", path), "back from maintenance")
    else:
        tell(client.call("PUT", path, {"reason": reason} if reason else {}), "in maintenance")
