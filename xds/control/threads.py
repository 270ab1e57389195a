"""Work that would hold up the event loop runs in a thread, depending on its size.

A thread has a cost of its own and competes with the event loop for the interpreter. So small work runs at once, and
only work that would delay the streams is moved.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar, overload

INLINE_RESOURCES = 200
INLINE_BYTES = 64 * 1024

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
