"""The pause between attempts of writes that other servers outran."""

from __future__ import annotations

import asyncio
import random

_AT_ONCE = 2  # so many attempts fail without a pause
_PAUSE_S = 0.02


async def pause_after(attempt: int) -> None:
    """Wait a moment after the failure of this attempt, counted from 1: servers that try in step outrun each other."""
    if attempt >= _AT_ONCE:
        await asyncio.sleep(random.uniform(0, _PAUSE_S))  # noqa: S311 - no secret
