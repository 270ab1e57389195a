"""The loop from measured load to what nodes are served (DESIGN 1, assignment).

At each policy's interval: demand from the load reports, health and localities from the push, a decision, and an overlay
per source locality over whatever the group is served. What was pushed is never changed; without a policy nothing is
laid over it.

After a restart, what was decided last is served from the first answer on and held until reports have come, for as long
as the policy holds without reports: a restart moves no traffic.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from itertools import groupby
from typing import Protocol

import structlog

from xds.assignment.assignment import Assignment, Standing
from xds.assignment.decide import decide
from xds.assignment.policy import Policy
from xds.control.audit import NOBODY, Caller
from xds.control.off_loop import off_loop
from xds.control.policies import DECIDED_KIND, Key, PolicyTable, document_id, key_of
from xds.control.policy_review import assignment_name, finder, review_policy, review_times
from xds.control.steering import Outcome, Steering, resumed
from xds.control.telling import tell_decision, tell_policy
from xds.control.traffic import observe
from xds.fleet.fleet import Fleet
from xds.lrs import figures
from xds.model.errors import ValidationError, Violation
from xds.model.node import Locality
from xds.model.resource import Resource
from xds.model.resource_type import CLUSTER, ENDPOINT
from xds.protocol.cache import SnapshotCache
from xds.protocol.overlay import Overlay, Override
from xds.store.base import Store, StoreError

TICK_S = 0.5
SAVE_EVERY_S = 5.0  # of what one policy decided

# Streams of these groups, of nodes in these localities, have something new to be offered.
WakeSources = Callable[[Collection[str], frozenset[Locality]], None]

_log = structlog.get_logger(logger_name="xds.control.assignments")


class LoadFigures(Protocol):
    """What is used of the book of load reports."""

    interval_s: float

    def demand(self, group: str, cluster: str, now: float, window_s: float) -> figures.ClusterDemand: ...


class Assignments:
    """All policies at work. ``counts`` are of events by action; ``failures`` of decisions that could not be made."""

    def __init__(
        self,
        store: Store,
        policies: PolicyTable,
        cache: SnapshotCache,
        fleet: Fleet,
        load: LoadFigures,
        wake: WakeSources,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.counts: Counter[str] = Counter()
        self.failures = 0
        self._store = store
        self._policies = policies
        self._cache = cache
        self._fleet = fleet
        self._load = load
        self._wake = wake
        self._clock = clock  # epoch seconds, that of the load reports
        self._at_work: dict[Key, Steering] = {}
        self._overlays: dict[str, dict[Locality, Overlay]] = {}
        self._lock = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None

    # Life

    async def load(self) -> None:
        """Serve what was decided before; the groups and policies are loaded already. Raises ``StoreError``."""
        now = self._clock()
        decided = {key_of(doc.id): doc.body for doc in await self._store.docs(DECIDED_KIND)}
        for key in self._policies:
            assignment = _read(key, decided[key]) if key in decided else None
            held = resumed(assignment, now) if assignment is not None else None
            self._at_work[key] = Steering(key, self._policies.get(key), held)
        for group in {key[0] for key in self._at_work}:
            for steering in self._of(group):
                pushed = self._pushed(steering)
                steering.endpoints = pushed.name if pushed is not None else ""
                await self._prepare(steering)
            self._lay(group)

    async def reload(self) -> None:
        """As ``load``, in place of all that is at work. Raises ``StoreError``."""
        async with self._lock:
            before = {key[0] for key in self._at_work}
            self._at_work.clear()
            await self.load()
            for group in before:
                self._lay(group)

    def start(self) -> None:
        """Begin to decide."""
        self._task = asyncio.create_task(self._run())

    async def close(self) -> None:
        """Stop; what was decided last is stored."""
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
        await self._save(list(self._at_work.values()), self._clock() + SAVE_EVERY_S)

    async def tick(self, now: float) -> None:
        """Decide what is due."""
        async with self._lock:
            self._take_up()
            due = [self._at_work[key] for key in sorted(self._at_work) if self._is_due(self._at_work[key], now)]
            for group, members in groupby(due, lambda steering: steering.key[0]):
                connected = self._fleet.localities(group)
                for steering in members:
                    await self._decide(steering, connected, now)
                    await asyncio.sleep(0)  # others have their turn
                self._lay(group)
            await self._save(list(self._at_work.values()), now)

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(TICK_S)
            try:
                await self.tick(self._clock())
            except Exception:
                # A fault of ours must not end all policies; what is served stays as it is.
                self.failures += 1
                _log.exception("assignment.failed")

    # Policies

    async def put(self, key: Key, policy: Policy, etag: str = "", by: Caller = NOBODY) -> bool:
        """Put a policy in force, and decide at once; False when it was in force already.

        Raises ``NotFoundError`` for a group that is not there, ``ConflictError``, ``ValidationError``, ``StoreError``.
        """
        changed = await self._policies.put(key, policy, etag, by)
        if changed:
            tell_policy(self._fleet.events, key, "configured", self._clock(), by)
            await self.tick(self._clock())
        return changed

    async def delete(self, key: Key, etag: str = "", by: Caller = NOBODY) -> None:
        """Take a policy away: its nodes are served what was pushed. Raises ``NotFoundError``, ``StoreError``."""
        await self._policies.delete(key, etag, by)
        tell_policy(self._fleet.events, key, "deleted", self._clock(), by)
        async with self._lock:
            self._take_up()

    async def preview(self, key: Key, policy: Policy) -> Steering:
        """What a policy would decide now, from where the cluster stands. Nothing is changed."""
        held = self._at_work.get(key)
        steering = Steering(key, policy, held.assignment if held is not None else None)
        outcome = await self._outcome(steering, self._fleet.localities(key[0]), self._clock())
        if outcome is not None:
            steering.follow(outcome)
        return steering

    def at_work(self, key: Key) -> Steering:
        """The policy of a cluster with its latest decision. Raises ``NotFoundError``."""
        policy = self._policies.get(key)
        found = self._at_work.get(key)
        return found if found is not None else Steering(key, policy)

    def warnings(self, key: Key, policy: Policy) -> list[Violation]:
        """What stands in the way of a policy in its group as it is now."""
        snapshot = self._cache.get(key[0])
        names = snapshot.get(CLUSTER).resources if snapshot is not None else ()
        found = review_policy(policy, finder(snapshot), names, self._policies.of(key[0]))
        return [*found, *review_times(policy, self._load.interval_s)]

    @property
    def policies_n(self) -> int:
        """How many policies are at work."""
        return len(self._at_work)

    def census(self) -> tuple[int, Counter[Standing]]:
        """How many policies wait for something, and the sources by how they stand; may run in another thread."""
        at_work = list(self._at_work.values())
        assignments = [one.assignment for one in at_work if one.assignment is not None]
        standings = Counter(own.standing for one in assignments for own in one.sources.values())
        return sum(bool(one.waits_for) for one in at_work), standings

    # Deciding

    def _take_up(self) -> None:
        """Follow what was put and deleted."""
        gone = [key for key in self._at_work if self._policies.find(key) is None]
        for key in gone:
            del self._at_work[key]
        for group in {key[0] for key in gone}:
            self._lay(group)
        for key in self._policies:
            policy, held = self._policies.get(key), self._at_work.get(key)
            if held is None:
                self._at_work[key] = Steering(key, policy)
            elif held.policy is not policy:
                held.policy, held.due_at = policy, 0.0

    def _is_due(self, steering: Steering, now: float) -> bool:
        if steering.due_at <= now:
            return True
        pushed = self._pushed(steering)
        return pushed is not None and steering.is_news(pushed)

    async def _decide(self, steering: Steering, connected: Collection[Locality], now: float) -> None:
        steering.due_at = now + steering.policy.interval_s
        before = steering.assignment
        outcome = await self._outcome(steering, connected, now)
        if outcome is None or self._policies.find(steering.key) is not steering.policy:
            return
        steering.follow(outcome)
        await self._prepare(steering)
        told = tell_decision(self._fleet.events, steering.key, before, outcome)
        self.counts.update(told)
        steering.is_unsaved = steering.is_unsaved or bool(told)

    async def _outcome(self, steering: Steering, connected: Collection[Locality], now: float) -> Outcome | None:
        """What is to be decided; None when there is nothing to decide about, which ``waits_for`` then says."""
        policy, previous, pushed = steering.policy, steering.assignment, self._pushed(steering)
        if pushed is None:
            return None
        if steering.is_news(pushed):
            await asyncio.to_thread(steering.look, pushed)
        group, cluster = steering.key
        reported = self._load.demand(group, cluster, now, max(policy.interval_s, self._load.interval_s))
        since = now - policy.fallback_after_s
        observed = observe(reported, connected, steering.look(pushed), previous, since)
        pairs = len(observed.demand) * len(observed.targets)
        return Outcome(observed, await off_loop(pairs, decide, policy, observed, previous, now), now)

    async def _prepare(self, steering: Steering) -> None:
        """Make what is to be laid over the push, beside the event loop."""
        pushed = self._pushed(steering)
        if pushed is not None and steering.stand_ins:
            await asyncio.to_thread(steering.prepare, pushed)

    def _pushed(self, steering: Steering) -> Resource | None:
        """The pushed assignment of the cluster."""
        group, cluster = steering.key
        find = finder(self._cache.get(group))
        found = find(CLUSTER, cluster)
        name = assignment_name(found)
        pushed = find(ENDPOINT, name) if name else None
        if pushed is None:
            lacking = f"endpoints of the name {name!r}" if name else "such cluster" if found is None else ""
            steering.waits_for = f"the group has no {lacking}" if lacking else "the cluster takes no endpoints over xDS"
        return pushed

    # Serving

    def _of(self, group: str) -> Iterable[Steering]:
        return (self._at_work[key] for key in sorted(self._at_work) if key[0] == group)

    def _lay(self, group: str) -> None:
        """Lay what was decided for the clusters of a group over what it is served, and wake whom it concerns."""
        wanted: dict[Locality, dict[str, Override]] = {}
        for steering in self._of(group):
            for source, stand_in in steering.stand_ins.items():
                if steering.endpoints:
                    # Of two clusters that share their endpoints, the first one decides.
                    wanted.setdefault(source, {}).setdefault(steering.endpoints, stand_in)
        held = self._overlays.pop(group, {})
        overlays = {
            source: held[source] if source in held and held[source].stand_ins == own else Overlay(ENDPOINT, own)
            for source, own in wanted.items()
        }
        if overlays:
            self._overlays[group] = overlays
        changed = self._cache.overlay(group, overlays)
        if changed:
            self._wake((group,), changed)

    # Keeping

    async def _save(self, steered: Iterable[Steering], now: float) -> None:
        """Store what was decided, of each policy now and then. What fails is logged and tried again."""
        for steering in steered:
            if steering.is_unsaved and now - steering.saved_at >= SAVE_EVERY_S:
                steering.is_unsaved, steering.saved_at = False, now
                try:
                    await self._store_decided(steering)
                except StoreError as error:
                    steering.is_unsaved = True
                    _log.warning("assignment.not_stored", **_named(steering.key), error_message=str(error))

    async def _store_decided(self, steering: Steering) -> None:
        if steering.assignment is not None and self._policies.find(steering.key) is not None:
            body = json.dumps(steering.assignment.document()).encode()
            await self._store.put_doc(DECIDED_KIND, document_id(steering.key), body)


def _read(key: Key, body: bytes) -> Assignment | None:
    """A stored assignment; None for one that this release cannot read: then it is decided anew."""
    try:
        return Assignment.from_document(json.loads(body))
    except (ValueError, ValidationError) as error:
        _log.error("assignment.unreadable", **_named(key), error_message=str(error))
        return None


def _named(key: Key) -> dict[str, str]:
    return {"group": key[0], "cluster": key[1]}
