"""The event feed: read without a gap across reconnects, and lists that are shown again when something happened."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from queue import Empty, Queue
from threading import Thread
from typing import Any

from xds.cli.client import Client
from xds.cli.failure import CommandError, Exit
from xds.cli.output import say, sequence, write

Json = dict[str, Any]

KEEP_ALIVE_LIMIT_S = 45.0  # the server says something every 15 s
RETRY_S = 2.0
RETRY_LIMIT_S = 30.0
RENDER_S = 1.0  # at most one rendering in so many seconds
REGULARLY_S = 2.0  # of what no event tells
REFRESH_S = 10.0  # ages change without any event
OLDEST = "0"
_FEED = {"Accept": "application/x-ndjson"}
_POSITION = "last-event-id"
_CLEAR = sequence("[H") + sequence("[2J")


def read_events(client: Client, query: Mapping[str, str], since: str = "") -> Iterator[Json]:
    """Events without end, across restarts of the server; what was missed meanwhile comes first.

    Also when the connection was lost before the first event: the server says where it begins.

    Where some are forgotten, a message says so; not when all that is known is asked for (``since`` 0). Raises
    ``CommandError`` for what coming back does not mend, and when the server cannot be reached at first.
    """
    seen, is_first, delay_s = since, True, RETRY_S

    def begun(headers: Mapping[str, str]) -> None:
        nonlocal seen
        seen = seen or headers.get(_POSITION, "")

    while True:
        position = {"last_event_id": seen} if seen else {}
        try:
            for line in client.lines("/events", {**query, **position}, _FEED, KEEP_ALIVE_LIMIT_S, begun):
                is_first, delay_s = False, RETRY_S
                event: Json = json.loads(line or "{}")
                if "id" in event:
                    seen = str(event["id"])
                    yield event
                elif event and seen != OLDEST:
                    say(str(event.get("message", "events are missing")))
        except CommandError as error:
            if is_first or error.code is not Exit.UNREACHABLE:
                raise
            say(f"{error}; trying again")
        time.sleep(delay_s)
        delay_s = min(delay_s * 2, RETRY_LIMIT_S)


def show_again(client: Client, query: Mapping[str, str], render: Callable[[], str]) -> None:
    """Write what ``render`` gives now and whenever it changes, until interrupted.

    A terminal shows the newest only; otherwise every rendering follows the one before, parted by an empty line.
    """
    happened: Queue[CommandError | None] = Queue(maxsize=1)
    Thread(target=_watch, args=(client, query, happened), daemon=True).start()
    shown = ""
    while True:
        shown = _show_change(render, shown)
        time.sleep(RENDER_S)
        try:
            failure = happened.get(timeout=REFRESH_S)
        except Empty:
            continue
        if failure is not None:
            raise failure


def show_regularly(render: Callable[[], str]) -> None:
    """Write what ``render`` gives, again and again where it has changed, until interrupted; else as `show_again`."""
    shown = ""
    while True:
        shown = _show_change(render, shown)
        time.sleep(REGULARLY_S)


def _show_change(render: Callable[[], str], shown: str) -> str:
    """Write what it gives now where that is not what was shown; what is shown then."""
    text = _rendered(render, shown)
    if text != shown:
        _show(text, is_first=not shown)
    return text


def _rendered(render: Callable[[], str], shown: str) -> str:
    """What it gives now; what was shown, while the server cannot be reached."""
    try:
        return render()
    except CommandError as error:
        if not shown or error.code is not Exit.UNREACHABLE:
            raise
    return shown


def _watch(client: Client, query: Mapping[str, str], happened: Queue[CommandError | None]) -> None:
    try:
        for _ in read_events(client, query):
            if happened.empty():
                happened.put(None)
    except CommandError as error:
        happened.put(error)


def _show(text: str, is_first: bool) -> None:
    if sys.stdout.isatty():
        write(f"{_CLEAR}{text}")
    else:
        write(text if is_first else f"\n{text}")
