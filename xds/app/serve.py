"""Command ``serve``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from xds.cli.app import ServerCommand, app
from xds.cli.errors import CommandError, Exit

DEV_DIRECTORY = "xds.d"


@app.command(cls=ServerCommand)
def serve(
    grpc: Annotated[str, typer.Option(help="HOST:PORT for xDS clients (default 127.0.0.1:18000).")] = "",
    http: Annotated[str, typer.Option(help="HOST:PORT of the admin API and REST xDS (default 127.0.0.1:18080).")] = "",
    data: Annotated[str, typer.Option(help="Directory of the embedded store (default ./xds-data).")] = "",
    store: Annotated[str, typer.Option(help="memory, sqlite (default), or the URL of a PostgreSQL database.")] = "",
    config: Annotated[Path | None, typer.Option(help="YAML file of settings.", envvar="XDS_CONFIG")] = None,
    watch: Annotated[
        Path | None,
        typer.Option(
            help="Apply the files of this directory whenever they change; each file or subdirectory is a group."
        ),
    ] = None,
    prune: Annotated[
        bool, typer.Option("--prune", help="With --watch: when a file is deleted, delete its group.")
    ] = False,
    dev: Annotated[
        bool, typer.Option("--dev", help=f"For experiments: store nothing, and watch ./{DEV_DIRECTORY}.")
    ] = False,
    lrs_interval: Annotated[
        str, typer.Option(help="How often clients report their load (default 10s).", metavar="DURATION")
    ] = "",
    advertise: Annotated[
        str, typer.Option(help="URL at which the other servers of the same database reach this one.", metavar="URL")
    ] = "",
    insecure: Annotated[
        bool, typer.Option("--insecure", help="Listen beyond the loopback without TLS and credentials.")
    ] = False,
    log_level: Annotated[str, typer.Option(help="debug, info, warning or error.")] = "",
) -> None:
    """Run the server until SIGTERM or SIGINT.

    \b
    Examples:
      xds serve
      xds serve --dev
      xds serve --store memory --watch ./snapshots
      xds serve --store postgresql://xds@db.internal/xds --advertise https://10.0.0.5:18080
      xds serve --grpc 0.0.0.0:18000 --config xds.yaml
    """
    from xds.app.settings import load_settings
    from xds.cli.arguments import serve_flags
    from xds.model.errors import XdsError
    from xds.settings.settings import ExposedListenerError, SettingsError, auth_files

    if dev:
        store = store or "memory"
        watch = watch or (Path(DEV_DIRECTORY) if Path(DEV_DIRECTORY).is_dir() else None)
    if watch is not None and not watch.is_dir():
        raise CommandError(Exit.USAGE, f"--watch {watch}: there is no such directory")
    flags = serve_flags(grpc, http, data, store, insecure, log_level, str(watch or ""), prune, lrs_interval, advertise)
    try:
        settings = load_settings(config, flags)
    except ExposedListenerError as error:
        raise CommandError(Exit.USAGE, f"{error} (--insecure)") from None
    except SettingsError as error:
        raise CommandError(Exit.USAGE, str(error)) from None
    from xds.app.process import serve as run

    try:
        run(settings, read=lambda: load_settings(config, flags), files=auth_files(config))
    except (XdsError, OSError, ValueError) as error:
        raise CommandError(Exit.NEGATIVE, f"cannot serve: {error}") from None
