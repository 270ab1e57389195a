"""The control loop of traffic assignment (docs/internals/assignment-algorithm.md).

At the interval of each policy the loop takes demand from load reports and health from the pushed endpoints, decides,
and overlays the pushed endpoints of each source locality with the decided weights. Pushed resources are never changed;
a group without a policy has no overlay.

After a restart the last decision is served from the first response on. It stays until reports arrive, or as long as the
policy allows without reports. So a restart moves no traffic.

Of several servers of a store, the holder of the lease decides; the others serve what it has stored. The next holder
goes on from there, after one interval of reports.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from itertools import groupby
from typing import Protocol

import structlog

from xds.access.caller import UNKNOWN_CALLER, Caller
from xds.admin.other_servers import OtherServers
from xds.fleet.fleet import Fleet
from xds.fleet.senders import Senders
from xds.lrs import figures
from xds.model.errors import ValidationError, Violation
from xds.model.node import Locality
from xds.model.resource import Resource
from xds.model.resource_type import CLUSTER, ENDPOINT
from xds.snapshots.cache import SnapshotCache
from xds.snapshots.overlay import Overlay, Override
from xds.snapshots.resource_lookup import assignment_name, finder
from xds.steering.active_policy import ActivePolicy, PolicyDecision, resumed
from xds.steering.core.assignment import Assignment, Standing
from xds.steering.core.assignment_document import assignment_document, read_assignment
from xds.steering.core.decide import decide
from xds.steering.core.decision_history import DecisionHistory, decision_changes, read_history
from xds.steering.core.load_assignment import pushed_localities
from xds.steering.core.policy import Policy
from xds.steering.demand_of_others import DemandOfOthers, MeasuredDemand, OthersDemand, WantedDemand
from xds.steering.inputs import observe, record_decision_events, record_policy_event
from xds.steering.policies import PolicyTable
from xds.steering.policy_review import review_capacity, review_policy, review_reports, review_times
from xds.store.base import StoreError
from xds.store.document_keys import Key
from xds.store.known_documents import StaleDocumentError
from xds.tasks.lifecycle import BackgroundTask, HoldsLease, alone
from xds.tasks.threads import run_sized

TICK_S = 0.5
SETTLED_INTERVALS = 2.0  # of load reports: a stream that is open this long and reports nothing means zero requests
SAVE_EVERY_S = 5.0  # per policy

# Wakes the streams of these groups whose nodes are in these localities.
WakeSources = Callable[[Collection[str], frozenset[Locality]], None]

_log = structlog.get_logger(logger_name="xds.steering.assignments")


class DemandSource(Protocol):
    """Where measured demand comes from: the load reports, or a model of them in tests and simulations."""

    interval_s: float

    def demand(self, group: str, cluster: str, now: float, window_s: float) -> figures.ClusterDemand:
        """Demand for a cluster over the last ``window_s`` seconds before ``now`` (epoch seconds)."""
        ...

    def streams(self) -> Iterable[figures.LoadStreamStatus]:
        """The open load streams of all groups."""
        ...

    def departed_nodes(self) -> Mapping[str, float]:
        """The nodes that ended their last load stream recently: by node id, the end (epoch seconds)."""
        ...


class Assignments:
    """Runs all policies. ``counts`` are events by action; ``failures`` are decisions that raised an exception.

    ``stale_n`` counts decisions that were not stored because another server has decided since.
    """

    def __init__(
        self,
        policies: PolicyTable,
        cache: SnapshotCache,
        fleet: Fleet,
        load: DemandSource,
        wake: WakeSources,
        clock: Callable[[], float] = time.time,
        holds_lease: HoldsLease = alone,
        save_every_s: float = SAVE_EVERY_S,
        others: OtherServers | None = None,
    ) -> None:
        self.counts: Counter[str] = Counter()
        self.failures = 0
        self.stale_n = 0
        self._policies = policies
        self._cache = cache
        self._fleet = fleet
        self._load = load
        self._wake = wake
        self._clock = clock  # epoch seconds, that of the load reports
        self._holds_lease = holds_lease
        self._save_every_s = save_every_s
        self._others = DemandOfOthers(others)
        self._decides = True
        self._active: dict[Key, ActivePolicy] = {}
        self._overlays: dict[str, dict[Locality, Overlay]] = {}
        self._lock = asyncio.Lock()
        self._task = BackgroundTask()

    # Start and stop

    async def load(self) -> None:
        """Serve the stored assignments, and no others. Groups and policies must be loaded. Raises ``StoreError``."""
        async with self._lock:
            await self._serve_stored()
            self._decides = self._holds_lease()

    async def _serve_stored(self) -> None:
        former_groups = {key[0] for key in self._active}
        self._active = await self._stored()
        for active in self.active():
            self._name_endpoints(active)
            await self._prepare(active)
        for group in former_groups | {key[0] for key in self._active}:
            self._apply_overlays(group)

    async def _stored(self) -> dict[Key, ActivePolicy]:
        now, kept = self._clock(), {}
        decided = await self._policies.stored_decisions()
        for key in self._policies:
            stored, history = _read(key, decided[key]) if key in decided else (None, DecisionHistory())
            assignment = resumed(stored, now) if stored is not None else None
            kept[key] = ActivePolicy(key, self._policies.get(key), assignment, history)
        return kept

    def start(self) -> None:
        """Start the loop."""
        self._task.start(self._run())

    async def close(self) -> None:
        """Stop the loop and store the last decisions."""
        await self._task.stop()
        await self._save(list(self._active.values()), self._clock() + SAVE_EVERY_S)

    async def tick(self, now: float) -> None:
        """Decide all policies that are due, and serve what other servers have decided."""
        async with self._lock:
            self._sync_policies()
            elsewhere = self._policies.take_decisions()
            if not self._decides:
                await self._adopt(elsewhere)
            if not await self._may_decide(now):
                return
            due = [self._active[key] for key in sorted(self._active) if self._is_due(self._active[key], now)]
            elsewhere_measured = await self._others.ask(list(map(self._wanted, due)))
            for group, members in groupby(due, lambda active: active.key[0]):
                decided = list(members)
                senders = self._senders(group, now, max(active.policy.interval_s for active in decided))
                for active in decided:
                    await self._decide(active, senders, elsewhere_measured, now)
                    await asyncio.sleep(0)  # let other tasks run
                self._apply_overlays(group)
            await self._save(list(self._active.values()), now)

    async def _run(self) -> None:
        while True:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._policies.decided.wait(), TICK_S)
            try:
                await self.tick(self._clock())
            except Exception:
                # A bug must not end the loop. The present assignments stay.
                self.failures += 1
                _log.exception("assignment.failed")

    # Policies

    async def put(self, key: Key, policy: Policy, etag: str = "", by: Caller = UNKNOWN_CALLER) -> bool:
        """Put a policy and decide at once; False when it is unchanged.

        Raises ``NotFoundError`` for an unknown group, ``ConflictError``, ``ValidationError``, ``StoreError``.
        """
        changed = await self._policies.put(key, policy, etag, by)
        if changed:
            record_policy_event(self._fleet.events, key, "configured", self._clock(), by)
            await self.tick(self._clock())
        return changed

    async def delete(self, key: Key, etag: str = "", by: Caller = UNKNOWN_CALLER) -> None:
        """Delete a policy, so that its nodes get the pushed weights. Raises ``NotFoundError``, ``StoreError``."""
        await self._policies.delete(key, etag, by)
        record_policy_event(self._fleet.events, key, "deleted", self._clock(), by)
        async with self._lock:
            self._sync_policies()

    async def preview(self, key: Key, policy: Policy) -> ActivePolicy:
        """What a policy would decide now, starting from the present assignment. Nothing is changed."""
        present = self._active.get(key)
        active = ActivePolicy(key, policy, present.assignment if present is not None else None)
        now = self._clock()
        elsewhere = await self._others.ask([self._wanted(active)])
        outcome = await self._outcome(active, self._senders(key[0], now, policy.interval_s), elsewhere, now)
        if outcome is not None:
            active.serve(outcome)
        return active

    def get(self, key: Key) -> ActivePolicy:
        """The policy of a cluster with its latest decision. Raises ``NotFoundError``."""
        policy = self._policies.get(key)
        active = self._active.get(key)
        return active if active is not None else ActivePolicy(key, policy)

    def warnings(self, key: Key, policy: Policy) -> list[Violation]:
        """Problems of a policy with the present resources and policies of its group."""
        snapshots = self._cache.served(key[0])
        names = dict.fromkeys(name for each in snapshots for name in each.get(CLUSTER).resources)
        warnings = review_policy(policy, finder(*snapshots), names, self._policies.of(key[0]))
        warnings += review_times(policy, self._load.interval_s)
        warnings += self._shared_capacity(key, policy)
        active = self._active.get(key)
        outcome = active.outcome if active is not None else None
        return [*warnings, *(review_reports(policy, outcome.observed) if outcome is not None else ())]

    def _shared_capacity(self, key: Key, policy: Policy) -> list[Violation]:
        """Warnings about policies of all groups with the same endpoints, except those with the same assignment."""
        pushed = self._pushed(ActivePolicy(key, policy))
        if pushed is None:
            return []
        others = {
            other: active.addresses
            for other, active in self._active.items()
            if other != key and (other[0], active.endpoints) != (key[0], pushed.name)
        }
        return review_capacity(policy, pushed_localities(pushed).values(), others)

    def active(self) -> list[ActivePolicy]:
        """The policies with their latest decisions, by group and cluster. May be called in another thread."""
        return sorted(self._active.values(), key=lambda one: one.key)

    @property
    def policies_n(self) -> int:
        """The number of policies."""
        return len(self._active)

    def census(self) -> tuple[int, Counter[Standing]]:
        """The number of policies that cannot decide yet, and sources by standing. May be called in another thread."""
        active = list(self._active.values())
        assignments = [one.assignment for one in active if one.assignment is not None]
        standings = Counter(own.standing for one in assignments for own in one.sources.values())
        return sum(bool(one.waits_for) for one in active), standings

    # Deciding

    def _sync_policies(self) -> None:
        """Apply policies that were put or deleted."""
        deleted = [key for key in self._active if self._policies.find(key) is None]
        for key in deleted:
            del self._active[key]
        for group in {key[0] for key in deleted}:
            self._apply_overlays(group)
        for key in self._policies:
            policy, active = self._policies.get(key), self._active.get(key)
            if active is None:
                self._active[key] = ActivePolicy(key, policy)
            elif active.policy is not policy:
                active.policy, active.due_at = policy, 0.0

    async def _may_decide(self, now: float) -> bool:
        """Whether this server decides now. If that has changed, it goes on from what is stored."""
        holds_lease = self._holds_lease()
        if holds_lease and not self._decides:
            for active in self._active.values():
                active.wait(now)
                if (pushed := self._pushed(active)) is not None:
                    await asyncio.to_thread(active.localities_of, pushed)
        elif self._decides and not holds_lease:
            try:
                await self._serve_stored()
            except StoreError:
                return False  # nobody decides meanwhile
        self._decides = holds_lease
        return holds_lease

    async def _adopt(self, decisions: Mapping[Key, bytes]) -> None:
        """Serve what another server has decided, on the endpoints that are pushed now."""
        groups = set()
        for key, active in self._active.items():
            assignment, history = _read(key, decisions[key]) if key in decisions else (None, active.history)
            if assignment is not None:
                active.adopt(assignment, history)
            if self._name_endpoints(active) or assignment is not None:
                await self._prepare(active)
                groups.add(key[0])
        for group in groups:
            self._apply_overlays(group)

    def _name_endpoints(self, active: ActivePolicy) -> bool:
        """Note which assignment the cluster uses. True if it is another one than before."""
        before, pushed = active.endpoints, self._pushed(active)
        active.endpoints = pushed.name if pushed is not None else ""
        return active.endpoints != before

    def _is_due(self, active: ActivePolicy, now: float) -> bool:
        if not 0 < active.due_at - now <= active.policy.interval_s:  # the clock may have been set back
            return True
        pushed = self._pushed(active)
        return pushed is not None and active.is_changed(pushed)

    def measured(self, wanted: WantedDemand) -> MeasuredDemand:
        """What this server has measured of a cluster, for the one that decides."""
        now = self._clock()
        return self._measured(wanted, self._senders(wanted.group, now, wanted.interval_s), now)

    def _wanted(self, active: ActivePolicy) -> WantedDemand:
        (group, cluster), pushed = active.key, self._pushed(active)
        return WantedDemand(group, cluster, pushed.name if pushed is not None else "", active.policy.interval_s)

    def _measured(self, wanted: WantedDemand, senders: Senders, now: float) -> MeasuredDemand:
        window_s = max(wanted.interval_s, self._load.interval_s)
        reported = self._load.demand(wanted.group, wanted.cluster, now, window_s)
        return MeasuredDemand(reported, senders.of(wanted.cluster, wanted.endpoints), senders.apart)

    async def _decide(self, active: ActivePolicy, senders: Senders, elsewhere: OthersDemand, now: float) -> None:
        active.due_at = now + active.policy.interval_s
        before = active.assignment
        outcome = await self._outcome(active, senders, elsewhere, now)
        if outcome is None or self._policies.find(active.key) is not active.policy:
            return
        is_changed = active.serve(outcome)
        await self._prepare(active)
        changes = decision_changes(before, outcome.observed, outcome.decision, outcome.decided_at)
        active.history.record(changes)
        actions = record_decision_events(self._fleet.events, active.key, changes)
        self.counts.update(actions)
        active.is_unsaved = active.is_unsaved or is_changed or bool(actions)

    async def _outcome(
        self, active: ActivePolicy, senders: Senders, elsewhere: OthersDemand, now: float
    ) -> PolicyDecision | None:
        """Decide; None when the pushed endpoints are missing. ``waits_for`` then says what is missing."""
        policy, previous, pushed = active.policy, active.assignment, self._pushed(active)
        if pushed is None:
            return None
        if active.is_changed(pushed):
            await asyncio.to_thread(active.localities_of, pushed)
        measured = elsewhere.add_to(active.key, self._measured(self._wanted(active), senders, now))
        known = (*measured.sources, *(previous.memory.sources if previous is not None else ()))
        unheard = elsewhere.unheard_sources(active.key, known)
        since = now - policy.fallback_after_s
        localities = active.localities_of(pushed)
        observed = observe(measured.reported, measured.senders, localities, previous, since, now, unheard)
        pairs = len(observed.demand) * len(observed.targets)
        return PolicyDecision(observed, await run_sized(decide, policy, observed, previous, now, resources=pairs), now)

    def _senders(self, group: str, now: float, window_s: float) -> Senders:
        """The nodes that could send requests, and which of them report load.

        A load stream that was open for ``SETTLED_INTERVALS`` has reported all load of its node. ``window_s`` is how
        long the reports of a node count after it has ended its load stream.
        """
        since: dict[str, float] = {}
        for stream in self._load.streams():
            since[stream.node] = min(stream.opened, since.get(stream.node, stream.opened))
        settled_after_s = max(SETTLED_INTERVALS * self._load.interval_s, window_s)
        return self._fleet.senders(group, since, self._load.departed_nodes(), now, settled_after_s)

    async def _prepare(self, active: ActivePolicy) -> None:
        """Build the overlaid resources in a thread."""
        pushed = self._pushed(active)
        if pushed is not None and active.overrides:
            await asyncio.to_thread(active.prepare, pushed)

    def _pushed(self, active: ActivePolicy) -> Resource | None:
        """The pushed assignment of the cluster."""
        group, cluster = active.key
        find = finder(*self._cache.served(group))
        pushed_cluster = find(CLUSTER, cluster)
        name = assignment_name(pushed_cluster)
        pushed = find(ENDPOINT, name) if name else None
        if pushed is None:
            missing = f"endpoints named {name!r}" if name else "such cluster" if pushed_cluster is None else ""
            active.waits_for = f"the group has no {missing}" if missing else "the cluster does not use EDS"
        return pushed

    # Serving

    def _of(self, group: str) -> Iterable[ActivePolicy]:
        return (self._active[key] for key in sorted(self._active) if key[0] == group)

    def _apply_overlays(self, group: str) -> None:
        """Overlay the snapshot of a group with the decisions for its clusters, and wake the streams concerned."""
        wanted: dict[Locality, dict[str, Override]] = {}
        for active in self._of(group):
            for source, override in active.overrides.items():
                if active.endpoints:
                    # If two clusters share their endpoints, the policy of the first one decides.
                    wanted.setdefault(source, {}).setdefault(active.endpoints, override)
        former = self._overlays.pop(group, {})
        overlays = {
            source: former[source] if source in former and former[source].overrides == own else Overlay(ENDPOINT, own)
            for source, own in wanted.items()
        }
        if overlays:
            self._overlays[group] = overlays
        changed = self._cache.overlay(group, overlays)
        if changed:
            self._wake((group,), changed)

    # Storing

    async def _save(self, policies: Iterable[ActivePolicy], now: float) -> None:
        """Store new decisions, each policy at most every ``save_every_s``. A failure is logged and retried."""
        for active in policies if self._holds_lease() else ():
            if active.is_unsaved and not 0 <= now - active.saved_at < self._save_every_s:
                active.is_unsaved, active.saved_at = False, now
                try:
                    await self._store_decided(active)
                except StoreError as error:
                    active.is_unsaved = True
                    self.stale_n += isinstance(error, StaleDocumentError)
                    _log.warning("assignment.not_stored", **_named(active.key), error_message=str(error))

    async def _store_decided(self, active: ActivePolicy) -> None:
        if active.assignment is not None:
            body = json.dumps({**assignment_document(active.assignment), "history": active.history.document()}).encode()
            await self._policies.put_decision(active.key, body)


def _read(key: Key, body: bytes) -> tuple[Assignment | None, DecisionHistory]:
    """A stored assignment with its history; None for one that this release cannot read. It is then decided again."""
    try:
        document = json.loads(body)
        assignment = read_assignment(document)
    except (ValueError, ValidationError) as error:
        _log.error("assignment.unreadable", **_named(key), error_message=str(error))
        return None, DecisionHistory()
    try:
        return assignment, read_history(document.get("history", ()))  # earlier releases wrote none
    except ValidationError as error:
        _log.error("assignment.history_unreadable", **_named(key), error_message=str(error))
        return assignment, DecisionHistory()


def _named(key: Key) -> dict[str, str]:
    return {"group": key[0], "cluster": key[1]}
