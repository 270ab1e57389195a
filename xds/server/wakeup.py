"""An event with one waiter."""

from __future__ import annotations

import asyncio


class Wakeup:
    """As ``asyncio.Event`` for a single task, without its queue of waiters: three of those are 2 kB of each stream."""

    __slots__ = ("_is_set", "_waiter")

    def __init__(self) -> None:
        self._is_set = False
        self._waiter: asyncio.Future[None] | None = None

    def set(self) -> None:
        """Let the waiter go on, now or as soon as it waits."""
        self._is_set = True
        waiter = self._waiter
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    def clear(self) -> None:
        """What was set is heeded."""
        self._is_set = False

    async def wait(self) -> None:
        """Return when it is set."""
        if self._is_set:
            return
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None
