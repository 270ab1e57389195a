"""Instances of a service as endpoints: which of them get requests, at which port, with which weight and labels."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from xds.catalog.instance import Health, Instance
from xds.destination.endpoint import WEIGHT_MAX, WEIGHT_ONE, DestinationEndpoint, Labels, ordered
from xds.destination.mesh_role import MeshRules, linkerd_values, mesh_role

# Of the metadata, what Linkerd's own controller has as labels. Everything else would be a label without bound.
LABELS = frozenset(
    {
        "pod", "deployment", "replicaset", "replicationcontroller", "statefulset", "daemonset", "job", "cronjob",
        "serviceaccount", "control_plane_ns", "pod_template_hash", "external_workload",
    }
)  # fmt: skip
_NOTHING: Mapping[str, str] = MappingProxyType({})
_HOSTNAME, _ZONES = "hostname", "zone_hints"


def endpoints_of(
    instances: Iterable[tuple[Instance, Health]],
    port: int,
    rules: MeshRules,
    *,
    defaults: Mapping[str, str] = _NOTHING,
    only_passing: bool = False,
) -> tuple[DestinationEndpoint, ...]:
    """The instances that get requests for a port, by address and port.

    A passing instance counts with its weight, one with a warning with the weight for that, unless ``only_passing``;
    others, and those of weight 0, get none. So it is in the assignment that Envoy gets. ``defaults`` are the values for
    Linkerd that the service has.
    """
    found = []
    for instance, health in instances:
        weight = _weight(instance, health, only_passing)
        if weight > 0:
            found.append(endpoint_of(instance, port, weight, rules, defaults))
    return ordered(found)


def _weight(one: Instance, health: Health, only_passing: bool) -> int:
    if health is Health.PASSING:
        return one.weight
    return one.warning_weight if health is Health.WARNING and not only_passing else 0


def endpoint_of(
    one: Instance, port: int, weight: int, rules: MeshRules, defaults: Mapping[str, str] = _NOTHING
) -> DestinationEndpoint:
    """An instance as an endpoint.

    The port is the one that was asked for if the instance has it, under any name; else its own. Instances know no
    service port that would lead to another one.
    """
    own = port if port in one.ports.values() else one.port
    values = {**defaults, **linkerd_values(one.meta)}
    return DestinationEndpoint(
        one.address,
        own,
        min(WEIGHT_ONE * weight, WEIGHT_MAX),
        weight,
        _labels(one, rules),
        mesh_role(values, one.meta, own, rules),
        one.locality.zone or one.locality.region,
        one.node,
        frozenset(filter(None, (one.id, one.meta.get(_HOSTNAME), values.get(_HOSTNAME), one.meta.get("pod")))),
        frozenset(zone for zone in values.get(_ZONES, "").replace(" ", "").split(",") if zone),
    )


def _labels(one: Instance, rules: MeshRules) -> Labels:
    found = [(key, value) for key, value in one.meta.items() if value and (key in LABELS or key in rules.label_keys)]
    found.append(("service_id", one.id))
    if one.node:
        found.append(("node", one.node))
    return tuple(sorted(found))
