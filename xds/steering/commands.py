"""``assignment show``, ``history``, ``set``, ``delete``."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from xds.cli.additions import ADDITIONS
from xds.cli.app import Command, command_family, shared
from xds.cli.arguments import GroupOption, StrictFlag, WatchFlag, YesFlag, etag_option
from xds.cli.commands.events import show_again
from xds.cli.completion import complete_names, given_group
from xds.cli.output import say, write
from xds.cli.push_options import confirm, write_options
from xds.steering import calls

if TYPE_CHECKING:
    from xds.cli.checks import Checked, Checks
    from xds.model.errors import Violation

assignment = command_family("assignment", "Keep traffic in its zone until the zone is full.")

EtagOption = Annotated[str, etag_option("current policy")]


def complete_policy(context: typer.Context, incomplete: str) -> list[str]:
    """Clusters of the group that have a policy of traffic assignment."""
    return complete_names(context, calls.policies(given_group(context)), "cluster", incomplete)


@assignment.command(cls=Command)
def show(
    context: typer.Context,
    cluster: Annotated[
        str, typer.Argument(help="Only this cluster, with the reason of each decision.", autocompletion=complete_policy)
    ] = "",
    group: GroupOption = "default",
    watch: WatchFlag = False,
) -> None:
    """Show where the requests of each locality go, and why.

    A second table has a row for each target: its load as a part of its capacity, and its decided and real share of the
    cluster's requests. -o yaml also shows the policies and all measurements.

    \b
    Examples:
      xds assignment show
      xds assignment show web -g edge
      xds assignment show web -o yaml
    """
    from xds.steering.tables import list_text
    from xds.steering.tables import show as show_one

    options = shared(context)
    client, style = options.connect(), options.style()
    if cluster:
        show_one(client.run(calls.policy(group, cluster)), style, options.output)
    elif watch:
        show_again(options.connect(), "assignment,push", group, lambda: list_text(client, group, style))
    else:
        write(list_text(client, group, style))


@assignment.command(cls=Command)
def history(
    context: typer.Context,
    cluster: Annotated[str, typer.Argument(help="The cluster.", autocompletion=complete_policy)],
    group: GroupOption = "default",
    watch: WatchFlag = False,
) -> None:
    """Show earlier decisions, newest first.

    \b
    Examples:
      xds assignment history web
      xds assignment history web -g edge -o wide
    """
    from xds.steering.tables import history_text

    options = shared(context)
    client, style = options.connect(), options.style()
    if watch:
        show_again(options.connect(), "assignment", group, lambda: history_text(client, group, cluster, style))
    else:
        write(history_text(client, group, cluster, style))


@assignment.command("set", cls=Command)
def set_policy(
    context: typer.Context,
    file: Annotated[
        Path, typer.Option("-f", "--file", help="File with the policy (YAML or JSON), or - (standard input).")
    ],
    cluster: Annotated[str, typer.Argument(help="The cluster (default: the one that the policy names).")] = "",
    group: GroupOption = "default",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what the policy would decide; change nothing.")
    ] = False,
    strict: StrictFlag = False,
    if_match: EtagOption = "",
) -> None:
    """Set the policy of a cluster. Pushed resources are not changed: the weights are served as an overlay.

    \b
    Examples:
      xds assignment set -f web-policy.yaml --dry-run
      xds assignment set web -g edge -f policy.yaml
    """
    from xds.steering.tables import put
    from xds.steering.tables import show as show_one

    options = shared(context)
    given = write_options("", if_match, dry_run=dry_run, strict=strict)
    item = put(options.connect(), group, cluster, file, given)
    show_one(item, options.style(), options.output)


@assignment.command(cls=Command)
def delete(
    context: typer.Context,
    cluster: Annotated[str, typer.Argument(help="The cluster.", autocompletion=complete_policy)],
    group: GroupOption = "default",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check whether the policy could be deleted; change nothing.")
    ] = False,
    if_match: EtagOption = "",
    yes: YesFlag = False,
) -> None:
    """Delete a policy: proxies are served the pushed weights. Asks first on a terminal.

    \b
    Examples:
      xds assignment delete web -g edge
    """
    options = shared(context)
    if not dry_run:
        confirm(f"delete the policy of cluster {cluster} of group {group}?", yes)
    given = write_options("", if_match, dry_run=dry_run)
    options.connect().run(calls.delete_policy(group, cluster, **given))
    say(f"cluster {cluster} of group {group}: its policy {'would be' if dry_run else 'is'} deleted")


# Additions to the kernel's commands


def _policy_findings(checked: Checked, checks: Checks) -> Iterable[Violation]:
    from xds.steering.validation import policy_findings

    return policy_findings(checked, checks)


ADDITIONS.checks.append(_policy_findings)
