"""Policies in force on a plane of two zones, with invented load reports."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from tests.support.plane import Plane
from tests.support.resources import steered_cluster, zoned_load_assignment
from xds.codec.load_assignment import decode_assignment, locality_of
from xds.codec.resources import decode_resource
from xds.fleet.fleet import Fleet
from xds.lrs.figures import ClusterDemand, Flow, LoadStreamStatus, SourceDemand
from xds.model.node import Locality, Node
from xds.model.resource import Resource
from xds.model.resource_type import ENDPOINT
from xds.protocol.events import Identified
from xds.steering.assignments import SAVE_EVERY_S, Assignments, DemandSource
from xds.steering.core.policy import Policy
from xds.steering.core.policy_document import parse_policy
from xds.steering.policies import PolicyTable
from xds.steering.policy_review import review_policies

GROUP = "edge"
KEY = (GROUP, "web")
A, B = Locality("r", "za"), Locality("r", "zb")
ZONES = {"za": (1, 2), "zb": (3, 4)}
_streams = count(1)


def policy(per_locality_rps: float = 100.0, **fields: Any) -> Policy:
    """A policy with equal capacity for each zone, and decisions every second."""
    document = {
        "capacity": {"rates": [{"per_locality_rps": per_locality_rps}]},
        "interval_s": 1,
        "dwell_s": 0,
        "stale_after_s": 3,
        "fallback_after_s": 10,
        "maximum_step": 1.0,
        **fields,
    }
    return parse_policy(document, "web")


def cluster(name: str = "web", **fields: Any) -> Resource:
    """An EDS cluster with everything that a policy needs."""
    return decode_resource(steered_cluster(name, **fields))


def endpoints(zones: Mapping[str, tuple[int, ...]] = ZONES, name: str = "web") -> Resource:
    return decode_resource(zoned_load_assignment(name, zones))


@dataclass
class Reports:
    """Load reports as the test states them. ``rps`` is by source."""

    interval_s: float = 1.0
    rps: dict[Locality, float] = field(default_factory=dict)
    flows: tuple[Flow, ...] = ()
    reported: float | None = None
    open: list[LoadStreamStatus] = field(default_factory=list)
    ended: dict[str, float] = field(default_factory=dict)

    def demand(self, group: str, cluster: str, now: float, window_s: float) -> ClusterDemand:
        at = now if self.reported is None else self.reported
        sources = tuple(SourceDemand(source, rps, 0.0, 0.0, 0, 1, at, rps) for source, rps in self.rps.items())
        return ClusterDemand(cluster, window_s, at, sources, self.flows)

    def streams(self) -> list[LoadStreamStatus]:
        return list(self.open)

    def departed_nodes(self) -> dict[str, float]:
        return self.ended


def policies_of(plane: Plane) -> PolicyTable:
    """The policies of a plane, as a server has them: those of the publisher, if it has some already."""
    for known in plane.publisher.documents:
        if isinstance(known, PolicyTable):
            return known
    policies = PolicyTable(plane.store)
    plane.publisher.documents.append(policies)
    plane.publisher.reviews.append(lambda planned: review_policies(planned, policies.of(planned.group)))
    return policies


class Steered:
    """A plane with its assignments; ``woken`` lists the localities whose streams were woken.

    Demand is that of ``reports``, unless another source of it is given.
    """

    def __init__(
        self,
        plane: Plane,
        reports: Reports | None = None,
        load: DemandSource | None = None,
        save_every_s: float = SAVE_EVERY_S,
    ) -> None:
        self.plane = plane
        self.reports = reports or Reports()
        self.now = 1_000_000.0
        self.holds_lease = True
        self.woken: list[frozenset[Locality]] = []
        self.assignments = Assignments(
            policies_of(plane),
            plane.cache,
            plane.fleet,
            load or self.reports,
            lambda groups, sources: self.woken.append(sources),
            lambda: self.now,
            lambda: self.holds_lease,
            save_every_s,
        )

    async def step(self, seconds: float = 1.0) -> None:
        """Advance the clock and decide what is due."""
        self.now += seconds
        await self.assignments.tick(self.now)

    def served(self, locality: Locality, name: str = "web", node: str = "n") -> dict[str, tuple[int, int]]:
        """What the nodes of a locality are served: priority and weight by zone."""
        view = self.plane.cache.resolve(Node(node, GROUP, locality))
        assert view is not None
        entries = decode_assignment(view.snapshot.get(ENDPOINT).resources[name]).endpoints
        return {locality_of(one).zone: (one.priority, one.load_balancing_weight.value) for one in entries}

    def shares(self, locality: Locality) -> dict[str, float]:
        """The share of requests of each zone."""
        split = {zone: weight for zone, (priority, weight) in self.served(locality).items() if priority == 0}
        return {zone: weight / sum(split.values()) for zone, weight in split.items()}

    def events(self) -> list[str]:
        """The actions of assignment events."""
        from xds.fleet.event_log import EventFilter, EventKind

        page = self.plane.fleet.events.after(0, EventFilter(frozenset({EventKind.ASSIGNMENT})), 1000)
        return [event.action for event in page.events]


def connect(fleet: Fleet, locality: Locality, group: str = GROUP) -> None:
    """A node of a locality connects."""
    stream = next(_streams)
    fleet.stream_opened(stream, f"p{stream}", "ADS", "sotw", 0.0)
    fleet.apply_events(stream, [Identified(Node(f"n{stream}", group, locality), group)], 0.0)
