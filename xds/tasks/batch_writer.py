"""Writes observed state to the store in batches, in a task. A crash may lose the changes of the last second."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from xds.tasks.lifecycle import BackgroundTask

WRITE_EVERY_S = 1.0
BATCH_EVERY_S = 0.1
RETRY_AT_MOST_S = 30.0
BATCH = 200  # records that the event loop encodes at once


class BatchWriter:
    """Calls ``write`` every second, sooner after a full batch, and later while the store fails.

    ``write`` writes one batch, and returns the number of its records; None if the store failed. ``is_failing``: it did
    so the last time.
    """

    def __init__(self, write: Callable[[], Awaitable[int | None]]) -> None:
        self.is_failing = False
        self._write_batch = write
        self._task = BackgroundTask()

    def start(self) -> None:
        """Start writing changes."""
        self._task.start(self._run())

    async def close(self) -> None:
        """Stop, and write the remaining changes that the store accepts."""
        if await self._task.stop():
            while await self._write() >= BATCH:
                pass

    async def _run(self) -> None:
        delay_s = WRITE_EVERY_S
        while True:
            await asyncio.sleep(delay_s)
            written = await self._write()
            if self.is_failing:
                delay_s = min(2 * delay_s, RETRY_AT_MOST_S)
            else:
                delay_s = BATCH_EVERY_S if written >= BATCH else WRITE_EVERY_S

    async def _write(self) -> int:
        written = await self._write_batch()
        self.is_failing = written is None
        return written or 0
