"""Runs work that would block the event loop in a thread, depending on its size.

A thread has a cost of its own and competes with the event loop for the interpreter. So small work runs on the event
loop, and only work that would delay the streams runs in a thread.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable
from typing import Any, TypeVar, overload

INLINE_RESOURCES = 200
INLINE_BYTES = 64 * 1024
# While hundreds of thousands of long-lived objects are created, the collector uses two fifths of the time in vain.
_RARE_COLLECTIONS = (100_000, 100, 1_000)

T = TypeVar("T")


@overload
async def run_sized(work: Callable[..., T], *arguments: Any, resources: int) -> T: ...
@overload
async def run_sized(work: Callable[..., T], *arguments: Any, bytes: int) -> T: ...
async def run_sized(work: Callable[..., T], *arguments: Any, resources: int = 0, bytes: int = 0) -> T:
    """Return ``work(*arguments)``. Give the size of the work in one unit: ``resources`` or ``bytes``.

    At most ``INLINE_RESOURCES`` resources or ``INLINE_BYTES`` bytes run on the event loop, more in a thread. ``work``
    must not touch state that belongs to the event loop.
    """
    if resources <= INLINE_RESOURCES and bytes <= INLINE_BYTES:
        return work(*arguments)
    return await asyncio.to_thread(work, *arguments)


async def run_rarely_collected(work: Callable[..., T], *arguments: Any) -> T:
    """Return ``work(*arguments)``, run in a thread while the garbage collector runs rarely. For the start."""
    before = gc.get_threshold()
    gc.set_threshold(*_RARE_COLLECTIONS)
    try:
        return await asyncio.to_thread(work, *arguments)
    finally:
        gc.set_threshold(*before)
