"""TODO."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class RestoreGate:
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
