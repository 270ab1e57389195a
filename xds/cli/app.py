"""The application on which the commands register, and the options that all commands share.

The shared options belong to the root command. A `Command` also accepts them after its own name. They are not passed to
the function of the command, which finds all of them in ``context.obj``.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from xds.cli import missing_servers
from xds.cli.completion import complete_context
from xds.cli.errors import CommandError, Exit
from xds.cli.help_layout import SectionedGroup, name_values
from xds.cli.output import Color, Format, print_error, suppress_messages
from xds.cli.shared_options import Shared

_COMMAND_LINE = "COMMANDLINE"
# Options whose value may be left out, which the argument parser does not support. Their metavar begins with "[=".
_DEFAULT_VALUES = {"--wait": "100%", "--dry-run": "server", "--canary": "default"}
# Values that may also be the next word, although they may be left out.
_NEXT_WORDS = {"--canary": re.compile(r"\d+%?(,\d+%?)*")}


def shared(context: typer.Context) -> Shared:
    """The shared options of a command."""
    options = context.obj
    assert isinstance(options, Shared)
    return options


class Command(TyperCommand):
    """A command that takes the shared options and ends with the exit codes of the command line."""

    is_client = True

    def get_params(self, ctx: Any) -> list[Any]:
        """The parameters of the command, and the shared ones that it does not redefine."""
        own = name_values(super().get_params(ctx))
        return [*own, *self._shared(ctx, own)]

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Move the shared options into ``ctx.obj``.

        An option after the command's name overrides the same one before it.
        """
        rest = super().parse_args(ctx, self._with_values(args))
        names = [param.name for param in self._shared(ctx, super().get_params(ctx))]
        values = {name: ctx.params.pop(name) for name in names}
        given = {name: value for name, value in values.items() if _is_given(ctx, name)}
        ctx.obj = replace(ctx.obj if isinstance(ctx.obj, Shared) else Shared(), **given)
        if ctx.obj.quiet:
            suppress_messages()
        return rest

    def invoke(self, ctx: Any) -> Any:
        """Run the command; errors become a message and an exit code."""
        missing_servers.forget()
        try:
            result = super().invoke(ctx)
            missing_servers.check()
            return result
        except CommandError as error:
            if str(error):
                print_error(f"xds: {error}")
            raise typer.Exit(error.code) from None
        except KeyboardInterrupt:
            raise typer.Exit(Exit.INTERRUPTED) from None

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """List the options of the command, then the shared ones."""
        own = super().get_params(ctx)
        for title, params in (("Arguments", _arguments(own)), ("Options", _options(own))):
            _section(ctx, formatter, title, params)
        _section(ctx, formatter, "Shared options", self._shared(ctx, own))

    def _with_values(self, args: list[str]) -> list[str]:
        """The arguments, with a value for each option whose value was left out."""
        optional = {option for param in self.params if (param.metavar or "").startswith("[=") for option in param.opts}
        return [
            f"{word}={_DEFAULT_VALUES[word]}" if word in optional and not _is_value(word, following) else word
            for word, following in zip(args, [*args[1:], ""], strict=False)  # no word has a word behind it
        ]

    def _shared(self, ctx: Any, own: list[Any]) -> list[Any]:
        if not self.is_client:
            return []
        own_options = {option for param in own for option in param.opts}
        root = name_values(ctx.find_root().command.params)
        return [param for param in root if param.name in Shared.__slots__ and not own_options.intersection(param.opts)]


class ServerCommand(Command):
    """A command that is not a client: it has no shared options."""

    is_client = False


def _is_value(option: str, word: str) -> bool:
    pattern = _NEXT_WORDS.get(option)
    return pattern is not None and pattern.fullmatch(word) is not None


def _is_given(context: Any, name: str) -> bool:
    source = context.get_parameter_source(name)
    return source is not None and source.name == _COMMAND_LINE


def _arguments(params: list[Any]) -> list[Any]:
    return [param for param in params if param.param_type_name == "argument"]


def _options(params: list[Any]) -> list[Any]:
    return [param for param in params if param.param_type_name == "option"]


def _section(context: Any, formatter: Any, title: str, params: list[Any]) -> None:
    records = [record for param in params if (record := param.get_help_record(context)) is not None]
    if records:
        with formatter.section(title):
            formatter.write_dl(records)


app = typer.Typer(
    name="xds",
    cls=SectionedGroup,
    help="Envoy-compatible xDS management server, and its client.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)


def command_family(name: str, help: str) -> typer.Typer:
    """A new command that has commands of its own."""
    family = typer.Typer(help=help, no_args_is_help=True, rich_markup_mode=None)
    app.add_typer(family, name=name)
    return family


def _version(wanted: bool) -> None:
    if wanted:
        from xds.version import __version__

        typer.echo(f"xds-server {__version__}")
        raise typer.Exit


@app.callback()
def _main(
    ctx: typer.Context,
    server: Annotated[str, typer.Option(help="URL of the admin API (XDS_ADDR; http://127.0.0.1:18080).")] = "",
    token_file: Annotated[
        Path | None, typer.Option(help="File with the bearer token (XDS_TOKEN_FILE, XDS_TOKEN).")
    ] = None,
    cacert: Annotated[
        Path | None, typer.Option(help="PEM file of trusted certificate authorities (XDS_CACERT).")
    ] = None,
    cert: Annotated[Path | None, typer.Option(help="PEM file of the client's certificate (XDS_CERT).")] = None,
    key: Annotated[Path | None, typer.Option(help="PEM file of the client's key (XDS_KEY).")] = None,
    context: Annotated[
        str,
        typer.Option(
            help="The server of this context, see `xds context list` (XDS_CONTEXT).",
            metavar="NAME",
            autocompletion=complete_context,
        ),
    ] = "",
    output: Annotated[Format | None, typer.Option("-o", "--output", help="Output format.")] = None,
    no_headers: Annotated[bool, typer.Option("--no-headers", help="Tables without the line of column names.")] = False,
    columns: Annotated[str, typer.Option(help="Only these columns of a table, in this order.", metavar="A,B")] = "",
    sort_by: Annotated[str, typer.Option(help="Order a list by this column.", metavar="COLUMN")] = "",
    limit: Annotated[int, typer.Option(help="Maximum number of items in a list; 0: all.", min=0)] = 0,
    timestamps: Annotated[bool, typer.Option("--timestamps", help="Print times (RFC 3339) instead of ages.")] = False,
    color: Annotated[Color, typer.Option(help="When to color text; see also NO_COLOR.")] = Color.AUTO,
    show_secrets: Annotated[bool, typer.Option("--show-secrets", help="Do not redact keys and tokens.")] = False,
    quiet: Annotated[bool, typer.Option("-q", "--quiet", help="Print only data and errors.")] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    ctx.obj = Shared(
        *(server, token_file, cacert, cert, key, output, no_headers, columns, sort_by, limit, timestamps, color),
        show_secrets=show_secrets,
        quiet=quiet,
        context=context,
    )


def run(arguments: list[str]) -> None:
    """Run one command and end the process with its exit code."""
    app(arguments, prog_name="xds")
