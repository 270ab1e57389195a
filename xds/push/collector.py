"""Deletes old revisions from the store at regular intervals. Of several servers of a store, one does it."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, replace

import structlog

from xds.snapshots.cache import SnapshotCache
from xds.store.base import Store, StoreError
from xds.store.retention import Collected, Retention, StoreStats
from xds.tasks.lifecycle import BackgroundTask, HoldsLease, alone

JITTER = 0.25  # of the interval, so that replicas that started together do not collect together

_log = structlog.get_logger(logger_name="xds.push.collector")


class Collector:
    """Collects a store every ``every_s`` seconds, with a jitter of a quarter.

    Revisions that ``cache`` retains are kept, since a client that reconnects after a restart may have them. All servers
    of a store retain the same ones. The ``bases`` of rollouts, by group, are kept too: some nodes are served them.

    ``collected`` counts what was deleted; ``stats`` are the sizes after the last collection.
    """

    def __init__(
        self,
        store: Store,
        cache: SnapshotCache,
        policy: Retention,
        every_s: float,
        holds_lease: HoldsLease = alone,
        bases: Callable[[], Mapping[str, int]] = dict,
    ) -> None:
        self.collected = Collected()
        self.failures = 0
        self.stats: StoreStats | None = None
        self._store = store
        self._cache = cache
        self._policy = policy
        self._every_s = every_s
        self._holds_lease = holds_lease
        self._bases = bases
        self._task = BackgroundTask()

    def start(self) -> None:
        """Start. The first collection is after the first interval."""
        self._task.start(self._run())

    async def close(self) -> None:
        """Stop. A collection in progress ends after its current step."""
        await self._task.stop()

    async def collect(self) -> None:
        """Collect once. A failure is counted and logged; the next collection tries again."""
        began_s = time.monotonic()
        try:
            done = await self._store.collect(replace(self._policy, pinned=self._pinned()), await self._store.now_s())
            self.collected += done
            await self._measure()
        except StoreError as error:
            self.failures += 1
            _log.warning("store.collection_failed", error_message=str(error))
        else:
            log = _log.info if done != Collected() else _log.debug
            log("store.collected", **asdict(done), duration_ms=round((time.monotonic() - began_s) * 1000))

    async def _run(self) -> None:
        with suppress(StoreError):
            await self._measure()
        while True:
            await asyncio.sleep(self._every_s * random.uniform(1 - JITTER, 1 + JITTER))  # noqa: S311
            if self._holds_lease():
                await self.collect()
                continue
            with suppress(StoreError):
                await self._measure()

    async def _measure(self) -> None:
        self.stats = await self._store.stats()

    def _pinned(self) -> dict[str, list[int]]:
        bases = self._bases()
        return {
            group: [*self._cache.retained(group), *((bases[group],) if group in bases else ())]
            for group in self._cache.groups()
        }
