"""``validate``, ``convert``, ``apply``, ``put``, ``diff``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from xds.cli.app import Command, app, shared
from xds.cli.commands.options import (
    EmptyFlag,
    GroupFilter,
    GroupOption,
    IfMatchOption,
    MessageOption,
    NoneFlag,
    TimeoutOption,
    WaitOption,
    YesFlag,
)
from xds.cli.failure import CommandError, Exit

FilesOption = Annotated[list[Path], typer.Option("-f", "--file", help="File, directory or - (standard input).")]
TargetOption = Annotated[str, typer.Option("-g", "--group", help="Default: the name of the file or directory.")]
DescriptorsOption = Annotated[
    list[Path] | None, typer.Option("--descriptor-set", help="Serialized FileDescriptorSet with types of your own.")
]


@app.command(cls=Command)
def validate(
    context: typer.Context,
    file: FilesOption,
    group: TargetOption = "",
    envoy: Annotated[Path | None, typer.Option(help="An Envoy binary to ask, too.", metavar="BIN")] = None,
    against: Annotated[
        str, typer.Option(help="live: also what the server holds and what would go away.", metavar="live")
    ] = "",
    failure_threshold: Annotated[
        str, typer.Option(help="Exit 3 from this on: warning, or error (default).", metavar="SEVERITY")
    ] = "error",
    policy: Annotated[
        list[Path] | None, typer.Option(help="A policy of traffic assignment for a cluster in the files.")
    ] = None,
    descriptor_set: DescriptorsOption = None,
    timeout: TimeoutOption = "60s",
) -> None:
    """Check files without a server: form, values, references. All findings at once, each with its place; exits 3.

    \b
    Examples:
      xds validate -f edge/
      xds validate -f edge.yaml --envoy $(which envoy) --failure-threshold warning
      xds validate -f edge.yaml --policy web-policy.yaml
    """
    from xds.cli.validation import SEVERITIES, Checks, check_files, show_findings
    from xds.cli.values import parse_duration

    options = shared(context)
    if against not in {"", "live"}:
        raise CommandError(Exit.USAGE, f"--against {against}: it is live or nothing")
    if failure_threshold not in SEVERITIES:
        raise CommandError(Exit.USAGE, f"--failure-threshold {failure_threshold}: it is warning or error")
    client = options.connect() if against else None
    checks = Checks(envoy, client, tuple(descriptor_set or ()), parse_duration(timeout), tuple(policy or ()))
    show_findings(check_files(file, group, checks), options.output, failure_threshold)


@app.command(cls=Command)
def convert(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(help="An Envoy configuration (YAML or JSON), or - (standard input).")],
    split: Annotated[
        bool, typer.Option("--split", help="Endpoints and routes as resources of their own (EDS, RDS).")
    ] = False,
    snapshot: Annotated[Path | None, typer.Option(help="Write the snapshot here, not to standard output.")] = None,
    bootstrap: Annotated[Path | None, typer.Option(help="Write the bootstrap that is left of it here.")] = None,
    node_id: Annotated[str, typer.Option(help="The node's id where the file names none.")] = "envoy-1",
    cluster: Annotated[str, typer.Option(help="Its cluster likewise.")] = "default",
    xds_addr: Annotated[str, typer.Option(help="HOST:PORT of the server, for the bootstrap.")] = "",
) -> None:
    """Make a snapshot of the static resources of an existing Envoy configuration.

    \b
    Examples:
      xds convert envoy.yaml --snapshot edge.yaml --bootstrap bootstrap.yaml
      xds convert envoy.yaml | xds apply -g edge -f -
    """
    from xds.cli.conversion import Outputs, convert_file
    from xds.cli.flags import parse_address
    from xds.control.bootstrap import BootstrapOptions
    from xds.control.settings import GRPC_PORT, LOOPBACK

    host, port = parse_address(xds_addr) if xds_addr else (LOOPBACK, GRPC_PORT)
    outputs = Outputs(snapshot, bootstrap, shared(context).document_format())
    convert_file(file, BootstrapOptions(node_id, cluster, host, port), split, outputs)


@app.command(cls=Command)
def apply(
    context: typer.Context,
    file: FilesOption,
    group: TargetOption = "",
    wait: WaitOption = "",
    timeout: TimeoutOption = "60s",
    message: MessageOption = "",
    if_match: IfMatchOption = "",
    dry_run: Annotated[
        str,
        typer.Option(help="Change nothing: the server says what would, or (client) only check.", metavar="[=WHO]"),
    ] = "",
    prune: Annotated[
        bool, typer.Option("--prune", help="Delete the groups of the server that are not among the files.")
    ] = False,
    strict: Annotated[bool, typer.Option("--strict", help="Warnings are errors.")] = False,
    allow_empty: EmptyFlag = False,
    allow_none: NoneFlag = False,
    yes: YesFlag = False,
) -> None:
    """Replace the whole snapshot of a group by what is in the files: what they do not hold goes away.

    Other groups stay as they are, unless --prune.

    \b
    Examples:
      xds apply -g edge -f edge/ --wait
      xds apply -f edge.yaml --dry-run
      xds apply -f groups/edge.yaml -f groups/core.yaml --prune -m "as in git"
    """
    from xds.cli.apply import ApplyOptions, DryRun
    from xds.cli.apply import apply as push
    from xds.cli.sources import read_sources
    from xds.cli.validation import Checks, check_files, show_checked
    from xds.cli.values import parse_duration, parse_percent

    options = shared(context)
    if dry_run not in set(DryRun):
        raise CommandError(Exit.USAGE, f"--dry-run={dry_run}: it is server or client")
    wanted = ApplyOptions(
        message=message,
        if_match=if_match,
        dry_run=DryRun(dry_run),
        allow_empty=allow_empty,
        strict=strict,
        prune=prune,
        yes=yes,
        wait_percent=parse_percent(wait) if wait else 0.0,
        allow_none=allow_none,
        timeout_s=parse_duration(timeout),
        format=options.output or options.style().format,
    )
    if wanted.dry_run is DryRun.CLIENT:
        show_checked(check_files(file, group, Checks()), options.output, "warning" if strict else "error")
    else:
        push(options.connect(), read_sources(file, group), wanted)


@app.command(cls=Command)
def put(
    context: typer.Context,
    file: FilesOption,
    group: GroupOption = "default",
    create: Annotated[bool, typer.Option("--create", help="Make the group when it does not exist.")] = False,
    wait: WaitOption = "",
    timeout: TimeoutOption = "60s",
    message: MessageOption = "",
    if_match: IfMatchOption = "",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would change, change nothing.")] = False,
    strict: Annotated[bool, typer.Option("--strict", help="Warnings are errors.")] = False,
    allow_none: NoneFlag = False,
) -> None:
    """Add or replace single resources of a group; all others stay as they are.

    \b
    Examples:
      xds put -g edge -f cluster.yaml --wait
      xds get cluster web -g edge -o yaml | sed s/8080/8081/ | xds put -g edge -f -
    """
    import time

    from xds.cli.pushing import push_query, show_answer
    from xds.cli.putting import put_resources
    from xds.cli.values import parse_duration, parse_percent
    from xds.cli.waiting import wait_for

    options = shared(context)
    percent = parse_percent(wait) if wait else 0.0
    end = time.monotonic() + parse_duration(timeout)
    client = options.connect()
    query = push_query(message, dry_run=dry_run, strict=strict)
    answer = put_resources(client, file, group, query, if_match, create=create)
    show_answer(answer, options.output)
    if percent and not dry_run:
        wait_for(client, group, answer["revision"], percent, end, allow_none=allow_none)


@app.command(cls=Command)
def diff(
    context: typer.Context,
    file: Annotated[list[Path] | None, typer.Option("-f", "--file", help="Files against what is served.")] = None,
    group: GroupFilter = "",
    from_revision: Annotated[int, typer.Option("--from", help="This revision; 0: the one before --to.", min=0)] = 0,
    to_revision: Annotated[int, typer.Option("--to", help="Up to this one; 0: what is served now.", min=0)] = 0,
    node: Annotated[str, typer.Option(help="What this node has against what is served.")] = "",
    descriptor_set: DescriptorsOption = None,
) -> None:
    """Show what differs, resource by resource; exits 0 when nothing does, 1 when something does.

    \b
    Examples:
      xds diff -g edge -f edge/
      xds diff -g edge --from 41 --to 42
      xds diff --node edge-1
    """
    from xds.cli.difference import between_revisions, of_files, of_node, show_differences
    from xds.cli.validation import add_descriptors

    options = shared(context)
    is_history = bool(from_revision or to_revision)
    if bool(file) + is_history + bool(node) != 1:
        raise CommandError(Exit.USAGE, "either files (-f), revisions (--from, --to) or a node (--node)")
    add_descriptors(descriptor_set or ())
    client = options.connect()
    if file:
        found = of_files(client, file, group)
    elif node:
        found = [of_node(client, node)]
    else:
        found = [between_revisions(client, group or "default", from_revision, to_revision)]
    show_differences(found, options)
