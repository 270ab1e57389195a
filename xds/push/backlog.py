"""What the server may lack of the store, and tries again until it has it.

A commit is lacking if the answer to it was lost (it may have been made, or not), or if a commit of another server could
not be taken over. No acknowledged push depends on this.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable
from functools import partial
from typing import Protocol

import structlog

from xds.model.errors import NotFoundError
from xds.push.group_names import CONFIG_ENTRIES_LINE
from xds.store.base import StoreError
from xds.tasks.writes import HeldLocks, WriteLocks

RETRY_DERIVED_S = 1.0
_RETRY_FIRST_S = 0.1
_RETRY_LAST_S = 5.0

_log = structlog.get_logger(logger_name="xds.push.backlog")


class CatchingUp(Protocol):
    """What takes over what the store has. Everything raises ``StoreError``."""

    def wake(self, groups: Collection[str], /) -> None:
        """Wake the streams of these groups."""

    async def refresh(self, groups: Collection[str]) -> None:
        """Publish what the store has of these groups."""

    async def is_derived_level(self, groups: Collection[str]) -> bool:
        """Whether the server has all documents of which resources of these groups are derived."""

    async def catch_up_derived(self) -> Collection[str]:
        """Take over the documents of derived resources. Returns the groups whose resources may differ."""

    def adopt_stored(self, groups: Collection[str], /) -> object:
        """Take over the stored derived resources of these groups."""

    def end_derived(self, groups: Collection[str]) -> None:
        """Remove what the published groups no longer have."""

    async def refresh_document(self, kind: str, id: str) -> None:
        """Take over what the store has of a document that no resource is derived from."""


class Backlog:
    """The groups and documents that the server may lack, and whether it may lack those of derived resources."""

    def __init__(self, locks: WriteLocks, stored: CatchingUp) -> None:
        self.is_derived_behind = False
        self._derived_noted = 0
        self._locks = locks
        self._stored = stored
        self._behind: dict[str, asyncio.Task[None]] = {}
        self._noted_again: set[str] = set()  # since the present attempt began

    def __len__(self) -> int:
        """How many groups, documents and lines are behind."""
        return len(self._behind)

    def names(self) -> list[str]:
        """What is behind, for people."""
        return sorted("config entries" if name == CONFIG_ENTRIES_LINE else name for name in self._behind)

    def note(self, groups: Iterable[str], is_derived: bool) -> None:
        """These groups may be behind. ``is_derived``: documents of derived resources too."""
        for group in groups:
            self._start(f"group {group}", partial(self._catch_up_group, group))
        if is_derived:
            self.is_derived_behind = True
            self._derived_noted += 1
            self._start(CONFIG_ENTRIES_LINE, self.catch_up_derived, RETRY_DERIVED_S)

    def note_unsettled(self, settle: Callable[[], Awaitable[None]]) -> None:
        """The store has not taken what this server derives; ``settle`` tries again."""
        self._start("derived resources", settle, RETRY_DERIVED_S)

    def note_document(self, kind: str, id: str) -> None:
        """A document is behind, of which no resource is derived."""
        self._start(f"{kind} {id}", partial(self._stored.refresh_document, kind, id))

    async def catch_up(self, groups: Collection[str]) -> None:
        """Catch up with groups that are behind. The caller holds their locks. Raises ``StoreError``."""
        behind = [group for group in groups if f"group {group}" in self._behind]
        if behind:
            await self.refresh(behind)

    async def refresh(self, groups: Collection[str]) -> None:
        """Publish what the store has of these groups. The caller holds their locks. Raises ``StoreError``.

        Their derived resources may be those of documents that this server does not have: then it is behind with these.
        """
        await self._stored.refresh(groups)
        is_derived_level = False
        try:
            is_derived_level = await self._stored.is_derived_level(groups)
        finally:
            if not is_derived_level:
                self.note((), is_derived=True)

    async def catch_up_derived(self) -> None:
        """Catch up with the documents of derived resources, and with their groups. Raises ``StoreError``."""
        if self.is_derived_behind:
            async with self._locks.groups((CONFIG_ENTRIES_LINE,)) as locks:
                await self.catch_up_line(locks, ())

    async def catch_up_line(self, locks: HeldLocks, groups: Collection[str]) -> None:
        """The same with ``groups`` in addition, if anything is behind. The caller holds the lock of config entries.

        Other locks must be taken here alone, all at once: several pushes may wait for each other otherwise.
        """
        if self.is_derived_behind:
            times = self._derived_noted
            touched = {*await self._stored.catch_up_derived(), *groups}
            await locks.add(touched)
            await self.refresh(touched)
            self._stored.adopt_stored(touched)
            self._stored.end_derived(touched)
            self._stored.wake(touched)  # their endpoints may differ, and nothing else
            self.is_derived_behind = times != self._derived_noted  # there may be newer documents since they were loaded

    def close(self) -> None:
        """Stop."""
        for task in self._behind.values():
            task.cancel()

    def _start(self, name: str, attempt: Callable[[], Awaitable[None]], first_s: float = _RETRY_FIRST_S) -> None:
        if name in self._behind:
            self._noted_again.add(name)
        else:
            self._behind[name] = asyncio.create_task(self._retry(name, attempt, first_s))

    async def _retry(self, name: str, attempt: Callable[[], Awaitable[None]], delay_s: float) -> None:
        while True:
            await asyncio.sleep(delay_s)
            delay_s = max(delay_s, min(delay_s * 2, _RETRY_LAST_S))
            self._noted_again.discard(name)
            try:
                await attempt()
            except (StoreError, NotFoundError) as error:
                _log.warning("store.backlog", what=name, error_message=str(error))
            except Exception as error:  # a bug must not end it: the server would serve what is no longer there
                _log.error("store.backlog", what=name, error_message=str(error), exc_info=error)
            else:
                if name not in self._noted_again:
                    del self._behind[name]
                    return

    async def _catch_up_group(self, group: str) -> None:
        async with self._locks.groups((group,)):
            await self.refresh((group,))
