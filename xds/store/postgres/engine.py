"""The engine for a PostgreSQL database (docs/internals/design.md#storage)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import structlog

from xds.store.audit_entries import AuditNote
from xds.store.base import (
    NO_META,
    READER_BUFFER,
    ChangeItem,
    Commit,
    GroupPush,
    MayWrite,
    Meta,
    ObservedRecord,
    Reset,
    StoreError,
    UnavailableError,
    always,
)
from xds.store.copy.copied_store import NO_KEPT, CopiedStore
from xds.store.copy.copy_rows import Kept
from xds.store.member_register import Heartbeat, Member, MemberRegister
from xds.store.postgres import event_marks, member_rows, turn_rows
from xds.store.postgres.connection import SCHEMA
from xds.store.postgres.database import PostgresDatabase
from xds.store.postgres.event_marks import NO_MARK, Mark
from xds.store.postgres.listener import Listener
from xds.store.retention import StoreCondition
from xds.store.sql import ledger
from xds.store.sql.connection import Job, SqlConnection
from xds.store.sqlite import pages

T = TypeVar("T")

KEY_BYTES = 2_500  # a row of an index has 2,704 at most
TURN_LOOK_S = 0.01
COLLECTION_LOCK, COLLECTION_LOOK_S = 0x7864735F34, 0.5
# A server that is stopped keeps its session, and with that the lock. The upper half of its number is the class.
HOLDER_IDLE_S = 60.0
_END_IDLE_HOLDERS = (
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity JOIN pg_locks USING (pid)"
    " WHERE datname = current_database() AND locktype = 'advisory'"
    " AND classid = ? AND objid = ? AND state = 'idle' AND state_change < now() - make_interval(secs => ?)"
)

_log = structlog.get_logger(logger_name="xds.store")


class _TurnError(Exception):
    """Another server has the turn of a group."""


class PostgresStore(CopiedStore):
    """A ``Store`` in the database of ``url``, as libpq reads it; ``copy`` and ``kept`` as in `CopiedStore`.

    Several servers can use it at the same time. ``clock`` returns epoch seconds, for the times of conditions.
    """

    def __init__(
        self,
        url: str,
        copy: Path | None = None,
        kept: Callable[[], Kept] = lambda: NO_KEPT,
        *,
        reader_buffer: int = READER_BUFFER,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._postgres = PostgresDatabase(url)
        super().__init__(self._postgres, copy, kept, reader_buffer=reader_buffer, clock=clock)
        self._url = url
        self._listener: Listener | None = None
        self._listens = False  # the database is used: what is committed there is published
        self._turns = asyncio.Lock()
        self._shown = NO_MARK  # of the last item that the watches have
        self._writing, self._written = NO_MARK, NO_MARK  # of the last item that this server committed
        self._behind = ""
        self._locked: SqlConnection | None = None  # whose session holds the lock of collections

    def register(self) -> MemberRegister:
        return self

    async def beat(self, me: Member, process: str) -> Heartbeat:
        """Join or stay, and take or renew the lease. Raises ``StoreError``."""
        if self._listener is None or not self._listens:
            raise UnavailableError("the store is not open" if self._listener is None else "the database is silent")
        return await asyncio.wrap_future(self._listener.submit(lambda each: member_rows.beat(each, me, process)))

    async def leave(self, process: str) -> None:
        """Leave, and give the lease to whoever comes next. Raises ``StoreError``."""
        await self._step(lambda connection: member_rows.leave(connection, process))

    async def rotate_secret(self) -> None:
        """Make a new secret. The servers take it up with their next heartbeats. Raises ``StoreError``."""
        await self._step(member_rows.rotate_secret)

    async def commit_all(self, pushes: Sequence[GroupPush], *, push_id: str, meta: Meta = NO_META) -> list[Commit]:
        groups = {each.group for each in pushes}

        def commit(connection: SqlConnection) -> tuple[list[Commit], list[ChangeItem]]:
            if groups & turn_rows.held_by_others(connection, self._postgres.writer):
                raise _TurnError
            return ledger.commit_all(connection, ledger.CommitCall(pushes, push_id, meta, self._now_s(connection)))

        while True:
            try:
                return await self._write(commit)
            except _TurnError:  # it ends within seconds
                await asyncio.sleep(TURN_LOOK_S)

    async def committed(self, pushes: Sequence[GroupPush], push_id: str) -> list[Commit] | None:
        found = await super().committed(pushes, push_id)
        if found is not None:  # after a crash of the primary, it may be there before a synchronous standby has it
            await self._step(lambda _: None)  # which this waits for
        return found

    @asynccontextmanager
    async def turn(self, groups: Collection[str]) -> AsyncIterator[None]:
        me = self._postgres.writer
        async with self._turns:
            try:
                # Nobody tells when the turn of another server ends. A caller that is cancelled may have taken it.
                while not await self._step(lambda connection: turn_rows.take(connection, groups, me)):  # noqa: ASYNC110
                    await asyncio.sleep(TURN_LOOK_S)
                yield
            finally:
                with suppress(StoreError):
                    await self._step(lambda connection: turn_rows.end(connection, me))

    async def put_observed(
        self,
        put: Sequence[ObservedRecord],
        delete: Collection[tuple[str, str]] = (),
        notes: Sequence[AuditNote] = (),
        *,
        is_told: bool = False,
        may_write: MayWrite = always,
    ) -> None:
        """As ``Store.put_observed``, without the records whose keys PostgreSQL cannot hold: they would keep others out.

        Clients choose some of the keys, as their node ids.
        """
        fit = [each for each in put if _is_fit(each.source, each.service)]
        if len(fit) < len(put):
            _log.warning(
                "observed.not_kept", records_n=len(put) - len(fit), error_message="PostgreSQL cannot hold the key"
            )
        gone = [key for key in delete if _is_fit(*key)]
        await super().put_observed(fit, gone, notes, is_told=is_told, may_write=may_write)

    def condition(self) -> StoreCondition:
        silent_s = self._listener.silence()[0] if self._listener is not None else 0.0
        condition = replace(super().condition(), behind=self._behind)
        if silent_s and not condition.cut_off_s:
            condition = replace(condition, cut_off_s=self._clock() - silent_s)
        down, place = self._postgres.down_reason(), self._postgres.place
        if condition.cut_off_s:
            return replace(condition, read_only=f"{place} {self.cut_off_text(condition.cut_off_s)}: {down}")
        return replace(condition, read_only=f"{place} cannot be used: {down}" if down else "")

    def _collection(self) -> AbstractAsyncContextManager[None]:
        return self._locked_over_servers("")

    def _no_collection(self) -> AbstractAsyncContextManager[None]:
        return self._locked_over_servers("_shared")

    @asynccontextmanager
    async def _locked_over_servers(self, mode: str) -> AsyncIterator[None]:
        """Hold a lock of the session, which ends with it: so a dump looks at its end whether it is whole."""

        def take(connection: SqlConnection) -> bool:
            self._locked = connection
            if connection.execute(f"SELECT pg_try_advisory_lock{mode}({COLLECTION_LOCK})").fetchone()[0]:
                return True
            connection.execute(_END_IDLE_HOLDERS, (*divmod(COLLECTION_LOCK, 1 << 32), HOLDER_IDLE_S))
            return False

        async with self._collecting:
            is_shared = not self.is_copy
            try:
                # Nobody tells when another server releases it. A caller that is cancelled may have taken it.
                while is_shared and not await self._read(take):  # noqa: ASYNC110
                    await asyncio.sleep(COLLECTION_LOOK_S)
                yield
            finally:
                if is_shared:
                    with suppress(StoreError):
                        await self._read(
                            lambda each: each.execute(f"SELECT pg_advisory_unlock{mode}({COLLECTION_LOCK})")
                        )

    def _check_alone(self, connection: SqlConnection) -> None:
        if connection is not self._locked:  # what another server has doomed since may be in use
            raise UnavailableError("the connection was lost amid the collection: the next one goes on")

    def _now_s(self, connection: SqlConnection) -> float:
        return super()._now_s(connection) if self.is_copy else member_rows.clock_s(connection)

    def _sizes(self, connection: SqlConnection) -> tuple[int, int]:
        if self.is_copy:
            return pages.sizes(connection)
        sizes = "SELECT sum(pg_total_relation_size(oid)) FROM pg_class WHERE relkind = 'r'"
        rows = connection.execute(f"{sizes} AND relnamespace = to_regnamespace(?)", (SCHEMA,))
        return int(rows.fetchone()[0]), 0

    def _open(self) -> None:
        super()._open()
        self._listens = not self.is_copy
        if self._listens:
            self._shown = self._database.read(event_marks.newest)
        else:
            self._shown = Mark(self._database.read(ledger.newest_cursor))
        self._listener = Listener(self._url, self._look, self._postgres.note_answer)
        self._postgres.silence = self._listener.silence

    def _close(self) -> None:
        listener, self._listener = self._listener, None
        if listener is not None:
            listener.end()
            with suppress(StoreError):
                self._database.write(event_marks.notify)  # wakes it
            listener.join()
            with suppress(StoreError):
                if self._listens:
                    self._database.read(self._publish_news)
        super()._close()

    def _start_over(self) -> None:
        self._behind = ""
        with suppress(StoreError):
            self._database.write(event_marks.notify)  # the listener finds that the cursors of before are gone

    def _committed(self, events: Sequence[ChangeItem]) -> None:
        """The listener publishes all commits in order, those of other servers among them."""
        self._written = self._writing

    async def _write(self, job: Job[tuple[T, Sequence[ChangeItem]]]) -> T:
        def write_and_notify(connection: SqlConnection) -> tuple[T, Sequence[ChangeItem]]:
            result, events = job(connection)
            if events:
                event_marks.notify(connection)
                self._writing = event_marks.newest(connection)
            return result, events

        return await super()._write(write_and_notify)

    def _join(self) -> None:
        self._postgres.open()
        newest = self._postgres.read(event_marks.newest)  # while the copy is read: the database may end at this moment
        super()._join()
        self._note_reset(self._shown if newest.cursor < self._shown.cursor else None)
        self._shown, self._listens = newest, True

    def _look(self, connection: SqlConnection) -> None:
        """The listener has an answer of the database."""
        if self._listens:
            self._publish_news(connection)
        else:
            self._may_join = True

    def _publish_news(self, connection: SqlConnection) -> None:
        """Give the watches what was committed since the last time."""
        seen = max(self._shown, self._written)  # before the first statement, which fixes what can be read
        is_lost = event_marks.is_lost(connection, seen)
        news = ledger.catch_up(connection, None if is_lost else self._shown.cursor)
        if not news:
            return
        if isinstance(news[0], Reset):
            self._note_reset(seen if is_lost else None)
            self._interrupt_watches()
        else:
            self._call_on_loop(self._feed.publish, news)
        self._shown = event_marks.newest(connection)

    def _note_reset(self, lost: Mark | None) -> None:
        """Log and remember that commits are gone which were there: the database was restored to an earlier state.

        A restore by a server, which is a decision, goes on with later cursors.
        """
        self._written, self._behind = NO_MARK, ""
        if lost is not None:
            self._behind = (
                f"commits up to {lost.cursor} were there, and the last of them are not in the database any more:"
                " proxies are served them, until a backup is restored, or the servers are restarted"
            )
            _log.error("store.behind", error_message=self._behind)


def _is_fit(*key: str) -> bool:
    """Whether an index can hold a key."""
    try:
        text = "".join(key).encode()
    except UnicodeEncodeError:
        return False
    return len(text) <= KEY_BYTES and b"\0" not in text
