"""Simultaneous requests begin one after the other."""

from __future__ import annotations

import asyncio
from typing import Any

from starlette.types import Receive, Scope, Send

from xds.admin.middleware import RequestQueue

HTTP = {"type": "http"}


async def nothing(*_: Any) -> Any:
    return {}


class Application:
    """Records in which iteration of the event loop each request begins."""

    def __init__(self) -> None:
        self.iteration = 0
        self.begun: list[tuple[int, int]] = []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.begun.append((scope.get("number", -1), self.iteration))

    async def count(self) -> None:
        while True:
            await asyncio.sleep(0)
            self.iteration += 1


async def test_one_begins_in_an_iteration_in_the_order_they_came() -> None:
    application = Application()
    queue, counting = RequestQueue(application), asyncio.create_task(application.count())
    await asyncio.gather(*(queue({**HTTP, "number": number}, nothing, nothing) for number in range(5)))
    counting.cancel()
    assert [number for number, _ in application.begun] == list(range(5))
    iterations = [iteration for _, iteration in application.begun]
    assert len(set(iterations)) == 5, iterations


async def test_a_cancelled_request_is_left_out() -> None:
    application = Application()
    queue = RequestQueue(application)
    tasks = [asyncio.create_task(queue({**HTTP, "number": number}, nothing, nothing)) for number in range(3)]
    await asyncio.sleep(0)
    tasks[1].cancel()
    await asyncio.wait(tasks)
    await asyncio.wait_for(queue({**HTTP, "number": 3}, nothing, nothing), 20)
    assert [number for number, _ in application.begun] == [0, 2, 3]


async def test_lifespan_messages_do_not_wait() -> None:
    application = Application()
    await RequestQueue(application)({"type": "lifespan"}, nothing, nothing)
    assert len(application.begun) == 1
