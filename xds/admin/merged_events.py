"""The events of all servers as one stream.

A reader is at a place in the log of each server. Where there is more than one, the id of an event is the places of all,
so that a reader that returns misses nothing, whichever server it asks. Of a server that such an id does not name the
oldest event that it has comes next.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import quote, unquote, urlencode

from fastapi import Request

from xds.admin.gathering import asked
from xds.admin.other_servers import OtherServers
from xds.admin.routing import FORM_ERRORS

Json = dict[str, Any]
Places = dict[str, int]
"""The last event that was read of each server, by its name."""

MARK = "~"  # an id with the places of several servers begins with it; that of one server is a number
POSITION_HEADER = "last-event-id"
NDJSON_TYPE = "application/x-ndjson"
BATCH = 200
GATHER_S = 0.05
HISTORY_QUIET_S = 1.0  # between two events that a server already has
QUIET_S = 45.0  # servers send an empty line every 15 s
ASK_AGAIN_S = 1.0
QUEUE_LIMIT = 1_000  # events of all servers that the reader has not taken yet


def written(places: Mapping[str, int]) -> str:
    """Places as the id of an event."""
    return MARK + ",".join(f"{quote(name, safe='')}:{place}" for name, place in sorted(places.items()))


def read(text: str) -> Places | None:
    """The places in the id of an event; None if it is not one."""
    places: Places = {}
    for part in text.removeprefix(MARK).split(","):
        name, _, place = part.partition(":")
        if not (text.startswith(MARK) and name and place.isascii() and place.isdecimal() and len(place) < 17):
            return None
        places[unquote(name)] = int(place)
    return places


async def newest_places(others: OtherServers, request: Request) -> Places:
    """The newest event of each of the others; those that do not answer are left out."""
    query = urlencode([*_filters(request), ("follow", "false")])
    answers = await others.ask(asked(request, "/events", query))
    return {
        name: int(answer.headers.get(POSITION_HEADER, "0"))
        for name, answer in answers.received.items()
        if answer.is_success
    }


def _filters(request: Request) -> list[tuple[str, str]]:
    return [pair for pair in request.query_params.multi_items() if pair[0] in {"kinds", "group", "node", "since"}]


@dataclass
class MergedEvents:
    """The events of this server and of the others behind ``places``, which move on with what is read.

    ``own``: the items of this server behind a place, as another server would send them; with True it ends after the
    latest one. ``from_now``: servers that did not answer when a reader began; what they have had before is not for him.
    ``partial`` are the servers that do not answer.
    """

    others: OtherServers
    request: Request
    own: Callable[[int, bool], AsyncIterator[Json]]
    places: Places
    from_now: set[str] = field(default_factory=set)
    partial: set[str] = field(default_factory=set)
    _told: set[str] = field(default_factory=set)
    _queue: asyncio.Queue[tuple[str, Json]] = field(default_factory=lambda: asyncio.Queue(QUEUE_LIMIT))

    async def pages(self, silence_s: float, *, ends: bool) -> AsyncIterator[list[Json]]:
        """Batches of events; an empty one after ``silence_s`` without any. First those that there are, by time."""
        names = (self.others.me, *self.others.names())
        async for batch in self._history(names):
            yield self._numbered(batch)
        if self.partial:
            yield self._numbered([])
        if ends:
            return
        async with AsyncExitStack() as stack:
            tasks: dict[str, asyncio.Task[None]] = {}
            stack.push_async_callback(_end, tasks)
            while True:
                for name in {self.others.me, *self.others.names()} - tasks.keys():
                    tasks[name] = asyncio.create_task(self._follow(name))
                yield self._numbered(await self._next(silence_s, tasks))
                for name in [name for name, task in tasks.items() if task.done() and name != self.others.me]:
                    tasks.pop(name).result()
                if tasks[self.others.me].done():  # the log of this server is closed
                    return

    async def _history(self, names: Sequence[str]) -> AsyncIterator[list[Json]]:
        """The events that the servers have, those that happened first at the beginning."""
        async with AsyncExitStack() as stack:
            sources = {name: self._items(name, follows=False) for name in names}
            for source in sources.values():
                stack.push_async_callback(source.aclose)  # type: ignore[attr-defined]  # a generator
            found = await asyncio.gather(*(anext(source, None) for source in sources.values()))
            heads = dict(zip(sources, found, strict=True))
            batch: list[tuple[str, Json]] = []
            while waiting := {name: head for name, head in heads.items() if head is not None}:
                name = min(waiting, key=lambda each: str(waiting[each].get("time", "")))
                batch.append((name, waiting[name]))
                heads[name] = await anext(sources[name], None)
                if len(batch) == BATCH:
                    yield self._taken(batch)
                    batch = []
            if batch:
                yield self._taken(batch)

    async def _next(self, silence_s: float, tasks: Mapping[str, asyncio.Task[None]]) -> list[Json]:
        """The next events; none after ``silence_s``, and a moment after a server came or fell silent."""
        clock = asyncio.get_running_loop().time
        until = clock() + silence_s
        while (left_s := until - clock()) > 0 and self.partial == self._told:
            with suppress(TimeoutError):
                async with asyncio.timeout(min(left_s, ASK_AGAIN_S)):
                    found = [await self._queue.get()]
                    await asyncio.sleep(GATHER_S)
                    while not self._queue.empty() and len(found) < BATCH:
                        found.append(self._queue.get_nowait())
                    return self._taken(sorted(found, key=lambda each: str(each[1].get("time", ""))))
            if tasks[self.others.me].done() or set(self.others.names()) - tasks.keys():
                break
        return []

    async def _follow(self, name: str) -> None:
        """Put the events of a server into the queue, until it is no server any more."""
        while name == self.others.me or name in self.others.names():
            async for item in self._items(name, follows=True):
                await self._queue.put((name, item))
            if name == self.others.me:
                return
            self.partial.add(name)
            await asyncio.sleep(ASK_AGAIN_S)
        self.partial.discard(name)

    async def _items(self, name: str, *, follows: bool) -> AsyncIterator[Json]:
        """The items of one server behind its place."""
        if name == self.others.me:
            async for item in self.own(self.places.get(name, 0), not follows):
                yield item
            return
        place = [] if name in self.from_now else [("last_event_id", str(self.places.get(name, 0)))]
        query = urlencode([*_filters(self.request), *place, ("follow", "true" if follows else "false")])
        wanted = asked(self.request, "/events", query)
        wanted = replace(wanted, headers={**wanted.headers, "Accept": NDJSON_TYPE})
        async with self.others.begun(name, wanted, QUIET_S if follows else HISTORY_QUIET_S) as answer:
            if answer is None or not answer.is_success:
                self.partial.add(name)
                return
            self.partial.discard(name)
            if name in self.from_now:
                self.from_now.discard(name)
                self.places[name] = int(answer.headers.get(POSITION_HEADER, "0"))
            async for line in answer.lines():
                if not line.strip():
                    continue
                told = _item_of(line)
                if told is None:
                    break
                yield told
            else:
                return
        self.partial.add(name)  # the connection was lost, or it is of a release that tells events otherwise

    def _taken(self, found: Sequence[tuple[str, Json]]) -> list[Json]:
        """Items of servers with the place behind each."""
        items = []
        for name, item in found:
            if "id" in item:
                self.places[name] = int(item["id"])
                items.append({**item, "id": written(self.places), "server": name})
            else:  # events of this server are missing
                items.append({**item, "next": written(self.places), "server": name})
        return items

    def _numbered(self, items: list[Json]) -> list[Json]:
        """Items, behind one that names the servers that do not answer, where those are others than before."""
        if self.partial == self._told:
            return items
        self._told = set(self.partial)
        names = sorted(self.partial)
        message = f"servers that do not answer: {', '.join(names)}" if names else "all servers answer again"
        return [{"kind": "partial", "message": message, "servers": names}, *items]


def _item_of(line: str) -> Json | None:
    """An item of another server; None for a line that is none."""
    try:
        item: Json = json.loads(line)
        return item if item["kind"] and int(item.get("id", 0)) >= 0 else None
    except (*FORM_ERRORS, RecursionError):
        return None


async def _end(tasks: Mapping[str, asyncio.Task[None]]) -> None:
    for task in tasks.values():
        task.cancel()
    if tasks:
        await asyncio.wait(tasks.values())
