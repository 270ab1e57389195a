"""``endpoints``: assignments that are laid over the pushed ones."""

from __future__ import annotations

import typer

from xds.cli.app import app

endpoints = typer.Typer(
    help="Live endpoints: assignments laid over the pushed ones, by hand or bound to a service.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
app.add_typer(endpoints, name="endpoints")
