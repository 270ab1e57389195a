"""``xds rollout``: the progress of a group's push, its history, and undo."""

from __future__ import annotations

import sys
import time
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import Annotated, Any

import typer

from xds.calls import groups
from xds.calls.server import whoami
from xds.cli.app import Command, app, shared
from xds.cli.arguments import (
    EmptyFlag,
    GroupArgument,
    IfMatchOption,
    MessageOption,
    NoneFlag,
    TimeoutOption,
    WaitOption,
    parse_duration,
    parse_percent,
    parse_revision,
)
from xds.cli.careful_rollouts import (
    NO_ROLLOUTS,
    OPEN,
    ROLLOUTS,
    is_told,
    longest_s,
    rollout_line,
    wait_for_end,
    wait_for_push,
)
from xds.cli.client import Client, RefusedError, document_of
from xds.cli.errors import CommandError, Exit
from xds.cli.output import DOCUMENTS, Format, say, write, write_document
from xds.cli.push_options import author, show_answer, write_options
from xds.cli.rollout_options import PushTimeoutOption, takes_rollout, wait_limit_s
from xds.cli.rollout_tables import HISTORY, types_table
from xds.cli.table import Style, actor_text, write_items
from xds.cli.wait import POLL_S, WAIT_S, check_any_node, held_lines, late, progress, refusals, verdict_on

Json = dict[str, Any]

# Values of `xds.push.progress.PushVerdict`, which is imported only by commands that need it.
PENDING, REFUSED = "pending", "refused"

UNDO_TOGETHER_S = 60.0  # an undo within a minute after another user's is probably meant for the same push
PRECONDITION_FAILED = HTTPStatus.PRECONDITION_FAILED

