"""Completion of names in the shell: groups and nodes of the server that the environment or the current context names.

A server that cannot be asked completes nothing. Nothing is printed, because the shell shows a prompt.
"""

from __future__ import annotations

from itertools import islice

import typer

SHOWN = 200


def complete_group(context: typer.Context, incomplete: str) -> list[str]:
    """Names of groups."""
    return _names("/groups", "group", incomplete)


def complete_node(context: typer.Context, incomplete: str) -> list[str]:
    """Ids of nodes."""
    return _names("/nodes", "id", incomplete)


def _names(path: str, key: str, incomplete: str) -> list[str]:
    from xds.cli.app import Shared
    from xds.cli.errors import CommandError

    try:
        client = Shared().connect()
        names = (str(item[key]) for item in client.items(path))
        return list(islice((name for name in names if name.startswith(incomplete)), SHOWN))
    except CommandError:
        return []
