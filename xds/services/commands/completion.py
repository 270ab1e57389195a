"""Completion of services and sources."""

from __future__ import annotations

import typer

from xds.cli.completion import complete_names


def complete_service(context: typer.Context, incomplete: str) -> list[str]:
    """Services of the catalog."""
    from xds.services import calls

    return complete_names(context, calls.services(), "service", incomplete)


def complete_source(context: typer.Context, incomplete: str) -> list[str]:
    """Sources of instances."""
    from xds.services import calls

    return complete_names(context, calls.sources(), "name", incomplete)
