"""``backup``, ``restore``, ``store check``, ``store salvage``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from xds.cli.app import Command, app, shared
from xds.cli.commands.options import YesFlag

store = typer.Typer(
    help="Look at the data directory of a server that is not running.", no_args_is_help=True, rich_markup_mode=None
)

DataOption = Annotated[Path, typer.Option(help="The data directory of the server.")]


@app.command(cls=Command)
def backup(
    context: typer.Context,
    file: Annotated[str, typer.Argument(help="Where to write it (mode 0600), or - (standard output).")],
    no_history: Annotated[bool, typer.Option("--no-history", help="Only what is served now.")] = False,
    redact: Annotated[bool, typer.Option("--redact", help="Without secret values; it cannot be restored.")] = False,
) -> None:
    """Write all snapshots, settings and policies of a running server into one archive, private keys included.

    \b
    Examples:
      xds backup xds.tar
      xds backup - --no-history | age -r KEY > xds.tar.age
    """
    from xds.cli.backups import take_backup

    query = {"history": str(not no_history).lower(), "redact": str(redact).lower()}
    take_backup(shared(context).connect(), file, query)


@app.command(cls=Command)
def restore(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(help="What xds backup wrote.")],
    replace: Annotated[
        bool, typer.Option("--replace", help="In place of all that the server holds; else it must be empty.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="The server verifies it and changes nothing.")] = False,
    check: Annotated[bool, typer.Option("--check", help="Only verify the file, without a server.")] = False,
    yes: YesFlag = False,
) -> None:
    """Put a backup into a server, all of it or nothing; revisions and versions are what they were.

    \b
    Examples:
      xds restore xds.tar
      xds restore xds.tar --check
      xds restore xds.tar --replace
    """
    from xds.cli.backups import check_backup, restore_backup
    from xds.cli.push_options import author, confirm

    options = shared(context)
    if check:
        check_backup(file, options.output)
        return
    if replace and not dry_run:
        confirm("replace all groups, settings and policies of the server?", yes)
    query = {"replace": str(replace).lower(), "dry_run": str(dry_run).lower(), "author": author()}
    restore_backup(options.connect(), file, query, options.output)


app.add_typer(store, name="store")


@store.command("check", cls=Command)
def store_check(context: typer.Context, data: DataOption = Path("xds-data")) -> None:
    """Say what of a store is sound, group by group; exits 1 when something is not. Nothing is written.

    \b
    Examples:
      xds store check --data xds-data
    """
    from xds.cli.backups import check_store

    check_store(data, shared(context).output)


@store.command(cls=Command)
def salvage(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(help="The archive to write, for xds restore.")],
    data: DataOption = Path("xds-data"),
) -> None:
    """Write what is sound of a damaged store as a backup; the store stays as it is.

    \b
    Examples:
      xds store salvage saved.tar --data xds-data
    """
    from xds.cli.backups import salvage_store

    salvage_store(data, file, shared(context).output)
