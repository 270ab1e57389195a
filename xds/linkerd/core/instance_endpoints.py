"""Instances of a service as endpoints, with port, weight and labels. Instances that get no requests are left out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from xds.linkerd.core.endpoint import WEIGHT_MAX, WEIGHT_ONE, DestinationEndpoint, Labels, ordered
from xds.linkerd.core.mesh_role import MeshRules, linkerd_values, mesh_role
from xds.services.core.instance import Health, Instance

# The metadata that Linkerd's own controller has as labels. Other metadata would make labels without bound.
LABELS = frozenset(
    {
        "pod", "deployment", "replicaset", "replicationcontroller", "statefulset", "daemonset", "job", "cronjob",
        "serviceaccount", "control_plane_ns", "pod_template_hash", "external_workload",
    }
)  # fmt: skip
_NO_VALUES: Mapping[str, str] = MappingProxyType({})
_HOSTNAME, _ZONES = "hostname", "zone_hints"


def endpoints_of(
    instances: Iterable[tuple[Instance, Health]],
    port: int,
    rules: MeshRules,
    *,
    defaults: Mapping[str, str] = _NO_VALUES,
    only_passing: bool = False,
) -> tuple[DestinationEndpoint, ...]:
    """The endpoints of instances that get requests for a port, ordered by address and port.

    As in assignments for Envoy, a passing instance has its weight, and one with a warning its warning weight unless
    ``only_passing``. Other instances, and those of weight 0, get no requests. ``defaults`` are the Linkerd values of
    the service.
    """
    endpoints = []
    for instance, health in instances:
        weight = _weight(instance, health, only_passing)
        if weight > 0:
            endpoints.append(endpoint_of(instance, port, weight, rules, defaults))
    return ordered(endpoints)


def _weight(one: Instance, health: Health, only_passing: bool) -> int:
    if health is Health.PASSING:
        return one.weight
    return one.warning_weight if health is Health.WARNING and not only_passing else 0


def endpoint_of(
    one: Instance, port: int, weight: int, rules: MeshRules, defaults: Mapping[str, str] = _NO_VALUES
) -> DestinationEndpoint:
    """An instance as an endpoint.

    The port is the requested one if the instance has it under any name, else its main port. Service ports that map to
    other ports, as in Kubernetes, are not known here.
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
    labels = [(key, value) for key, value in one.meta.items() if value and (key in LABELS or key in rules.label_keys)]
    labels.append(("service_id", one.id))
    if one.node:
        labels.append(("node", one.node))
    return tuple(sorted(labels))
