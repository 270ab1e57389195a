"""Decides where work runs, and what work for a caller may cost.

* What the server does with its own state costs as much as it has resources: `run_sized`.
* What a caller decides over (its input is parsed, checked and compiled, its filter is tried on everything) has a cost
  that no size tells: `run_for_caller`. It has a budget (`xds.codec.effort`), it ends when the caller has left, and no
  caller takes more than its turn. On the event loop it runs only as long as a small size does bound it.
* What reads files has a thread of its own, which nobody waits for without end: `run_detached`.

A thread has a cost of its own and competes with the event loop for the interpreter. So small work of the first kind
runs on the event loop, and work of the second kind has two threads, however much of it there is.
"""

from __future__ import annotations

import asyncio
import gc
from collections import deque
from collections.abc import Awaitable, Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from contextvars import ContextVar, copy_context
from dataclasses import dataclass
from functools import partial
from threading import Lock, Thread
from typing import Any, TypeVar

from xds.codec.effort import AbandonedError, Effort, NotBoundedError, bounded_by

INLINE_RESOURCES = 200
INLINE_BYTES = 16 * 1024  # of rendered or planned resources: some milliseconds
INPUT_BYTES = 4 * 1024  # of JSON or serialized messages: at most 3 ms; a thread takes 0.2 ms
WORKERS = 2  # a caller with much work leaves one for the others
# While hundreds of thousands of long-lived objects are created, the collector uses two fifths of the time in vain.
_RARE_COLLECTIONS = (100_000, 100, 1_000)

T = TypeVar("T")


async def run_sized(work: Callable[..., T], *arguments: Any, resources: int = 0, bytes: int = 0) -> T:
    """Return ``work(*arguments)``: work on the server's own state, in proportion to ``resources`` or ``bytes``.

    At most ``INLINE_RESOURCES`` resources or ``INLINE_BYTES`` bytes run on the event loop, more in a thread. ``work``
    must not touch state that belongs to the event loop.
    """
    if resources <= INLINE_RESOURCES and bytes <= INLINE_BYTES:
        return work(*arguments)
    return await asyncio.to_thread(work, *arguments)


async def run_detached(work: Callable[..., T], *arguments: Any) -> T:
    """Return ``work(*arguments)``, run in a thread that the end of the process does not wait for.

    For files: a file system that does not answer holds its reader without end.
    """
    future: Future[T] = Future()
    Thread(target=settle, args=(future, partial(work, *arguments)), name="detached", daemon=True).start()
    try:
        return await asyncio.wrap_future(future)
    finally:
        del future  # as in `settle`


def settle(future: Future[T], work: Callable[[], T]) -> None:
    """Do the work of a future, unless it was cancelled.

    A future has its error, and an error has the frames through which it went. A frame with the future would be a cycle:
    what the work was given would stay until a full garbage collection.
    """
    if not future.set_running_or_notify_cancel():
        return
    try:
        result = work()
    except BaseException as error:
        future.set_exception(error)
        del future, work
    else:
        future.set_result(result)


@dataclass(frozen=True, slots=True)
class Waiter:
    """Who waits for work: ``name`` is whose turn it takes, ``left`` ends when the caller is gone."""

    name: str
    left: Callable[[], Awaitable[None]]


# The waiter of the request at hand; None where the server works for itself.
WAITER: ContextVar[Waiter | None] = ContextVar("waiter", default=None)


class Turns:
    """Runs tasks in a few threads: one at a time of each name, and the names in turn."""

    def __init__(self, workers: int) -> None:
        self._pool = ThreadPoolExecutor(workers, thread_name_prefix="caller")
        self._lock = Lock()
        self._waiting: dict[str, deque[Callable[[], None]]] = {}  # of the names with a turn or a running task

    def submit(self, name: str, work: Callable[[], T]) -> Future[T]:
        """The future result of ``work``. Cancelling it before its turn removes the work."""
        future: Future[T] = Future()
        task = partial(settle, future, work)
        with self._lock:
            waiting = self._waiting.get(name)
            if waiting is not None:
                waiting.append(task)
                return future
            self._waiting[name] = deque((task,))
        self._pool.submit(self._run, name)
        return future

    def _run(self, name: str) -> None:
        with self._lock:
            task = self._waiting[name].popleft()
        task()
        del task  # its error has this frame (`settle`)
        with self._lock:
            if not self._waiting[name]:
                del self._waiting[name]
                return
        self._pool.submit(self._run, name)  # behind the names that wait


_TURNS = Turns(WORKERS)


async def run_for_caller(work: Callable[..., T], *arguments: Any, bytes: int | None = None) -> T:
    """Return ``work(*arguments)``: work whose cost the caller decides over. It runs in a thread.

    ``bytes``: those of the input, if they bound the work but for the steps before which it calls `leave_loop`. A small
    one is worked on here; after ``NotBoundedError`` it begins again in a thread.

    ``work`` must not touch state that belongs to the event loop. Raises ``AbandonedError`` when the caller has left;
    the work ends at its next step then, as it does where this call is cancelled.
    """
    if bytes is not None and bytes <= INPUT_BYTES:
        with suppress(NotBoundedError):
            return _bounded(Effort(is_on_loop=True), partial(work, *arguments))
    waiter, effort = WAITER.get(), Effort()
    run = partial(copy_context().run, _bounded, effort, partial(work, *arguments))
    future = asyncio.wrap_future(_TURNS.submit(waiter.name if waiter is not None else "", run))
    left = asyncio.ensure_future(waiter.left()) if waiter is not None else None
    awaited: list[asyncio.Future[Any]] = [future] if left is None else [future, left]
    try:
        await asyncio.wait(awaited, return_when=asyncio.FIRST_COMPLETED)
        if not future.done():
            raise AbandonedError("the caller has left")
        return future.result()
    finally:
        effort.abandon()
        future.cancel()
        if left is not None:
            left.cancel()
        del future, awaited  # an error that was raised has this frame (`settle`)


def _bounded(effort: Effort, work: Callable[[], T]) -> T:
    with bounded_by(effort):
        effort.check()
        return work()


async def run_rarely_collected(work: Callable[..., T], *arguments: Any) -> T:
    """Return ``work(*arguments)``, run in a thread while the garbage collector runs rarely. For the start."""
    before = gc.get_threshold()
    gc.set_threshold(*_RARE_COLLECTIONS)
    try:
        return await asyncio.to_thread(work, *arguments)
    finally:
        gc.set_threshold(*before)
