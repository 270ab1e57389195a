"""``xds watch``: events as lines, without gaps across reconnects. ``xds history`` and ``xds audit``: changes.

Also lists that are printed again whenever they change (``-w``).
"""

from __future__ import annotations

import json
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from functools import partial
from queue import Empty, Queue
from threading import Thread
from typing import Annotated, Any

import typer

from xds.calls import fleet
from xds.calls.call import ApiCall
from xds.calls.fleet import LAST_EVENT_ID
from xds.calls.server import audit as audit_call
from xds.cli.app import Command, app, shared
from xds.cli.arguments import GroupFilter, given, parse_duration
from xds.cli.client import Client
from xds.cli.completion import complete_node
from xds.cli.errors import CommandError, Exit
from xds.cli.missing_servers import note
from xds.cli.output import Format, printable, say, sequence, write, write_document
from xds.cli.table import Column, TableLayout, actor_text, write_items

Json = dict[str, Any]


def event_line(event: Json) -> str:
    """One event as a line of text: time, event, subject."""
    fields = {name: event[name] for name in ("group", "node", "type", "revision") if event.get(name) not in {None, ""}}
    details = event.get("details") or {}
    fields.update({name: value for name, value in details.items() if name not in {"actor", "author"}})
    if actor_text(details):
        fields["by"] = actor_text(details)
    what = " ".join(part for part in (event["kind"], event.get("action", "")) if part)
    where = " ".join(f"{name}={value}" for name, value in fields.items())
    message = " ".join(str(event.get("message", "")).split())
    return printable("  ".join(part for part in (event.get("time", "-"), what, where, message) if part)) + "\n"


RETRY_S = 2.0
RETRY_LIMIT_S = 30.0
RENDER_S = 1.0  # between two renderings, at least
REGULARLY_S = 2.0  # for data without events
REFRESH_S = 10.0  # ages change without an event
OLDEST = "0"
_PAGE = 1000  # the maximum of entries in one answer of the audit list
_CLEAR = sequence("[H") + sequence("[2J")


def read_events(
    client: Client, make_call: Callable[[str], ApiCall[None]], since: str = "", follows: bool = True
) -> Iterator[Json]:
    """Read events without end, also across restarts of the server; without ``follows`` up to the latest one.

    ``make_call`` makes the call for the events after a position.

    No event is lost, even if the connection is lost before the first event: the answer begins with its position.

    A message says if the server dropped events, except with ``since`` 0, which reads all that it still has. Raises
    ``CommandError`` for errors that a reconnect does not solve, and if the server cannot be reached at first.
    """
    position, is_first, delay_s = since, True, RETRY_S

    def on_headers(headers: Mapping[str, str]) -> None:
        nonlocal position
        position = position or headers.get(LAST_EVENT_ID, "")

    while True:
        try:
            for line in client.lines(make_call(position), on_headers):
                is_first, delay_s = False, RETRY_S
                event: Json = json.loads(line or "{}")
                if "id" in event:
                    position = str(event["id"])
                    yield event
                elif event.get("kind") == "partial":
                    note("events", event.get("servers", ()))
                elif event and position != OLDEST:
                    say(str(event.get("message", "events are missing")))
            if not follows:
                return
        except CommandError as error:
            if is_first or not follows or error.code is not Exit.UNREACHABLE:
                raise
            say(f"{error}; trying again")
        time.sleep(delay_s)
        delay_s = min(delay_s * 2, RETRY_LIMIT_S)


def show_again(client: Client, kinds: str, group: str, render: Callable[[], str]) -> None:
    """Write the result of ``render`` now and whenever it changes, until interrupted.

    It is called after each event of these ``kinds`` (separated by commas), of all groups or of one.

    A terminal shows only the latest result. A file or pipe gets each result, after an empty line.
    """
    changes: Queue[CommandError | None] = Queue(maxsize=1)
    calls = partial(_event_call, kinds=kinds, group=group)
    Thread(target=_watch, args=(client, calls, changes), daemon=True).start()
    shown = ""
    while True:
        shown = _show_change(render, shown)
        time.sleep(RENDER_S)
        try:
            failure = changes.get(timeout=REFRESH_S)
        except Empty:
            continue
        if failure is not None:
            raise failure


def show_regularly(render: Callable[[], str]) -> None:
    """As `show_again`, for data without events: ``render`` is called every two seconds."""
    shown = ""
    while True:
        shown = _show_change(render, shown)
        time.sleep(REGULARLY_S)


