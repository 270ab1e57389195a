"""Live assignments that follow services of the catalog: those of bindings, and those of lowered clusters.

They are observed state: they change with the instances and make no revision. While no source has shown a service, an
assignment that follows it is not computed: the pushed one is served, and the endpoints of a former live one drain.

A lowered cluster has no pushed assignment. Its assignment waits until each source has said whether it has the service,
and for `EMPTY_S` after that if none has it, since its instances may come soon. Then it is served without them, so that
the cluster becomes warm and a failover goes on to the next one.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

import structlog

from xds.live.assignment_edits import empty_assignment
from xds.live.draining import DrainingEndpoint, drain_missing, still_draining, with_draining
from xds.live.owners import LiveEndpoints, OwnedError, Owner
from xds.model.compared_name import ComparedName, compared
from xds.model.resource import Resource
from xds.services.catalog import ServiceCatalog
from xds.services.core.draining import SocketAddress
from xds.services.core.endpoints import ServedEndpoint, priorities_in
from xds.services.followed_target import DrainingEndpoints, FollowedTarget
from xds.store.document_keys import Key

_COMPUTED_AT_ONCE = 200  # assignments, before other tasks run
_TIMER_MARGIN_S = 0.01  # so that no timer ends before the drain that it waits for
_FOLLOW_PUSHES_S = 1.0  # a push is served within this time while endpoints of a former owner drain

EMPTY_S = 2.0  # an instance that is registered right after its service is used may take this long to be shown

Lower = Callable[[Sequence[Collection[ServedEndpoint]]], Resource]

_log = structlog.get_logger(logger_name="xds.services.followed_assignments")


@dataclass(slots=True)
class FollowedAssignment:
    """An assignment that follows services. ``is_live``: it is served; the instances of its services are known.

    * ``targets``: in the order of ``lower``'s argument, which is that of the priorities;
    * ``is_answered``: all sources have said whether they have its services;
    * ``is_overdue``: it has waited long enough, so it is computed without the instances of unknown services;
    * ``takes_over``: proxies may have another assignment of this name, whose endpoints drain when this one is served;
    * ``former_endpoints``: endpoints of a former owner that drain while the instances are not known and the pushed
      assignment is served; None: that has not begun.
    """

    key: Key  # group and assignment
    targets: tuple[FollowedTarget, ...]
    lower: Lower
    is_live: bool = False
    is_answered: bool = False
    is_overdue: bool = False
    takes_over: bool = False
    former_endpoints: tuple[DrainingEndpoint, ...] | None = None

    @property
    def services(self) -> frozenset[str]:
        """The services that it follows."""
        return frozenset(target.binding.service for target in self.targets)

    @property
    def next_end(self) -> float | None:
        """When the next endpoint has drained (epoch seconds); None if no endpoint drains."""
        ends = (target.draining.next_end for target in self.targets)
        return min((end for end in ends if end is not None), default=None)

    def target_of(self, priority: int) -> FollowedTarget:
        """The target of a priority; the last target for a priority beyond it."""
        return self.targets[min(priority, len(self.targets) - 1)]

    def take_over(self, served: Resource, until: float) -> None:
        """Let the endpoints of the served assignment drain, except for those that drain already."""
        draining: set[SocketAddress] = {address for target in self.targets for address, _, _ in target.draining}
        for priority, endpoints in priorities_in(served).items():
            replaced = [one for address, one in endpoints.items() if address not in draining]
            self.target_of(priority).drain(replaced, until, again=True)


class FollowedAssignments:
    """The followed assignments of one kind of owner. ``user`` names them in the catalog; ``owner`` has the kind.

    ``unread_s``: how long an assignment waits for a source that does not say whether it has the service; None: without
    instances, the pushed assignment is served.
    """

    def __init__(
        self,
        catalog: ServiceCatalog,
        live: LiveEndpoints,
        owner: Owner,
        user: str,
        clock: Callable[[], float],
        unread_s: float | None = None,
    ) -> None:
        self.failures = 0  # assignments that could not be computed because of a bug
        self.unsaved: set[Key] = set()  # those whose draining endpoints may differ from what `DrainPersistence` wrote
        self._catalog = catalog
        self._live = live
        self._owner = owner
        self._user = user
        self._clock = clock
        self._unread_s = unread_s
        self._assignments: dict[Key, FollowedAssignment] = {}
        self._by_service: dict[ComparedName, set[Key]] = {}
        live.changes[owner.kind] += 0  # a metric that is there from the start
        self._names: Counter[str] = Counter()  # of services as the assignments write them
        self._serves = False  # whether proxies are served
        self._timers: dict[Key, asyncio.TimerHandle] = {}  # until an assignment must be computed again
        catalog.listen(self.follow)

    def __len__(self) -> int:
        return len(self._assignments)

    @property
    def live_n(self) -> int:
        """The number of assignments that are served. May be called in another thread."""
        return sum(one.is_live for one in list(self._assignments.values()))

    @property
    def services(self) -> Collection[ComparedName]:
        """The services that are followed."""
        return self._by_service.keys()

    def of_service(self, service: str) -> list[Key]:
        """The assignments that follow a service."""
        return sorted(self._by_service.get(compared(service), ()))

    def start(self) -> None:
        """From now on proxies are served: when an assignment is served first, the pushed endpoints drain."""
        self._serves = True
        for assignment in self._assignments.values():
            assignment.takes_over = not assignment.is_live

    def draining(self, key: Key) -> dict[int, DrainingEndpoints]:
        """The draining endpoints of an assignment, by the index of their target."""
        assignment = self._assignments.get(key)
        targets = enumerate(assignment.targets if assignment is not None else ())
        return {priority: target.draining for priority, target in targets if target.draining}

    def resume(self, key: Key, draining: Mapping[int, DrainingEndpoints]) -> None:
        """Let the endpoints drain on that drained before a restart, once the assignment is served."""
        assignment = self._assignments.get(key)
        if assignment is not None:
            for priority, endpoints in draining.items():
                assignment.target_of(priority).resume(endpoints)

    def begin(self, assignment: FollowedAssignment, owner: Owner) -> None:
        """Follow services with an assignment, in address of a former one of its name. Then call ``use`` and ``serve``.

        Endpoints of the former assignment that it lacks drain. Raises ``OwnedError``.
        """
        self._live.claim(*assignment.key, owner)
        assignment.takes_over = self._serves
        former = self._assignments.get(assignment.key)
        if former is not None:
            self.forget(assignment.key)
            if former.is_live:
                _succeed(former, assignment)
        self._assignments[assignment.key] = assignment
        self._names.update(assignment.services)
        for service in set(map(compared, assignment.services)):
            self._by_service.setdefault(service, set()).add(assignment.key)

    def end(self, group: str, names: Collection[str]) -> None:
        """End assignments: the pushed ones are served again. Then call ``use``.

        A name with another owner stays with that owner.
        """
        owned = [name for name in names if self._owns((group, name))]
        for name in names:
            self.forget((group, name))
        self._live.release(group, owned, self._owner)

    def forget(self, key: Key) -> None:
        """End an assignment, but change neither the owner of its name nor what is served. Then call ``use``."""
        self._stop_timer(key)
        assignment = self._assignments.pop(key)
        self._names.subtract(assignment.services)
        for name in [name for name in assignment.services if not self._names[name]]:
            del self._names[name]
        for service in set(map(compared, assignment.services)):
            keys = self._by_service[service]
            keys.discard(key)
            if not keys:
                del self._by_service[service]

    def use(self) -> None:
        """Let sources observe the services that are followed."""
        self._catalog.use(self._user, self._names)

    async def follow(self, services: Collection[ComparedName]) -> None:
        """Compute the assignments that follow these services again. Each group's streams are woken once."""
        by_group: dict[str, dict[Key, None]] = {}
        for service in services:
            for key in self._by_service.get(service, ()):
                by_group.setdefault(key[0], {})[key] = None
        for group, members in sorted(by_group.items()):
            keys = list(members)
            for start in range(0, len(keys), _COMPUTED_AT_ONCE):
                self.serve(group, keys[start : start + _COMPUTED_AT_ONCE])
                if start + _COMPUTED_AT_ONCE < len(keys):
                    await asyncio.sleep(0)

    def serve(self, group: str, keys: Iterable[Key], *, wakes: bool = True) -> bool:
        """Compute assignments of a group and serve them, except for those whose instances are not known.

        Returns whether what the group is served has changed.
        """
        put: dict[str, Resource] = {}
        for key in keys:
            assignment = self._assignments.get(key)
            if assignment is None or not self._owns(key):  # it ended meanwhile, or the store is being loaded
                continue
            try:
                resource = self._compute(assignment)
            except Exception:
                # A bug in one assignment must not keep changes from the others. What is served stays.
                self.failures += 1
                _log.exception("assignment.failed", group=group, assignment=key[1])
                continue
            if resource is not None:
                put[key[1]] = resource
                assignment.is_live = True
        return bool(put) and self._live.assign(group, self._owner, put, wakes=wakes)

    def _owns(self, key: Key) -> bool:
        """Whether no owner of another kind has the name. While the store is loaded, another owner may have it."""
        try:
            self._live.check(key[0], (key[1],), self._owner)
        except OwnedError as error:
            _log.warning("assignment.owned", group=key[0], assignment=key[1], error_message=str(error))
            return False
        return True

    def _compute(self, assignment: FollowedAssignment) -> Resource | None:
        """The assignment to serve; None while the instances of its services are not known."""
        instances = {service: self._catalog.instances(service) for service in assignment.services}
        if not (assignment.is_live or assignment.is_overdue or all(map(self._catalog.is_known, instances))):
            self._wait_for_instances(assignment)
            return None
        now, drain_s = self._clock(), self._catalog.drain_s
        if assignment.takes_over:
            self._take_over(assignment, now + drain_s)
        endpoints = [
            target.served_endpoints(instances[target.binding.service], now, drain_s) for target in assignment.targets
        ]
        if assignment.next_end is not None:
            self.unsaved.add(assignment.key)
        self._start_drain_timer(assignment, now)
        return assignment.lower(endpoints)

    def _take_over(self, assignment: FollowedAssignment, until: float) -> None:
        assignment.takes_over = False
        served = self._live.served(*assignment.key)
        if served is not None:
            assignment.take_over(served, until)

    def _start_drain_timer(self, assignment: FollowedAssignment, now: float) -> None:
        """Compute the assignment again when the next endpoint has drained."""
        self._stop_timer(assignment.key)
        if assignment.next_end is not None:
            after_s = max(assignment.next_end - now, 0) + _TIMER_MARGIN_S
            self._call_later(after_s, self._serve_one, assignment)

    def _wait_for_instances(self, assignment: FollowedAssignment) -> None:
        if self._unread_s is None:
            self._serve_pushed(assignment)
            return
        if not self._catalog.is_started:  # the assignment is computed again at the start
            return
        is_answered = not self._catalog.unread(assignment.services)
        if assignment.key in self._timers and assignment.is_answered == is_answered:
            return
        self._stop_timer(assignment.key)
        assignment.is_answered = is_answered
        self._call_later(EMPTY_S if is_answered else self._unread_s, self._serve_overdue, assignment)

    def _serve_pushed(self, assignment: FollowedAssignment) -> None:
        """Serve the pushed assignment. The endpoints of a former live assignment drain first."""
        live, (group, name), now = self._live.get(*assignment.key), assignment.key, self._clock()
        if live is None:
            return
        pushed = self._live.pushed(group, name) or empty_assignment(name)
        if assignment.former_endpoints is None:
            until = now + self._catalog.drain_s if self._serves else now
            assignment.former_endpoints = drain_missing(live, pushed, until)
        assignment.former_endpoints = still_draining(assignment.former_endpoints, pushed, now)
        self._stop_timer(assignment.key)
        if not assignment.former_endpoints:
            self._live.serve_pushed(group, name)
            return
        self._live.assign(group, self._owner, {name: with_draining(pushed, assignment.former_endpoints)})
        next_end = min(one.until_s for one in assignment.former_endpoints)
        after_s = min(next_end - now, _FOLLOW_PUSHES_S) + _TIMER_MARGIN_S
        self._call_later(after_s, self._serve_one, assignment)

    def _call_later(
        self, after_s: float, call: Callable[[FollowedAssignment], None], assignment: FollowedAssignment
    ) -> None:
        self._timers[assignment.key] = asyncio.get_running_loop().call_later(after_s, call, assignment)

    def _stop_timer(self, key: Key) -> None:
        timer = self._timers.pop(key, None)
        if timer is not None:
            timer.cancel()

    def _serve_one(self, assignment: FollowedAssignment) -> None:
        self.serve(assignment.key[0], (assignment.key,))

    def _serve_overdue(self, assignment: FollowedAssignment) -> None:
        """The assignment has waited long enough for instances."""
        self._stop_timer(assignment.key)
        assignment.is_overdue = True
        unread = self._catalog.unread(assignment.services)
        if unread:
            group, name = assignment.key
            _log.warning("assignment.unread", group=group, assignment=name, services=unread, waited_s=self._unread_s)
        self._serve_one(assignment)


def _succeed(former: FollowedAssignment, assignment: FollowedAssignment) -> None:
    """Draining endpoints continue to drain. The other endpoints of ``former`` drain when ``assignment`` is served."""
    assignment.is_live = assignment.services <= former.services
    assignment.takes_over = True
    for priority, target in enumerate(former.targets):
        assignment.target_of(priority).resume(target.draining)
