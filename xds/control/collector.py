"""Keeping the store small: a chore that collects old content every few minutes, whatever else goes on."""

from __future__ import annotations

import asyncio
import random
import time
from contextlib import suppress
from dataclasses import asdict, replace

import structlog

from xds.protocol.cache import SnapshotCache
from xds.store.base import Store, StoreError
from xds.store.retention import Collected, Retention, StoreStats

JITTER = 0.25  # replicas that were started together do not stay together

_log = structlog.get_logger(logger_name="xds.control.collector")


class Collector:
    """Collects a store every ``every_s`` seconds, give or take a quarter.

    The revisions that ``cache`` retains are spared: a client that comes back after a restart may name them.
    ``collected`` sums up what was let go; ``stats`` is the store's size when it was last looked at.
    """

    def __init__(self, store: Store, cache: SnapshotCache, policy: Retention, every_s: float) -> None:
        self.collected = Collected()
        self.failures = 0
        self.stats: StoreStats | None = None
        self._store = store
        self._cache = cache
        self._policy = policy
        self._every_s = every_s
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin; the first collection comes after the first interval."""
        self._task = asyncio.create_task(self._run())

    async def close(self) -> None:
        """Stop, between two steps of a collection that is under way."""
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task

    async def collect(self) -> None:
        """One collection. What fails is counted and logged, and tried again next time."""
        began_s = time.monotonic()
        try:
            done = await self._store.collect(replace(self._policy, pinned=self._pinned()), time.time())
            self.collected += done
            await self._measure()
        except StoreError as error:
            self.failures += 1
            _log.warning("store.collection_failed", error_message=str(error))
        else:
            tell = _log.info if done != Collected() else _log.debug
            tell("store.collected", **asdict(done), duration_ms=round((time.monotonic() - began_s) * 1000))

    async def _run(self) -> None:
        with suppress(StoreError):
            await self._measure()
        while True:
            await asyncio.sleep(self._every_s * random.uniform(1 - JITTER, 1 + JITTER))  # noqa: S311
            await self.collect()

    async def _measure(self) -> None:
        self.stats = await self._store.stats()

    def _pinned(self) -> dict[str, list[int]]:
        return {group: self._cache.retained(group) for group in self._cache.groups()}
