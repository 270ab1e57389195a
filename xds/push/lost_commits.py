"""Catches up with the store after its answer to a commit was lost: the commit may have been made, or not.

No acknowledged push depends on this.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable
from typing import Any

import structlog

from xds.push.group_names import CONFIG_ENTRIES_LINE
from xds.store.base import StoreError
from xds.tasks.writes import HeldLocks, WriteLocks

RETRY_DERIVED_S = 1.0
_RETRY_FIRST_S = 0.1
_RETRY_LAST_S = 5.0

_log = structlog.get_logger(logger_name="xds.push.lost_commits")


class LostCommits:
    """The groups that may be behind the store, and whether the documents of derived resources may be.

    ``refresh`` publishes what the store has of a group; ``refresh_derived`` loads the documents, and returns the groups
    that have derived resources. ``adopt`` takes over the stored derived resources of these. They raise ``StoreError``.
    """

    def __init__(
        self,
        locks: WriteLocks,
        refresh: Callable[[str], Awaitable[None]],
        refresh_derived: Callable[[], Awaitable[Collection[str]]],
        adopt: Callable[[], object],
    ) -> None:
        self.is_derived_behind = False
        self._locks = locks
        self._refresh = refresh
        self._refresh_derived = refresh_derived
        self._adopt = adopt
        self._behind: dict[str, asyncio.Task[None]] = {}

    def note(self, groups: Iterable[str], is_derived: bool) -> None:
        """The answer to a commit of these groups was lost. ``is_derived``: documents of derived resources too."""
        for group in groups:
            self._start(group, self._retry)
        if is_derived:
            self.is_derived_behind = True
            self._start(CONFIG_ENTRIES_LINE, self._retry_derived)

    async def catch_up(self, groups: Collection[str]) -> None:
        """Catch up with groups that are behind. The caller holds their locks. Raises ``StoreError``."""
        for group in self._behind.keys() & groups:
            await self._refresh(group)

    async def catch_up_derived(self, locks: HeldLocks) -> None:
        """Catch up with the documents of derived resources, and with their groups. Raises ``StoreError``.

        The caller holds the lock of config entries, if ``is_derived_behind``.
        """
        if self.is_derived_behind:
            groups = await self._refresh_derived()
            await locks.add(groups)
            await self.catch_up(groups)
            self._adopt()
            self.is_derived_behind = False

    def close(self) -> None:
        """Stop."""
        for task in self._behind.values():
            task.cancel()

    def _start(self, line: str, retry: Callable[[str], Coroutine[Any, Any, None]]) -> None:
        if line not in self._behind:
            self._behind[line] = asyncio.create_task(retry(line))

    async def _retry(self, group: str) -> None:
        delay_s = _RETRY_FIRST_S
        while True:
            await asyncio.sleep(delay_s)
            delay_s = min(delay_s * 2, _RETRY_LAST_S)
            try:
                async with self._locks.groups((group,)):
                    await self._refresh(group)
                    del self._behind[group]
                return
            except StoreError as error:
                _log.warning("snapshot.behind", group=group, error_message=str(error))

    async def _retry_derived(self, line: str) -> None:
        while self.is_derived_behind:
            await asyncio.sleep(RETRY_DERIVED_S)
            try:
                async with self._locks.groups((line,)) as locks:
                    await self.catch_up_derived(locks)
            except StoreError as error:
                _log.warning("derived.behind", error_message=str(error))
        del self._behind[line]
