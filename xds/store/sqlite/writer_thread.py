"""One thread that runs jobs in the order given and answers on the event loop that gave them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import TypeVar

from xds.store.base import UnavailableError

PENDING_LIMIT = 1024
IDLE_S = 1.0

T = TypeVar("T")


class Worker:
    """Jobs are never dropped: one whose caller went away still runs, and its result is thrown away.

    ``after`` runs behind every job, when that is answered already, and every ``IDLE_S`` without one. The thread is a
    daemon: a process that ends without ``stop`` is to the store what kill -9 is, and as harmless.
    """

    def __init__(self, name: str, after: Callable[[], None] = lambda: None) -> None:
        self._after = after
        self._jobs: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def submit(self, job: Callable[[], T]) -> asyncio.Future[T]:
        """Queue a job. Raises ``UnavailableError`` when ``PENDING_LIMIT`` are waiting already."""
        if self._jobs.qsize() >= PENDING_LIMIT:
            raise UnavailableError(f"the store is busy: {PENDING_LIMIT} calls are waiting")
        return self._submit(job)

    def finish(self, job: Callable[[], T]) -> asyncio.Future[T]:
        """Queue the last job, whatever waits before it; the thread ends behind it."""
        last = self._submit(job)
        self._jobs.put(None)
        return last

    def _submit(self, job: Callable[[], T]) -> asyncio.Future[T]:
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[T] = loop.create_future()
        self._jobs.put(lambda: _answer(loop, answer, job))
        return answer

    def _run(self) -> None:
        while True:
            try:
                job = self._jobs.get(timeout=IDLE_S)
            except Empty:
                self._after()
                continue
            if job is None:
                return
            job()
            self._after()


def _answer(loop: asyncio.AbstractEventLoop, answer: asyncio.Future[T], job: Callable[[], T]) -> None:
    try:
        result = job()
    except BaseException as error:  # the caller's to handle, whatever it is: the thread must live on
        post(loop, _refuse, answer, error)
    else:
        post(loop, _resolve, answer, result)


def _resolve(answer: asyncio.Future[T], result: T) -> None:
    if not answer.done():
        answer.set_result(result)


def _refuse(answer: asyncio.Future[T], error: BaseException) -> None:
    if not answer.done():
        answer.set_exception(error)


def post(loop: asyncio.AbstractEventLoop, call: Callable[..., None], *args: object) -> None:
    """Run ``call`` on the loop, from another thread; nothing happens when the loop is gone, and with it the caller."""
    with suppress(RuntimeError):
        loop.call_soon_threadsafe(call, *args)
