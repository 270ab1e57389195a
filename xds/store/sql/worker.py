"""The thread of a store, which runs its calls one after the other."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import TypeVar

from xds.store.base import UnavailableError

T = TypeVar("T")

PENDING_LIMIT = 1024  # jobs that wait for the thread
IDLE_S = 1.0


class Worker:
    """A thread that runs every job, even if the caller was cancelled.

    ``after`` runs after every job, when its result has been returned, and every ``IDLE_S`` seconds without a job. The
    thread is a daemon: for the store, a process that ends without ``finish`` is like a killed process, which is safe.
    """

    def __init__(self, name: str, after: Callable[[], None] = lambda: None) -> None:
        self._after = after
        self._jobs: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def submit(self, job: Callable[[], T]) -> asyncio.Future[T]:
        """Queue a job. Raises ``UnavailableError`` when ``PENDING_LIMIT`` jobs are waiting."""
        if self._jobs.qsize() >= PENDING_LIMIT:
            raise UnavailableError(f"the store is busy: {PENDING_LIMIT} calls are waiting")
        return self._submit(job)

    def finish(self, job: Callable[[], T]) -> asyncio.Future[T]:
        """Queue the last job, without a limit. The thread ends after it."""
        last = self._submit(job)
        self._jobs.put(None)
        return last

    def _submit(self, job: Callable[[], T]) -> asyncio.Future[T]:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        self._jobs.put(lambda: _run_job(loop, future, job))
        return future

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


def _run_job(loop: asyncio.AbstractEventLoop, future: asyncio.Future[T], job: Callable[[], T]) -> None:
    try:
        result = job()
    except BaseException as error:  # raised in the caller; the thread must continue
        post(loop, _reject, future, error)
    else:
        post(loop, _resolve, future, result)


def _resolve(future: asyncio.Future[T], result: T) -> None:
    if not future.done():
        future.set_result(result)


def _reject(future: asyncio.Future[T], error: BaseException) -> None:
    if not future.done():
        future.set_exception(error)


def post(loop: asyncio.AbstractEventLoop, call: Callable[..., None], *args: object) -> None:
    """Run ``call`` on the event loop from another thread. It does nothing when the loop is closed."""
    with suppress(RuntimeError):
        loop.call_soon_threadsafe(call, *args)
