"""``config-entry write``, ``read``, ``list``, ``delete``, ``diff``, ``history``, ``undo``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from xds.cli.app import Command, app, shared
from xds.cli.arguments import FilesArgument, FilesOption, MessageOption, StrictFlag, YesFlag, named_files
from xds.cli.completion import complete_names, given_value
from xds.cli.errors import CommandError, Exit
from xds.cli.output import Format, say, write, write_document
from xds.cli.push_options import confirm, write_options
from xds.cli.table import write_items
from xds.mesh import calls

config_entry = typer.Typer(
    help="Config entries, from which discovery chains are compiled.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
app.add_typer(config_entry, name="config-entry")


def complete_entry(context: typer.Context, incomplete: str) -> list[str]:
    """Names of config entries of the kind in the argument before."""
    return complete_names(context, calls.config_entries(given_value(context, "kind")), "name", incomplete)


KindArgument = Annotated[str, typer.Argument(help="The kind, such as service-resolver.")]
NameArgument = Annotated[
    str, typer.Argument(help="The name of the service; global for proxy-defaults.", autocompletion=complete_entry)
]
DryRunFlag = Annotated[bool, typer.Option("--dry-run", help="Show what would change; change nothing.")]
LineMatch = Annotated[
    str, typer.Option("--if-match", help="Only if config entries are at this revision.", metavar="REV")
]
EntryMatch = Annotated[
    str, typer.Option("--if-match", help="Only if the entry was last modified at this revision.", metavar="REV")
]


@config_entry.command("write", cls=Command)
def write_entries(
    context: typer.Context,
    files: FilesArgument = None,
    file: FilesOption = None,
    message: MessageOption = "",
    if_match: LineMatch = "",
    dry_run: DryRunFlag = False,
    strict: StrictFlag = False,
) -> None:
    """Write the config entries of files, all or none. Other entries are not changed.

    A write that would break a discovery chain is refused, with the chain and the path. Files are JSON or YAML.

    \b
    Examples:
      xds config-entry write web.yaml
      xds config-entry write -f entries/ --dry-run
    """
    from xds.mesh.commands.entry_files import read_files, show_written, write_entries

    options = shared(context)
    written = read_files(named_files(files, file))
    given = write_options(message, if_match, dry_run=dry_run, strict=strict)
    show_written(write_entries(options.connect(), written, given), options.output)


@config_entry.command(cls=Command)
def read(context: typer.Context, kind: KindArgument, name: NameArgument) -> None:
    """Show one config entry, in the form that write accepts.

    \b
    Examples:
      xds config-entry read service-resolver web
      xds config-entry read proxy-defaults global -o json
    """
    from xds.mesh.commands.entry_files import shown_entry

    options = shared(context)
    entry = options.connect().run(calls.config_entry(kind, name))
    if options.output is Format.NAME:
        write(f"{entry['kind']}/{entry['name']}\n")
    else:
        write_document(shown_entry(entry), options.document_format())


@config_entry.command("list", cls=Command)
def list_entries(
    context: typer.Context, kind: Annotated[str, typer.Argument(help="Only entries of this kind.")] = ""
) -> None:
    """Show the config entries, by kind and name.

    \b
    Examples:
      xds config-entry list
      xds config-entry list service-resolver -o wide
    """
    from xds.mesh.commands.entry_files import LIST, NO_ENTRIES

    options = shared(context)
    write_items(options.connect().items(calls.config_entries(kind)), LIST, options.style(), NO_ENTRIES)


@config_entry.command(cls=Command)
def delete(
    context: typer.Context,
    kind: KindArgument,
    name: NameArgument,
    message: MessageOption = "",
    if_match: EntryMatch = "",
    dry_run: DryRunFlag = False,
    yes: YesFlag = False,
) -> None:
    """Delete one config entry. Refused if that would break a chain. Asks first on a terminal.

    \b
    Examples:
      xds config-entry delete service-router web --dry-run
      xds config-entry delete service-router web
    """
    from xds.mesh.commands.entry_files import show_written

    options = shared(context)
    if not dry_run:
        confirm(f"delete {kind}/{name}?", yes)
    given = write_options(message, if_match, dry_run=dry_run)
    answer = options.connect().run(calls.delete_config_entry(kind, name, **given))
    show_written(answer, options.output)


@config_entry.command(cls=Command)
def diff(
    context: typer.Context,
    file: Annotated[
        list[Path] | None, typer.Option("-f", "--file", help="Compare files with the entries of the server.")
    ] = None,
    from_revision: Annotated[int, typer.Option("--from", help="Old revision; 0: the one before --to.", min=0)] = 0,
    to_revision: Annotated[int, typer.Option("--to", help="New revision; 0: the current one.", min=0)] = 0,
) -> None:
    """Compare config entries, entry by entry. Exits 0 if they are equal, 1 if they differ.

    \b
    Examples:
      xds config-entry diff -f web.yaml
      xds config-entry diff --from 1 --to 3
    """
    from xds.mesh.commands.entry_files import against_files, between_revisions, show_differences

    options = shared(context)
    if bool(file) == bool(from_revision or to_revision):
        raise CommandError(Exit.USAGE, "either files (-f) or revisions (--from, --to)")
    client = options.connect()
    differences = against_files(client, file) if file else between_revisions(client, from_revision, to_revision)
    show_differences(differences, options)


@config_entry.command(cls=Command)
def history(context: typer.Context) -> None:
    """Show the revisions of the config entries, newest first.

    \b
    Examples:
      xds config-entry history
      xds config-entry history --limit 5 -o json
    """
    from xds.mesh.commands.entry_files import HISTORY, NO_ENTRIES

    options = shared(context)
    write_items(options.connect().items(calls.config_entry_history()), HISTORY, options.style(), NO_ENTRIES)


@config_entry.command(cls=Command)
def undo(
    context: typer.Context,
    to: Annotated[int, typer.Option("--to", help="The revision to go back to; 0: the last good one.", min=0)] = 0,
    message: MessageOption = "",
    dry_run: DryRunFlag = False,
    yes: YesFlag = False,
) -> None:
    """Undo the last change of config entries, or several. Asks first on a terminal.

    \b
    Examples:
      xds config-entry undo
      xds config-entry undo --to 3 -m "as on Monday"
    """
    from xds.mesh.commands.entry_files import show_written

    options = shared(context)
    client = options.connect()
    given = write_options(message, dry_run=dry_run)
    if not to:
        plan = client.run(calls.config_entry_undo_plan())
        to, given["if_match"] = plan["to"], plan["etag"]
        reason = f": {plan['takes_back']['message']}" if plan["takes_back"]["message"] else ""
        say(f"undoes revision {plan['takes_back']['revision']}{reason}")
    if not dry_run:
        confirm(f"go back to revision {to} of the config entries?", yes)
    answer = client.run(calls.roll_back_config_entries(to, **given))
    show_written(answer, options.output)
