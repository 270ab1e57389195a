"""The assignments in Envoy's ``/config_dump?include_eds``, as a server would send them.

Envoy does not keep the assignments that it received. It writes them from its hosts, with a value in each field: a
weight of 0 for a locality without a weight, which this server and Envoy itself reject, and the health that Envoy has
determined. Measured with Envoy 1.40 (``tests/e2e/test_dump_conversion.py``).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from xds.codec.walk import field_value, json_key
from xds.model.resource_type import ENDPOINT

Json = dict[str, Any]

# States from health checks or outlier detection, or from the assignment: the dump does not say which.
_MAYBE_FROM_CHECKS = ("UNHEALTHY", "DEGRADED")
_CHECKS = ("health_checks", "outlier_detection")  # fields of a cluster


def assignments_as_sent(resources: Iterable[Json], clusters: Iterable[Json], notes: list[str]) -> list[Json]:
    """The resources with cleaned assignments. Of assignments with one name, from two clusters, the first is kept.

    An endpoint that is UNHEALTHY or DEGRADED loses that state if its cluster has health checks or outlier detection:
    Envoy determines it again, while a pushed state would stay. Envoy dumps a draining endpoint as UNHEALTHY too.
    """
    checked = {_assignment_name(one) for one in clusters if any(field_value(one, name) for name in _CHECKS)}
    cleaned: list[Json] = []
    names: set[str] = set()
    for one in resources:
        if one["@type"] == ENDPOINT:
            name = str(field_value(one, "cluster_name"))
            if name in names:
                continue
            names.add(name)
            _clean(one, name, name in checked, notes)
        cleaned.append(one)
    return cleaned


def _assignment_name(cluster: Json) -> str:
    source = field_value(cluster, "eds_cluster_config")
    named = field_value(source, "service_name") if isinstance(source, dict) else None
    return str(named or field_value(cluster, "name"))


def _clean(assignment: Json, name: str, checked: bool, notes: list[str]) -> None:
    states: set[str] = set()
    for locality in _dicts(assignment, "endpoints"):
        if field_value(locality, "load_balancing_weight") == 0:
            del locality[json_key(locality, "load_balancing_weight")]
        for endpoint in _dicts(locality, "lb_endpoints"):
            state = str(field_value(endpoint, "health_status"))
            if state == "HEALTHY" or (checked and state in _MAYBE_FROM_CHECKS):
                del endpoint[json_key(endpoint, "health_status")]
            if state in _MAYBE_FROM_CHECKS:
                states.add(state)
    for state in sorted(states):
        why = "left out: Envoy's own checks determine it again" if checked else "kept, since the cluster has no checks"
        notes.append(f"endpoints {name!r} has endpoints that are {state}; that state is {why}")


def _dicts(value: Json, name: str) -> Iterator[Json]:
    listed = field_value(value, name)
    yield from (one for one in listed if isinstance(one, dict)) if isinstance(listed, list) else ()
