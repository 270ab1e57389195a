"""Commands ``group list``, ``show``, ``set`` and ``delete``: which nodes a group takes."""

from __future__ import annotations

from typing import Annotated

import typer

from xds.cli.app import Command, app, shared
from xds.cli.commands.options import EmptyFlag, IfMatchOption, MessageOption, YesFlag

group = typer.Typer(
    help="List groups, and change their settings, such as the selector.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
app.add_typer(group, name="group")

GroupArgument = Annotated[str, typer.Argument(help="The group.")]
DryRunFlag = Annotated[bool, typer.Option("--dry-run", help="Change nothing.")]


@group.command("list", cls=Command)
def list_groups(context: typer.Context) -> None:
    """Show all groups with their settings.

    \b
    Examples:
      xds group list
      xds group list --sort-by PRIORITY
    """
    from xds.cli.group import SETTINGS
    from xds.cli.table import write_items

    options = shared(context)
    write_items(options.connect().items("/groups"), SETTINGS, options.style())


@group.command(cls=Command)
def show(context: typer.Context, group: GroupArgument) -> None:
    """Show the settings of a group; `xds describe group` has its rollout and history.

    \b
    Examples:
      xds group show edge
      xds group show edge -o yaml
    """
    from xds.cli.client import group_path
    from xds.cli.describe import fields_text
    from xds.cli.group import fields
    from xds.cli.output import Format, write, write_document

    options = shared(context)
    found = options.connect().call("GET", group_path(group))
    if options.output in {Format.JSON, Format.YAML, Format.JSONL}:
        write_document(found, options.document_format())
    else:
        write(f"{group}\n" if options.output is Format.NAME else fields_text(fields(found)))


@group.command("set", cls=Command)
def set_settings(
    context: typer.Context,
    group: GroupArgument,
    selector: Annotated[
        str | None, typer.Option(help="Filter for the nodes of the group; '' removes it.", metavar="FILTER")
    ] = None,
    priority: Annotated[
        int | None, typer.Option(help="Selectors of groups with a higher priority match first.")
    ] = None,
    on_nack: Annotated[str, typer.Option(help="hold, proceed, or default (the server's setting).")] = "",
    removal_delay: Annotated[
        str, typer.Option(help="How long removed resources linger, such as 15s; or default.", metavar="DURATION")
    ] = "",
    listener_drain: Annotated[
        str, typer.Option(help="How much longer they linger if a listener changed; or default.", metavar="DURATION")
    ] = "",
    if_match: Annotated[
        str,
        typer.Option(
            help="Only if the settings have this etag (see `group show`); none: there are no settings.", metavar="ETAG"
        ),
    ] = "",
    allow_empty: EmptyFlag = False,
    dry_run: DryRunFlag = False,
) -> None:
    """Change settings of a group, or create it; settings that are not given are kept.

    \b
    Examples:
      xds group set canary --selector 'node.metadata.canary == "yes"' --priority 10
      xds group set edge --selector '' --listener-drain default
      xds group set edge --priority 20 --if-match s-1f3a9c07
    """
    from xds.cli.group import Given, difference, set_group
    from xds.cli.output import Format, say, write, write_document

    options = shared(context)
    given = Given(selector, priority, on_nack, removal_delay, listener_drain)
    query = {name: "true" for name, is_set in (("dry_run", dry_run), ("allow_empty", allow_empty)) if is_set}
    before, after = set_group(options.connect(), group, given, query, if_match)
    if options.output in {Format.JSON, Format.YAML, Format.JSONL}:
        write_document(after, options.document_format())
    else:
        write(f"{group if options.output is Format.NAME else difference(before, after)}\n")
    if dry_run:
        say("nothing was changed")
    if not after["revision"]:
        say(f"group {group} has no snapshot: no nodes belong to it until one is pushed (xds apply -g {group} -f ...)")


@group.command(cls=Command)
def delete(
    context: typer.Context,
    group: GroupArgument,
    message: MessageOption = "",
    if_match: IfMatchOption = "",
    allow_empty: EmptyFlag = False,
    dry_run: DryRunFlag = False,
    yes: YesFlag = False,
) -> None:
    """Delete a group and show where its nodes move. Asks first on a terminal.

    Refused if a node would get no configuration.

    \b
    Examples:
      xds group delete canary --dry-run
      xds group delete canary
    """
    from xds.cli.group import delete_group
    from xds.cli.push_options import confirm, push_query, show_answer
    from xds.cli.push_options import if_match as header

    options = shared(context)
    if not dry_run:
        confirm(f"delete group {group}?", yes)
    query = push_query(message, allow_empty=allow_empty, dry_run=dry_run)
    show_answer(delete_group(options.connect(), group, query, header(if_match)), options.output)
