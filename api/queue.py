"""Requests begin one after the other, each in an iteration of the event loop of its own.

What the framework does with one takes milliseconds. Requests that arrive together, a burst of pushes say, would hold up
the streams for as long as all of them.
"""

from __future__ import annotations

import asyncio
from collections import deque

from starlette.types import ASGIApp, Receive, Scope, Send


class Queue:
    """First come, first served. How many wait is bounded by the connections that the server takes."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._busy = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await self._come()
        await self._app(scope, receive, send)

    async def _come(self) -> None:
        loop = asyncio.get_running_loop()
        if not self._busy:
            self._busy = True
            loop.call_soon(self._next)
            return
        turn: asyncio.Future[None] = loop.create_future()
        self._waiting.append(turn)
        await turn

    def _next(self) -> None:
        """An iteration is over: the next may begin."""
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():  # who is gone has left no work
                turn.set_result(None)
                asyncio.get_running_loop().call_soon(self._next)
                return
        self._busy = False
