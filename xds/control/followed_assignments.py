"""Assignments that follow services of the catalog: those of bindings, and those of lowered clusters.

What they lay is observed state: it changes with the instances and makes no revision. While it is not known which
instances a service has, nothing is laid anew, so that what was laid before stays.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import structlog

from xds.catalog.binding import Binding, InstanceSelection
from xds.catalog.draining import Place, place_of
from xds.catalog.instance import Health, Instance
from xds.catalog.service_index import ServiceInstance
from xds.control.catalog import ServiceCatalog
from xds.control.live_endpoints import LiveEndpoints, Owner
from xds.control.policies import Key
from xds.model.resource import Resource

_LAID_AT_ONCE = 200  # before other tasks run
_LATER_S = 0.01  # a timer must not end before the time that it waits for

Selected = tuple[Instance, Health]
Lower = Callable[[Sequence[Iterable[Selected]]], Resource]

_log = structlog.get_logger(logger_name="xds.control.followed_assignments")


@dataclass(slots=True)
class FollowedTarget:
    """One selection of instances of an assignment.

    ``selected`` are the instances that were selected last, where the catalog does not let all of them drain itself.
    ``leaving`` are instances that are not selected any more and drain, with the time when they are gone.
    """

    selection: InstanceSelection
    selected: dict[Place, Selected] = field(default_factory=dict)
    leaving: dict[Place, tuple[Instance, float]] = field(default_factory=dict)

    @property
    def binding(self) -> Binding:
        """Which instances are selected."""
        return self.selection.binding

    @property
    def selects_all(self) -> bool:
        """Whether all instances are selected, so that the catalog alone lets them drain."""
        return not (self.binding.filter or self.binding.datacenter)

    def advance(self, instances: Iterable[ServiceInstance], now: float, drain_s: float) -> Iterable[Selected]:
        """Take over what is selected now. Returns the instances to lay: what is selected, and what drains."""
        if self.selects_all and not (self.selected or self.leaving):
            return ((one.instance, one.health) for one in instances)
        selected = by_place(self.selection.select(instances))
        for place, (instance, health) in self.selected.items():
            if place not in selected and health is not Health.DRAINING:
                self.leaving[place] = instance, now + drain_s
        self.leaving = {
            place: (instance, until)
            for place, (instance, until) in self.leaving.items()
            if place not in selected and until > now
        }
        self.selected = {} if self.selects_all else selected
        return [*selected.values(), *((instance, Health.DRAINING) for instance, _ in self.leaving.values())]

    def succeed(self, before: FollowedTarget, instances: Iterable[ServiceInstance]) -> None:
        """Take the place of another selection: what it selected drains as soon as something else is laid."""
        self.selected = by_place(before.selection.select(instances))
        self.leaving = before.leaving


@dataclass(slots=True)
class FollowedAssignment:
    """An assignment in force. ``is_laid``: it is known which instances its services have, so it is laid.

    ``targets`` are in the order that ``lower`` takes them in. ``is_overdue``: it is laid though it is not known.
    """

    key: Key  # group and assignment
    targets: tuple[FollowedTarget, ...]
    lower: Lower
    is_laid: bool = False
    is_overdue: bool = False

    @property
    def services(self) -> frozenset[str]:
        """The services that it follows."""
        return frozenset(target.binding.service for target in self.targets)


class FollowedAssignments:
    """The assignments of one kind of owner. ``user`` is their name in the catalog; ``owner`` stands for the kind.

    ``grace_s``: an assignment with a service that no source knows is laid after so many seconds, without its
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
        self._catalog = catalog
        self._live = live
        self._owner = owner
        self._user = user
        self._clock = clock
        self._grace_s = grace_s
        self._held: dict[Key, FollowedAssignment] = {}
        self._of_service: dict[str, set[Key]] = {}
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

    def begin(self, made: FollowedAssignment, owner: Owner) -> None:
        """Put an assignment in force, in place of one of the same name; then call ``use``, and lay it.

        Instances that it does not select any more drain. Raises ``OwnedError``.
        """
        self._live.claim(*made.key, owner)
        before = self._held.get(made.key)
        self._held[made.key] = made
        if before is not None:
            self._forget_services(before)
            if before.is_laid:
                self._succeed(before, made)
        for service in made.services:
            self._of_service.setdefault(service, set()).add(made.key)

    def end(self, group: str, names: Collection[str]) -> None:
        """End assignments: what was pushed is served again. Call ``use``."""
        for name in names:
            self._forget_services(self._held.pop((group, name)))
        self._live.release(group, names, self._owner)

    def use(self) -> None:
        """Let sources observe the services that are followed."""
        self._catalog.use(self._user, self._of_service)

    async def follow(self, services: Collection[str]) -> None:
        """Lay the assignments that follow these services anew. Each group's streams are woken once."""
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
            if held is None:  # it ended while others were laid
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

    def _lowered(self, held: FollowedAssignment) -> Resource | None:
        """The assignment; None while it is not known which instances its services have."""
        instances = {service: self._catalog.instances(service) for service in held.services}
        if not (held.is_laid or held.is_overdue or all(map(self._catalog.is_known, instances))):
            if self._grace_s is not None:
                self._later(self._grace_s, self._lay_overdue, held)
            return None
        leaving_n = sum(len(target.leaving) for target in held.targets)
        now, drain_s = self._clock(), self._catalog.drain_s
        laid = [target.advance(instances[target.binding.service], now, drain_s) for target in held.targets]
        if sum(len(target.leaving) for target in held.targets) > leaving_n:
            self._later(drain_s + _LATER_S, self._lay_again, held)
        return held.lower(laid)

    def _later(self, after_s: float, call: Callable[[FollowedAssignment], None], held: FollowedAssignment) -> None:
        asyncio.get_running_loop().call_later(after_s, call, held)

    def _lay_again(self, held: FollowedAssignment) -> None:
        self.lay(held.key[0], (held.key,))

    def _lay_overdue(self, held: FollowedAssignment) -> None:
        """No source has shown a service in time. Sources are asked only once the catalog is loaded."""
        if self._held.get(held.key) is held and not held.is_laid:
            held.is_overdue = self._catalog.is_started
            self._lay_again(held)

    def _succeed(self, before: FollowedAssignment, made: FollowedAssignment) -> None:
        made.is_laid = made.services <= before.services
        by_service = {target.binding.service: target for target in reversed(before.targets)}
        for index, target in enumerate(made.targets):
            old = before.targets[index] if index < len(before.targets) else by_service.get(target.binding.service)
            if old is not None:
                target.succeed(old, self._catalog.instances(old.binding.service))

    def _forget_services(self, held: FollowedAssignment) -> None:
        for service in held.services:
            keys = self._of_service[service]
            keys.discard(held.key)
            if not keys:
                del self._of_service[service]


def by_place(selected: Iterable[Selected]) -> dict[Place, Selected]:
    """Instances with their health by address and port."""
    return {place_of(one[0]): one for one in selected}
