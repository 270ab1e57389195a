"""Options that several commands share, and parsers for values of options: addresses, durations, percentages.

`serve_flags` turns the options of ``xds serve`` into settings.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any

import typer

from xds.cli.completion import complete_group, complete_node
from xds.cli.errors import CommandError, Exit
from xds.model.units import UNIT_S

Json = dict[str, Any]

PORT_LIMIT = 65_535

GroupOption = Annotated[str, typer.Option("-g", "--group", help="The group.", autocompletion=complete_group)]
GroupFilter = Annotated[str, typer.Option("-g", "--group", help="Only this group.", autocompletion=complete_group)]
GroupArgument = Annotated[str, typer.Argument(help="The group.", autocompletion=complete_group)]
NodeArgument = Annotated[str, typer.Argument(help="The node's id.", autocompletion=complete_node)]
WatchFlag = Annotated[bool, typer.Option("-w", "--watch", help="Show the list again whenever it changes.")]
MessageOption = Annotated[
    str, typer.Option("-m", "--message", help="The reason for the change; stored with the revision.")
]
IfMatchOption = Annotated[
    str, typer.Option(help="Only if the group is at this revision or etag; 0: only if there is none.", metavar="REV")
]
WaitOption = Annotated[
    str,
    typer.Option(
        help="Wait until all connected nodes, or this percentage, have ACKed the change.", metavar="[=PERCENT]"
    ),
]
NoneFlag = Annotated[
    bool, typer.Option("--allow-none", help="With --wait: succeed even if no node of the group is connected.")
]
TimeoutOption = Annotated[str, typer.Option(help="How long to wait, such as 60s or 2m.", metavar="DURATION")]
StrictFlag = Annotated[bool, typer.Option("--strict", help="Warnings are errors.")]
YesFlag = Annotated[bool, typer.Option("-y", "--yes", help="Do not ask for confirmation.")]
ForceFlag = Annotated[bool, typer.Option("--force", help="Delete the resource although others of the group name it.")]
NoEndpointFlag = Annotated[
    bool, typer.Option("--allow-empty", help="Allow a cluster that is used to lose its last serving endpoint.")
]
EmptyFlag = Annotated[
    bool, typer.Option("--allow-empty", help="Allow a change that leaves connected nodes without configuration.")
]
FilesOption = Annotated[
    list[Path] | None, typer.Option("-f", "--file", help="File, directory or - (standard input); also as an argument.")
]
FilesArgument = Annotated[list[Path] | None, typer.Argument(metavar="[FILE]...", help="As --file.")]
TargetOption = Annotated[
    str,
    typer.Option(
        "-g",
        "--group",
        help="The group; by default each file, and each subdirectory of a directory, is one.",
        autocompletion=complete_group,
    ),
]
DescriptorsOption = Annotated[
    list[Path] | None,
    typer.Option("--descriptor-set", help="File with a serialized FileDescriptorSet: message types of your own."),
]


def named_files(arguments: list[Path] | None, options: list[Path] | None) -> list[Path]:
    """The files that a command is given, as arguments or by ``-f``. Raises ``CommandError`` if there is none."""
    files = [*(arguments or ()), *(options or ())]
    if not files:
        raise CommandError(Exit.USAGE, "give a file, a directory or - (standard input)")
    return files


def etag_option(document: str) -> Any:
    """The option ``--if-match`` of a command that writes such a document."""
    return typer.Option(
        "--if-match", help=f"Only if the {document} has this etag; 0: only if there is none.", metavar="ETAG"
    )


def serve_flags(
    grpc: str,
    http: str,
    data: str,
    store: str,
    insecure: bool,
    log_level: str,
    watch: str = "",
    prune: bool = False,
    lrs_interval: str = "",
    advertise: str = "",
) -> Json:
    """The flags of ``xds serve``, nested as the settings are. Raises ``CommandError``."""
    from xds.settings.sections import DATABASE_SCHEMES

    server: Json = {}
    for name, address in (("grpc", grpc), ("http", http)):
        if address:
            host, port = parse_address(address)
            server[name] = {"host": host, "port": port}
    if insecure:
        server["insecure"] = True
    if advertise:
        server["advertise"] = advertise
    flags: Json = {"server": server, "store": {}, "logs": {}, "watch": {}, "load": {}}
    given = (
        ("store", "data", data),
        ("logs", "level", log_level),
        ("watch", "directory", watch),
        ("watch", "prune", prune),
    )
    for section, name, value in given:
        if value:
            flags[section][name] = value
    if store:
        is_url = store.startswith(DATABASE_SCHEMES)
        flags["store"] |= {"kind": "postgres" if is_url else store, "url": store if is_url else ""}
    if lrs_interval:
        flags["load"]["interval_s"] = parse_duration(lrs_interval)
    return flags


def parse_address(text: str) -> tuple[str, int]:
    """``HOST:PORT``, IPv6 hosts in brackets. Raises ``CommandError``."""
    host, _, port = text.rpartition(":")
    if not host or "/" in host or not port.isdecimal():
        raise CommandError(Exit.USAGE, f"not HOST:PORT: {text!r}")
    if int(port) > PORT_LIMIT:
        raise CommandError(Exit.USAGE, f"the port of {text!r} is not between 0 and {PORT_LIMIT}")
    return host.strip("[]"), int(port)


_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h)?")


def parse_duration(text: str) -> float:
    """Seconds of ``30``, ``500ms``, ``60s``, ``2m``. Raises ``CommandError``."""
    match = _DURATION.fullmatch(text)
    if match is None:
        raise CommandError(Exit.USAGE, f"not a duration: {text!r} (such as 500ms, 60s, 2m)")
    return float(match[1]) * UNIT_S[match[2] or "s"]


def parse_revision(text: str | int) -> int:
    """The number of a revision, for an option. Raises ``typer.BadParameter``."""
    number = str(text)
    if not (number.isascii() and number.isdigit()):
        raise typer.BadParameter(f"not a revision: {number!r}; revisions are numbers, see xds rollout history")
    return int(number)


def parse_percent(text: str) -> float:
    """``90%`` or ``90`` as a number above 0 and up to 100. Raises ``CommandError``."""
    try:
        percent = float(text.removesuffix("%"))
    except ValueError:
        percent = 0.0
    if not 0 < percent <= 100:
        raise CommandError(Exit.USAGE, f"not a percentage: {text!r} (such as 90%)")
    return percent


def given(**filters: str) -> dict[str, str]:
    """The filters that are set."""
    return {name: value for name, value in filters.items() if value}
