"""A pushed ClusterLoadAssignment: its parsed message, the localities of its entries, and Envoy's limits."""

from __future__ import annotations

from typing import Any

from xds.codec import schema
from xds.model.node import Locality
from xds.model.resource import Resource
from xds.model.resource_type import ENDPOINT

PRIORITY_LIMIT = 128  # Envoy accepts no higher priority
WEIGHT_SUM_LIMIT = (1 << 32) - 1


def decode_assignment(pushed: Resource) -> Any:
    """The parsed ClusterLoadAssignment; an empty one for bytes that cannot be parsed."""
    return schema.parsed_or_empty(ENDPOINT, pushed.body)


def locality_of(entry: Any) -> Locality:
    """The locality of an entry (LocalityLbEndpoints)."""
    return Locality(entry.locality.region, entry.locality.zone, entry.locality.sub_zone)
