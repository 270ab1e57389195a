"""The audit log: all writes, with actor and address, and all refused writes.

A write is noted in its own store transaction (`GroupPush.note`, `Store.put_doc`). Refused requests make no transaction.
They are collected and written once a second, so that refused requests cannot load the store. Each source has its own
bound, so that one source cannot hide the requests of others.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace

import structlog

from xds.access.caller import Caller
from xds.push.content import type_label
from xds.push.request import PlannedChange, PushOptions
from xds.store.audit_entries import (
    EVERYTHING_AUDITED,
    MERGED_S,
    AuditFilter,
    AuditLane,
    AuditNote,
    AuditPage,
)
from xds.store.base import Delta, Drop, FullSet, GroupChange, Meta, Rollback, Store, StoreError

FLUSH_S = 1.0
SOURCES_LIMIT = 500  # sources that are listed separately
TRIES_LIMIT = 20  # kinds of requests of one source that are listed separately within an hour
NAMES_SHOWN = 20
REFUSED = "refused"
APART, TOGETHER = "apart", "together"
ELSEWHERE = "*"  # stands for values beyond these limits

_ACTIONS: Mapping[type, str] = {FullSet: "push", Delta: "push", Rollback: "rollback", Drop: "group.deleted"}

_log = structlog.get_logger(logger_name="xds.push.audit_log")


def push_note(planned: PlannedChange, options: PushOptions, meta: Meta) -> AuditNote:
    """The note of a push. The store adds the revision."""
    change, current = planned.request.change, planned.current
    caller = Caller(meta.actor, meta.author, options.peer)
    names = {type_label(type_url): each for type_url, each in planned.difference.items()}
    counts = {
        label: {
            kind: {"count": len(members), "names": list(members[:NAMES_SHOWN])}
            for kind, members in (("added", each.added), ("changed", each.changed), ("removed", each.removed))
            if members
        }
        for label, each in names.items()
    }
    new: dict[str, object] = {"changes": counts}
    if isinstance(change, Rollback):
        new |= {"content_of": change.to, "keeps_endpoints": change.keeps_endpoints}
    if rollout := "all_at_once" if options.all_at_once else planned.rollout.effect.value:
        new["rollout"] = rollout
    old = {"revision": current.revision if current is not None else 0}
    note = caller.note(_action(change, current is None), group=planned.group, message=meta.message, old=old, new=new)
    return replace(note, time_s=meta.time_s)


class AuditLog:
    """The audit list of a store, with the refusals that are not written yet.

    ``refusals`` counts refused writes: ``apart`` are listed separately, ``together`` are merged because there are too
    many sources, or too many kinds of requests from one source.
    """

    def __init__(self, store: Store, clock: Callable[[], float] = time.time) -> None:
        self.refusals: Counter[str] = Counter()  # APART, TOGETHER
        self._store = store
        self._clock = clock
        self._waiting: dict[str, AuditNote] = {}
        self._tries: dict[tuple[str, str], tuple[float, set[str]]] = {}
        self._task: asyncio.Task[None] | None = None

    async def record(self, note: AuditNote) -> None:
        """Write a note without a change of the store, durably. Raises ``StoreError``."""
        await self._store.note([note])

    def refused(self, caller: Caller, subject: str, group: str, reason: str) -> None:
        """Note a refused request. It is written within a second; equal refusals are counted in one entry."""
        note = caller.note(REFUSED, group=_storable(group), subject=subject)
        note = replace(note, reason=reason, lane=AuditLane.REFUSED)
        note = self._with_key(replace(note, time_s=self._clock()))
        self.refusals[TOGETHER if note.subject == ELSEWHERE else APART] += 1
        earlier = self._waiting.get(note.key)
        first_s = note.time_s if earlier is None else earlier.first_s
        count = 1 if earlier is None else earlier.count + 1
        self._waiting[note.key] = replace(note, count=count, first_s=first_s)
        if self._task is None:
            self._task = asyncio.create_task(self._flush_soon())

    async def read(self, cursor: str, limit: int, wanted: AuditFilter = EVERYTHING_AUDITED) -> AuditPage:
        """The entries after ``cursor``. Raises ``ValueError`` for an invalid cursor, ``StoreError``."""
        await self._flush()
        return await self._store.audit(cursor, limit, wanted)

    async def close(self) -> None:
        """Write the refusals that are not written yet."""
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
            self._task = None
        with suppress(StoreError):
            await self._flush()

    async def _flush_soon(self) -> None:
        while self._waiting:
            await asyncio.sleep(FLUSH_S)
            try:
                await self._flush()
            except StoreError as error:
                _log.warning("audit.later", error_message=str(error))
        self._task = None

    async def _flush(self) -> None:
        waiting, self._waiting = self._waiting, {}
        if not waiting:
            return
        try:
            await self._store.note(list(waiting.values()))
        except StoreError:
            # Refusals since then are newer. The bound on keys holds for both together.
            self._waiting = {**waiting, **self._waiting}
            raise

    def _with_key(self, note: AuditNote) -> AuditNote:
        """The note with the key by which equal refusals are counted.

        Beyond the limits, ``*`` replaces its subject and group, and its source too if there are too many sources.
        """
        source = (note.actor, note.peer.rpartition(":")[0])
        if source not in self._tries and len(self._tries) >= SOURCES_LIMIT:
            self._forget_old(note.time_s)
        if source not in self._tries and len(self._tries) >= SOURCES_LIMIT:
            note = replace(note, actor="", author="", peer=ELSEWHERE, group=ELSEWHERE, subject=ELSEWHERE)
            return replace(note, key=json.dumps([ELSEWHERE]))
        since, tries = self._tries.get(source, (note.time_s, set()))
        if note.time_s - since > MERGED_S:
            since, tries = note.time_s, set()
        own = json.dumps([*source, note.subject, note.group, note.reason[:3]])
        if own not in tries and len(tries) >= TRIES_LIMIT:
            own = json.dumps([*source, ELSEWHERE])
            note = replace(note, group=ELSEWHERE, subject=ELSEWHERE)
        else:
            tries.add(own)
        self._tries[source] = (since, tries)
        return replace(note, key=own)

    def _forget_old(self, now: float) -> None:
        self._tries = {source: tries for source, tries in self._tries.items() if now - tries[0] <= MERGED_S}


def _storable(text: str) -> str:
    """The text of a refused request as every store can hold it: without NUL and lone surrogates."""
    return text.encode(errors="backslashreplace").decode().replace("\0", "\\x00")


def _action(change: GroupChange, is_new: bool) -> str:
    if isinstance(change, Rollback) and is_new:
        return "restore"
    return _ACTIONS[type(change)]
