"""Who may write when: one push at a time per group, pushes to different groups side by side, a restore alone.

And writes in progress, which end even if their callers do not wait for them.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, TypeVar
from weakref import WeakValueDictionary

T = TypeVar("T")


class WriteLocks:
    """A lock for each group, and one for all of them. A writer that waits for all groups goes before new writers.

    Not reentrant: a task that holds a lock must not ask for another one.
    """

    def __init__(self) -> None:
        self._groups: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._writers = 0
        self._no_writer = asyncio.Event()
        self._no_writer.set()
        self._open = asyncio.Event()
        self._open.set()
        self._exclusive = asyncio.Lock()

    @asynccontextmanager
    async def groups(self, names: Iterable[str]) -> AsyncIterator[HeldLocks]:
        """No other writer changes these groups meanwhile.

        The locks are taken in the order of the names, so that two pushes never wait for each other.
        """
        async with self._writing(), AsyncExitStack() as stack:
            held = HeldLocks(stack, self._lock_of)
            await held.add(names)
            yield held

    def _lock_of(self, name: str) -> asyncio.Lock:
        return self._groups.setdefault(name, asyncio.Lock())

    @asynccontextmanager
    async def all_groups(self) -> AsyncIterator[None]:
        """No other writer changes any group meanwhile."""
        async with self._exclusive:
            self._open.clear()
            try:
                await self._no_writer.wait()
                yield
            finally:
                self._open.set()

    @asynccontextmanager
    async def _writing(self) -> AsyncIterator[None]:
        while not self._open.is_set():
            await self._open.wait()
        self._writers += 1
        self._no_writer.clear()
        try:
            yield
        finally:
            self._writers -= 1
            if not self._writers:
                self._no_writer.set()


class HeldLocks:
    """The locks that a writer holds. They are given up together, when its block of `WriteLocks.groups` ends."""

    def __init__(self, stack: AsyncExitStack, lock_of: Callable[[str], asyncio.Lock]) -> None:
        self._stack = stack
        self._lock_of = lock_of
        self._names: set[str] = set()

    async def add(self, names: Iterable[str]) -> None:
        """Wait for more groups.

        Only a writer that has the lock of config entries, and nothing else, may add groups: that lock is always taken
        first, so that no deadlock is possible.
        """
        for name in sorted(set(names) - self._names):
            await self._stack.enter_async_context(self._lock_of(name))
            self._names.add(name)


class RunningWrites:
    """The writes in progress. A cancelled caller does not stop a write, so that no commit stays unpublished."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()

    def start(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Run ``work`` as a task; `wait` waits for it."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def finish(self, work: Coroutine[Any, Any, T]) -> T:
        """Run ``work`` and wait for its result, or its error. A caller that is cancelled leaves it running."""
        return await asyncio.shield(self.start(work))

    async def wait(self) -> None:
        """Wait until no write is in progress, those included that start meanwhile. Raises nothing of theirs."""
        while self._tasks:
            await asyncio.wait(self._tasks)
