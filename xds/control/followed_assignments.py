"""Assignments that follow services of the catalog: those of bindings, and those of lowered clusters.

What they lay is observed state: it changes with the instances and makes no revision. While the instances of a service
are not known, its assignments are not computed. Those with a grace keep the former ones that long; the others give the
name back to what was pushed, and what was laid before drains.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import structlog

from xds.catalog.draining import SocketAddress
from xds.control.catalog import ServiceCatalog
from xds.control.followed_target import FollowedTarget, Leaving
from xds.control.live_endpoints import LiveEndpoints, OwnedError, Owner
from xds.control.policies import Key
from xds.lower.instances import ServedEndpoint, priorities_in
from xds.lower.live_assignment import (
    DrainingEndpoint,
    drain_missing,
    empty_assignment,
    still_draining,
    with_draining,
)
from xds.model.resource import Resource

_LAID_AT_ONCE = 200  # before other tasks run
_LATER_S = 0.01  # a timer must not end before the time that it waits for
_FOLLOW_PUSHES_S = 1.0  # after so long a push is served where a former owner's endpoints drain

Lower = Callable[[Sequence[Collection[ServedEndpoint]]], Resource]

_log = structlog.get_logger(logger_name="xds.control.followed_assignments")


@dataclass(slots=True)
class FollowedAssignment:
    """An assignment in force. ``is_laid``: it is known which instances its services have, so it is laid.

    ``targets`` are in the order that ``lower`` takes them in, and that of the priorities. ``is_overdue``: it is laid
    though it is not known. ``takes_over``: proxies may hold another assignment of this name; when it is laid next, the
    endpoints of that one go. ``giving_back`` are endpoints of a former owner that drain over the pushed ones while the
    instances are not known; None: it has given nothing back.
    """

    key: Key  # group and assignment
    targets: tuple[FollowedTarget, ...]
    lower: Lower
    is_laid: bool = False
    is_overdue: bool = False
    takes_over: bool = False
    giving_back: tuple[DrainingEndpoint, ...] | None = None

    @property
    def services(self) -> frozenset[str]:
        """The services that it follows."""
        return frozenset(target.binding.service for target in self.targets)

    @property
    def next_end(self) -> float | None:
        """When the next endpoint will have drained (epoch seconds); None: none is left."""
        ends = (target.next_end for target in self.targets if target.leaving)
        return min((end for end in ends if end is not None), default=None)

    def target_of(self, priority: int) -> FollowedTarget:
        """The target of a priority; the last one for those behind it."""
        return self.targets[min(priority, len(self.targets) - 1)]

    def take_over(self, served: Resource, until: float) -> None:
        """Let the endpoints that proxies hold under the name drain, as far as they do not drain already."""
        leaving: set[SocketAddress] = {address for target in self.targets for address in target.leaving}
        for priority, endpoints in priorities_in(served).items():
            gone = [one for address, one in endpoints.items() if address not in leaving]
            self.target_of(priority).leave(gone, until, again=True)


class FollowedAssignments:
    """The assignments of one kind of owner. ``user`` is their name in the catalog; ``owner`` stands for the kind.

    ``grace_s``: an assignment with a service that no source knows is laid after this many seconds, without its
    instances; None: never.
    """

    def __init__(
        self,
        catalog: ServiceCatalog,
        live: LiveEndpoints,
        owner: Owner,
        user: str,
        clock: Callable[[], float],
        grace_s: float | None = None,
    ) -> None:
        self.failures = 0  # assignments that could not be laid because of a bug
        self.unsaved: set[Key] = set()  # what drains of these may be other than `DrainPersistence` has written
        self._catalog = catalog
        self._live = live
        self._owner = owner
        self._user = user
        self._clock = clock
        self._grace_s = grace_s
        self._held: dict[Key, FollowedAssignment] = {}
        self._of_service: dict[str, set[Key]] = {}
        self._serves = False
        self._timers: dict[Key, asyncio.TimerHandle] = {}  # until an assignment must be laid again
        self._early: set[Key] = set()  # those that wait for their instances since before sources were asked
        self._early_timer: asyncio.TimerHandle | None = None
        catalog.listen(self.follow)

    def __len__(self) -> int:
        return len(self._held)

    def __iter__(self) -> Iterator[Key]:
        """Group and assignment of all, ordered."""
        return iter(sorted(self._held))

    @property
    def laid_n(self) -> int:
        """The number of assignments that are laid. May be called in another thread."""
        return sum(one.is_laid for one in list(self._held.values()))

    @property
    def services(self) -> Collection[str]:
        """The services that are followed."""
        return self._of_service.keys()

    def find(self, key: Key) -> FollowedAssignment | None:
        """An assignment in force."""
        return self._held.get(key)

    def of_service(self, service: str) -> list[Key]:
        """The assignments that follow a service."""
        return sorted(self._of_service.get(service, ()))

    def start(self) -> None:
        """From now on proxies are served: when an assignment is laid first, the endpoints that were pushed drain."""
        self._serves = True
        for held in self._held.values():
            held.takes_over = not held.is_laid

    def leaving(self, key: Key) -> dict[int, Leaving]:
        """What drains of an assignment, by the index of its target."""
        held = self._held.get(key)
        targets = enumerate(held.targets if held is not None else ())
        return {priority: target.leaving for priority, target in targets if target.leaving}

    def resume(self, key: Key, leaving: Mapping[int, Leaving]) -> None:
        """Let drain what did so before a restart, from when the assignment is laid first."""
        held = self._held.get(key)
        if held is not None:
            for priority, found in leaving.items():
                held.target_of(priority).leaving.update(found)

    def begin(self, made: FollowedAssignment, owner: Owner) -> None:
        """Put an assignment in force, in place of one of the same name; then call ``use``, and lay it.

        Endpoints that it has not any more drain. Raises ``OwnedError``.
        """
        self._live.claim(*made.key, owner)
        made.takes_over = self._serves
        before = self._held.get(made.key)
        if before is not None:
            self.forget(made.key)
            if before.is_laid:
                _succeed(before, made)
        self._held[made.key] = made
        for service in made.services:
            self._of_service.setdefault(service, set()).add(made.key)

    def end(self, group: str, names: Collection[str]) -> None:
        """End assignments: the pushed ones are served again.

        Call ``use``. A name with another owner stays with that owner.
        """
        ours = [name for name in names if self._is_ours((group, name))]
        for name in names:
            self.forget((group, name))
        self._live.release(group, ours, self._owner)

    def forget(self, key: Key) -> None:
        """End an assignment, and leave its name and what is served as they are. Call ``use``."""
        self._stop_timer(key)
        held = self._held.pop(key)
        for service in held.services:
            keys = self._of_service[service]
            keys.discard(key)
            if not keys:
                del self._of_service[service]

    def use(self) -> None:
        """Let sources observe the services that are followed."""
        self._catalog.use(self._user, self._of_service)

    async def follow(self, services: Collection[str]) -> None:
        """Compute the assignments that follow these services again. Each group's streams are woken once."""
        by_group: dict[str, dict[Key, None]] = {}
        for service in services:
            for key in self._of_service.get(service, ()):
                by_group.setdefault(key[0], {})[key] = None
        for group, found in sorted(by_group.items()):
            keys = list(found)
            for start in range(0, len(keys), _LAID_AT_ONCE):
                self.lay(group, keys[start : start + _LAID_AT_ONCE])
                if start + _LAID_AT_ONCE < len(keys):
                    await asyncio.sleep(0)

    def lay(self, group: str, keys: Iterable[Key], *, wakes: bool = True) -> bool:
        """Lay assignments of a group, as far as it is known which instances their services have.

        Returns whether the group is served other content.
        """
        put: dict[str, Resource] = {}
        for key in keys:
            held = self._held.get(key)
            if held is None or not self._is_ours(key):  # it ended while others were laid, or the store is being loaded
                continue
            try:
                resource = self._lowered(held)
            except Exception:
                # A bug in one assignment must not keep changes from the others. What is laid stays.
                self.failures += 1
                _log.exception("assignment.failed", group=group, assignment=key[1])
                continue
            if resource is not None:
                put[key[1]] = resource
                held.is_laid = True
        return bool(put) and self._live.assign(group, self._owner, put, wakes=wakes)

    def _is_ours(self, key: Key) -> bool:
        """Whether no owner of another kind has the name. While the store is loaded, one may have it already."""
        try:
            self._live.check(key[0], (key[1],), self._owner)
        except OwnedError as error:
            _log.warning("assignment.owned", group=key[0], assignment=key[1], error_message=str(error))
            return False
        return True

    def _lowered(self, held: FollowedAssignment) -> Resource | None:
        """The assignment; None while it is not known which instances its services have."""
        instances = {service: self._catalog.instances(service) for service in held.services}
        if not (held.is_laid or held.is_overdue or all(map(self._catalog.is_known, instances))):
            self._wait_for_instances(held)
            return None
        now, drain_s = self._clock(), self._catalog.drain_s
        if held.takes_over:
            self._take_over(held, now + drain_s)
        laid = [target.laid(instances[target.binding.service], now, drain_s) for target in held.targets]
        if held.next_end is not None:
            self.unsaved.add(held.key)
        self._lay_again(held, now)
        return held.lower(laid)

    def _take_over(self, held: FollowedAssignment, until: float) -> None:
        held.takes_over = False
        served = self._live.served(*held.key)
        if served is not None:
            held.take_over(served, until)

    def _lay_again(self, held: FollowedAssignment, now: float) -> None:
        """Lay the assignment again when the next endpoint has drained."""
        self._stop_timer(held.key)
        if held.next_end is not None:
            self._later(max(held.next_end - now, 0) + _LATER_S, self._drained, held)

    def _wait_for_instances(self, held: FollowedAssignment) -> None:
        if self._grace_s is None:
            self._give_back(held)
            return
        if held.key in self._timers:
            return
        if self._catalog.is_started:
            self._later(self._grace_s, self._lay_overdue, held)
            return
        self._early.add(held.key)
        if self._early_timer is None:
            self._look_for_start_later(self._grace_s)

    def _give_back(self, held: FollowedAssignment) -> None:
        """Serve what was pushed. What a former owner of the name has laid drains first, over what is pushed by then."""
        laid, (group, name), now = self._live.get(*held.key), held.key, self._clock()
        if laid is None:
            return
        pushed = self._live.pushed(group, name) or empty_assignment(name)
        if held.giving_back is None:
            until = now + self._catalog.drain_s if self._serves else now
            held.giving_back = drain_missing(laid, pushed, until)
        held.giving_back = still_draining(held.giving_back, pushed, now)
        self._stop_timer(held.key)
        if not held.giving_back:
            self._live.give_back(group, name)
            return
        self._live.assign(group, self._owner, {name: with_draining(pushed, held.giving_back)})
        next_end = min(one.until_s for one in held.giving_back)
        self._later(min(next_end - now, _FOLLOW_PUSHES_S) + _LATER_S, self._drained, held)

    def _look_for_start_later(self, after_s: float) -> None:
        self._early_timer = asyncio.get_running_loop().call_later(after_s, self._look_for_start, after_s)

    def _look_for_start(self, every_s: float) -> None:
        """Lay what is overdue once sources were asked: one timer for all, since a start with many groups takes long."""
        self._early_timer = None
        if not self._catalog.is_started:
            self._look_for_start_later(every_s)
            return
        by_group: dict[str, list[Key]] = {}
        for key in sorted(self._early):
            held = self._held.get(key)
            if held is not None and not held.is_laid:
                held.is_overdue = True
                by_group.setdefault(key[0], []).append(key)
        self._early.clear()
        for group, keys in by_group.items():
            asyncio.get_running_loop().call_soon(self.lay, group, keys)

    def _later(self, after_s: float, call: Callable[[FollowedAssignment], None], held: FollowedAssignment) -> None:
        self._timers[held.key] = asyncio.get_running_loop().call_later(after_s, call, held)

    def _stop_timer(self, key: Key) -> None:
        timer = self._timers.pop(key, None)
        if timer is not None:
            timer.cancel()

    def _drained(self, held: FollowedAssignment) -> None:
        self.lay(held.key[0], (held.key,))

    def _lay_overdue(self, held: FollowedAssignment) -> None:
        """No source has shown a service in time."""
        self._stop_timer(held.key)
        held.is_overdue = True
        self.lay(held.key[0], (held.key,))


def _succeed(before: FollowedAssignment, made: FollowedAssignment) -> None:
    """Draining endpoints continue to drain. The other endpoints of the former one drain when the new one is served."""
    made.is_laid = made.services <= before.services
    made.takes_over = True
    for priority, target in enumerate(before.targets):
        made.target_of(priority).leaving.update(target.leaving)
