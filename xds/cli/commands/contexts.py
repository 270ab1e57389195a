"""``xds context``: the servers that a user works with, by name."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Any

import typer

from xds.cli.app import Command, command_family, shared
from xds.cli.completion import complete_context
from xds.cli.contexts import NAME_CHARACTERS, Contexts, ServerContext, read_contexts, write_contexts
from xds.cli.errors import CommandError, Exit
from xds.cli.output import say
from xds.cli.shared_options import Shared
from xds.cli.table import Column, TableLayout, write_items

Json = dict[str, Any]

context = command_family("context", "Name the servers that you work with, and switch.")

NameArgument = Annotated[str, typer.Argument(help="The context.", metavar="NAME", autocompletion=complete_context)]

NO_CONTEXTS = "no contexts: `xds context set NAME --server URL` adds one"

CONTEXTS = TableLayout(
    name="name",
    columns=(
        Column("CURRENT", lambda item: "*" if item["current"] else ""),
        Column("NAME", "name"),
        Column("SERVER", "server"),
        Column("TOKEN", "token_file"),
        Column("CERTIFICATE", "cert"),
    ),
    in_order="name",
)


@context.command("list", cls=Command)
def list_contexts(context: typer.Context) -> None:
    """List the contexts; the current one has a star."""
    contexts = read_contexts()
    items: list[Json] = [
        {"name": name, "current": name == contexts.current, **asdict(each)} for name, each in contexts.named.items()
    ]
    write_items(items, CONTEXTS, shared(context).style(), NO_CONTEXTS)


@context.command("set", cls=Command)
def set_context(context: typer.Context, name: NameArgument) -> None:
    """Add a context, or change its server or credentials. The first context becomes the current one.

    \b
    Examples:
      xds context set prod --server https://xds.example.org:18080 --token-file ~/.xds-token
      xds context set prod --cacert ca.pem
    """
    if not 0 < len(name) <= NAME_CHARACTERS or not name.isprintable():
        raise CommandError(Exit.USAGE, f"a name has 1 to {NAME_CHARACTERS} characters")
    contexts = read_contexts()
    changed = replace(contexts.named.get(name, ServerContext()), **_given(shared(context)))
    if not changed.server:
        raise CommandError(Exit.USAGE, "a context needs --server")
    write_contexts(Contexts({**contexts.named, name: changed}, contexts.current or name))
    say(f"context {name}: {changed.server}")


def _given(options: Shared) -> dict[str, str]:
    """What the command line gives. Paths are made absolute, because the context is used anywhere."""
    files = {"token_file": options.token_file, "cacert": options.cacert, "cert": options.cert, "key": options.key}
    values = {name: str(path.expanduser().absolute()) for name, path in files.items() if isinstance(path, Path)}
    return values | ({"server": options.server} if options.server else {})


@context.command("use", cls=Command)
def use_context(name: NameArgument) -> None:
    """Use this context from now on."""
    contexts = read_contexts()
    chosen = contexts.chosen(name)
    write_contexts(replace(contexts, current=name))
    say(f"context {name}: {chosen.server}")


@context.command("delete", cls=Command)
def delete_context(name: NameArgument) -> None:
    """Delete a context."""
    contexts = read_contexts()
    contexts.chosen(name)
    rest = {each: value for each, value in contexts.named.items() if each != name}
    write_contexts(Contexts(rest, "" if contexts.current == name else contexts.current))
    say(f"context {name} is deleted")
