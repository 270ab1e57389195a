"""Follows the event log for one reader: pages of new events, and a sign of life when there are none."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from xds.fleet.event_log import EventFilter, EventLog, EventPage

PAGE_EVENTS = 200
GATHER_S = 0.05  # a push causes thousands of ACKs; they are sent in few pages


async def follow(log: EventLog, cursor: int, wanted: EventFilter, silence_s: float) -> AsyncIterator[EventPage | None]:
    """Pages of events after ``cursor``; None after ``silence_s`` seconds without one. Ends when the log is closed.

    Nothing is queued for the reader. ``EventPage.lagged`` tells a slow reader that it missed events.
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
            elif log.closed:
                return
            elif clock() >= silent_until:
                yield None
                silent_until = clock() + silence_s
            elif await _more(log, cursor, silent_until - clock()):
                await asyncio.sleep(GATHER_S)


async def _more(log: EventLog, seen: int, within_s: float) -> bool:
    """Wait for an event after ``seen`` or the end of the log; False after ``within_s`` seconds without either."""
    if log.newest > seen or log.closed:
        return True
    happened = asyncio.Event()
    log.call_on_next(happened.set)
    try:
        await asyncio.wait_for(happened.wait(), within_s)
    except TimeoutError:
        return False
    finally:
        log.forget_call(happened.set)
    return True
