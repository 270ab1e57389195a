"""Work in threads whose result is a future."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from threading import Thread
from typing import Any, TypeVar

T = TypeVar("T")


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
