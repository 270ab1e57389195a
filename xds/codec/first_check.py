"""How long a cluster's first health check takes at most.

Envoy checks a new endpoint within ``initial_jitter`` and judges it by that one check, whatever the thresholds: "during
startup, only a single successful health check is required to mark a host healthy" (HealthCheck.healthy_threshold), and
a check without an answer has failed after ``timeout``. Until each endpoint was checked once a new cluster warms.
"""

from __future__ import annotations

from typing import Any

from xds.codec.ttl import seconds
from xds.model.resource_type import CLUSTER, V2_URLS

_CLUSTERS = frozenset((CLUSTER, V2_URLS[CLUSTER]))


def first_check_of(type_url: str, message: Any) -> float:
    """In seconds, by the slowest of the cluster's checks; 0 for one without checks and for what is no cluster."""
    if type_url not in _CLUSTERS or not message.health_checks:
        return 0.0
    return max(seconds(check.initial_jitter) + seconds(check.timeout) for check in message.health_checks)
