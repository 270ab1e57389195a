"""Work on many resources, done beside the event loop so that no stream waits for it.

Where the server is in its life.

Writers pass, as many as there are; a restore passes alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from enum import StrEnum
from typing import Any, TypeVar

OFF_LOOP_RESOURCES = 200

T = TypeVar("T")


async def off_loop(size: int, function: Callable[..., T], *arguments: Any) -> T:
    """Run a pure function on ``size`` resources; in a thread when it would hold up the streams."""
    if size <= OFF_LOOP_RESOURCES:
        return function(*arguments)
    return await asyncio.to_thread(function, *arguments)


class Phase(StrEnum):
    """``STARTING`` until the stored state is loaded, ``DRAINING`` once it was told to end."""

    STARTING = "starting"
    READY = "ready"
    DRAINING = "draining"


class Gate:
    """Whoever comes while somebody is, or waits to be, alone, waits for that. Nobody may pass twice at a time."""

    def __init__(self) -> None:
        self._passing = 0
        self._nobody = asyncio.Event()
        self._nobody.set()
        self._open = asyncio.Event()
        self._open.set()
        self._one = asyncio.Lock()

    @asynccontextmanager
    async def passing(self) -> AsyncIterator[None]:
        """Within, nobody is alone."""
        while not self._open.is_set():
            await self._open.wait()
        self._passing += 1
        self._nobody.clear()
        try:
            yield
        finally:
            self._passing -= 1
            if not self._passing:
                self._nobody.set()

    @asynccontextmanager
    async def alone(self) -> AsyncIterator[None]:
        """Within, nobody passes."""
        async with self._one:
            self._open.clear()
            try:
                await self._nobody.wait()
                yield
            finally:
                self._open.set()