rollout = typer.Typer(
    help="Progress of pushes, careful rollouts, history; roll back.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


def show_status(client: Client, group: str, style: Style, percent: float) -> None:
    """Print the progress of a group. Raises ``CommandError`` if NACKs make ``percent`` impossible."""
    status = client.run(groups.rollout(group))
    if style.format in DOCUMENTS:
        write_document(status, style.format)
    else:
        write(types_table(status, style))
        total = status["synced"] + status["pending"] + status["nacked"]
        what = "what they are to have" if status.get("state") in OPEN else f"revision {status['revision']}"
        say(f"group {group}: {status['synced']} of {total} nodes have {what}")
        if is_told(status):
            say(rollout_line(status))
        for line in held_lines(status):
            say(line)
    if verdict_on(status, percent) == REFUSED:
        raise CommandError(Exit.NEGATIVE, refusals(status))


def wait_until_done(client: Client, group: str, percent: float, timeout_s: float, *, allow_none: bool = False) -> None:
    """Wait until ``percent`` of the nodes are in sync, or NACKs make that impossible.

    Raises ``CommandError`` on timeout; unless ``allow_none`` also if the group has no node.
    """
    end = time.monotonic() + timeout_s
    with progress(group) as show:
        while True:
            status = client.run(groups.rollout(group))
            show(status)
            if verdict_on(status, percent) != PENDING:
                break
            remaining_s = end - time.monotonic()
            if remaining_s <= 0:
                raise CommandError(Exit.TIMED_OUT, late(status))
            time.sleep(min(POLL_S, remaining_s))
    if not allow_none:
        check_any_node(client, group, status)


def roll_back(client: Client, group: str, to: int, with_endpoints: bool, options: Json) -> Json:
    """Roll back to revision ``to``; 0: to the revision before the last change of configuration.

    Clusters keep their current assignments unless ``with_endpoints``. ``options`` are those of the call. Raises
    ``CommandError``.
    """
    if not to:
        response = client.fetch(groups.undo_plan(group))
        plan = document_of(response)
        if "if_match" not in options:
            _check_undone(client, plan, options.get("author", ""), response.headers.get("date", ""))
        to = plan["to"] or _chosen(plan)
        options = {"if_match": plan["etag"], **options}  # if two undo at once, one fails
        say(_undo_message(plan, to, with_endpoints))
    try:
        answer = client.run(groups.rollback(group, to, keep_endpoints=not with_endpoints, **options))
    except RefusedError as error:
        if error.status != PRECONDITION_FAILED:
            raise
        hint = f"the group was changed in the meantime, see `xds rollout history {group}`"
        raise CommandError(Exit.CONFLICT, f"{error}; {hint}") from None
    if not answer["changed"] and not with_endpoints:
        say(f"at most endpoints differ from revision {to}; add --endpoints to roll them back too")
    return answer


def _check_undone(client: Client, plan: Json, author: str, date: str) -> None:
    """Raises ``CommandError`` if another user has just undone, probably the same push. ``date`` is the HTTP header."""
    last = plan.get("last_undo")
    if last is None:
        return
    now = parsedate_to_datetime(date) if date else datetime.now(UTC)
    ago_s = (now - datetime.fromisoformat(last["time"])).total_seconds()
    caller = {"actor": client.run(whoami())["name"], "author": author}
    if ago_s < UNDO_TOGETHER_S and actor_text(caller) != actor_text(last):
        actor = actor_text(last) or "somebody"
        undone = f"{actor} went back to revision {last['content_of']} {max(ago_s, 0):.0f} s ago"
        hint = f"to go further back, pass --if-match {plan['revision']}"
        message = f"group {plan['group']}: {undone}, in revision {last['revision']}: nothing was changed; {hint}"
        raise CommandError(Exit.CONFLICT, message)


def _undo_message(plan: Json, to: int, with_endpoints: bool) -> str:
    """The message about an undo, before it is done."""
    back = plan["takes_back"]
    why = f" ({back['message']})" if back["message"] else ""
    by = f" by {actor_text(back)}" if actor_text(back) else ""
    endpoints = "" if with_endpoints else ", with the current endpoints"
    return f"group {plan['group']}: undoes revision {back['revision']}{by}{why}: revision {to} again{endpoints}"


def _chosen(plan: Json) -> int:
    """The revision that the user chooses if no revision qualifies. Raises ``CommandError``."""
    lines = [
        f"  {item['revision']}  {item['time']}  {actor_text(item)}  {item['message'] or '-'}"
        + (f"  ({item['reason']})" if item["reason"] else "")
        for item in plan["candidates"]
    ]
    known = {str(item["revision"]) for item in plan["candidates"] if item["content"]}
    listed = "\n".join((f"group {plan['group']}: every earlier revision was undone or rejected:", *lines))
    if not sys.stdin.isatty():
        raise CommandError(Exit.CONFLICT, f"{listed}\nchoose one with --to")
    sys.stderr.write(f"{listed}\ngo back to which revision? [none] ")
    sys.stderr.flush()
    answer = sys.stdin.readline().strip()
    if answer not in known:
        raise CommandError(Exit.NEGATIVE, "nothing was changed")
    return int(answer)


app.add_typer(rollout, name="rollout")


@rollout.command(cls=Command)
def status(
    context: typer.Context,
    group: GroupArgument,
    wait: WaitOption = "",
    timeout: TimeoutOption = "",
    allow_none: NoneFlag = False,
) -> None:
    """Show how many nodes run the group's revision. Exits 1 if a node rejects it.

    Also shows the careful rollout of the group.

    With --wait: waits until a careful rollout has ended. Exits 1 if it is held or was taken back.

    \b
    Examples:
      xds rollout status edge
      xds rollout status edge --wait=90% --timeout 2m
    """
    options = shared(context)
    percent = parse_percent(wait) if wait else 0.0
    timeout_s = parse_duration(timeout) if timeout else 0.0
    client = options.connect()
    if percent:
        status = client.run(groups.rollout(group))
        if status.get("state") in OPEN:
            wait_for_end(client, group, status["head"], time.monotonic() + (timeout_s or longest_s(status)))
        else:
            wait_until_done(client, group, percent, timeout_s or WAIT_S, allow_none=allow_none)
    show_status(client, group, options.style(), percent or 100.0)


@rollout.command(cls=Command)
def history(
    context: typer.Context,
    group: GroupArgument,
    endpoints: Annotated[bool, typer.Option(help="Include pushes that changed only endpoints.")] = True,
) -> None:
    """List the revisions of a group, newest first.

    \b
    Examples:
      xds rollout history edge
      xds rollout history edge --no-endpoints
      xds rollout history edge --limit 5 --timestamps
    """
    options = shared(context)
    revisions = options.connect().items(groups.history(group, endpoints=endpoints))
    write_items(revisions, HISTORY, options.style(), f"no revisions: `xds describe group {group}` shows its state")


@rollout.command(cls=Command)
@takes_rollout
def undo(
    context: typer.Context,
    group: GroupArgument,
    to: Annotated[
        int,
        typer.Option(
            help="The revision to go back to; 0: chosen as described above.", parser=parse_revision, metavar="REVISION"
        ),
    ] = 0,
    endpoints: Annotated[bool, typer.Option("--endpoints", help="Roll endpoints back too.")] = False,
    message: MessageOption = "",
    if_match: IfMatchOption = "",
    wait: WaitOption = "",
    timeout: PushTimeoutOption = "",
    allow_none: NoneFlag = False,
    allow_empty: EmptyFlag = False,
    *,
    rollout: Json,
) -> None:
    """Roll back to the content of an earlier revision. This makes a new revision.

    Without --to, undoes the last change of configuration: goes back to the last revision before it that was neither
    undone nor rejected. If there is none, asks for a revision. Clusters keep their current endpoints. While a careful
    rollout goes on, that takes it back. If the group has a plan, an undo is rolled out by it, too, unless --all-at-once
    is given.

    \b
    Examples:
      xds rollout undo edge --wait
      xds rollout undo edge --to 41 -m "502s since 42" --all-at-once
    """
    options = shared(context)
    percent = parse_percent(wait) if wait else 0.0
    began_s, timeout_s = time.monotonic(), wait_limit_s(timeout, rollout)
    client = options.connect()
    given = {**write_options(message, if_match, allow_empty=allow_empty), **rollout}
    answer = roll_back(client, group, to, endpoints, given)
    show_answer(answer, options.output)
    if percent:
        wait_for_push(client, answer, percent, timeout_s, began_s, allow_none=allow_none)


@rollout.command("list", cls=Command)
def list_rollouts(context: typer.Context) -> None:
    """List the careful rollouts that have not ended.

    \b
    Examples:
      xds rollout list
    """
    options = shared(context)
    write_items(options.connect().items(groups.rollouts()), ROLLOUTS, options.style(), NO_ROLLOUTS)


def _change(context: typer.Context, group: str, action: str, message: str) -> None:
    """Change the rollout of a group, and print it."""
    options = shared(context)
    call = groups.change_rollout(group, action, message=message, author=author())
    changed = options.connect().run(call)
    if options.output in DOCUMENTS:
        write_document(changed, options.document_format())
    else:
        write(f"{group if options.output is Format.NAME else rollout_line(changed)}\n")


@rollout.command(cls=Command)
def pause(context: typer.Context, group: GroupArgument, message: MessageOption = "") -> None:
    """Keep a careful rollout at its wave until it is resumed.

    A failure still takes it back, if its plan says so.

    \b
    Examples:
      xds rollout pause edge -m "looking at latencies"
    """
    _change(context, group, "pause", message)


@rollout.command(cls=Command)
def resume(context: typer.Context, group: GroupArgument, message: MessageOption = "") -> None:
    """Go on with a paused or held rollout, at the same wave.

    \b
    Examples:
      xds rollout resume edge
    """
    _change(context, group, "resume", message)


@rollout.command(cls=Command)
def promote(context: typer.Context, group: GroupArgument, message: MessageOption = "") -> None:
    """Give all nodes now what a careful rollout gives to some.

    \b
    Examples:
      xds rollout promote edge -m "the fix is urgent"
    """
    _change(context, group, "promote", message)


@rollout.command(cls=Command)
def abort(context: typer.Context, group: GroupArgument, message: MessageOption = "") -> None:
    """Take back what a careful rollout has given to some nodes.

    \b
    Examples:
      xds rollout abort edge -m "wrong certificate"
    """
    _change(context, group, "abort", message)
