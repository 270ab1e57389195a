"""The event stream: server-sent events, or one JSON object per line.

`follow` reads the event log for one reader: pages of new events, and keep-alives while there are none.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from http import HTTPStatus
from time import time
from typing import Annotated, Any

from fastapi import Header, Query, Request
from fastapi.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from xds.access.authorisation import ANONYMOUS, Identity
from xds.access.tokens import READ
from xds.admin import operations
from xds.admin.answers import StreamedAnswer
from xds.admin.dependencies import Dependencies, Deps
from xds.admin.gathering import asks_others, is_of_server
from xds.admin.merged_events import NDJSON_TYPE, MergedEvents, Places, newest_places, read, written
from xds.admin.models.events import ServerEvent
from xds.admin.models.writing import document_of
from xds.admin.problem import RETRY_AFTER_S, RequestError
from xds.admin.routes.fleet import point_in_time
from xds.admin.routing import api_router, identity_of
from xds.fleet.event_log import DEFAULT_KINDS, EventFilter, EventKind, EventLog, EventPage
from xds.tasks.lifecycle import Phase

PAGE_EVENTS = 200
GATHER_S = 0.05  # a push causes thousands of ACKs; they are sent in few pages

KEEP_ALIVE_S = 15.0
RETRY_MS = 2000
READERS_LIMIT = 100
SSE_TYPE = "text/event-stream"
POSITION_HEADER = "Last-Event-ID"

_KINDS = frozenset(kind.value for kind in EventKind)

Encode = Callable[[Sequence[dict[str, Any]]], str]

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
    if last_event_id and _position(last_event_id) is None:
        raise RequestError(HTTPStatus.BAD_REQUEST, f"not an event id: {last_event_id[:100]!r}")
    text = last_event_id or last_seen
    given = _position(text) if text else None
    if given is None and (text or since is not None):
        given = 0  # the oldest event that is kept: of another server's id, or because `since` chooses among them
    in_lines = NDJSON_TYPE in request.headers.get("accept", "")
    encode, media_type = (ndjson, NDJSON_TYPE) if in_lines else (server_sent, SSE_TYPE)
    if asks_others(deps, request):
        merged = await _merged(deps, request, given, wanted)
        start, pages = written(merged.places), merged.pages(KEEP_ALIVE_S, ends=not follows)
    else:
        newest = log.newest if given is None else given
        cursor = newest.get(deps.others.me, 0) if isinstance(newest, dict) else newest
        start, pages = str(cursor), _own_pages(log, cursor, wanted, ends=not follows)
    head = "" if in_lines else f"id: {start}\n"
    headers = {"X-Accel-Buffering": "no", POSITION_HEADER: start}
    # A server that asks has checked its own caller, and goes on doing so.
    identity = identity_of(request) if not is_of_server(request.scope) else None
    return EventStream(deps, _feed(deps, pages, encode, head, identity), media_type, headers)


async def _merged(
    deps: Dependencies, request: Request, given: int | Places | None, wanted: EventFilter
) -> MergedEvents:
    """The events of all servers behind a position; None: from now on."""
    others, log = deps.others, deps.fleet.events

    async def own(cursor: int, ends: bool) -> AsyncIterator[dict[str, Any]]:
        async for items in _own_pages(log, cursor, wanted, ends=ends):
            for item in items:
                yield item

    if given is None:
        places = {others.me: log.newest, **await newest_places(others, request)}
        return MergedEvents(others, request, own, places, set(others.names()) - places.keys())
    if isinstance(given, dict):
        return MergedEvents(others, request, own, given)
    return MergedEvents(others, request, own, {others.me: given} if given else {})


async def _own_pages(
    log: EventLog, cursor: int, wanted: EventFilter, *, ends: bool
) -> AsyncIterator[list[dict[str, Any]]]:
    """The events of this server, page by page."""
    async for page in follow(log, cursor, wanted, KEEP_ALIVE_S, ends):
        yield items_of(page) if page is not None else []


class EventStream(StreamedAnswer):
    """The response with events.

    A reader is counted when its stream begins, so that simultaneous requests cannot exceed ``READERS_LIMIT``. Raises
    ``RequestError`` above the limit.
    """

    def __init__(
        self, deps: Dependencies, feed: AsyncIterator[str], media_type: str, headers: Mapping[str, str]
    ) -> None:
        super().__init__(feed, media_type=media_type, headers=headers)
        self._here = deps

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with _reader_slot(self._here):
            await super().__call__(scope, receive, send)


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
    pages: AsyncIterator[Sequence[dict[str, Any]]],
    encode: Encode,
    head: str = "",
    identity: Identity | None = ANONYMOUS,
) -> AsyncIterator[str]:
    yield head + encode(())  # sends the head of the answer at once
    if deps.phase() is Phase.DRAINING:
        return
    async for items in pages:
        if identity is not None and not _is_still_allowed(deps, identity):
            return
        yield encode(items)


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


def server_sent(items: Sequence[dict[str, Any]]) -> str:
    """Events in the format of the HTML standard; a comment for none."""
    if not items:
        return f": keep-alive\nretry: {RETRY_MS}\n\n"
    return "".join(_server_sent(item) for item in items)


def _server_sent(item: dict[str, Any]) -> str:
    id = f"id: {item['id']}\n" if "id" in item else ""
    return f"{id}event: {item['kind']}\ndata: {_json(item)}\n\n"


def ndjson(items: Sequence[dict[str, Any]]) -> str:
    """Events as lines; an empty line for none."""
    return "".join(f"{_json(item)}\n" for item in items) or "\n"


def items_of(page: EventPage) -> list[dict[str, Any]]:
    """The events of a page, behind an item that says whether others are missing."""
    items = [document_of(ServerEvent.from_domain(event)) for event in page.events]
    if page.lagged:
        first = page.events[0].id if page.events else page.cursor + 1
        message = "events are missing before the next one"
        items.insert(0, {"kind": "lagged", "message": message, "next": str(first)})
    return items


def _json(item: dict[str, Any]) -> str:
    return json.dumps(item, separators=(",", ":"), ensure_ascii=False)


def _position(text: str) -> int | Places | None:
    """The position that an id stands for, which is opaque to clients; None for a text that is no id."""
    if text.isascii() and text.isdecimal() and len(text) < 17:
        return int(text)
    return read(text)
