"""The endpoints of lowered clusters: live assignments that follow services of the catalog, as those of bindings do.

The assignments are generated and not stored: a lowered upstream says which instances each assignment has. So a change
of an instance rebuilds one assignment, and makes no revision.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import partial

from xds.live.owners import EndpointOrigin, LiveEndpoints, OwnedError, Owner
from xds.mesh.core.lower.assignments import lower_priorities
from xds.mesh.core.lower.lowered import LoweredAssignment
from xds.services.catalog import ServiceCatalog
from xds.services.core.binding import InstanceSelection
from xds.services.core.index import ServiceInstance
from xds.services.followed_assignments import FollowedAssignment, FollowedAssignments
from xds.services.followed_target import FollowedTarget, origins_of
from xds.store.document_keys import Key

USER = "upstreams"  # of the catalog
LOWERED = "lowered"  # a kind of owners
_LOWERED = Owner(LOWERED, "lowered from an upstream")


class LoweredEndpoints:
    """The assignments of the lowered clusters of all groups. ``datacenter`` is that of this server.

    ``unread_s`` as in `FollowedAssignments`: after `order_timeout_s`, what leads to such a cluster is sent anyway.
    """

    def __init__(
        self,
        catalog: ServiceCatalog,
        live: LiveEndpoints,
        datacenter: str = "",
        clock: Callable[[], float] = time.time,
        unread_s: float = 30.0,
    ) -> None:
        self._live = live
        self._catalog = catalog
        self._datacenter = datacenter
        self._assigned: dict[str, Mapping[str, LoweredAssignment]] = {}
        self._clashes: dict[str, str] = {}
        self.followed = FollowedAssignments(catalog, live, _LOWERED, USER, clock, unread_s)

    def __len__(self) -> int:
        return len(self.followed)

    def find(self, key: Key) -> LoweredAssignment | None:
        """The lowered assignment of a group; None if it has none of this name."""
        return self._assigned.get(key[0], {}).get(key[1])

    def origins(self, key: Key) -> list[EndpointOrigin] | None:
        """The instances that an assignment selects now; None if the group has none of this name."""
        assignment = self.find(key)
        return origins_of(self._selected(assignment)) if assignment is not None else None

    def _selected(self, assignment: LoweredAssignment) -> list[ServiceInstance]:
        """The instances that an assignment selects now, target by target."""
        targets = [InstanceSelection(one, self._datacenter) for one in assignment.targets]
        return [each for target in targets for each in target.select(self._catalog.instances(target.binding.service))]

    def clash(self, group: str) -> str:
        """The error about an assignment that the group should have and that has another owner; empty for none."""
        return self._clashes.get(group, "")

    def check(self, group: str, assignments: Mapping[str, LoweredAssignment]) -> None:
        """Raises ``OwnedError`` for the first assignment that has another owner."""
        for name, one in assignments.items():
            self._live.check(group, (name,), owner_of(one))

    def add(self, group: str, assignments: Mapping[str, LoweredAssignment]) -> bool:
        """Follow the new and changed assignments, except for those that have got another owner.

        Returns whether the group is served other endpoints. The streams are not woken.
        """
        former = self._assigned.get(group, {})
        self._clashes.pop(group, None)
        changed = [one for name, one in assignments.items() if former.get(name) != one]
        begun = {one.name for one in changed if self._begin(group, one)}
        followed = {name: one for name, one in assignments.items() if name in begun or former.get(name) == one}
        self._assigned[group] = {**former, **followed}
        self.followed.use()
        return self.followed.serve(group, [(group, name) for name in begun], wakes=False)

    def retain(self, group: str, assignments: Mapping[str, LoweredAssignment]) -> None:
        """End all followed assignments of the group but these. The streams are woken."""
        former = self._assigned.pop(group, {})
        if not assignments:
            self._clashes.pop(group, None)
        retained = {name: one for name, one in assignments.items() if name in former}
        if retained:
            self._assigned[group] = retained
        ended = former.keys() - retained.keys()
        if ended:
            self.followed.end(group, sorted(ended))
            self.followed.use()

    async def assign_all(self, by_group: Mapping[str, Mapping[str, LoweredAssignment]]) -> None:
        """Follow these assignments and no others, after all owners of live assignments were forgotten."""
        for group, assignments in by_group.items():
            self._claim_again(group)
            self.add(group, assignments)
        for group in [*self._assigned]:
            self.retain(group, by_group.get(group, {}))
        await self.followed.follow(list(self.followed.services))

    def _begin(self, group: str, assignment: LoweredAssignment) -> bool:
        """Follow an assignment. False if it has another owner: it got one after the upstream was planned."""
        try:
            self.followed.begin(self._followed_assignment(group, assignment), owner_of(assignment))
        except OwnedError as error:
            self._clashes[group] = str(error)
            return False
        return True

    def _claim_again(self, group: str) -> None:
        """Own the followed assignments again. Those that have got another owner are no longer followed."""
        followed = self._assigned.get(group, {})
        for name, one in [*followed.items()]:
            try:
                self._live.claim(group, name, owner_of(one))
            except OwnedError:
                self.followed.forget((group, name))
                self._assigned[group] = {key: other for key, other in self._assigned[group].items() if key != name}

    def _followed_assignment(self, group: str, assignment: LoweredAssignment) -> FollowedAssignment:
        targets = (FollowedTarget(InstanceSelection(one, self._datacenter)) for one in assignment.targets)
        return FollowedAssignment((group, assignment.name), tuple(targets), partial(lower_priorities, assignment))


def owner_of(assignment: LoweredAssignment) -> Owner:
    """The owner of a lowered assignment: its first upstream."""
    upstream = next(iter(assignment.upstreams), "")
    return Owner(LOWERED, f"lowered from upstream {upstream!r}", upstream) if upstream else _LOWERED
