"""The phases of the server process, and tasks that run from its start to its end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from enum import StrEnum
from typing import Any


class Phase(StrEnum):
    """``STARTING`` until the stored state is loaded; ``DRAINING`` from the signal to stop until the process ends."""

    STARTING = "starting"
    READY = "ready"
    DRAINING = "draining"


# Whether this server may do now what only one server of a store does (docs/replicas.md).
HoldsLease = Callable[[], bool]


def alone() -> bool:
    """The lease of the only server of its store: it always holds it."""
    return True


class BackgroundTask:
    """A task that runs until ``stop``."""

    def __init__(self) -> None:
        self._task: asyncio.Task[None] | None = None

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        """Run ``work`` in a task of its own."""
        self._task = asyncio.create_task(work)

    async def stop(self) -> bool:
        """Cancel the task and wait until it has ended. False when it was never started."""
        if self._task is None:
            return False
        self._task.cancel()
        await asyncio.wait((self._task,))
        return True
