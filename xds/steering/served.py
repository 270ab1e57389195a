"""Traffic assignment on one server."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from prometheus_client.registry import Collector

from xds.admin.other_servers import OtherServers
from xds.feature import ServedFeature
from xds.fleet.fleet import Fleet
from xds.model.errors import Violation
from xds.push.documents import GroupDocuments
from xds.push.request import PlannedChange
from xds.snapshots.cache import SnapshotCache
from xds.steering.assignments import SAVE_EVERY_S, Assignments, DemandSource, WakeSources
from xds.steering.metrics import AssignmentMetrics
from xds.steering.policies import PolicyTable
from xds.steering.policy_review import review_policies
from xds.store.base import Store
from xds.tasks.lifecycle import HoldsLease, alone


class ServedSteering(ServedFeature):
    """The policies of one server, and the loop that decides them."""

    def __init__(
        self,
        store: Store,
        cache: SnapshotCache,
        fleet: Fleet,
        load: DemandSource,
        wake: WakeSources,
        holds_lease: HoldsLease = alone,
        *,
        is_shared: bool = False,
        others: OtherServers | None = None,
    ) -> None:
        """``is_shared``: ``others`` serve what this one decides, and hear of it by the store."""
        save_every_s = 0.0 if is_shared else SAVE_EVERY_S
        self.policies = PolicyTable(store)
        self.assignments = Assignments(
            self.policies, cache, fleet, load, wake, holds_lease=holds_lease, save_every_s=save_every_s, others=others
        )

    def documents(self) -> Sequence[GroupDocuments]:
        return (self.policies,)

    def review(self, planned: PlannedChange) -> list[Violation]:
        """Warnings about the policies with clusters or endpoints in the change."""
        return review_policies(planned, self.policies.of(planned.group))

    def collectors(self) -> Iterator[Collector]:
        yield AssignmentMetrics(self.assignments)

    async def load(self) -> None:
        await self.assignments.load()

    async def reload(self) -> None:
        """Serve the restored decisions, and no others."""
        await self.assignments.load()

    def ready(self) -> None:
        self.assignments.start()

    async def drain(self) -> None:
        """Decide no more: missing load reports must not change decisions."""
        await self.assignments.close()

    async def close(self) -> None:
        """Stop the loop and store the last decisions."""
        await self.assignments.close()
