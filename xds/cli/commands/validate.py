"""Command ``validate``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from xds.cli.app import Command, app, shared
from xds.cli.arguments import (
    DescriptorsOption,
    FilesArgument,
    FilesOption,
    TargetOption,
    TimeoutOption,
    named_files,
    parse_duration,
)
from xds.cli.errors import CommandError, Exit


@app.command(cls=Command)
def validate(
    context: typer.Context,
    files: FilesArgument = None,
    file: FilesOption = None,
    group: TargetOption = "",
    envoy: Annotated[
        Path | None,
        typer.Option(
            help="Also validate with this Envoy binary; auto: the one of the extra `envoy`, or on the path.",
            metavar="BIN",
        ),
    ] = None,
    against: Annotated[
        str, typer.Option(help="live: also check against the content of the server, removals included.", metavar="live")
    ] = "",
    failure_threshold: Annotated[
        str, typer.Option(help="Exit 3 at this severity: warning, or error (default).", metavar="SEVERITY")
    ] = "error",
    policy: Annotated[
        list[Path] | None, typer.Option(help="Also check this traffic assignment policy for a cluster in the files.")
    ] = None,
    bootstrap: Annotated[
        list[Path] | None,
        typer.Option(help="Also check that the config sources fit this bootstrap of an Envoy.", metavar="FILE"),
    ] = None,
    descriptor_set: DescriptorsOption = None,
    timeout: TimeoutOption = "60s",
) -> None:
    """Check files without a server: syntax, values, references. Exits 3 with all findings, each with its place.

    \b
    Examples:
      xds validate edge.yaml
      xds validate -g edge -f edge/
      xds validate -f edge.yaml --envoy auto --failure-threshold warning
      xds validate -f edge.yaml --policy web-policy.yaml
      xds validate -f edge.yaml --bootstrap envoy.yaml
    """
    from xds.cli.checks import Checks
    from xds.cli.envoy_binary import envoy_binary
    from xds.cli.validate import SEVERITIES, check_files, show_findings

    options = shared(context)
    if against not in {"", "live"}:
        raise CommandError(Exit.USAGE, f"--against {against}: expected live")
    if failure_threshold not in SEVERITIES:
        raise CommandError(Exit.USAGE, f"--failure-threshold {failure_threshold}: expected warning or error")
    client = options.connect() if against else None
    binary = envoy_binary(envoy) if envoy is not None else None
    descriptors, policies, bootstraps = tuple(descriptor_set or ()), tuple(policy or ()), tuple(bootstrap or ())
    checks = Checks(binary, client, descriptors, parse_duration(timeout), policies, bootstraps)
    show_findings(check_files(named_files(files, file), group, checks), options.output, failure_threshold)
