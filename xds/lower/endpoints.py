"""What a pushed ClusterLoadAssignment says of its localities."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from google.protobuf.message import DecodeError

from xds.codec import schema
from xds.model.node import Locality
from xds.model.resource import Resource
from xds.model.resource_type import ENDPOINT

# envoy.config.core.v3.HealthStatus: UNKNOWN is what nobody checks, and is sent requests like HEALTHY.
_HEALTHY = frozenset({0, 1})
_REMEMBERED = 1024  # assignments


@dataclass(frozen=True, slots=True)
class PushedLocality:
    """One locality over all its entries; ``priority`` is the best of them, ``weight`` that of the entries there.

    ``healthy`` counts the endpoints that are not marked as anything else.
    """

    endpoints: int
    healthy: int
    priority: int
    weight: int | None


def read_assignment(pushed: Resource) -> Any:
    """The message of a pushed assignment; an empty one where it cannot be read."""
    message = schema.require(ENDPOINT)()
    try:
        message.ParseFromString(pushed.body)
    except DecodeError:  # what is pushed was read before
        message.Clear()
    return message


def locality_of(entry: Any) -> Locality:
    """The locality of an entry (LocalityLbEndpoints)."""
    return Locality(entry.locality.region, entry.locality.zone, entry.locality.sub_zone)


@lru_cache(_REMEMBERED)
def pushed_localities(pushed: Resource) -> Mapping[Locality, PushedLocality]:
    """The localities of a pushed assignment. The first time this costs as much as it has endpoints."""
    entries: dict[Locality, list[Any]] = {}
    for entry in read_assignment(pushed).endpoints:
        entries.setdefault(locality_of(entry), []).append(entry)
    return {locality: _summed(members) for locality, members in entries.items()}


def _summed(entries: list[Any]) -> PushedLocality:
    priority = min(entry.priority for entry in entries)
    weights = [
        entry.load_balancing_weight.value
        for entry in entries
        if entry.priority == priority and entry.HasField("load_balancing_weight")
    ]
    return PushedLocality(
        endpoints=sum(len(entry.lb_endpoints) for entry in entries),
        healthy=sum(one.health_status in _HEALTHY for entry in entries for one in entry.lb_endpoints),
        priority=priority,
        weight=weights[-1] if weights else None,  # of two of one locality and priority, Envoy heeds the last
    )
