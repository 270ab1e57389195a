"""Assignments that are set by hand, over pushed ones: durable, audited, drained (docs/services.md#by-hand).

A change is stored first, then served. It makes no revision, and no push, undo or rollback changes it. Endpoints that go
drain first. When an assignment is deleted, the pushed one is served together with the draining endpoints. After they
have drained, the name belongs to the push again.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import structlog

from xds.control.audit_log import UNKNOWN_CALLER, Caller
from xds.control.etags import NO_ETAG, check_etag
from xds.control.hand_assignment import HandAssignment
from xds.control.lifecycle import BackgroundTask
from xds.control.live_endpoints import LiveEndpoints, OwnedError, Owner, OwnerKind
from xds.control.policies import Key, document_id, key_of
from xds.control.threads import run_sized
from xds.control.writes import RunningWrites, WriteLocks
from xds.fleet.event_log import EventKind, EventLog
from xds.lower.live_assignment import (
    DrainingEndpoint,
    addresses_of,
    drain_missing,
    empty_assignment,
    still_draining,
)
from xds.model.errors import NotFoundError, ValidationError, Violation
from xds.model.resource import Resource
from xds.model.resource_type import CLUSTER, ENDPOINT
from xds.protocol.cache import SnapshotCache
from xds.store.base import Store, StoreError
from xds.wire.fields import text_field

KIND = "live_endpoints"
ASSIGNMENTS_LIMIT = 20_000
_OURS = (OwnerKind.HAND, OwnerKind.LEAVING)
TICK_S = 0.25  # an endpoint drains at most so much longer

_log = structlog.get_logger(logger_name="xds.control.hand_assignments")


@dataclass(frozen=True, slots=True)
class Edited:
    """What an edit makes: the wanted assignment. ``removed`` are the addresses that it was asked to remove."""

    wanted: Resource
    removed: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class HandChange:
    """The result of a change.

    ``changed`` is False if nothing changed; ``before`` is None if nothing was set. ``absent`` are addresses to remove
    that the assignment did not have.
    """

    after: HandAssignment | None
    before: HandAssignment | None = None
    changed: bool = True
    absent: tuple[str, ...] = ()


# Edits the present assignment (what is set, or was pushed; None where there is neither), given what drains.
Edit = Callable[[Resource | None, tuple[DrainingEndpoint, ...]], Edited]


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """``etag`` must be that of the present assignment. Removed endpoints drain for ``drain_s``; None: the default."""

    etag: str = ""
    drain_s: float | None = None
    dry_run: bool = False
    by: Caller = UNKNOWN_CALLER


class HandAssignments:
    """All assignments that are set by hand. Use as one of the publisher's documents (`GroupDocuments`).

    ``drain_s`` is how long endpoints drain where a change does not say. ``exists`` says whether there is a group.
    """

    def __init__(
        self,
        store: Store,
        cache: SnapshotCache,
        live: LiveEndpoints,
        locks: WriteLocks,
        exists: Callable[[str], bool],
        events: EventLog,
        drain_s: float = 15.0,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.lock = asyncio.Lock()
        self.drain_s = drain_s
        self._store = store
        self._cache = cache
        self._live = live
        self._locks = locks
        self._exists = exists
        self._events = events
        self._clock = clock  # epoch seconds
        self._held: dict[Key, HandAssignment] = {}
        self._going: set[Key] = set()  # those with draining endpoints, and those that are leaving
        self._running = RunningWrites()
        self._task = BackgroundTask()

    # Start and stop

    async def load(self) -> None:
        """Serve the stored assignments. Raises ``StoreError``.

        Documents that this release cannot read are logged, not used, and kept in the store.
        """
        now_s = self._clock()
        found: dict[Key, HandAssignment] = {}
        for doc in await self._store.docs(KIND):
            key = key_of(doc.id)
            try:
                held = HandAssignment.parse(json.loads(doc.body))
            except (ValueError, KeyError, TypeError, ValidationError) as error:
                _log.error("endpoints.unreadable", group=key[0], resource=key[1], error_message=str(error))
                continue
            found[key] = held.advanced(now_s)
        self._held, self._going = {}, set()
        for key, held in found.items():
            self._remember(key, held)
        for group, members in _by_group(found.items()).items():
            self._lay_loaded(group, members)

    def _lay_loaded(self, group: str, members: Mapping[str, HandAssignment]) -> None:
        for name, held in members.items():
            try:
                self._live.assign(group, held.owner(), {name: held.served()}, wakes=False)
            except OwnedError as error:  # only if the store was changed by other means
                self._remember((group, name), None)
                _log.error("endpoints.owned", group=group, resource=name, error_message=str(error))

    def start(self) -> None:
        """Start to end what drains."""
        self._task.start(self._run())

    async def close(self) -> None:
        """Wait for the changes in progress, then stop. Endpoints that still drain continue after the next start."""
        await self._running.wait()
        await self._task.stop()

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(TICK_S)
            try:
                await self.end_drains(self._clock())
            except StoreError as error:
                _log.warning("endpoints.later", error_message=str(error))
            except Exception:  # a bug must not end the loop: endpoints would drain for ever
                _log.exception("endpoints.failed")

    # Reading

    def find(self, key: Key) -> HandAssignment | None:
        """The assignment that was set by hand under this name; None for none."""
        return self._held.get(key)

    def of(self, group: str) -> dict[str, HandAssignment]:
        """The assignments of a group, by name."""
        return {key[1]: held for key, held in sorted(self._held.items()) if key[0] == group}

    def pushed(self, key: Key) -> Resource | None:
        """The assignment that was pushed under this name; None for none."""
        return self._live.pushed(*key)

    def served(self, group: str) -> Mapping[str, Resource]:
        """All assignments that a group is served, by name, without the weights of traffic assignment."""
        snapshot = self._cache.get(group)
        return snapshot.get(ENDPOINT).resources if snapshot is not None else self._cache.observed(group)

    def is_used(self, key: Key) -> bool:
        """Whether a cluster of the group takes its endpoints from the assignment."""
        snapshot = self._cache.pushed(key[0])
        return snapshot is not None and key[1] in self._cache.diffs.assignments(None, snapshot.get(CLUSTER))

    def __len__(self) -> int:
        return len(self._held)

    def draining_n(self) -> int:
        """The number of endpoints that drain. May be called from another thread."""
        return sum(len(held.draining) for held in list(self._held.values()))

    def documents(self, group: str) -> tuple[tuple[str, str], ...]:
        """Kind and id of all documents of a group."""
        return tuple((KIND, document_id(key)) for key in self._held if key[0] == group)

    # Writing

    async def edit(self, key: Key, edit: Edit, options: WriteOptions) -> HandChange:
        """Set what ``edit`` makes of the present assignment. Removed endpoints drain first.

        Raises ``NotFoundError`` for an unknown group, ``OwnedError``, ``ConflictError``, ``StoreError``, and what
        ``edit`` raises.
        """
        return await self._running.finish(self._edit(key, edit, options))

    async def delete(self, key: Key, options: WriteOptions) -> HandChange:
        """Serve the pushed assignment again after the endpoints that it lacks have drained.

        Raises ``NotFoundError`` where nothing is set by hand, ``OwnedError``, ``ConflictError``, ``StoreError``.
        """
        return await self._running.finish(self._delete(key, options))

    async def _edit(self, key: Key, edit: Edit, options: WriteOptions) -> HandChange:
        async with self._locks.groups((key[0],)), self.lock:
            before = self._check(key, options.etag)
            pushed = self.pushed(key)
            size = sum(len(one.body) for one in (pushed, before.wanted if before is not None else None) if one)
            change = await run_sized(self._edited, edit, before, pushed, options, bytes=size)
            if not change.changed:
                return change
            if before is None and len(self._held) >= ASSIGNMENTS_LIMIT:
                raise ValidationError([Violation("too_many", f"at most {ASSIGNMENTS_LIMIT} assignments by hand")])
            await self._put(key, "set", change, options)
            return change

    async def _delete(self, key: Key, options: WriteOptions) -> HandChange:
        async with self._locks.groups((key[0],)), self.lock:
            before = self._check(key, options.etag)
            drain_s = self._drain_s(options)
            if before is None or (before.leaving and drain_s > 0):
                raise NotFoundError(f"no assignment {key[1]!r} of group {key[0]!r} is set by hand")
            left = await self._planned_left(key, before.wanted, before.draining, options)
            change = HandChange(left, before)
            await self._put(key, "deleted", change, options)
            return change

    async def _planned_left(
        self, key: Key, before: Resource, draining: tuple[DrainingEndpoint, ...], options: WriteOptions
    ) -> HandAssignment | None:
        """As ``_left``; in a thread where the assignment is large."""
        if self._drain_s(options) <= 0:
            return None
        return await run_sized(self._left, key, before, draining, options, bytes=len(before.body))

    def _left(
        self, key: Key, before: Resource, draining: tuple[DrainingEndpoint, ...], options: WriteOptions
    ) -> HandAssignment | None:
        """What was pushed, with the endpoints of ``before`` that go; None where none drains."""
        now_s, drain_s, by = self._clock(), self._drain_s(options), options.by
        pushed = self.pushed(key) or empty_assignment(key[1])
        going = (*draining, *drain_missing(before, pushed, now_s + drain_s))
        left = still_draining(going, pushed, now_s)
        return HandAssignment(pushed, left, True, by.actor, by.author, now_s) if left else None

    def _check(self, key: Key, etag: str) -> HandAssignment | None:
        group, name = key
        if not self._exists(group):
            raise NotFoundError(f"no such group: {group!r}")
        self._live.check(group, (name,), Owner(OwnerKind.HAND))
        held = self._held.get(key)
        found = held.etag if held is not None else NO_ETAG
        check_etag(etag, found, f"assignment {name!r} of group {group!r} etag", group)
        return held

    def _drain_s(self, options: WriteOptions) -> float:
        return options.drain_s if options.drain_s is not None else self.drain_s

    def _edited(
        self, edit: Edit, before: HandAssignment | None, pushed: Resource | None, options: WriteOptions
    ) -> HandChange:
        """The change that an edit makes. Runs in a thread where the assignment is large."""
        now_s, earlier = self._clock(), before.draining if before is not None else ()
        is_set = before is not None and not before.leaving
        present = before.wanted if before is not None and is_set else pushed
        edited = edit(present, earlier)
        until_s = now_s + self._drain_s(options)
        if options.drain_s is not None:  # also of what drains already
            earlier = tuple(replace(one, until_s=until_s) if one.address in edited.removed else one for one in earlier)
        served = before.wanted if before is not None else pushed
        going = drain_missing(served, edited.wanted, until_s) if served is not None else ()
        draining = still_draining((*earlier, *going), edited.wanted, now_s)
        after = HandAssignment(edited.wanted, draining, False, options.by.actor, options.by.author, now_s)
        known = {one.address for one in earlier} | (addresses_of(present).keys() if present is not None else set())
        absent = tuple(sorted(edited.removed - known))
        if before is not None and is_set and before.is_same(after):
            return HandChange(before, before, changed=False, absent=absent)
        return HandChange(after, before, absent=absent)

    async def _put(self, key: Key, action: str, change: HandChange, options: WriteOptions) -> None:
        if options.dry_run:
            return
        by, size = options.by, sum(len(one.wanted.body) for one in (change.before, change.after) if one is not None)
        made = await run_sized(_written, change, bytes=size)
        note = by.note(f"endpoints.{action}", group=key[0], subject=key[1], old=made.old, new=made.new or None)
        await self._store.put_doc(KIND, document_id(key), made.body, note=note)
        self._serve(key, change.after, made.served)
        counts = {"endpoints": made.new["endpoints_n"], "draining": len(change.after.draining)} if change.after else {}
        details: dict[str, str | int] = {**by.names(), "resource": key[1], **counts}
        self._events.record(EventKind.ENDPOINTS, action, self._clock(), group=key[0], details=details)
        _log.info(f"endpoints.{action}", group=key[0], resource=key[1], actor=by.actor, author=by.author)

    def _serve(self, key: Key, after: HandAssignment | None, served: Resource | None) -> None:
        group, name = key
        self._remember(key, after)
        if after is None or served is None:
            self._live.release(group, (name,), Owner(OwnerKind.HAND))
            return
        self._live.check(group, (name,), Owner(OwnerKind.HAND))
        self._live.give(group, name, after.owner())
        self._live.assign(group, Owner(OwnerKind.HAND), {name: served})

    def _remember(self, key: Key, held: HandAssignment | None) -> None:
        self._going.discard(key)
        if held is None:
            self._held.pop(key, None)
            return
        self._held[key] = held
        if held.draining or held.leaving:
            self._going.add(key)

    # The end and the beginning of bindings. The caller holds ``lock``, unless nothing is served yet.

    async def plan_leaving(self, key: Key, before: Resource, options: WriteOptions) -> HandAssignment | None:
        """Store that the endpoints of ``before``, which is bound, drain over what was pushed.

        None where none does. Raises ``StoreError``.
        """
        left = await self._planned_left(key, before, (), options)
        if left is not None:
            await self._store.put_doc(KIND, document_id(key), json.dumps(left.document()).encode())
        return left

    def begin_leaving(self, key: Key, left: HandAssignment) -> None:
        """Serve what ``plan_leaving`` has stored. The name must have no owner."""
        self._serve(key, left, left.served())

    async def forget_leaving(self, key: Key) -> None:
        """A name that was leaving is bound or lowered; its owner lets drain what is served. Raises ``StoreError``."""
        held = self._held.get(key)
        if held is not None and held.leaving:
            await self._delete_document(key)
            self._remember(key, None)

    async def _delete_document(self, key: Key) -> None:
        with suppress(NotFoundError):  # it is deleted already
            await self._store.put_doc(KIND, document_id(key), None)

    # The end of draining

    async def end_drains(self, now_s: float) -> None:
        """Remove the endpoints whose time is over: those of a group in one step. Raises ``StoreError``.

        Leaving assignments follow the pushes made meanwhile.
        """
        if not any(self._is_due(key, now_s) for key in self._going):
            return
        async with self.lock:
            for key in [key for key in self._going if self._taker(key) is OwnerKind.LOWERED]:
                await self.forget_leaving(key)
            due = {key: self._advanced(key, now_s) for key in self._going if self._is_due(key, now_s)}
            for key, held in due.items():
                if held.is_over:
                    await self._delete_document(key)
            for group, members in _by_group(due.items()).items():
                self._end_drains(group, members, now_s)

    def _is_due(self, key: Key, now_s: float) -> bool:
        held, taker = self._held[key], self._taker(key)
        if taker is not None:
            return taker is OwnerKind.LOWERED
        return held.is_due(now_s) or self._is_behind(key, held)

    def _taker(self, key: Key) -> OwnerKind | None:
        """What has taken a name that was leaving; None: nothing. A binding says so itself once it is stored."""
        owner = self._live.owner(*key)
        return owner.kind if owner is not None and owner.kind not in _OURS else None

    def _is_behind(self, key: Key, held: HandAssignment) -> bool:
        """Whether a leaving assignment differs from the pushed one."""
        if not held.leaving:
            return False
        pushed = self.pushed(key)
        if pushed is None:
            return held.wanted.body != text_field(1, key[1])
        return held.wanted.version != pushed.version

    def _advanced(self, key: Key, now_s: float) -> HandAssignment:
        held = self._held[key]
        pushed = self.pushed(key) or empty_assignment(key[1]) if self._is_behind(key, held) else None
        return held.advanced(now_s, pushed)

    def _end_drains(self, group: str, members: Mapping[str, HandAssignment], now_s: float) -> None:
        over = [name for name, held in members.items() if held.is_over]
        drained = [name for name, held in members.items() if len(held.draining) < len(self._held[group, name].draining)]
        kept = {name: held for name, held in members.items() if name not in over}
        for name in members:
            self._remember((group, name), kept.get(name))
        served = {name: held.served() for name, held in kept.items()}
        self._live.assign(group, Owner(OwnerKind.HAND), served, over)
        for name in drained:
            self._events.record(EventKind.ENDPOINTS, "drained", now_s, group=group, details={"resource": name})

    # The end of a group

    async def forget(self, group: str, by: Caller) -> None:
        """Delete the documents of a group that has settings and no resources. Raises ``StoreError``."""
        async with self.lock:
            for key in [key for key in self._held if key[0] == group]:
                note = by.note("endpoints.deleted", group=group, subject=key[1], old=self._held[key].told())
                with suppress(NotFoundError):
                    await self._store.put_doc(KIND, document_id(key), None, note=note)
            self.dropped(group)

    def dropped(self, group: str) -> None:
        """Forget the documents of a group; the store has deleted them with the group."""
        names = [key[1] for key in self._held if key[0] == group]
        for name in names:
            self._remember((group, name), None)
        if names:
            self._live.release(group, names, Owner(OwnerKind.HAND))


def _by_group(items: Iterable[tuple[Key, HandAssignment]]) -> dict[str, dict[str, HandAssignment]]:
    found: dict[str, dict[str, HandAssignment]] = defaultdict(dict)
    for (group, name), held in items:
        found[group][name] = held
    return found


class _Written(NamedTuple):
    """What a change needs that takes time for each endpoint: the stored body, the notes, and what is served."""

    body: bytes | None
    old: dict[str, Any] | None
    new: dict[str, Any]
    served: Resource | None


def _written(change: HandChange) -> _Written:
    before, after = change.before, change.after
    old = before.told() if before is not None else None
    if after is None:
        return _Written(None, old, {}, None)
    return _Written(json.dumps(after.document()).encode(), old, after.told(), after.served())