def _show_change(render: Callable[[], str], shown: str) -> str:
    """Write the result if it differs from the shown text; returns the text that is shown afterwards.

    While the server cannot be reached, that is the text before.
    """
    try:
        text = render()
    except CommandError as error:
        if not shown or error.code is not Exit.UNREACHABLE:
            raise
        return shown
    if text != shown:
        between = _CLEAR if sys.stdout.isatty() else "\n" if shown else ""
        write(f"{between}{text}")
    return text


def _event_call(after: str, *, kinds: str, group: str) -> ApiCall[None]:
    return fleet.events(kinds=kinds.split(","), group=group, after=after)


def _watch(client: Client, make_call: Callable[[str], ApiCall[None]], changes: Queue[CommandError | None]) -> None:
    try:
        for _ in read_events(client, make_call):
            if changes.empty():
                changes.put(None)
    except CommandError as error:
        changes.put(error)


VALUE_SHOWN = 200


def _changed(item: Json) -> str:
    """The change that was written or refused."""
    if item["refused"]:
        return f"{item.get('subject', '')}: {item.get('reason', '')}"
    texts = [item.get("subject", ""), item.get("message", "")]
    if item.get("revision"):
        rollout = item.get("new", {}).get("rollout", "")  # what a push did to the careful rollout of its group
        what = f"revision {item['revision']}{f', rollout {rollout}' if rollout else ''}".replace("_", " ")
        return " ".join(filter(None, (what, *texts)))
    values = (_short(item[name]) for name in ("old", "new") if name in item)
    return " ".join(filter(None, (texts[0], " -> ".join(values), texts[1])))


