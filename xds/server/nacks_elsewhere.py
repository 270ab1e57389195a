"""The open NACKs of other servers of a store: a node may come here, or its server may be gone.

An id has the number of the server that recorded the NACK. Rows of others are only read, so that a node that comes here
is not sent again what it rejected there. A NACK is taken over when its node is connected here, and by the holder of the
lease when its server is gone: its row is then kept, and deleted when it is resolved, here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from time import time

import structlog

from xds.fleet.fleet import Fleet
from xds.fleet.nacks import decoded
from xds.fleet.refused_content import RefusedContent
from xds.server.nack_persistence import NoteRefused, Refused, by_type
from xds.store.base import OpenNack, Store, StoreError
from xds.store.member_register import NO_NUMBER, NUMBER_BITS
from xds.tasks.lifecycle import BackgroundTask, HoldsLease

FOLLOW_S = 5.0
_NUMBERS = (1 << NUMBER_BITS) - 1

_log = structlog.get_logger(logger_name="xds.server.nacks_elsewhere")


@dataclass
class Numbers:
    """The numbers of the servers of a store: ``mine``, and those that are ``living``, mine among them.

    Where the store ``is_shared`` by nobody, all rows are mine.
    """

    is_shared: bool
    mine: Callable[[], int]
    living: Callable[[], frozenset[int]]
    holds_lease: HoldsLease

    def is_mine(self, id: int) -> bool:
        """Whether this server keeps a row at its start: its own, and as the holder those of servers that are gone."""
        number = id & _NUMBERS
        return not self.is_shared or number == self.mine() or (self.holds_lease() and number not in self.living())


@dataclass
class NacksElsewhere:
    """Follows the rows of others. ``refused`` and ``note_refused`` are those of `NackPersistence`."""

    store: Store
    fleet: Fleet
    refused: Refused
    note_refused: NoteRefused
    numbers: Numbers
    _given: dict[str, Mapping[str, Mapping[str, tuple[str, ...]]]] = field(default_factory=dict)  # by node id
    _gone: set[int] = field(default_factory=set)  # rows of servers that were gone at the last look
    _missing: frozenset[int] = frozenset()  # records whose rows were not there at the last look, perhaps not yet
    _task: BackgroundTask = field(default_factory=BackgroundTask)

    def start(self) -> None:
        """Start to follow, if other servers use the store."""
        if self.numbers.is_shared:
            self._task.start(self._run())

    async def close(self) -> None:
        """Stop."""
        await self._task.stop()

    async def _run(self) -> None:
        while True:
            try:
                self.note(await self.store.nacks())
            except StoreError:
                pass  # what is known stays
            except Exception:  # a bug must not end it
                _log.exception("nacks.not_followed")
            await asyncio.sleep(FOLLOW_S)

    def note(self, rows: Sequence[OpenNack]) -> None:
        """Take in the rows of all servers as they are now."""
        log, now = self.fleet.nack_log, time()
        missing = log.kept() - {row.id for row in rows}
        living, connected = self.numbers.living(), self.fleet.connected()
        log.note_deleted(missing & self._missing, connected, now)
        self._missing = missing
        elsewhere: dict[str, list[RefusedContent]] = {}
        taken: list[RefusedContent] = []
        gone = {row.id for row in rows if row.id & _NUMBERS not in living}
        for row in rows:
            if log.get(row.id) is not None:
                continue
            with suppress(ValueError):  # `NackPersistence` tells of it
                refusal = decoded(row.id, row.node, row.type_url, row.body)
                is_orphan = row.id in gone & self._gone and self.numbers.holds_lease()
                # A server that started without its database did not know its number, and so not its rows.
                is_own = row.id & _NUMBERS == self.numbers.mine() != NO_NUMBER
                if row.node in connected or is_orphan or is_own:
                    taken.append(refusal)
                elif refusal.guilty:
                    elsewhere.setdefault(row.node, []).append(refusal)
        self._gone = gone
        if taken:
            self.fleet.adopt(taken, now)
        self._give(elsewhere)

    def _give(self, elsewhere: Mapping[str, Sequence[RefusedContent]]) -> None:
        """Let the engine know what nodes rejected elsewhere, and forget what they do not reject any more."""
        for node in self._given.keys() - elsewhere.keys():
            if self.refused.get(node) is self._given.pop(node):  # else the node was here meanwhile
                del self.refused[node]
        for node, refusals in elsewhere.items():
            versions, known = by_type(refusals), self.refused.get(node)
            if known is not None and known is not self._given.get(node):
                continue  # what it rejected here
            if known != versions:
                self.refused[node] = self._given[node] = versions
                for type_url, of_type in versions.items():
                    self.note_refused(type_url, of_type)
