"""The ClusterLoadAssignment of a lowered cluster, from the instances that each of its targets selects. Pure.

Health, weights, addresses and localities are those of `xds.services.core.endpoints`. Each target is a priority of its
own.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from xds.mesh.core.lower.lowered import LoweredAssignment
from xds.model.resource import Resource
from xds.services.core.endpoints import (
    ServedEndpoint,
    assignment_of,
    by_address,
    locality_entries,
    locality_entry,
)
from xds.services.core.instance import NOWHERE
from xds.wire.fields import bytes_field, varint_field

# In percent. With this factor a priority with one healthy endpoint of a thousand still gets all requests.
OVERPROVISIONING_FACTOR = 100_000

_Priority = dict[tuple[str, int], ServedEndpoint]


def lower_priorities(assignment: LoweredAssignment, endpoints: Sequence[Collection[ServedEndpoint]]) -> Resource:
    """The assignment with the endpoints of each target, in the order of the targets.

    Each target must have an address and port once. Envoy has each host once, so an address and port is in one priority
    only: the first in which it is healthy, else the first that has it. With several priorities, and in a member of an
    aggregate, requests go to the next priority or cluster only while no endpoint of the earlier ones is healthy. An
    empty priority has an empty entry, because gRPC refuses gaps; empty priorities at the end are left out.
    """
    priorities = list(endpoints) if len(endpoints) == 1 else _each_once([by_address(each) for each in endpoints])
    while priorities and not priorities[-1]:
        priorities.pop()
    body = b"".join(_entries(priority, each) for priority, each in enumerate(priorities))
    if len(priorities) > 1 or assignment.is_member:
        body += bytes_field(4, bytes_field(3, varint_field(1, OVERPROVISIONING_FACTOR)))
    return assignment_of(assignment.name, body)


def _entries(priority: int, endpoints: Collection[ServedEndpoint]) -> bytes:
    if not endpoints:
        return locality_entry(NOWHERE, (), priority)
    return locality_entries(endpoints, priority)


def _each_once(priorities: list[_Priority]) -> list[Collection[ServedEndpoint]]:
    """The endpoints of each priority, without addresses that belong to another priority."""
    owners: dict[tuple[str, int], int] = {}
    for index, endpoints in enumerate(priorities):
        for address, one in endpoints.items():
            owner = owners.setdefault(address, index)
            if one.is_healthy and not priorities[owner][address].is_healthy:
                owners[address] = index
    return [
        [one for address, one in endpoints.items() if owners[address] == index]
        for index, endpoints in enumerate(priorities)
    ]
