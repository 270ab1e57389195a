"""Commands ``get``, ``delete`` and ``export``."""

from __future__ import annotations

from typing import Annotated

import typer

from xds.cli.app import Command, app, shared
from xds.cli.arguments import (
    EmptyFlag,
    ForceFlag,
    GroupArgument,
    GroupOption,
    IfMatchOption,
    MessageOption,
    WatchFlag,
    YesFlag,
)
from xds.cli.commands.events import show_again
from xds.cli.commands.group import delete_group, delete_resource
from xds.cli.completion import complete_group, complete_kind, complete_resource
from xds.cli.errors import CommandError, Exit
from xds.cli.output import say, write, write_document
from xds.cli.push_options import confirm, show_answer, write_options
from xds.cli.resources import ListRequest, document, is_document, list_text, require_document, snapshot
from xds.cli.rollout_options import Json, takes_rollout


@app.command(cls=Command)
def get(
    context: typer.Context,
    kind: Annotated[
        str,
        typer.Argument(
            help="groups, snapshot, resources, or a resource type such as clusters.", autocompletion=complete_kind
        ),
    ],
    name: Annotated[str, typer.Argument(help="Name of one group or resource.", autocompletion=complete_resource)] = "",
    group: GroupOption = "default",
    watch: WatchFlag = False,
) -> None:
    """List groups, snapshots and resources.

    \b
    Examples:
      xds get groups
      xds get clusters -g edge
      xds get cluster web -g edge -o json
      xds get snapshot -g edge
    """
    options = shared(context)
    wanted = ListRequest(kind, name, group, options.show_secrets)
    client = options.connect()
    if is_document(wanted, options.output):
        if watch:
            raise CommandError(Exit.USAGE, "-w works with lists only; this is a document")
        write_document(document(client, wanted), options.document_format())
    elif watch:
        show_again(
            options.connect(), "push,rollback,group,node", "", lambda: list_text(client, wanted, options.style())
        )
    else:
        write(list_text(client, wanted, options.style()))


@app.command(cls=Command)
@takes_rollout
def delete(
    context: typer.Context,
    target: Annotated[
        str,
        typer.Argument(
            help="A group, or the type of the resource.", metavar="GROUP | TYPE", autocompletion=complete_group
        ),
    ],
    name: Annotated[str, typer.Argument(help="The resource.", autocompletion=complete_resource)] = "",
    group: GroupOption = "default",
    message: MessageOption = "",
    if_match: IfMatchOption = "",
    allow_empty: EmptyFlag = False,
    force: ForceFlag = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be removed; change nothing.")] = False,
    yes: YesFlag = False,
    *,
    rollout: Json,
) -> None:
    """Delete a group, or one resource of a group. Asks first on a terminal.

    \b
    Examples:
      xds delete edge
      xds delete cluster old -g edge
      xds delete cluster old -g edge --canary 1,50%
    """
    options = shared(context)
    given = write_options(message, if_match, allow_empty=allow_empty, dry_run=dry_run)
    what = f"{target} {name} of group {group}" if name else f"group {target}"
    if rollout and not name:
        raise CommandError(Exit.USAGE, "a group is deleted at once: --canary and the like are for a resource of it")
    if not dry_run:
        confirm(f"delete {what}?", yes)
    client = options.connect()
    if name:
        given = {**given, **({"force": True} if force else {}), **rollout}
        answer = delete_resource(client, group, target, name, given)
    else:
        answer = delete_group(client, target, given)
    show_answer(answer, options.output)


@app.command(cls=Command)
def export(
    context: typer.Context,
    group: GroupArgument,
    revision: Annotated[int, typer.Option(help="An earlier revision; 0: the current one.", min=0)] = 0,
) -> None:
    """Write the snapshot of a group, with secrets, for apply.

    It contains the pushed resources. Resources that the upstreams of the group are lowered to are left out; a message
    counts them. `xds upstreams get -o yaml` shows the upstreams.

    \b
    Examples:
      xds export edge > edge.yaml
      xds export edge --revision 41 | xds apply -g edge -f -
    """
    options = shared(context)
    require_document(options.output)
    document = snapshot(options.connect(), group, revision, secrets=True)
    write_document(document, options.document_format())
    if lowered := document.get("lowered"):
        say(f"{lowered} resources come from the upstreams of the group and are left out")
