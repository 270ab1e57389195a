"""Follows the store: what other servers commit is served here too (docs/replicas.md).

Everything comes from ``Store.watch``. What this server wrote itself comes as well, and changes nothing. An item that
cannot be taken over joins the backlog, and the next ones are taken over nevertheless. A watch that ends, or that does
not show what the store has, is begun again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from time import monotonic

import structlog

from xds.model.errors import NotFoundError
from xds.push.backlog import Backlog
from xds.push.derived import ORDER_ID
from xds.push.group_names import CONFIG_ENTRIES_LINE
from xds.push.rollouts import KIND as ROLLOUT
from xds.push.stored_state import StoredState
from xds.store.base import ChangeItem, DocumentChanged, GroupCommitted, Head, Reset, Store, StoreError, WatchItem
from xds.tasks.lifecycle import BackgroundTask

TICK_S = 1.0
CATCH_UP_S, LOOK_S = 2.0, 0.002
STUCK_S = 5.0  # a watch that shows nothing new for so long, while the store has it, is begun again

_log = structlog.get_logger(logger_name="xds.push.following")


@dataclass(frozen=True, slots=True)
class Lag:
    """How far a server is behind the store.

    ``commits`` are those that it has not taken over, for ``seconds``. ``behind`` names groups and documents that it
    could not take over. ``silent_s`` is how long the store has not answered.
    """

    commits: int = 0
    seconds: float = 0.0
    behind: Sequence[str] = ()
    silent_s: float = 0.0

    def __str__(self) -> str:
        """In words; empty if the server has all that the store has."""
        if self.silent_s > STUCK_S:
            return f"the store has not answered for {self.silent_s:.0f} s: what other servers commit is not seen"
        if self.behind:
            more = f" and {len(self.behind) - 3} more" if len(self.behind) > 3 else ""
            return f"behind the store, and tries again: {', '.join(self.behind[:3])}{more}"
        if self.seconds > STUCK_S:
            return f"{self.commits} commits behind the store for {self.seconds:.0f} s"
        return ""


async def _nothing() -> None:
    """By default nothing else is to be loaded again."""


class StoreFollower:
    """The task that follows the store.

    ``cursor`` is that of the last commit that was taken over. ``failures`` counts what could not be taken over by a
    bug, and watches that were stuck.
    """

    def __init__(self, store: Store, stored: StoredState, backlog: Backlog) -> None:
        self.failures = 0
        self._store = store
        self._stored = stored
        self._backlog = backlog
        self.cursor = 0
        self._newest = 0  # of the store, when it answered last
        self._answered_s = monotonic()
        self._level_s = monotonic()  # when this server last had all that the store had
        self._is_started = False
        self._was_cut_off = False  # since this server last had all that the store had
        self._is_busy = False
        self._restored: int | None = None
        self._reload_others: Callable[[], Awaitable[None]] = _nothing
        self._watch = BackgroundTask()
        self._check = BackgroundTask()

    async def begin(self) -> None:
        """Follow from here: everything before is about to be loaded. Raises ``StoreError``."""
        self.is_cut_off()
        self.cursor = self._newest = await self._store.newest_cursor()

    def start(self, reload_others: Callable[[], Awaitable[None]] = _nothing) -> None:
        """Follow. ``reload_others`` loads again what a restore has replaced, besides groups and documents."""
        self._reload_others, self._is_started = reload_others, True
        self._answered_s = self._level_s = monotonic()
        self._watch.start(self._follow())
        self._check.start(self._supervise())

    async def close(self) -> None:
        """Stop."""
        await self._check.stop()
        await self._watch.stop()

    async def catch_up(self) -> None:
        """Wait until what the store has now is taken over, for ``CATCH_UP_S`` at most. Raises ``StoreError``."""
        newest = await self._store.newest_cursor()
        with suppress(TimeoutError):
            async with asyncio.timeout(CATCH_UP_S if self._is_started else 0):
                while self.cursor < newest:  # noqa: ASYNC110 - an event would have to be set at each commit
                    await asyncio.sleep(LOOK_S)

    def lag(self) -> Lag:
        """How far the server is behind the store now."""
        now_s, missing = monotonic(), max(self._newest - self.cursor, 0)
        seconds = now_s - self._level_s if missing else 0.0
        silent_s = now_s - self._answered_s
        return Lag(missing, seconds, tuple(self._backlog.names()), silent_s if silent_s > 2 * TICK_S else 0.0)

    def is_cut_off(self) -> bool:
        """Whether the store does not answer, or this server still lacks what was committed in that time."""
        if self._store.condition().cut_off_s:
            self._was_cut_off = True
        return self._was_cut_off

    async def note_restored(self) -> None:
        """This server has restored the store and is about to load it, so the `Reset` that follows changes nothing.

        Raises ``StoreError``.
        """
        self._restored = await self._store.newest_cursor()

    # Supervision

    async def _follow(self) -> None:
        while True:
            try:
                async for items in self._store.watch(self.cursor):
                    await self._take_over(items)
                    self.cursor = items[-1].cursor
            except StoreError as error:
                _log.info("store.watch_ended", error_message=str(error))
            except Exception as error:  # a bug must not end it: the server would serve what is no longer there
                self._note_failure(error, "a restored store")
            await asyncio.sleep(TICK_S)

    async def _supervise(self) -> None:
        begun_s = monotonic()
        while True:
            looked_s = monotonic()
            try:
                await self._look()
            except StoreError:
                self.is_cut_off()  # to be remembered
                looked_s = 0.0
            if monotonic() - looked_s > TICK_S:  # the store was silent or busy, and could show nothing to a watch
                begun_s = monotonic()
            if self.cursor == self._newest:
                self._level_s = monotonic()
            elif not self._is_busy and monotonic() - max(self._level_s, begun_s) > STUCK_S:
                self.failures += 1
                _log.error("store.watch_stuck", cursor=self.cursor, newest=self._newest)
                await self._watch.stop()
                self._watch.start(self._follow())
                begun_s = monotonic()
            await asyncio.sleep(TICK_S)

    async def _look(self) -> None:
        """Learn what the store has. Raises ``StoreError``."""
        self.is_cut_off()
        is_silent = bool(self._store.condition().cut_off_s)  # before the answer, which may be that of the copy
        newest = await self._store.newest_cursor()
        if self._newest <= self.cursor <= newest:  # it has all that the store had when it answered last
            self._level_s = self._answered_s
        self._newest, self._answered_s = newest, monotonic()
        if self.cursor == self._newest and not (is_silent or self._backlog):
            self._was_cut_off = False

    def _note_failure(self, error: Exception, what: str) -> None:
        if isinstance(error, StoreError | NotFoundError):  # the store is away, or it is restored at this moment
            _log.info("store.not_followed", what=what, error_message=str(error))
            return
        self.failures += 1
        _log.error("store.not_followed", what=what, error_message=str(error), exc_info=error)

    # Taking over

    async def _take_over(self, items: Sequence[WatchItem]) -> None:
        self._is_busy = True
        try:
            if isinstance(items[0], Reset):
                await self._start_over(items[0])
            else:
                await self._take([item for item in items if not isinstance(item, Reset)])
        finally:
            self._is_busy = False

    async def _start_over(self, reset: Reset) -> None:
        """Load everything: the store was restored, or more was committed than a watch can tell. Raises."""
        async with self._stored.all_locked():
            restored, self._restored = self._restored, None
            if restored is not None and reset.cursor <= restored:
                return
            _log.info("store.loaded_again", cursor=reset.cursor)
            changed = await self._stored.reload()
            self._stored.adopt_stored()
        self._stored.wake(changed)
        await self._reload_others()

    async def _take(self, items: Sequence[ChangeItem]) -> None:
        """Take over some commits: first the documents, then the groups, which are served in one step."""
        heads = {item.head.group: item.head for item in items if isinstance(item, GroupCommitted)}
        line = heads.pop(CONFIG_ENTRIES_LINE, None)
        rolled_out: set[str] = set()
        derived_kinds = self._stored.derived.kinds()
        of_derived: dict[str, DocumentChanged] = {}
        for item in items:
            if isinstance(item, DocumentChanged):
                if item.kind in derived_kinds:
                    of_derived[f"{item.kind} {item.id}"] = item
                elif item.kind == ROLLOUT:  # it is served with the content of its group
                    rolled_out.update(self._stored.note_rollout(item))
                else:
                    await self._take_document(item)
        groups = self._lacking(heads) | rolled_out
        is_line_news = line is not None and not self._stored.derived.has(line.revision)
        needs_line = of_derived or is_line_news or groups & self._stored.derived.groups()
        try:
            if needs_line:
                await self._take_derived(line, of_derived.values(), groups)
            elif groups:
                async with self._stored.locks.groups(groups):
                    # A push of this server has the lock until it has published what the watch shows already.
                    await self._refresh(self._lacking(heads) | rolled_out, heads)
        except Exception as error:  # a bug too
            self._note_failure(error, ", ".join(sorted(groups)) or "config entries")
            self._backlog.note(groups, is_derived=bool(needs_line))

    def _lacking(self, heads: Mapping[str, Head]) -> set[str]:
        """The groups that are not served yet as these heads say."""
        return {group for group, head in heads.items() if not self._stored.groups.has(head)}

    async def _refresh(self, groups: Collection[str], heads: Mapping[str, Head]) -> None:
        """Publish groups that no documents belong to. What was committed after ``heads`` may have some."""
        await self._stored.refresh(groups)
        if any(self._stored.groups.is_beyond(heads[group]) for group in groups if group in heads):
            await self._backlog.refresh(groups)

    async def _take_document(self, changed: DocumentChanged) -> None:
        table = self._stored.table(changed.kind)
        if table is None:
            return  # of a feature that this server does not have
        try:
            async with table.lock:
                if table.known.is_news(changed):
                    await table.apply(changed.kind, changed.id, changed.body)
                table.known.note_shown(changed)
        except Exception as error:  # a bug too
            self._note_failure(error, f"{changed.kind} {changed.id}")
            self._backlog.note_document(changed.kind, changed.id)

    async def _take_derived(
        self, line: Head | None, documents: Collection[DocumentChanged], groups: Collection[str]
    ) -> None:
        """Take over config entries and documents that resources are derived from, and then ``groups``."""
        stored = self._stored
        async with stored.locks.groups((CONFIG_ENTRIES_LINE,)) as locks:
            if line is not None and not stored.derived.has(line.revision):
                self._backlog.is_derived_behind = True  # until the next call, or if that fails
            touched = {*groups, *(changed.id for changed in documents if changed.id != ORDER_ID)}
            await self._backlog.catch_up_line(locks, touched)
            await locks.add(touched)
            for changed in documents:
                table = stored.table(changed.kind)
                assert table is not None
                if table.known.is_news(changed):
                    await table.apply(changed.kind, changed.id, changed.body)
                table.known.note_shown(changed)
            await self._backlog.refresh(touched)
            stored.adopt_stored(touched)
            stored.end_derived(touched)
            stored.wake(touched)  # their endpoints may differ, and nothing else
