"""Who wrote what, from where: notes for the store's audit list, and those that were turned away, counted.

A write is noted in the transaction that makes it (`GroupPush.note`, `Store.put_doc`). What is refused makes no
transaction: it is gathered here and written down every second, so that nobody can keep the store busy by being refused,
and each source has a bound of its own, so that none hides what the others tried.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace

import structlog

from xds.control.content import type_label
from xds.control.push import PlannedChange, PushOptions
from xds.store.audit import EVERYTHING_AUDITED, MERGED_S, VALUE_LIMIT, AuditFilter, AuditLane, AuditNote, AuditPage
from xds.store.base import Delta, Drop, FullSet, GroupChange, Meta, Rollback, Store, StoreError

FLUSH_S = 1.0
SOURCES_LIMIT = 500  # sources that are told apart
TRIES_LIMIT = 20  # kinds of tries of one source that are told apart within an hour
NAMES_SHOWN = 20
REFUSED = "refused"
APART, TOGETHER = "apart", "together"
ELSEWHERE = "*"  # in place of what is not told apart any more

_ACTIONS: Mapping[type, str] = {FullSet: "push", Delta: "push", Rollback: "rollback", Drop: "group.deleted"}

_log = structlog.get_logger(logger_name="xds.control.audit")


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks for a write. ``actor`` was authenticated; ``author`` is what the client says besides and proves nothing.

    ``peer`` is its address.
    """

    actor: str = ""
    author: str = ""
    peer: str = ""

    def meta(self, message: str = "") -> Meta:
        """The same for a revision."""
        return Meta(self.author, message, actor=self.actor)

    def names(self) -> dict[str, str]:
        """The two names, as far as they are known; for events."""
        return {name: value for name, value in (("actor", self.actor), ("author", self.author)) if value}

    def note(
        self,
        action: str,
        *,
        group: str = "",
        subject: str = "",
        message: str = "",
        old: object = None,
        new: object = None,
    ) -> AuditNote:
        """What the audit list is told; ``old`` and ``new`` are JSON values, None for nothing."""
        return AuditNote(
            action,
            self.actor,
            self.author,
            self.peer,
            group,
            subject,
            message,
            _json(old),
            _json(new),
            request_id=str(structlog.contextvars.get_contextvars().get("request_id", "")),
            time_s=time.time(),
        )


SERVER = "server"  # the actor of what the server does by itself: its files are its own
UNKNOWN_CALLER = Caller()


def push_note(step: PlannedChange, options: PushOptions, meta: Meta) -> AuditNote:
    """What the audit list is told of a push; the revision is added by the store."""
    change, held = step.draft.change, step.held
    caller = Caller(meta.actor, meta.author, options.peer)
    names = {type_label(type_url): each for type_url, each in step.difference.items()}
    counts = {
        label: {
            kind: {"count": len(found), "names": list(found[:NAMES_SHOWN])}
            for kind, found in (("added", each.added), ("changed", each.changed), ("removed", each.removed))
            if found
        }
        for label, each in names.items()
    }
    new: dict[str, object] = {"changes": counts}
    if isinstance(change, Rollback):
        new |= {"content_of": change.to, "keeps_endpoints": change.keeps_endpoints}
    old = {"revision": held.revision if held is not None else 0}
    note = caller.note(_action(change, held is None), group=step.group, message=meta.message, old=old, new=new)
    return replace(note, time_s=meta.time_s)


class AuditLog:
    """The audit list of a store, and what is to be written to it soon.

    ``refusals`` counts the writes that were turned away by how they are told: apart, or together with others because
    too many sources, or too many kinds of tries of one source, are told apart already.
    """

    def __init__(self, store: Store, clock: Callable[[], float] = time.time) -> None:
        self.refusals: Counter[str] = Counter()  # APART, TOGETHER
        self._store = store
        self._clock = clock
        self._waiting: dict[str, AuditNote] = {}
        self._tries: dict[tuple[str, str], tuple[float, set[str]]] = {}
        self._task: asyncio.Task[None] | None = None

    async def record(self, note: AuditNote) -> None:
        """Write down, durably, what changes nothing in the store. Raises ``StoreError``."""
        await self._store.note([note])

    def refused(self, caller: Caller, subject: str, group: str, reason: str) -> None:
        """Somebody was turned away from ``subject``; written down soon, together with others of the same kind."""
        note = replace(caller.note(REFUSED, group=group, subject=subject), reason=reason, lane=AuditLane.REFUSED)
        note = self._told_apart(replace(note, time_s=self._clock()))
        self.refusals[TOGETHER if note.subject == ELSEWHERE else APART] += 1
        held = self._waiting.get(note.key)
        first_s = note.time_s if held is None else held.first_s
        count = 1 if held is None else held.count + 1
        self._waiting[note.key] = replace(note, count=count, first_s=first_s)
        if self._task is None:
            self._task = asyncio.create_task(self._flush_soon())

    async def read(self, cursor: str, limit: int, wanted: AuditFilter = EVERYTHING_AUDITED) -> AuditPage:
        """The list behind ``cursor``. Raises ``ValueError`` for what is no cursor, ``StoreError``."""
        await self._flush()
        return await self._store.audit(cursor, limit, wanted)

    async def close(self) -> None:
        """Write down what waits."""
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
            # What was refused since is newer; the bound on keys holds for both together.
            self._waiting = {**waiting, **self._waiting}
            raise

    def _told_apart(self, note: AuditNote) -> AuditNote:
        """The note with its key; without what its source varies too often, or without its source among too many."""
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
        self._tries = {source: kept for source, kept in self._tries.items() if now - kept[0] <= MERGED_S}


def _action(change: GroupChange, is_new: bool) -> str:
    if isinstance(change, Rollback) and is_new:
        return "restore"
    return _ACTIONS[type(change)]


def _json(value: object) -> str:
    """As the list keeps it: a value that is too long is told by its size."""
    if value is None:
        return ""
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= VALUE_LIMIT else json.dumps({"omitted": f"{len(text)} characters"})
