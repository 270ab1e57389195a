"""``xds chain``: the discovery chain of a service, or the path of one request through it."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import Annotated, Any

import typer

from xds.cli.app import Command, app, shared
from xds.cli.client import Client
from xds.cli.errors import CommandError, Exit
from xds.cli.output import Format, to_json, to_yaml, write
from xds.mesh import calls
from xds.mesh.commands.chain_text import chain_dot, chain_text, walk_text
from xds.services.commands.completion import complete_service

Json = dict[str, Any]


class ChainFormat(StrEnum):
    """How a chain is written: as a tree, for Graphviz, or as documents."""

    TREE = "tree"
    DOT = "dot"
    JSON = "json"
    YAML = "yaml"


def chain_format(own: ChainFormat | None, shared: Format | None) -> ChainFormat:
    """The format given after the name of the command, otherwise the shared option."""
    if own is None and shared in {Format.JSON, Format.JSONL}:
        return ChainFormat.JSON
    if own is None and shared is Format.YAML:
        return ChainFormat.YAML
    return own or ChainFormat.TREE


def shown_chain(client: Client, service: str, format: ChainFormat) -> str:
    """The chain as text. Raises ``CommandError``."""
    answer = client.run(calls.discovery_chain(_named(service)))
    if format is ChainFormat.DOT:
        return chain_dot(answer["Chain"])
    return chain_text(answer["Chain"]) if format is ChainFormat.TREE else _document(answer, format)


def shown_walk(client: Client, service: str, request: Json, format: ChainFormat) -> str:
    """The path of a request as text; ``request`` has the options of the call. Raises ``CommandError``."""
    if format is ChainFormat.DOT:
        raise CommandError(Exit.USAGE, "-o dot is for whole chains: leave the request out")
    answer = client.run(calls.walk_chain(_named(service), **request))
    return walk_text(answer) if format is ChainFormat.TREE else _document(answer, format)


def _named(service: str) -> str:
    if not service:
        raise CommandError(Exit.USAGE, "name the service")
    return service


def walk_options(path: str, method: str, headers: Iterable[str], query: Iterable[str]) -> Json:
    """A request as options of the call. Raises ``CommandError``."""
    if path and not path.startswith("/"):
        raise CommandError(Exit.USAGE, f"--path begins with a slash, not {path!r}")
    return {
        "path": path,
        "method": method,
        "headers": [_checked(each, "--header") for each in headers],
        "query": [_checked(each, "--query") for each in query],
    }


def _checked(text: str, option: str) -> str:
    name, divider, _ = text.partition("=")
    if not name or not divider:
        raise CommandError(Exit.USAGE, f"{option} is NAME=VALUE, not {text!r}")
    return text


def _document(answer: Json, format: ChainFormat) -> str:
    return to_json(answer) if format is ChainFormat.JSON else to_yaml(answer)


@app.command(cls=Command)
def chain(
    context: typer.Context,
    service: Annotated[str, typer.Argument(help="The service.", autocompletion=complete_service)],
    path: Annotated[str, typer.Option(help="The path of a request, with or without a query.", metavar="PATH")] = "",
    method: Annotated[str, typer.Option(help="The method of the request; GET by default.")] = "",
    header: Annotated[
        list[str] | None, typer.Option(help="A header of the request; may be repeated.", metavar="NAME=VALUE")
    ] = None,
    query: Annotated[
        list[str] | None, typer.Option(help="A query parameter; may be repeated.", metavar="NAME=VALUE")
    ] = None,
    output: Annotated[ChainFormat | None, typer.Option("-o", "--output", help="Output format.")] = None,
) -> None:
    """Show the discovery chain of a service. Given a request: its path through the chain, and why.

    \b
    Examples:
      xds chain web
      xds chain web -o dot | dot -Tsvg > web.svg
      xds chain web --path /admin --header x-debug=1
      xds chain web --method POST --query page=2
    """
    options = shared(context)
    format = chain_format(output, options.output)
    if path or method or header or query:
        request = walk_options(path, method, header or (), query or ())
        write(shown_walk(options.connect(), service, request, format))
    else:
        write(shown_chain(options.connect(), service, format))
