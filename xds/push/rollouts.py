"""The rollouts of groups: their documents, and who is served what.

A document belongs to the content of its group: both are read and published together, under the lock of the group. A
push that begins or ends a rollout writes it in its own transaction, every other step is a write of the document alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Hashable
from contextlib import suppress
from dataclasses import replace
from time import monotonic, time

import structlog

from xds.access.caller import Caller
from xds.model.errors import NotFoundError, ValidationError
from xds.push.base_content import base_content
from xds.push.content import GroupContent
from xds.push.rollout_step import ChangedRolloutError, Effect, RolloutStep, ServedRollout
from xds.push.served import ServedGroups
from xds.rollouts.line_changes import LineChanges
from xds.rollouts.rollout import UNWATCHED, Rollout, RolloutAction, RolloutState, decode, encode
from xds.snapshots.lines import GroupSplit
from xds.store.audit_entries import AuditNote
from xds.store.base import CorruptError, DocumentWrite, Store
from xds.store.known_documents import KnownDocuments, StaleDocumentError
from xds.tasks.threads import run_sized
from xds.tasks.writes import WriteLocks

KIND = "rollout"
_ACTS = {  # what events and the audit list call it, and what becomes of the rollout
    RolloutAction.PAUSE: ("paused", Rollout.pause),
    RolloutAction.RESUME: ("resumed", Rollout.resume),
    RolloutAction.PROMOTE: ("promoting", Rollout.promote),
}

_log = structlog.get_logger(logger_name="xds.push.rollouts")


class Rollouts:
    """The rollouts of all groups: the present one of each, or the last one.

    ``roll_back`` pushes the content of the base of a rollout, and stores it as it is afterwards. ``refresh`` takes over
    what the store has of groups, whose locks are held. ``told`` is called with what has happened to a rollout.
    ``changed`` is set at each change. ``line_changes`` are those that this server has seen.
    """

    kinds = (KIND,)
    is_within = False
    roll_back: Callable[[Rollout, Rollout, Caller], Awaitable[object]]
    refresh: Callable[[Collection[str]], Awaitable[None]]

    def __init__(
        self,
        store: Store,
        groups: ServedGroups,
        locks: WriteLocks,
        read_content: Callable[[str, int], Awaitable[GroupContent]],
        wake: Callable[[Collection[str]], None],
        told: Callable[[str, Rollout], None],
    ) -> None:
        self.known = KnownDocuments(store, self)
        self.line_changes = LineChanges()
        self.lock = asyncio.Lock()
        self.changed = asyncio.Event()
        self._groups = groups
        self._locks = locks
        self._read_content = read_content
        self._wake = wake
        self._told = told
        self._rollouts: dict[str, Rollout] = {}
        self._served: dict[str, ServedRollout] = {}

    # Reading

    def find(self, group: str) -> Rollout | None:
        """The present rollout of a group, or the last one; None if it never had one."""
        return self._rollouts.get(group)

    def open(self) -> list[Rollout]:
        """The rollouts of served groups that have not ended, by group."""
        return [each for group, each in sorted(self._rollouts.items()) if each.is_open and group in self._served]

    def all(self) -> list[Rollout]:
        """The present or last rollout of each group."""
        return [self._rollouts[group] for group in sorted(self._rollouts)]

    def pinned(self) -> dict[str, int]:
        """The revisions whose content the store must keep, by group."""
        return {each.group: each.base for each in self.open()}

    def served_base(self, group: str) -> GroupContent | None:
        """What the nodes outside of the wave are served; None if all are served the same."""
        served = self._served.get(group)
        return served.base if served is not None else None

    def head_since_s(self, group: str) -> float:
        """Since when this server serves the head of the rollout of a group (epoch seconds of its own clock)."""
        served = self._served.get(group)
        return served.head_since_s if served is not None else 0.0

    def wave_age_s(self, group: str) -> float:
        """For how long no node of a group has changed lines."""
        served = self._served.get(group)
        return monotonic() - served.moved_s if served is not None else 0.0

    # What people do

    async def change(self, group: str, action: RolloutAction, by: Caller, message: str = "", head: int = 0) -> Rollout:
        """Do with the rollout of a group what a person wants. Returns it as it is then.

        An abort is a new revision with the content that the nodes outside of the wave are served. ``head`` is the
        revision whose rollout is meant; 0: whichever is open. Raises ``NotFoundError`` if it is not open, and
        ``StoreError``.
        """
        who = by.actor or by.author
        while True:
            before = await self._open_rollout(group, head)
            if action is RolloutAction.ABORT:
                reason = f"aborted: {message}" if message else "aborted"
                after = before.end(RolloutState.ROLLED_BACK, reason, time(), who, message)
                with suppress(ChangedRolloutError):
                    await self.roll_back(before, after, by)
                    return after
            else:
                told, act = _ACTS[action]
                after = act(before, who, message, time())
                note = by.note(f"rollout.{told}", group=group, message=message, new={"head": after.head})
                if await self.step(before, after, told, note):
                    return after

    async def step(self, before: Rollout, after: Rollout, action: str, note: AuditNote | None = None) -> bool:
        """Store a step of a rollout, and serve by it. False if the rollout is not as ``before`` any more.

        ``action`` is what the events call it; empty: nothing. Raises ``StoreError``.
        """
        group = before.group
        async with self._locks.groups((group,)):
            if self._rollouts.get(group) != before:
                return False
            try:
                await self.known.put(KIND, group, encode(after), note=note)
            except StaleDocumentError:
                await self.refresh((group,))
                return False
            self.adopt(group, replace(self._served[group], rollout=after))
            self._groups.split(group, self.split(group))
            self._wake((group,))
            if action:
                self._told(action, after)
            return True

    def note_progress(self, rollout: Rollout) -> None:
        """What was seen of a rollout has changed, and nothing else. It is not stored."""
        if self._rollouts.get(rollout.group) == rollout:
            self._rollouts[rollout.group] = rollout

    def forget_progress(self) -> None:
        """Another server decides: what was seen before it did says nothing of the time since."""
        for rollout in self.open():
            self.note_progress(replace(rollout, progress=UNWATCHED))

    async def _open_rollout(self, group: str, head: int) -> Rollout:
        rollout = self._rollouts.get(group)
        if rollout is None or not rollout.is_open or head not in {0, rollout.head}:
            async with self._locks.groups((group,)):  # another server may have begun it just now
                await self.refresh((group,))
            rollout = self._rollouts.get(group)
        if rollout is None or not rollout.is_open or group not in self._served:
            raise NotFoundError(f"no rollout of group {group!r} is going on")
        if head not in {0, rollout.head}:
            raise NotFoundError(f"no rollout of revision {head} is going on; that of revision {rollout.head} is")
        return rollout

    # What is served

    async def prepare(self, group: str, rollout: Rollout | None, head: GroupContent) -> ServedRollout | None:
        """What a rollout serves beside ``head``. Raises ``StoreError``."""
        if rollout is None or not rollout.is_open:
            return ServedRollout(rollout) if rollout is not None else None
        known = self._served.get(group)
        promoted = known.promoted if known is not None else None
        if promoted is None or promoted.revision != rollout.base:
            try:
                promoted = await self._read_content(group, rollout.base)
            except (NotFoundError, CorruptError) as error:  # as after the restore of a backup without history
                _log.error("rollout.base_lost", group=group, base=rollout.base, error_message=str(error))
                return ServedRollout(rollout)
        before = known.base if known is not None and known.promoted is promoted else None
        size = len(head) + len(promoted)
        return ServedRollout(rollout, promoted, await run_sized(base_content, head, promoted, before, resources=size))

    def adopt(self, group: str, served: ServedRollout | None) -> None:
        """The group is about to be served by this rollout. The caller passes ``split`` to the cache."""
        before = self._served.pop(group, None)
        if served is None:
            self._rollouts.pop(group, None)
            self.line_changes.forget(group)
            return
        rollout = served.rollout
        self.line_changes.note(rollout)
        if before is None:
            head_since_s = rollout.began_s
            moved_s = monotonic() - max(time() - (rollout.ended_s or rollout.since_s), 0.0)
        else:
            head_since_s = before.head_since_s if before.rollout.head == rollout.head else time()
            moved_s = before.moved_s if _step_of(before.rollout) == _step_of(rollout) else monotonic()
        kept = served if rollout.is_open else ServedRollout(rollout)
        self._rollouts[group] = rollout
        self._served[group] = replace(kept, head_since_s=head_since_s, moved_s=moved_s)
        self.changed.set()

    def tell(self, step: RolloutStep) -> None:
        """A push has begun a rollout, or ended one."""
        if step.superseded is not None:
            self._told(step.superseded.state.value, step.superseded)
        if step.rollout is not None and step.effect in (Effect.STARTED, Effect.SUPERSEDED):
            self._told(Effect.STARTED.value, step.rollout)
        elif step.rollout is not None and step.effect is Effect.ENDED:
            self._told(step.rollout.state.value, step.rollout)

    def split(self, group: str) -> GroupSplit | None:
        """Which nodes are served what."""
        served = self._served.get(group)
        if served is None or served.rollout.state is RolloutState.PROMOTED:
            return None
        rollout, base = served.rollout, served.base
        if base is None and (rollout.is_open or not rollout.matters(time())):
            return None
        return GroupSplit(
            base.snapshot if base is not None else None,
            rollout.in_wave,
            rollout.had_head,
            rollout.is_hidden,
            _step_of(rollout),
            served.moved_s,
        )

    def serves(self, rollout: Rollout | None, group: str) -> bool:
        """Whether a group is served by this rollout."""
        served = self._served.get(group)
        return (served.rollout if served is not None else None) == rollout

    # As a table of documents

    def write(self, rollout: Rollout) -> DocumentWrite:
        """The document of a rollout as a part of a push."""
        return self.known.write(KIND, rollout.group, encode(rollout))

    async def load(self) -> None:
        """Load all documents. Raises ``StoreError``. One that this release cannot read is logged and kept.

        The contents of bases are read again: the store may have been restored.
        """
        stored = {one.id: await _read(one.id, one.body) for one in await self.known.read(KIND)}
        self._rollouts = {group: rollout for group, rollout in stored.items() if rollout is not None}
        self._served = {group: replace(served, promoted=None) for group, served in self._served.items()}

    async def apply(self, kind: str, id: str, body: bytes | None) -> None:
        """Take over a document. It is served when its group is (`StoredState.refresh`)."""
        rollout = await _read(id, body) if body is not None else None
        if rollout is None:
            self._rollouts.pop(id, None)
        elif rollout != self._rollouts.get(id):
            self._rollouts[id] = rollout

    async def catch_up(self, group: str) -> bool:
        """Take over the stored document of a group. Returns whether it is another one. Raises ``StoreError``."""
        before = self._rollouts.get(group)
        await self.known.catch_up(KIND, group)
        return self._rollouts.get(group) != before

    async def catch_up_all(self) -> Collection[str]:
        """The same for all groups; returns those with another one. The caller holds all locks."""
        return await self.known.catch_up_all(KIND)

    async def forget(self, group: str, by: Caller) -> None:
        """Delete the document of a group that has no resources. Raises ``StoreError``."""
        if group in self._rollouts:
            async with self.lock:
                with suppress(NotFoundError):
                    await self.known.put(KIND, group, None)
            self.dropped(group)

    def dropped(self, group: str) -> None:
        """Forget the rollout of a group; the store has deleted it with the group."""
        self.adopt(group, None)


def _step_of(rollout: Rollout) -> Hashable:
    """What differs whenever nodes change lines."""
    return rollout.base, rollout.head, rollout.nodes, rollout.had, rollout.is_open


async def _read(group: str, body: bytes) -> Rollout | None:
    """A stored rollout; None, and a line in the log, if this release cannot read it."""
    try:
        return await asyncio.to_thread(decode, group, body)
    except ValidationError as error:
        _log.error("rollout.unreadable", group=group, error_message=str(error))
        return None
