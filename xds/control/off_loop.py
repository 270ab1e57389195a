"""Work on many resources, done beside the event loop so that no stream waits for it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

OFF_LOOP_RESOURCES = 200

T = TypeVar("T")


async def off_loop(size: int, function: Callable[..., T], *arguments: Any) -> T:
    """Run a pure function on ``size`` resources; in a thread when it would hold up the streams."""
    if size <= OFF_LOOP_RESOURCES:
        return function(*arguments)
    return await asyncio.to_thread(function, *arguments)
