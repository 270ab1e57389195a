"""Command ``diff``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from xds.cli.app import Command, app, shared
from xds.cli.commands.options import DescriptorsOption, GroupFilter
from xds.cli.errors import CommandError, Exit


@app.command(cls=Command)
def diff(
    context: typer.Context,
    file: Annotated[list[Path] | None, typer.Option("-f", "--file", help="Compare files with what is served.")] = None,
    group: GroupFilter = "",
    from_revision: Annotated[int, typer.Option("--from", help="Old revision; 0: the one before --to.", min=0)] = 0,
    to_revision: Annotated[int, typer.Option("--to", help="New revision; 0: the current one.", min=0)] = 0,
    node: Annotated[str, typer.Option(help="Compare what this node holds with what is served.")] = "",
    descriptor_set: DescriptorsOption = None,
) -> None:
    """Compare two states, resource by resource; exits 0 if they are equal, 1 if they differ.

    \b
    Examples:
      xds diff -g edge -f edge/
      xds diff -g edge --from 41 --to 42
      xds diff --node edge-1
    """
    from xds.cli.diff import (
        between_revisions,
        of_files,
        of_node,
        show_differences,
    )
    from xds.cli.validate import add_descriptors

    options = shared(context)
    is_history = bool(from_revision or to_revision)
    if bool(file) + is_history + bool(node) != 1:
        raise CommandError(Exit.USAGE, "give files (-f), revisions (--from, --to) or a node (--node), only one of them")
    add_descriptors(descriptor_set or ())
    client = options.connect()
    if file:
        found = of_files(client, file, group)
    elif node:
        found = [of_node(client, node)]
    else:
        found = [between_revisions(client, group or "default", from_revision, to_revision)]
    show_differences(found, options)