def _short(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= VALUE_SHOWN else f"{text[:VALUE_SHOWN]}..."


AUDIT = TableLayout(
    name="id",
    columns=(
        Column("AGE", "time", is_time=True),
        Column("COUNT", "count"),
        Column("WHO", actor_text),
        Column("FROM", "peer"),
        Column("ACTION", "action", lambda item: "bad" if item["refused"] else ""),
        Column("GROUP", lambda item: item.get("group", "")),
        Column("WHAT", _changed, is_prose=True),
        Column("ID", "id", is_wide=True),
        Column("FIRST", "first_time", is_time=True, is_wide=True),
        Column("REQUEST", lambda item: item.get("request_id", ""), is_wide=True),
    ),
)


HISTORY = TableLayout(
    name="id",
    columns=(
        Column("AGE", "time", is_time=True),
        Column("GROUP", lambda item: item.get("group", "")),
        Column("ACTION", "action"),
        Column("WHO", actor_text),
        Column("WHAT", _changed, is_prose=True),
        Column("FROM", "peer", is_wide=True),
        Column("ID", "id", is_wide=True),
    ),
)


def read_history(client: Client, filters: Mapping[str, Any], until: str) -> list[Json]:
    """The changes of all groups, newest first, up to a time (RFC 3339). Raises ``CommandError``."""
    end = _moment(until) if until else None
    changes: list[Json] = []
    for page in _audit_pages(client, {**filters, "refused": False}):
        if page["lagged"]:
            say("some entries of this time were deleted by retention")
        changes += (item for item in page["items"] if end is None or datetime.fromisoformat(item["time"]) <= end)
    return changes[::-1]


def _moment(text: str) -> datetime:
    """A time, or an age such as 30m. Raises ``CommandError``."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return datetime.now(UTC) - timedelta(seconds=parse_duration(text))
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


def latest_of_audit(client: Client, filters: Mapping[str, Any], limit: int) -> list[Json]:
    """The latest entries of the audit list, at most ``limit`` (0: all); newest first."""
    return list(deque(read_audit(client, filters, ""), limit or None))[::-1]


def read_audit(client: Client, filters: Mapping[str, Any], cursor: str) -> Iterator[Json]:
    """The audit list after ``cursor``, oldest first. Messages say how to continue, and whether entries are missing."""
    for page in _audit_pages(client, filters, cursor):
        if page["lagged"]:
            say("some entries after this cursor were deleted by retention")
        yield from page["items"]
    say(f"continue with --cursor {page['cursor']}")


def _audit_pages(client: Client, filters: Mapping[str, Any], cursor: str = "") -> Iterator[Json]:
    """The answers with the audit list after ``cursor``: one at least."""
    is_last = False
    while not is_last:
        page = client.run(audit_call(**filters, cursor=cursor).limited(_PAGE))
        yield page
        cursor, is_last = page["cursor"], "next_page_token" not in page


@app.command(cls=Command)
def watch(
    context: typer.Context,
    kinds: Annotated[
        str,
        typer.Option(
            help="push, rollback, rollout, group, config_entries, nack, order, watch, source, node, stream, assignment,"
            " endpoints, auth, store, ack; by default all but ack."
        ),
    ] = "",
    group: GroupFilter = "",
    node: Annotated[str, typer.Option(help="Only events of this node.", autocompletion=complete_node)] = "",
    since: Annotated[
        str,
        typer.Option(
            help="Start with events of this age (10m) or time (RFC 3339), or after this event id; 0: the oldest.",
            metavar="AGE|TIME|ID",
        ),
    ] = "",
    follow: Annotated[
        bool,
        typer.Option("--follow/--no-follow", help="Wait for further events; --no-follow: end after the latest one."),
    ] = True,
) -> None:
    """Print events as they happen, until interrupted. Reconnects lose no events.

    \b
    Examples:
      xds watch
      xds watch --since 10m --no-follow
      xds watch --kinds nack,push -g edge -o json
    """
    options = shared(context)
    start, age = since or ("" if follow else OLDEST), ""
    if start and not start.isdecimal() and not start.startswith("~"):  # of several servers
        start, age = OLDEST, start

    def make_call(after: str) -> ApiCall[None]:
        wanted = kinds.split(",") if kinds else ()
        return fleet.events(kinds=wanted, group=group, node=node, since=age, follow=follow, after=after)

    for at, event in enumerate(read_events(options.connect(), make_call, start, follow), 1):
        if options.output in {Format.JSON, Format.JSONL}:
            write_document(event, Format.JSONL)
        elif options.output is Format.YAML:
            write_document([event], Format.YAML)
        else:
            write(event_line(event))
        if at == options.limit:
            return


@app.command(cls=Command)
def history(
    context: typer.Context,
    since: Annotated[str, typer.Option(help="Only changes since this time (RFC 3339) or age, such as 2h.")] = "24h",
    until: Annotated[
        str, typer.Option(help="Only changes up to this time (RFC 3339) or age, such as 30m.", metavar="AGE|TIME")
    ] = "",
    group: GroupFilter = "",
    actor: Annotated[str, typer.Option(help="Only changes by this authenticated actor.")] = "",
) -> None:
    """Show the changes of all groups, newest first. That is pushes, rollbacks, settings, policies, config entries.

    `xds rollout history GROUP` shows the revisions of one group, and `xds audit` also shows refused changes.

    \b
    Examples:
      xds history --since 2h
      xds history --since 2026-03-01T02:00:00Z --until 2026-03-01T03:00:00Z --timestamps
    """
    options = shared(context)
    changes = read_history(options.connect(), given(group=group, actor=actor, since=since), until)
    empty = f"no changes since {since}: `xds rollout history GROUP` has those of a group from the beginning"
    write_items(changes, HISTORY, options.style(), empty)


@app.command(cls=Command)
def audit(
    context: typer.Context,
    since: Annotated[str, typer.Option(help="Only entries since this time (RFC 3339) or age, such as 1h or 15m.")] = "",
    cursor: Annotated[str, typer.Option(help="Only entries after an earlier list (its cursor), oldest first.")] = "",
    group: GroupFilter = "",
    actor: Annotated[str, typer.Option(help="Only entries of this authenticated actor.")] = "",
    action: Annotated[str, typer.Option(help="Only this action, such as push, rollback, group.configured.")] = "",
    refused: Annotated[
        bool | None, typer.Option("--refused/--no-refused", help="Only refused requests, or none of them.")
    ] = None,
) -> None:
    """List all writes and refused writes, newest first.

    \b
    Examples:
      xds audit --since 24h
      xds audit --limit 20
      xds audit -g edge --no-refused -o jsonl
    """
    options = shared(context)
    filters: Json = given(group=group, actor=actor, action=action, since=since)
    if refused is not None:
        filters["refused"] = refused
    empty = "no write matches: `xds audit` shows all" if filters or cursor else "no writes: `xds apply` makes the first"
    client = options.connect()
    entries = read_audit(client, filters, cursor) if cursor else latest_of_audit(client, filters, options.limit)
    write_items(entries, AUDIT, options.style(), empty)
