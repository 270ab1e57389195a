"""A store whose database other servers share, with a copy of it on this disk.

    STARTING   the database answers      FOLLOWING   it is read and written, and copied
    STARTING   it is silent, copy        CUT OFF     the copy is read; writes are refused
    CUT OFF    it answers                FOLLOWING   all watches begin with a ``Reset``

Once the database has answered, its copy is never read: what is served is newer. Nobody above knows of the copy.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from xds.store.base import READER_BUFFER, StoreError
from xds.store.copy.copier import Copier
from xds.store.copy.copy_rows import Kept
from xds.store.copy.fallback import FallbackDatabase
from xds.store.retention import StoreCondition
from xds.store.sql.connection import Database
from xds.store.sql.store import SqlStore

NO_KEPT = Kept(1, 0.0, 1)


class CopiedStore(SqlStore):
    """A ``Store`` in ``shared``; ``copy`` is the path of its copy, None for none.

    ``kept`` says how far back the copy goes. ``clock`` returns epoch seconds.
    """

    def __init__(
        self,
        shared: Database,
        copy: Path | None,
        kept: Callable[[], Kept] = lambda: NO_KEPT,
        *,
        reader_buffer: int = READER_BUFFER,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._fallback = FallbackDatabase(shared, copy) if copy is not None else None
        super().__init__(self._fallback or shared, reader_buffer=reader_buffer, clock=clock)
        self._copier = Copier(self, copy, kept, clock) if copy is not None else None
        self._copying: asyncio.Task[None] | None = None
        self._joined = asyncio.Event()
        self._cut_off_s = 0.0
        self._may_join = False  # the database has answered
        self._joins_from_s = 0.0

    async def open(self) -> None:
        await super().open()
        if self._copier is not None and self._copying is None:
            self._copying = asyncio.create_task(self._keep_copy(self._copier))

    async def close(self) -> None:
        copying, self._copying = self._copying, None
        if copying is not None:
            copying.cancel()
            await asyncio.gather(copying, return_exceptions=True)
        await super().close()

    def condition(self) -> StoreCondition:
        problem = self._fallback.problem if self._fallback is not None else ""
        return StoreCondition(
            copy=problem or (self._copier.problem if self._copier is not None else ""),
            read_only=f"the database {self.cut_off_text(self._cut_off_s)}" if self._cut_off_s else "",
            cut_off_s=self._cut_off_s,
        )

    def cut_off_text(self, since_s: float) -> str:
        """Since when the database does not answer, and what that means."""
        since = datetime.fromtimestamp(since_s, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
        content = f"of the copy {self._fallback.path}" if self._fallback and self.is_copy else "that it had"
        return f"has not answered since {since}; proxies are served the state {content}, and writes are refused"

    @property
    def is_copy(self) -> bool:
        """Whether the copy is read, because the database has not answered since the start."""
        return self._fallback is not None and self._fallback.is_copy

    def _open(self) -> None:
        super()._open()
        if self.is_copy:
            self._cut_off_s = self._clock()
        else:
            self._call_on_loop(self._joined.set)

    def _after_job(self) -> None:
        began_s = time.monotonic()
        if self.is_copy and self._may_join and began_s >= self._joins_from_s:
            self._may_join = False
            with suppress(StoreError):
                self._join()
            # For a database that is read, and commits nothing, it waits long: the copy is read as long in between.
            self._joins_from_s = 2 * time.monotonic() - began_s

    def _join(self) -> None:
        """Use the database, which answers now. Raises ``StoreError``."""
        assert self._fallback is not None
        self._fallback.join()
        self._cut_off_s = 0.0
        self._interrupt_watches()
        self._call_on_loop(self._joined.set)

    async def _keep_copy(self, copier: Copier) -> None:
        await self._joined.wait()
        await copier.run()
