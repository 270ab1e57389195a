"""``xds group`` and ``xds delete``: settings of groups; deleting groups and resources."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from http import HTTPStatus
from typing import Annotated, Any

import typer

from xds.calls import groups
from xds.calls.call import precondition as call_precondition
from xds.cli.app import Command, command_family, shared
from xds.cli.arguments import EmptyFlag, GroupArgument, IfMatchOption, MessageOption, YesFlag, parse_duration
from xds.cli.client import Client, RefusedError, with_option_names
from xds.cli.commands.describe import fields_text
from xds.cli.completion import complete_node_list
from xds.cli.errors import CommandError, Exit
from xds.cli.output import age, say, write_answer
from xds.cli.push_options import confirm, show_answer, write_options
from xds.cli.resources import NO_GROUPS, known_type, seconds
from xds.cli.rollout_options import (
    HoldOption,
    MaxErrorsOption,
    MaxNacksOption,
    OnFailureOption,
    plan_document,
    plan_text,
)
from xds.cli.table import Column, TableLayout, write_items

Json = dict[str, Any]

DEFAULT = "default"  # as a value: the server's setting
NONE = "none"  # as an etag: there are no settings yet
ATTEMPTS = 5

_FLAGS = {
    "selector": "--selector",
    "priority": "--priority",
    "on_nack": "--on-nack",
    "removal_delay_s": "--removal-delay",
    "listener_drain_s": "--listener-drain",
    "rollout": "--rollout",
}
_UNSET: Mapping[str, object] = {"priority": 0}  # of a new group; its other settings are empty

SETTINGS = TableLayout(
    name="group",
    columns=(
        Column("GROUP", "group"),
        Column("NODES", "nodes"),
        Column("REVISION", "revision"),
        Column("PRIORITY", "priority"),
        Column("SELECTOR", "selector", is_prose=True),
        Column("ON_NACK", "on_nack"),
        Column("DELAY", partial(seconds, "removal_delay_s")),
        Column("DRAIN", partial(seconds, "listener_drain_s")),
        Column("ROLLOUT", lambda item: plan_text(item.get("rollout")), is_prose=True),
    ),
)

group = command_family("group", "List groups, and change their settings.")

DryRunFlag = Annotated[bool, typer.Option("--dry-run", help="Change nothing.")]


def given_settings(
    selector: str | None, priority: int | None, on_nack: str, removal: str, drain: str, rollout: str, plan: Json
) -> Json:
    """The settings that the command line gives, in the API's terms; those of the plan are what it names.

    None and empty ones are not changed. Raises ``CommandError`` if all are.
    """
    changed: Json = {}
    if selector is not None:
        changed["selector"] = selector
    if priority is not None:
        changed["priority"] = priority
    if on_nack:
        changed["on_nack"] = "" if on_nack == DEFAULT else on_nack
    for name, text in (("removal_delay_s", removal), ("listener_drain_s", drain)):
        if text:
            changed[name] = None if text == DEFAULT else parse_duration(text)
    if rollout == NONE:
        changed["rollout"] = None
    elif rollout or plan:
        waves = {"waves": None} if rollout == DEFAULT else plan_document(rollout)
        changed["rollout"] = {**waves, **plan}
    if not changed:
        raise CommandError(Exit.USAGE, f"nothing to set: give some of {', '.join(_FLAGS.values())}")
    return changed


def set_group(client: Client, group: str, changes: Json, options: Json, if_match: str = "") -> tuple[Json, Json]:
    """Change the given settings; returns the group before (empty if it did not exist) and after.

    Other settings stay, also those that another user changes at the same time. With ``if_match`` the settings must
    have that etag, or not exist (``none``). Raises ``CommandError``.
    """
    for _ in range(ATTEMPTS if not if_match else 1):
        try:
            return _change(client, group, changes, options, if_match)
        except RefusedError as error:
            if error.status != HTTPStatus.PRECONDITION_FAILED:
                raise with_option_names(error, _FLAGS) from None
            last = error
    raise last


def _change(client: Client, group: str, changes: Json, options: Json, if_match: str) -> tuple[Json, Json]:
    before = client.find(groups.group(group)) or {}
    if changes.get("rollout") is not None and before.get("rollout"):
        changes = {**changes, "rollout": {**before["rollout"], **changes["rollout"]}}
    current = {name: before[name] for name in _FLAGS if before.get(name) not in (None, "")}
    settings = {name: value for name, value in {**current, **changes}.items() if value is not None}
    etag = if_match or before.get("settings_etag") or NONE
    expected = 0 if etag in {NONE, "0"} else etag
    return before, client.run(groups.configure_group(group, if_match=expected, **settings, **options))


def difference(before: Json, after: Json) -> str:
    """The changed settings on a line."""
    pairs = [(name, _shown(before.get(name, _UNSET.get(name))), _shown(after[name])) for name in _FLAGS]
    changed = [f"{_FLAGS[name].removeprefix('--')} {old} -> {new}" for name, old, new in pairs if old != new]
    return f"group {after['group']}: {', '.join(changed) or 'unchanged'}"


def fields(item: Json) -> dict[str, object]:
    """A group with its settings, as labelled texts."""
    return {
        "group": item["group"],
        "revision": f"{item['revision']} ({item['etag']})" if item["revision"] else "none: no nodes belong to it yet",
        "pushed": f"{age(item['time'])} ago by {item['author'] or '-'}" if item["revision"] else "",
        "nodes": f"{item['nodes']} connected",
        "settings": item["settings_etag"] or "none",
        "selector": item["selector"],
        "priority": item["priority"],
        "on NACK": item["on_nack"],
        "removal delay": seconds("removal_delay_s", item),
        "listener drain": seconds("listener_drain_s", item),
        "rollout": plan_text(item.get("rollout")),
        "selector failures": item["selector_failures"] or "",
    }


def _shown(value: object) -> str:
    if value is None or value == "":
        return "-"
    if isinstance(value, dict):
        return plan_text(value)
    return f"{value:g}" if isinstance(value, int | float) else repr(value)


def delete_group(client: Client, group: str, options: Json) -> Json:
    """Delete a group; the answer to the push. ``options`` are those of the call. Raises ``CommandError``."""
    return {**client.run(groups.delete_group(group, **options)), "deleted": True}


def delete_resource(client: Client, group: str, kind: str, name: str, options: Json) -> Json:
    """Remove one resource from a group; the answer to the push. Raises ``CommandError``."""
    type = known_type(kind)
    if not {"rollout", "retry"} & options.keys():
        return client.run(groups.delete(group, type, name, **options))
    # A plan travels in a body, which a server refuses that does not know rollouts.
    given = dict(options)
    change: Json = {"group": group, "delete": [{"type": type, "name": name}]}
    if expected := call_precondition(given.pop("if_match", None)):
        change |= {header.lower().replace("-", "_"): value for header, value in expected.items()}
    return dict(client.run(groups.transact_document({"changes": [change]}, **given))["results"][0])


@group.command("list", cls=Command)
def list_groups(context: typer.Context) -> None:
    """Show all groups with their settings.

    \b
    Examples:
      xds group list
      xds group list --sort-by PRIORITY
    """
    options = shared(context)
    write_items(options.connect().items(groups.groups()), SETTINGS, options.style(), NO_GROUPS)


@group.command(cls=Command)
def show(context: typer.Context, group: GroupArgument) -> None:
    """Show the settings of a group. `xds describe group` has its rollout and history.

    \b
    Examples:
      xds group show edge
      xds group show edge -o yaml
    """
    options = shared(context)
    document = options.connect().run(groups.group(group))
    write_answer(options.output, document, lambda: fields_text(fields(document)), [group])


@group.command("set", cls=Command)
def set_settings(
    context: typer.Context,
    group: GroupArgument,
    selector: Annotated[
        str | None, typer.Option(help="Filter for the nodes of the group; '' removes it.", metavar="FILTER")
    ] = None,
    priority: Annotated[
        int | None, typer.Option(help="Selectors of groups with a higher priority match first.")
    ] = None,
    on_nack: Annotated[str, typer.Option(help="hold, proceed, or default (the server's setting).")] = "",
    removal_delay: Annotated[
        str, typer.Option(help="How long removed resources linger, such as 15s; or default.", metavar="DURATION")
    ] = "",
    listener_drain: Annotated[
        str, typer.Option(help="How much longer they linger if a listener changed; or default.", metavar="DURATION")
    ] = "",
    rollout: Annotated[
        str,
        typer.Option(
            help="Roll out every push by this plan, such as 1,10%,50%; default: the server's; none: to all at once.",
            metavar="PLAN",
        ),
    ] = "",
    rollout_selector: Annotated[
        str, typer.Option(help="The first waves are the nodes of this filter.", metavar="FILTER")
    ] = "",
    rollout_nodes: Annotated[
        str,
        typer.Option(help="The first waves are these nodes.", metavar="ID,ID", autocompletion=complete_node_list),
    ] = "",
    rollout_hold: HoldOption = "",
    rollout_timeout: Annotated[
        str, typer.Option(help="How long a wave may take, such as 5m.", metavar="DURATION")
    ] = "",
    rollout_max_nacks: MaxNacksOption = None,
    rollout_max_errors: MaxErrorsOption = "",
    rollout_on_failure: OnFailureOption = "",
    if_match: Annotated[
        str,
        typer.Option(
            help="Only if the settings have this etag (see `group show`), or none: only if there are no settings.",
            metavar="ETAG",
        ),
    ] = "",
    allow_empty: EmptyFlag = False,
    dry_run: DryRunFlag = False,
) -> None:
    """Change settings of a group, or create it. Settings that are not given are kept.

    \b
    Examples:
      xds group set canary --selector 'node.metadata.canary == "yes"' --priority 10
      xds group set edge --selector '' --listener-drain default
      xds group set edge --priority 20 --if-match s-1f3a9c07
      xds group set edge --rollout 1,10%,50% --rollout-hold 2m
    """
    options = shared(context)
    plan = plan_document(
        "",
        rollout_selector,
        rollout_nodes,
        rollout_hold,
        rollout_timeout,
        rollout_max_nacks,
        rollout_max_errors,
        rollout_on_failure,
    )
    given = given_settings(selector, priority, on_nack, removal_delay, listener_drain, rollout, plan)
    how = write_options(dry_run=dry_run, allow_empty=allow_empty)
    before, after = set_group(options.connect(), group, given, how, if_match)
    write_answer(options.output, after, lambda: f"{difference(before, after)}\n", [group])
    if dry_run:
        say("dry run: nothing was changed")
    if not after["revision"]:
        say(f"group {group} has no snapshot: no nodes belong to it until one is pushed (xds apply -g {group} -f ...)")


@group.command(cls=Command)
def delete(
    context: typer.Context,
    group: GroupArgument,
    message: MessageOption = "",
    if_match: IfMatchOption = "",
    allow_empty: EmptyFlag = False,
    dry_run: DryRunFlag = False,
    yes: YesFlag = False,
) -> None:
    """Delete a group and show where its nodes move. Asks first on a terminal.

    Refused if a node would get no configuration.

    \b
    Examples:
      xds group delete canary --dry-run
      xds group delete canary
    """
    options = shared(context)
    if not dry_run:
        confirm(f"delete group {group}?", yes)
    given = write_options(message, if_match, allow_empty=allow_empty, dry_run=dry_run)
    show_answer(delete_group(options.connect(), group, given), options.output)
