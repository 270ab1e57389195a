"""The endpoints of lowered clusters: the catalog lays their assignments over a group, as it does for bindings.

They are generated, and stored nowhere: what an upstream is lowered to says which instances an assignment has. So a
change of an instance rebuilds one assignment, and makes no revision.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import partial

from xds.catalog.binding import InstanceSelection
from xds.catalog.service_index import ServiceInstance
from xds.control.catalog import ServiceCatalog
from xds.control.followed_assignments import FollowedAssignment, FollowedAssignments
from xds.control.followed_target import FollowedTarget
from xds.control.live_endpoints import LiveEndpoints, OwnedError, Owner, OwnerKind
from xds.control.policies import Key
from xds.lower.assignments import lower_priorities
from xds.lower.lowered import LoweredAssignment

USER = "upstreams"  # of the catalog
# Until then a source may still show a service that is new here. An unknown service has no endpoints from then on, so
# that its cluster becomes warm and a failover goes on to the next one.
UNKNOWN_S = 2.0

_LOWERED = Owner(OwnerKind.LOWERED)


class LoweredEndpoints:
    """The assignments of the lowered clusters of all groups. ``datacenter`` is that of this server."""

    def __init__(
        self,
        catalog: ServiceCatalog,
        live: LiveEndpoints,
        datacenter: str = "",
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._live = live
        self._catalog = catalog
        self._datacenter = datacenter
        self._assigned: dict[str, Mapping[str, LoweredAssignment]] = {}
        self._clashes: dict[str, str] = {}
        self.followed = FollowedAssignments(catalog, live, _LOWERED, USER, clock, UNKNOWN_S)

    def start(self) -> None:
        """From now on proxies are served: what they hold under a name that is lowered first drains."""
        self.followed.start()

    def __len__(self) -> int:
        return len(self.followed)

    @property
    def laid_n(self) -> int:
        """The number of assignments that are laid. May be called in another thread."""
        return self.followed.laid_n

    @property
    def failures(self) -> int:
        """Assignments that could not be laid because of a bug."""
        return self.followed.failures

    def of_service(self, service: str) -> list[Key]:
        """The assignments that follow a service."""
        return self.followed.of_service(service)

    def find(self, key: Key) -> LoweredAssignment | None:
        """The lowered assignment of a group; None if it has none of this name."""
        return self._assigned.get(key[0], {}).get(key[1])

    def selected(self, assignment: LoweredAssignment) -> list[ServiceInstance]:
        """The instances that an assignment selects now, target by target."""
        targets = [InstanceSelection(one.binding, self._datacenter) for one in assignment.targets]
        return [
            each for target in targets for each in target.select_served(self._catalog.instances(target.binding.service))
        ]

    def clash(self, group: str) -> str:
        """The owners of an assignment that a group should have and that has another owner; empty for none."""
        return self._clashes.get(group, "")

    def check(self, group: str, assignments: Mapping[str, LoweredAssignment]) -> None:
        """Raises ``OwnedError`` for the first assignment that has another owner."""
        for name, one in assignments.items():
            self._live.check(group, (name,), owner_of(one))

    def add(self, group: str, assignments: Mapping[str, LoweredAssignment]) -> bool:
        """Follow the assignments that are new or other than before, but for those that have another owner meanwhile.

        Returns whether the group is served other endpoints: the streams are not woken.
        """
        held = self._assigned.get(group, {})
        self._clashes.pop(group, None)
        changed = [one for name, one in assignments.items() if held.get(name) != one]
        begun = {one.name for one in changed if self._begin(group, one)}
        followed = {name: one for name, one in assignments.items() if name in begun or held.get(name) == one}
        self._assigned[group] = {**held, **followed}
        self.followed.use()
        return self.followed.lay(group, [(group, name) for name in begun], wakes=False)

    def retain(self, group: str, assignments: Mapping[str, LoweredAssignment]) -> None:
        """Follow no others than these. The streams are woken."""
        held = self._assigned.pop(group, {})
        if not assignments:
            self._clashes.pop(group, None)
        kept = {name: one for name, one in assignments.items() if name in held}
        if kept:
            self._assigned[group] = kept
        gone = held.keys() - kept.keys()
        if gone:
            self.followed.end(group, sorted(gone))
            self.followed.use()

    async def assign_all(self, by_group: Mapping[str, Mapping[str, LoweredAssignment]]) -> None:
        """Follow these assignments and no others: after all owners of live assignments were forgotten."""
        for group, assignments in by_group.items():
            self._claim_held(group)
            self.add(group, assignments)
        for group in [*self._assigned]:
            self.retain(group, by_group.get(group, {}))
        await self.followed.follow(list(self.followed.services))

    def _begin(self, group: str, assignment: LoweredAssignment) -> bool:
        """Follow an assignment. False where it has another owner: an upstream that is planned has checked that."""
        try:
            self.followed.begin(self._made(group, assignment), owner_of(assignment))
        except OwnedError as error:
            self._clashes[group] = str(error)
            return False
        return True

    def _claim_held(self, group: str) -> None:
        """Own what is followed already. Names that have another owner meanwhile are no longer followed."""
        held = self._assigned.get(group, {})
        for name, one in [*held.items()]:
            try:
                self._live.claim(group, name, owner_of(one))
            except OwnedError:
                self.followed.forget((group, name))
                self._assigned[group] = {each: kept for each, kept in self._assigned[group].items() if each != name}

    def _made(self, group: str, assignment: LoweredAssignment) -> FollowedAssignment:
        targets = (FollowedTarget(InstanceSelection(one.binding, self._datacenter)) for one in assignment.targets)
        return FollowedAssignment((group, assignment.name), tuple(targets), partial(lower_priorities, assignment))


def owner_of(assignment: LoweredAssignment) -> Owner:
    """The owner of a lowered assignment: its first upstream."""
    return Owner(OwnerKind.LOWERED, next(iter(assignment.upstreams), ""))
