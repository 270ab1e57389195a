"""Problems of a traffic assignment policy in its group. They are warnings, since a later push may fix them. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches
from itertools import islice
from typing import Any

from xds.codec import schema
from xds.model.errors import WARNING, Violation
from xds.model.resource import Resource
from xds.model.resource_type import CLUSTER, ENDPOINT
from xds.push.content import Key
from xds.push.request import PlannedChange
from xds.snapshots.resource_lookup import Find, assignment_name
from xds.steering.core.assignment import Observation
from xds.steering.core.load_assignment import PushedLocality, pushed_localities
from xds.steering.core.policy import Policy
from xds.store.base import Delta, Drop

_COMPARED_LIMIT = 500
_SHOWN_LIMIT = 5
_SILENT_LIMIT = 0.2  # of the nodes of a source
_BALANCING_POLICY = "envoy.config.cluster.v3.LoadBalancingPolicy"
_BY_LOCALITY_WEIGHT = "envoy.extensions.load_balancing_policies.wrr_locality.v3.WrrLocality"
_EDS = 3  # Cluster.DiscoveryType


def review_policy(policy: Policy, find: Find, names: Iterable[str] = (), others: Iterable[str] = ()) -> list[Violation]:
    """Warnings about a policy in its group.

    ``find`` looks up resources of the group; ``names`` are its clusters, ``others`` the clusters with a policy.
    """
    cluster = find(CLUSTER, policy.cluster)
    if cluster is None:
        return [_unknown(policy, names)]
    name = assignment_name(cluster)
    warnings = [*_of_cluster(policy, cluster), *_of_assignment(policy, name, find)]
    earlier = (other for other in sorted(others) if name and other < policy.cluster)
    first = next((other for other in earlier if assignment_name(find(CLUSTER, other)) == name), None)
    if first is not None:
        detail = f"it shares its endpoints {name!r} with cluster {first!r}: the policy of {first!r} applies"
        warnings.append(_warning(policy, "shared_endpoints", detail))
    return warnings


def review_policies(planned: PlannedChange, policies: Mapping[str, Policy]) -> list[Violation]:
    """Warnings about the policies with clusters or endpoints in the change. ``policies`` are those of the group."""
    change = planned.request.change
    if not policies or isinstance(change, Drop):
        return []
    affected = policies
    if isinstance(change, Delta):
        touched = {*planned.resources, *change.delete}
        affected = {
            name: policy
            for name, policy in policies.items()
            if not touched.isdisjoint(_reviewed_keys(name, planned.after))
        }
    return [
        finding
        for policy in affected.values()
        for finding in review_policy(policy, planned.after, planned.names(CLUSTER), policies)
    ]


def _reviewed_keys(cluster: str, find: Find) -> set[Key]:
    return {(CLUSTER, cluster), (ENDPOINT, assignment_name(find(CLUSTER, cluster)))}


def review_times(policy: Policy, reported_every_s: float) -> list[Violation]:
    """A warning when the policy counts reports as stale before clients can send two of them."""
    if policy.stale_after_s >= 2 * reported_every_s:
        return []
    detail = f"clients report every {reported_every_s:g} s, and reports are stale after {policy.stale_after_s:g} s"
    hint = f"set stale_after_s to at least {3 * reported_every_s:g}, or load.interval_s of the server lower"
    return [_warning(policy, "stale_too_soon", detail, hint)]


def review_reports(policy: Policy, observed: Observation) -> list[Violation]:
    """Warnings about sources with a large share of nodes that do not report, so that their demand is an estimate."""
    warnings = []
    for source, own in sorted(observed.demand.items(), key=lambda one: str(one[0])):
        if own.silent > _SILENT_LIMIT * (own.nodes + own.silent):
            detail = f"{own.nodes} of {own.nodes + own.silent} nodes of {source or 'the unnamed locality'} report load"
            hint = "nodes without a load stream lack load_stats_config (Envoy) or lrs_server: {self: {}} (gRPC)"
            warnings.append(_warning(policy, "partial_reports", detail, hint))
    return warnings[:_SHOWN_LIMIT]


def review_capacity(
    policy: Policy, localities: Iterable[PushedLocality], others: Mapping[tuple[str, str], Iterable[frozenset[bytes]]]
) -> list[Violation]:
    """Warnings about other policies that count the capacity of the same endpoints too.

    ``others`` has the addresses of the endpoints of the other policies, by group and cluster. With a metric, capacity
    is learnt from the load of all clients of the endpoints, so no capacity counts twice.
    """
    if policy.capacity.metric is not None:
        return []
    own = frozenset[bytes]().union(*(each.addresses for each in localities))
    shared = {key: sum(len(own & part) for part in addresses) for key, addresses in others.items()}
    warnings = []
    for (group, cluster), count in sorted(shared.items()):
        if count:
            detail = (
                f"{count} of its {len(own)} endpoints are also those of cluster {cluster!r} in group {group!r}: "
                f"the policy of each counts all of their capacity"
            )
            hint = "divide the rates between the policies, or learn the capacity from a metric"
            warnings.append(_warning(policy, "shared_capacity", detail, hint))
    return warnings[:_SHOWN_LIMIT]


def _of_cluster(policy: Policy, cluster: Resource) -> Iterator[Violation]:
    parsed = schema.parsed_or_empty(CLUSTER, cluster.body)
    if parsed.type != _EDS:
        detail = "its type is not EDS, so the policy has no effect"
        yield _warning(policy, "not_eds", detail)
        return
    if parsed.lrs_server.WhichOneof("config_source_specifier") != "self":
        detail = "gRPC clients report no load for it"
        yield _warning(policy, "no_load_reports", detail, "set lrs_server: {self: {}} where gRPC clients use it")
    if not weighs_localities(parsed):
        detail = "it does not use locality weights: Envoy spreads requests over the endpoints of all localities equally"
        hint = "set common_lb_config: {locality_weighted_lb_config: {}}"
        yield _warning(policy, "no_locality_weights", detail, hint)


def _of_assignment(policy: Policy, name: str, find: Find) -> Iterator[Violation]:
    if not name:
        return
    pushed = find(ENDPOINT, name)
    if pushed is None:
        yield _warning(policy, "no_assignment", f"the group has no endpoints named {name!r}")
        return
    localities = pushed_localities(pushed)
    if len(localities) < 2:
        yield _warning(policy, "one_locality", "its endpoints are in one locality, so the policy has no effect")
    without = [str(one) or "the unnamed one" for one in localities if policy.rate(one) is None]
    if without and policy.capacity.metric is None:
        shown = ", ".join(sorted(without)[:_SHOWN_LIMIT])
        detail = f"no capacity is given for {shown}: they get requests only when all others fail"
        yield _warning(policy, "no_capacity", detail)
    behind = [str(name) for name, own in localities.items() if own.priority > 0 and not policy.is_standby(name)]
    if behind:
        shown = ", ".join(sorted(behind)[:_SHOWN_LIMIT])
        detail = f"{shown} was pushed with a priority below the first, and gets requests like all others"
        yield _warning(policy, "pushed_priority", detail, "name it in standby to keep it for when all others fail")


def weighs_localities(cluster: Any) -> bool:
    """Whether Envoy distributes the requests of a cluster by locality weights."""
    if cluster.HasField("load_balancing_policy"):  # it overrides the older fields
        return _has_locality_weights(cluster.load_balancing_policy)
    return bool(cluster.common_lb_config.HasField("locality_weighted_lb_config"))


def _has_locality_weights(message: Any) -> bool:
    """Searches nested load balancing policies."""
    if message.DESCRIPTOR.full_name != _BALANCING_POLICY:
        set_fields = {field.name: value for field, value in message.ListFields()}
        if "locality_weighted_lb_config" in set_fields:
            return True
        nested = (value for field, value in message.ListFields() if _is_balancing_policy(field))
        return any(map(_has_locality_weights, (*nested, *filter(None, [set_fields.get("locality_lb_config")]))))
    for policy in message.policies:
        packed = policy.typed_extension_config.typed_config
        message_class = schema.message_class(packed.type_url)
        if message_class is None:
            continue  # Envoy skips unknown policies too
        if packed.type_url.endswith(_BY_LOCALITY_WEIGHT):
            return True
        return _has_locality_weights(message_class.FromString(packed.value))
    return False


def _is_balancing_policy(field: Any) -> bool:
    return field.message_type is not None and field.message_type.full_name == _BALANCING_POLICY


def _unknown(policy: Policy, names: Iterable[str]) -> Violation:
    close = get_close_matches(policy.cluster, islice(names, _COMPARED_LIMIT), n=1)
    detail = "the group has no such cluster: the policy has no effect until it is pushed"
    return _warning(policy, "unknown_cluster", detail, f"did you mean {close[0]!r}?" if close else "")


def _warning(policy: Policy, code: str, detail: str, hint: str = "") -> Violation:
    return Violation(code, detail, f"policy/{policy.cluster}", severity=WARNING, hint=hint)
