"""Writes of large bodies, paced so that those in flight stay within a bound (`InFlight`)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection
from time import monotonic

from xds.server.in_flight import InFlight, Write
from xds.server.logs import get_logger
from xds.server.wakeup import Wakeup

# Smaller bodies are not counted: not more than what a stream takes at any rate.
SMALL_BYTES = 16 * 1024
LOOK_EVERY_S = 0.25

_log = get_logger("xds.server.pacing")


class Pacer:
    """Paces the writes of one loop. ``cut`` ends connections by force."""

    def __init__(self, limit_bytes: int, cut: Callable[[Collection[str]], Awaitable[None]]) -> None:
        self.in_flight = InFlight(limit_bytes)
        self._cut = cut
        self._looking: asyncio.Task[None] | None = None

    async def write(self, body: bytes, write: Callable[[bytes], Awaitable[None]], client: str, peer: str) -> None:
        """Write a large body when it is its turn; ``client`` and ``peer`` as in `Write`."""
        turn = Wakeup()
        entry = Write(client, peer, len(body), turn.set)
        done = False
        may_start = self.in_flight.enter(entry, monotonic())
        try:
            if not may_start:
                self._look_soon()
                await turn.wait()
            await write(body)
            done = True
        finally:
            self.in_flight.leave(entry, monotonic(), done)

    def _look_soon(self) -> None:
        if self._looking is None or self._looking.done():
            self._looking = asyncio.get_running_loop().create_task(self._look())

    async def _look(self) -> None:
        while self.in_flight.waiting:
            await asyncio.sleep(LOOK_EVERY_S)
            found = self.in_flight.look(monotonic())
            if found:
                for write in found:
                    _log.warning("stream.cut", node_id=write.client, peer=write.peer, bytes=write.size)
                await self._cut({write.peer for write in found})
