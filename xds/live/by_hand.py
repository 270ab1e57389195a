"""Assignments that are set by hand, in place of pushed ones: durable, audited, drained (docs/services.md#by-hand).

A change is stored first, then served. It makes no revision. No push, undo or rollback changes an assignment that is set
by hand. Removed endpoints drain first. When an assignment is deleted, the pushed one is served together with the
draining endpoints. After these have drained, the name has no owner any more and only the pushed assignment is served.

Of several servers of a store, each ends what it serves by its own clock, and the holder of the lease deletes what is
over.

One idea: the life of such an assignment, from the first edit to the end of its last draining endpoint.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import structlog

from xds.access.caller import UNKNOWN_CALLER, Caller
from xds.fleet.event_log import EventKind, EventLog
from xds.live.assignment_edits import addresses_of, empty_assignment
from xds.live.draining import DrainingEndpoint, drain_missing, has_serving_endpoint, still_draining
from xds.live.hand_assignment import HandAssignment
from xds.live.owners import HAND, LEAVING, LiveEndpoints, OwnedError, Owner
from xds.model.errors import EmptyingError, NotFoundError, ValidationError, Violation
from xds.model.resource import Resource
from xds.model.resource_type import CLUSTER, ENDPOINT
from xds.snapshots.cache import SnapshotCache
from xds.store.base import Store, StoreError
from xds.store.document_keys import Key, document_id, key_of
from xds.store.etags import NO_ETAG, check_etag
from xds.store.known_documents import KnownDocuments, reviewed
from xds.tasks.lifecycle import BackgroundTask, HoldsLease, alone
from xds.tasks.threads import run_sized
from xds.tasks.writes import RunningWrites, WriteLocks
from xds.wire.fields import text_field

KIND = "live_endpoints"
ASSIGNMENTS_LIMIT = 20_000
_OWN_KINDS = (HAND, LEAVING)
TICK_S = 0.25  # an endpoint drains at most this much longer

_log = structlog.get_logger(logger_name="xds.live.by_hand")


@dataclass(frozen=True, slots=True)
class EditResult:
    """The wanted assignment after an edit. ``removed`` are the addresses that the edit was to remove."""

    wanted: Resource
    removed: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class HandChange:
    """The assignment ``before`` and ``after`` a change; None if none is set by hand.

    ``changed`` is False if nothing changed. ``absent`` are addresses to remove that the assignment did not have.
    """

    after: HandAssignment | None
    before: HandAssignment | None = None
    changed: bool = True
    absent: tuple[str, ...] = ()


# Edits the present assignment: the one set by hand, else the pushed one, None for neither. Gets the draining endpoints.
Edit = Callable[[Resource | None, tuple[DrainingEndpoint, ...]], EditResult]


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """``etag``, if given, must be the etag of the present assignment. ``drain_s`` None means the default.

    ``allow_empty``: an assignment that a cluster uses may lose its last serving endpoint.
    """

    etag: str = ""
    drain_s: float | None = None
    dry_run: bool = False
    by: Caller = UNKNOWN_CALLER
    allow_empty: bool = False


async def _nothing_bound(key: Key) -> None:
    """By default there are no bindings."""


class HandAssignments:
    """All assignments that are set by hand. Use as one of the publisher's documents (`GroupDocuments`).

    ``drain_s`` is how long endpoints drain unless a change says otherwise. ``exists`` says whether a group exists.
    ``refuse_binding`` ends a binding of a name that is set by hand as well.
    """

    kinds = (KIND,)
    is_within = True

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
        holds_lease: HoldsLease = alone,
    ) -> None:
        self.lock = asyncio.Lock()
        self.drain_s = drain_s
        self.known = KnownDocuments(store, self)
        self._cache = cache
        self._live = live
        self._locks = locks
        self._exists = exists
        self._events = events
        self._clock = clock  # epoch seconds
        self.holds_lease = holds_lease
        self._assignments: dict[Key, HandAssignment] = {}
        self._keys_with_drains: set[Key] = set()  # assignments with draining endpoints, and those that are leaving
        self._over: set[Key] = set()  # assignments that are not served any more and still stored
        self._running = RunningWrites()
        self._task = BackgroundTask()
        self.refuse_binding: Callable[[Key], Awaitable[None]] = _nothing_bound

    # Start and stop

    async def load(self) -> None:
        """Serve the stored assignments. Raises ``StoreError``.

        Documents that this release cannot read are logged, not used, and kept in the store.
        """
        now_s = self._clock()
        stored: dict[Key, HandAssignment] = {}
        for doc in await self.known.read(KIND):
            key = key_of(doc.id)
            if (assignment := _read_stored(key, doc.body)) is not None:
                stored[key] = assignment.advanced(now_s)
        self._assignments, self._keys_with_drains, self._over = {}, set(), set()
        for key, assignment in stored.items():
            self._set(key, assignment)
        for group, members in _by_group(stored.items()).items():
            self._serve_loaded(group, members)

    async def apply(self, kind: str, id: str, body: bytes | None) -> None:
        """Take over an assignment that another server has stored, or deleted (None). The caller holds ``lock``.

        Of an assignment and a binding that two servers have stored at once, the assignment stays.
        """
        key = key_of(id)
        stored = _read_stored(key, body) if body is not None else None
        after = stored.advanced(self._clock()) if stored is not None else None
        if after == self._assignments.get(key):
            self._over.discard(key)
            return
        other_owner = self._new_owner(key)
        if other_owner is not None and (after is None or after.leaving or not other_owner.is_stored):
            self._set(key, after)  # its endpoints drain when the binding has ended, which comes next
            return
        if other_owner is not None:
            await self.refuse_binding(key)
        size = len(after.wanted.body) if after is not None else 0
        served = await run_sized(after.served, bytes=size) if after is not None else None
        self._serve(key, after, served)

    def _serve_loaded(self, group: str, members: Mapping[str, HandAssignment]) -> None:
        for name, assignment in members.items():
            try:
                self._live.assign(group, assignment.owner(), {name: assignment.served()}, wakes=False)
            except OwnedError as error:  # only if something else than this server changed the store
                self._set((group, name), None)
                _log.error("endpoints.owned", group=group, resource=name, error_message=str(error))

    def start(self) -> None:
        """Start to remove endpoints that have drained."""
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
            except Exception:  # a bug must not end the loop: endpoints would drain without end
                _log.exception("endpoints.failed")

    # Reading

    def find(self, key: Key) -> HandAssignment | None:
        """The assignment that was set by hand under this name; None for none."""
        return self._assignments.get(key)

    def of(self, group: str) -> dict[str, HandAssignment]:
        """The assignments of a group, by name."""
        return {key[1]: assignment for key, assignment in sorted(self._assignments.items()) if key[0] == group}

    def pushed(self, key: Key) -> Resource | None:
        """The assignment that was pushed under this name; None for none."""
        return self._live.pushed(*key)

    def served(self, group: str) -> Mapping[str, Resource]:
        """All assignments that a group is served, by name, without the weights of a traffic assignment."""
        snapshots = self._cache.served(group)
        if len(snapshots) == 1:
            return snapshots[0].get(ENDPOINT).resources
        named = {name: each for one in reversed(snapshots) for name, each in one.get(ENDPOINT).resources.items()}
        return named if snapshots else self._cache.observed(group)

    def is_used(self, key: Key) -> bool:
        """Whether a cluster of the group takes its endpoints from the assignment."""
        sets = [snapshot.get(CLUSTER) for snapshot in self._cache.all_pushed(key[0])]
        return any(key[1] in self._cache.diffs.assignments(None, each) for each in sets)

    def __len__(self) -> int:
        return len(self._assignments)

    def draining_n(self) -> int:
        """The number of draining endpoints. May be called from another thread."""
        return sum(len(assignment.draining) for assignment in list(self._assignments.values()))

    # Writing

    async def edit(self, key: Key, edit: Edit, options: WriteOptions) -> HandChange:
        """Set the assignment that ``edit`` makes of the present one. Removed endpoints drain first.

        Raises ``NotFoundError`` for an unknown group, ``OwnedError``, ``ConflictError``, ``StoreError``, and what
        ``edit`` raises.
        """
        return await self._running.finish(reviewed(lambda: self._edit(key, edit, options)))

    async def delete(self, key: Key, options: WriteOptions) -> HandChange:
        """Serve the pushed assignment again. The endpoints that it lacks drain first.

        Raises ``NotFoundError`` where nothing is set by hand, ``OwnedError``, ``ConflictError``, ``StoreError``.
        """
        return await self._running.finish(reviewed(lambda: self._delete(key, options)))

    async def _edit(self, key: Key, edit: Edit, options: WriteOptions) -> HandChange:
        async with self._locks.groups((key[0],)), self.lock:
            before = self._check(key, options.etag)
            pushed = self.pushed(key)
            size = sum(len(one.body) for one in (pushed, before.wanted if before is not None else None) if one)
            change = await run_sized(self._plan_edit, edit, before, pushed, options, bytes=size)
            if not change.changed:
                return change
            await self._check_emptied(key, change.after.wanted if change.after is not None else None, options)
            if before is None and len(self._assignments) >= ASSIGNMENTS_LIMIT:
                raise ValidationError([Violation("too_many", f"at most {ASSIGNMENTS_LIMIT} assignments by hand")])
            await self._put(key, "set", change, options)
            return change

    async def _delete(self, key: Key, options: WriteOptions) -> HandChange:
        async with self._locks.groups((key[0],)), self.lock:
            before = self._check(key, options.etag)
            drain_s = self._drain_s(options)
            if before is None or (before.leaving and drain_s > 0):
                raise NotFoundError(f"no assignment {key[1]!r} of group {key[0]!r} is set by hand")
            await self._check_emptied(key, self.pushed(key), options)
            leaving = await self._plan_leaving(key, before.wanted, before.draining, options)
            change = HandChange(leaving, before)
            await self._put(key, "deleted", change, options)
            return change

    async def _check_emptied(self, key: Key, wanted: Resource | None, options: WriteOptions) -> None:
        """Raises ``EmptyingError`` if an assignment that a cluster uses serves now, and ``wanted`` would not."""
        served = self._live.served(*key)
        if options.allow_empty or options.dry_run or served is None or not self.is_used(key):
            return
        size = len(served.body) + (len(wanted.body) if wanted is not None else 0)
        if await run_sized(_loses_service, served, wanted, bytes=size):
            raise EmptyingError(f"this leaves assignment {key[1]!r} of group {key[0]!r} without a serving endpoint")

    async def _plan_leaving(
        self, key: Key, before: Resource, draining: tuple[DrainingEndpoint, ...], options: WriteOptions
    ) -> HandAssignment | None:
        """As ``_leaving_assignment``; in a thread if the assignment is large."""
        if self._drain_s(options) <= 0:
            return None
        return await run_sized(self._leaving_assignment, key, before, draining, options, bytes=len(before.body))

    def _leaving_assignment(
        self, key: Key, before: Resource, draining: tuple[DrainingEndpoint, ...], options: WriteOptions
    ) -> HandAssignment | None:
        """The pushed assignment with the draining endpoints that ``before`` has and it lacks; None if none drains."""
        now_s, drain_s, by = self._clock(), self._drain_s(options), options.by
        pushed = self.pushed(key) or empty_assignment(key[1])
        removed = (*draining, *drain_missing(before, pushed, now_s + drain_s))
        remaining = still_draining(removed, pushed, now_s)
        return HandAssignment(pushed, remaining, True, by.actor, by.author, now_s) if remaining else None

    def _check(self, key: Key, etag: str) -> HandAssignment | None:
        group, name = key
        if not self._exists(group):
            raise NotFoundError(f"no such group: {group!r}")
        self._live.check(group, (name,), Owner(HAND))
        present = self._assignments.get(key)
        present_etag = present.etag if present is not None else NO_ETAG
        check_etag(etag, present_etag, f"assignment {name!r} of group {group!r} etag", group)
        return present

    def _drain_s(self, options: WriteOptions) -> float:
        return options.drain_s if options.drain_s is not None else self.drain_s

    def _plan_edit(
        self, edit: Edit, before: HandAssignment | None, pushed: Resource | None, options: WriteOptions
    ) -> HandChange:
        """The change that an edit makes. Runs in a thread if the assignment is large."""
        now_s, earlier = self._clock(), before.draining if before is not None else ()
        is_set = before is not None and not before.leaving
        present = before.wanted if before is not None and is_set else pushed
        edited = edit(present, earlier)
        until_s = now_s + self._drain_s(options)
        if options.drain_s is not None:  # it applies to endpoints that drain already, too
            earlier = tuple(replace(one, until_s=until_s) if one.address in edited.removed else one for one in earlier)
        served = before.wanted if before is not None else pushed
        removed = drain_missing(served, edited.wanted, until_s) if served is not None else ()
        draining = still_draining((*earlier, *removed), edited.wanted, now_s)
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
        write = await run_sized(_prepared_write, change, bytes=size)
        note = by.note(f"endpoints.{action}", group=key[0], subject=key[1], old=write.old, new=write.new or None)
        await self.known.put(KIND, document_id(key), write.body, note=note)
        self._serve(key, change.after, write.served)
        counts = {"endpoints": write.new["endpoints_n"], "draining": len(change.after.draining)} if change.after else {}
        details: dict[str, str | int] = {**by.names(), "resource": key[1], **counts}
        self._events.record(EventKind.ENDPOINTS, action, self._clock(), group=key[0], details=details)
        _log.info(f"endpoints.{action}", group=key[0], resource=key[1], actor=by.actor, author=by.author)

    def _serve(self, key: Key, after: HandAssignment | None, served: Resource | None) -> None:
        group, name = key
        self._set(key, after)
        if after is None or served is None:
            self._live.release(group, (name,), Owner(HAND))
            return
        self._live.check(group, (name,), Owner(HAND))
        self._live.set_owner(group, name, after.owner())
        self._live.assign(group, Owner(HAND), {name: served})

    def _set(self, key: Key, assignment: HandAssignment | None) -> None:
        self._keys_with_drains.discard(key)
        self._over.discard(key)
        if assignment is None:
            self._assignments.pop(key, None)
            return
        self._assignments[key] = assignment
        if assignment.draining or assignment.leaving:
            self._keys_with_drains.add(key)

    # The end and the beginning of bindings. The caller holds ``lock``, unless nothing is served yet.

    async def plan_leaving(self, key: Key, before: Resource, options: WriteOptions) -> HandAssignment | None:
        """Store that endpoints of ``before``, the assignment of a binding, drain while the pushed one is served.

        Returns what to serve; None if no endpoint drains. Raises ``StoreError``.
        """
        leaving = await self._plan_leaving(key, before, (), options)
        if leaving is not None:
            await self.known.put(KIND, document_id(key), json.dumps(leaving.document()).encode())
        return leaving

    def begin_leaving(self, key: Key, leaving: HandAssignment) -> None:
        """Serve the result of ``plan_leaving``. The name must have no owner."""
        self._serve(key, leaving, leaving.served())

    async def forget_leaving(self, key: Key) -> None:
        """Forget a leaving assignment whose name is bound or lowered now. Its new owner lets the endpoints drain.

        Raises ``StoreError``.
        """
        assignment = self._assignments.get(key)
        if assignment is not None and assignment.leaving:
            await self._delete_document(key)
            self._set(key, None)

    async def _delete_document(self, key: Key) -> None:
        with suppress(NotFoundError):  # it is deleted already
            await self.known.put(KIND, document_id(key), None)

    # The end of draining

    async def end_drains(self, now_s: float) -> None:
        """Remove the endpoints that have drained; those of a group in one step. Raises ``StoreError``.

        The wanted endpoints of leaving assignments become those of the latest push.
        """
        holds_lease = self.holds_lease()
        if not (self._over and holds_lease) and not any(self._is_due(key, now_s) for key in self._keys_with_drains):
            return
        async with self.lock:
            for key in [key for key in self._keys_with_drains if self._is_taken_over(key)]:
                await self.forget_leaving(key)
            due = {key: self._advanced(key, now_s) for key in self._keys_with_drains if self._is_due(key, now_s)}
            over = {key for key, assignment in due.items() if assignment.is_over}
            if holds_lease:
                for key in self._over | over:
                    await self._delete_document(key)
            for group, members in _by_group(due.items()).items():
                self._end_drains(group, members, now_s)
            self._over = set() if holds_lease else self._over | over

    def _is_due(self, key: Key, now_s: float) -> bool:
        if self._new_owner(key) is not None:
            return self._is_taken_over(key)
        assignment = self._assignments[key]
        return assignment.is_due(now_s) or self._lacks_latest_push(key, assignment)

    def _is_taken_over(self, key: Key) -> bool:
        """Whether a new owner serves a leaving name and leaves it to this table to forget it."""
        owner = self._new_owner(key)
        return owner is not None and not owner.is_stored

    def _new_owner(self, key: Key) -> Owner | None:
        """The owner that claimed a leaving name; None for none."""
        owner = self._live.owner(*key)
        return owner if owner is not None and owner.kind not in _OWN_KINDS else None

    def _lacks_latest_push(self, key: Key, assignment: HandAssignment) -> bool:
        """Whether a leaving assignment lacks the latest push: its wanted endpoints are not the pushed ones."""
        if not assignment.leaving:
            return False
        pushed = self.pushed(key)
        if pushed is None:
            return assignment.wanted.body != text_field(1, key[1])
        return assignment.wanted.version != pushed.version

    def _advanced(self, key: Key, now_s: float) -> HandAssignment:
        assignment = self._assignments[key]
        pushed = self.pushed(key) or empty_assignment(key[1]) if self._lacks_latest_push(key, assignment) else None
        return assignment.advanced(now_s, pushed)

    def _end_drains(self, group: str, members: Mapping[str, HandAssignment], now_s: float) -> None:
        ended = [name for name, after in members.items() if after.is_over]
        drained = [
            name
            for name, after in members.items()
            if len(after.draining) < len(self._assignments[group, name].draining)
        ]
        remaining = {name: after for name, after in members.items() if name not in ended}
        for name in members:
            self._set((group, name), remaining.get(name))
        served = {name: after.served() for name, after in remaining.items()}
        self._live.assign(group, Owner(HAND), served, ended)
        for name in drained if self.holds_lease() else ():
            self._events.record(EventKind.ENDPOINTS, "drained", now_s, group=group, details={"resource": name})

    # The end of a group

    async def forget(self, group: str, by: Caller) -> None:
        """Delete the documents of a group that has settings and no resources. Raises ``StoreError``."""
        await reviewed(lambda: self._delete_all(group, by))

    async def _delete_all(self, group: str, by: Caller) -> None:
        async with self.lock:
            for key in [key for key in self._assignments if key[0] == group]:
                old = self._assignments[key].audit_summary()
                note = by.note("endpoints.deleted", group=group, subject=key[1], old=old)
                with suppress(NotFoundError):
                    await self.known.put(KIND, document_id(key), None, note=note)
            self.dropped(group)

    def dropped(self, group: str) -> None:
        """Forget the documents of a group; the store has deleted them with the group."""
        names = [key[1] for key in self._assignments if key[0] == group]
        for name in names:
            self._set((group, name), None)
        if names:
            self._live.release(group, names, Owner(HAND))


def _read_stored(key: Key, body: bytes) -> HandAssignment | None:
    """A stored assignment; None, and a line in the log, if this release cannot read it."""
    try:
        return HandAssignment.parse(json.loads(body))
    except (ValueError, KeyError, TypeError, ValidationError) as error:
        _log.error("endpoints.unreadable", group=key[0], resource=key[1], error_message=str(error))
        return None


def _by_group(items: Iterable[tuple[Key, HandAssignment]]) -> dict[str, dict[str, HandAssignment]]:
    by_group: dict[str, dict[str, HandAssignment]] = defaultdict(dict)
    for (group, name), assignment in items:
        by_group[group][name] = assignment
    return by_group


class _PreparedWrite(NamedTuple):
    """The parts of a write that take time for each endpoint.

    ``body`` is stored, ``old`` and ``new`` are for the audit list, ``served`` is the assignment to serve.
    """

    body: bytes | None
    old: dict[str, Any] | None
    new: dict[str, Any]
    served: Resource | None


def _prepared_write(change: HandChange) -> _PreparedWrite:
    before, after = change.before, change.after
    old = before.audit_summary() if before is not None else None
    if after is None:
        return _PreparedWrite(None, old, {}, None)
    return _PreparedWrite(json.dumps(after.document()).encode(), old, after.audit_summary(), after.served())


def _loses_service(served: Resource, wanted: Resource | None) -> bool:
    """Whether an assignment has a serving endpoint, and the one that replaces it has none."""
    return has_serving_endpoint(served) and (wanted is None or not has_serving_endpoint(wanted))
