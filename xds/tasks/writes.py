"""Locks of writes: one push at a time per group, pushes to different groups side by side, a restore alone.

`RunningWrites` are the writes in progress: they are completed even if their callers are cancelled.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, TypeVar
from weakref import WeakValueDictionary

T = TypeVar("T")


class WriteLocks:
    """A lock for each group, and one for all groups. A writer that waits for all groups goes before new writers.

    Not reentrant: a task that has a lock must not wait for another one, except by `HeldLocks.add`.
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
        """Lock these groups: no other writer changes them meanwhile.

        The locks are taken in the order of the names, so that two pushes never wait for each other.
        """
        async with self._writing(), AsyncExitStack() as stack:
            locks = HeldLocks(stack, self._lock_of)
            await locks.add(names)
            yield locks

    def _lock_of(self, name: str) -> asyncio.Lock:
        return self._groups.setdefault(name, asyncio.Lock())

    @asynccontextmanager
    async def all_groups(self) -> AsyncIterator[None]:
        """Lock all groups: no other writer changes any group meanwhile."""
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
    """The locks of a writer. They are released together, when its block of `WriteLocks.groups` ends."""

    def __init__(self, stack: AsyncExitStack, lock_of: Callable[[str], asyncio.Lock]) -> None:
        self._stack = stack
        self._lock_of = lock_of
        self._names: set[str] = set()

    async def add(self, names: Iterable[str]) -> None:
        """Wait for the locks of more groups.

        Only a writer that has the lock of config entries alone may add groups. That lock is always taken first, so that
        no deadlock is possible.
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
        """Wait until no write is in progress, including writes that start meanwhile. Does not raise their errors."""
        while self._tasks:
            await asyncio.wait(self._tasks)
