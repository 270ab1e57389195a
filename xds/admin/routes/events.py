"""The event stream: server-sent events, or one JSON object per line.

`follow` reads the event log for one reader: pages of new events, and keep-alives while there are none.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import contextmanager
from http import HTTPStatus
from time import time
from typing import Annotated, Any

from fastapi import Header, Query, Request
from fastapi.responses import Response, StreamingResponse
from starlette.types import Message, Receive, Scope, Send

from xds.access.authorisation import ANONYMOUS, Identity
from xds.access.tokens import READ
from xds.admin import operations
from xds.admin.dependencies import Dependencies, Deps
from xds.admin.models.events import ServerEvent
from xds.admin.models.writing import document_of
from xds.admin.problem import RETRY_AFTER_S, RequestError
from xds.admin.routes.fleet import point_in_time
from xds.admin.routing import api_router, identity_of
from xds.fleet.event_log import DEFAULT_KINDS, EventFilter, EventKind, EventLog, EventPage, FleetEvent
from xds.tasks.lifecycle import Phase

PAGE_EVENTS = 200
GATHER_S = 0.05  # a push causes thousands of ACKs; they are sent in few pages

KEEP_ALIVE_S = 15.0
RETRY_MS = 2000
STALLED_S = 60.0
READERS_LIMIT = 100
SSE_TYPE = "text/event-stream"
NDJSON_TYPE = "application/x-ndjson"
POSITION_HEADER = "Last-Event-ID"

_KINDS = frozenset(kind.value for kind in EventKind)

Encode = Callable[[EventPage | None], str]

router = api_router("events")

_STREAMS: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "Server-sent events; with `Accept: application/x-ndjson` one JSON object (`EventItem`) per line",
        "content": {
            SSE_TYPE: {"schema": {"type": "string"}},
            NDJSON_TYPE: {"schema": {"type": "string"}},
        },
        "headers": {
            POSITION_HEADER: {
                "description": "Where the stream begins; resume there if the connection ends before the first event",
                "schema": {"type": "string"},
            }
        },
    }
}


async def follow(
    log: EventLog, cursor: int, wanted: EventFilter, silence_s: float, ends: bool = False
) -> AsyncIterator[EventPage | None]:
    """Pages of events after ``cursor``; None after ``silence_s`` seconds without one. Ends when the log is closed.

    With ``ends`` it also ends after the latest event. Nothing is queued for the reader: ``EventPage.lagged`` tells a
    slow reader that it missed events.
    """
    clock = asyncio.get_running_loop().time
    silent_until = clock() + silence_s
    with log.watching(wanted.kinds):
        while True:
            page = log.after(cursor, wanted, PAGE_EVENTS)
            cursor = page.cursor
            if page.events or page.lagged:
                yield page
                silent_until = clock() + silence_s
            elif log.closed or ends:
                return
            elif clock() >= silent_until:
                yield None
                silent_until = clock() + silence_s
            elif await _wait_for_event(log, cursor, silent_until - clock()):
                await asyncio.sleep(GATHER_S)


async def _wait_for_event(log: EventLog, seen: int, within_s: float) -> bool:
    """Wait for an event after ``seen`` or the end of the log; False after ``within_s`` seconds without either."""
    if log.newest > seen or log.closed:
        return True
    happened = asyncio.Event()
    log.call_on_next(happened.set)
    try:
        async with asyncio.timeout(within_s):  # not `wait_for`: before Python 3.12 it may lose a cancellation
            await happened.wait()
    except TimeoutError:
        return False
    finally:
        log.forget_call(happened.set)
    return True


@router.serve(operations.GET_EVENTS, responses=_STREAMS, response_class=StreamingResponse)
async def get_events(
    deps: Deps,
    request: Request,
    kinds: Annotated[
        str,
        Query(description=f"Only these kinds, separated by commas: {', '.join(EventKind)}. By default all but ack"),
    ] = "",
    group: Annotated[str, Query(description="Only events of this group; empty: of all groups")] = "",
    node: Annotated[str, Query(description="Only events of this node; empty: of all nodes")] = "",
    last_event_id: Annotated[
        str, Query(description="Start after the event with this `id`; 0: start with the oldest. Empty: start now")
    ] = "",
    last_seen: Annotated[
        str,
        Header(
            alias="Last-Event-ID",
            description="As `last_event_id`, which takes precedence; browsers send it when they reconnect",
        ),
    ] = "",
    since: Annotated[
        str | None, Query(description="Only events since then: an age such as `10m`, or an RFC 3339 time")
    ] = None,
    follows: Annotated[
        bool, Query(alias="follow", description="Wait for further events; false: end after the latest one")
    ] = True,
) -> Response:
    """Live events: from now on, after an earlier event, or since a time.

    The response header `Last-Event-ID`, and the first `id` of server-sent events, say where the stream begins: a
    client
    that loses the connection before the first event can resume there. `event: lagged` says that events are missing,
    because they were dropped or the reader was too slow. ACKs are recorded only while a reader asks for them.
    """
    wanted = EventFilter(parse_kinds(kinds), group, node, point_in_time(since) or 0.0)
    log = deps.fleet.events
    if last_event_id and not _is_event_id(last_event_id):
        raise RequestError(HTTPStatus.BAD_REQUEST, f"not an event id: {last_event_id[:100]!r}")
    cursor = int(last_event_id) if last_event_id else _position(last_seen)
    if cursor is None and since is not None:
        cursor = 0  # the oldest event that is kept: `since` chooses among them
    in_lines = NDJSON_TYPE in request.headers.get("accept", "")
    encode, media_type = (ndjson, NDJSON_TYPE) if in_lines else (server_sent, SSE_TYPE)
    start = log.newest if cursor is None else cursor
    head = "" if in_lines else f"id: {start}\n"
    headers = {"X-Accel-Buffering": "no", POSITION_HEADER: str(start)}
    feed = _feed(deps, start, wanted, encode, head, identity_of(request), ends=not follows)
    return EventStream(deps, feed, media_type, headers)


class EventStream(StreamingResponse):
    """The response with events. It ends if the reader receives nothing for ``STALLED_S``.

    A reader is counted when its stream begins, so that simultaneous requests cannot exceed ``READERS_LIMIT``. Raises
    ``RequestError`` above the limit.
    """

    def __init__(
        self, deps: Dependencies, feed: AsyncIterator[str], media_type: str, headers: Mapping[str, str]
    ) -> None:
        super().__init__(feed, media_type=media_type, headers=headers)
        self._here = deps

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_in_time(message: Message) -> None:
            """Send within the time limit."""
            await asyncio.wait_for(send(message), STALLED_S)

        with _reader_slot(self._here):
            await super().__call__(scope, receive, send_in_time)


@contextmanager
def _reader_slot(deps: Dependencies) -> Iterator[None]:
    if deps.event_readers >= READERS_LIMIT:
        deps.limit_hits["event_readers"] += 1
        retry = {"Retry-After": str(RETRY_AFTER_S)}
        raise RequestError(
            HTTPStatus.SERVICE_UNAVAILABLE, f"{READERS_LIMIT} readers of events are connected already", retry
        )
    deps.event_readers += 1
    try:
        yield
    finally:
        deps.event_readers -= 1


async def _feed(
    deps: Dependencies,
    cursor: int,
    wanted: EventFilter,
    encode: Encode,
    head: str = "",
    identity: Identity = ANONYMOUS,
    *,
    ends: bool = False,
) -> AsyncIterator[str]:
    yield head + encode(None)  # sends the head of the answer at once
    if deps.phase() is Phase.DRAINING:
        return
    async for page in follow(deps.fleet.events, cursor, wanted, KEEP_ALIVE_S, ends):
        if not _is_still_allowed(deps, identity):
            return
        yield encode(page)


def _is_still_allowed(deps: Dependencies, identity: Identity) -> bool:
    """Whether the reader may still read: tokens are revoked, and certificates expire."""
    renewed = deps.options.accepted().renew(identity)
    return renewed is not None and renewed.grant.allows(READ) and not renewed.is_over(time())


def parse_kinds(text: str) -> frozenset[EventKind]:
    """The kinds of a comma-separated list; without any, the default ones. Raises ``RequestError``."""
    if not text:
        return DEFAULT_KINDS
    words = [word.strip() for word in text.split(",")]
    unknown = [word for word in words if word not in _KINDS]
    if unknown:
        detail = f"no such kind of event: {unknown[0][:100]!r} (one of {', '.join(EventKind)})"
        raise RequestError(HTTPStatus.BAD_REQUEST, detail)
    return frozenset(map(EventKind, words))


def server_sent(page: EventPage | None) -> str:
    """A page of events in the format of the HTML standard; a comment for None."""
    if page is None:
        return f": keep-alive\nretry: {RETRY_MS}\n\n"
    parts = [f"id: {item['id']}\nevent: {item['kind']}\ndata: {_json(item)}\n\n" for item in map(_item, page.events)]
    if page.lagged:
        parts.insert(0, f"event: lagged\ndata: {_json(_lagged(page))}\n\n")
    return "".join(parts)


def ndjson(page: EventPage | None) -> str:
    """A page as lines; an empty line for None."""
    if page is None:
        return "\n"
    parts = [_json(_item(event)) + "\n" for event in page.events]
    if page.lagged:
        parts.insert(0, _json(_lagged(page)) + "\n")
    return "".join(parts)


def _lagged(page: EventPage) -> dict[str, Any]:
    first = page.events[0].id if page.events else page.cursor + 1
    return {"kind": "lagged", "message": "events are missing before the next one", "next": str(first)}


def _item(event: FleetEvent) -> dict[str, Any]:
    item: dict[str, Any] = document_of(ServerEvent.from_domain(event))
    return item


def _json(item: dict[str, Any]) -> str:
    return json.dumps(item, separators=(",", ":"), ensure_ascii=False)


def _position(text: str) -> int | None:
    """The position in ``Last-Event-ID``; None without one. The id of another server means the oldest event."""
    if not text:
        return None
    return int(text) if _is_event_id(text) else 0


def _is_event_id(text: str) -> bool:
    """Whether ``text`` has the form of this server's event ids. They are opaque to clients."""
    return text.isascii() and text.isdecimal() and len(text) < 17
