"""The ClusterLoadAssignment of a lowered cluster, from the instances that each of its targets selects. Pure.

Health, weights, addresses and localities are those of `xds.lower.instances`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from xds.catalog.instance import Health, Instance
from xds.lower.instances import EndpointRule, lower_priorities
from xds.lower.lowered import LoweredAssignment
from xds.model.resource import Resource

Selected = Iterable[tuple[Instance, Health]]


def lower_assignment(assignment: LoweredAssignment, selected: Sequence[Selected]) -> Resource:
    """The assignment with these instances: those of each target, in the order of the targets.

    A target without instances keeps its priority, as an empty entry: Envoy wants priorities without a gap.
    """
    rules = [EndpointRule(one.binding.port, one.binding.only_passing) for one in assignment.targets]
    return lower_priorities(assignment.name, list(zip(rules, selected, strict=True)))
