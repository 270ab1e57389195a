"""Commands ``backup``, ``restore``, and those of ``store``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from xds.cli.app import Command, app, command_family, shared
from xds.cli.arguments import YesFlag
from xds.cli.push_options import confirm, write_options

store = command_family("store", "Check or copy the data directory of a stopped server.")

DataOption = Annotated[Path, typer.Option(help="The data directory of the server.")]


@app.command(cls=Command)
def backup(
    context: typer.Context,
    file: Annotated[str, typer.Argument(help="File to write (mode 0600), or - (standard output).")],
    no_history: Annotated[
        bool, typer.Option("--no-history", help="Only the current revisions, without history.")
    ] = False,
    redact: Annotated[
        bool, typer.Option("--redact", help="Leave out secret values; such a backup cannot be restored.")
    ] = False,
) -> None:
    """Save all that a server holds to an archive, with keys.

    \b
    Examples:
      xds backup xds.tar
      xds backup - --no-history | age -r KEY > xds.tar.age
    """
    from xds.cli.backups import take_backup

    take_backup(shared(context).connect(), file, history=not no_history, redact=redact)


@app.command(cls=Command)
def restore(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(help="An archive that xds backup wrote.")],
    replace: Annotated[
        bool,
        typer.Option(
            "--replace", help="Replace all content of the server. Without this option the server must be empty."
        ),
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="The server verifies the archive and changes nothing.")
    ] = False,
    check: Annotated[bool, typer.Option("--check", help="Verify the archive without a server.")] = False,
    yes: YesFlag = False,
) -> None:
    """Restore a backup, all or nothing. Revision numbers and versions stay the same.

    \b
    Examples:
      xds restore xds.tar
      xds restore xds.tar --check
      xds restore xds.tar --replace
    """
    from xds.cli.backups import check_backup, restore_backup

    options = shared(context)
    if check:
        check_backup(file, options.output)
        return
    if replace and not dry_run:
        confirm("replace all groups, settings and policies of the server?", yes)
    given = write_options(replace=replace, dry_run=dry_run)
    restore_backup(options.connect(), file, given, options.output)


@store.command("check", cls=Command)
def store_check(context: typer.Context, data: DataOption = Path("xds-data")) -> None:
    """Check a store, group by group. Exits 1 if anything is damaged. Read-only.

    \b
    Examples:
      xds store check --data xds-data
    """
    from xds.cli.backups import check_store

    check_store(data, shared(context).output)


@store.command(cls=Command)
def copy(
    context: typer.Context,
    source: Annotated[
        str, typer.Argument(help="Data directory or store file of a stopped server, or its database's URL.")
    ],
    target: Annotated[str, typer.Argument(help="A new data directory, or the URL of an empty database.")],
) -> None:
    """Copy a store, also to one of another kind.

    What is damaged is left out, group by group; then it exits 1.

    \b
    Examples:
      xds store copy xds-data new-data
      xds store copy xds-data postgresql://xds@db.internal/xds
      xds store copy xds-data/copy.sqlite3 new-data
    """
    from xds.cli.backups import make_copy

    make_copy(source, target, shared(context).output)


@store.command("rotate-secret", cls=Command)
def rotate_secret(
    database: Annotated[str, typer.Argument(help="The URL of the database.", metavar="URL")],
) -> None:
    """Make a new secret for the servers that share a database.

    With it they prove to each other who they are. No server has to be restarted.

    \b
    Examples:
      xds store rotate-secret postgresql://xds@db.internal/xds
    """
    from xds.cli.backups import make_secret

    make_secret(database)
