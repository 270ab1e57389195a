"""Writes a traffic assignment into a pushed ClusterLoadAssignment: priorities, weights, and a drop policy for surplus.

Endpoints and their health stay as they were pushed. The result is valid for Envoy and gRPC: priorities without a gap,
weights of at least 1 whose sum per priority is below 2^32.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import ceil, inf
from typing import Any

from xds.codec.load_assignment import PRIORITY_LIMIT, WEIGHT_SUM_LIMIT, decode_assignment, locality_of
from xds.model.node import Locality
from xds.model.resource import Resource, content_version
from xds.steering.core.assignment import Allotment

# envoy.config.core.v3.HealthStatus UNKNOWN and HEALTHY. An endpoint without a health check gets requests, too.
_HEALTHY = frozenset({0, 1})
_ASSIGNMENTS_CACHED = 1024


@dataclass(frozen=True, slots=True)
class PushedLocality:
    """A locality of a pushed assignment, over all its entries.

    ``healthy`` counts endpoints that are not marked unhealthy. ``priority`` is the lowest of its entries, ``weight``
    that of the entry with this priority, None where it has none. ``weighed`` is the sum of the weights of the healthy
    endpoints in units of the greatest one: so many endpoints of the greatest weight have the same capacity, because
    proxies share requests by the weights of endpoints. ``addresses`` has the serialized addresses of the endpoints: the
    same bytes in every assignment that names the same endpoint.
    """

    endpoints: int
    healthy: int
    priority: int
    weight: int | None
    weighed: float = inf
    addresses: frozenset[bytes] = frozenset()


@lru_cache(_ASSIGNMENTS_CACHED)
def pushed_localities(pushed: Resource) -> Mapping[Locality, PushedLocality]:
    """The localities of a pushed assignment. Cached, because the first call takes time for each endpoint."""
    entries: dict[Locality, list[Any]] = {}
    for entry in decode_assignment(pushed).endpoints:
        entries.setdefault(locality_of(entry), []).append(entry)
    return {locality: _pushed_locality(members) for locality, members in entries.items()}


def _pushed_locality(entries: list[Any]) -> PushedLocality:
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
        weighed=_effective_endpoints(
            one for entry in entries for one in entry.lb_endpoints if one.health_status in _HEALTHY
        ),
        weight=weights[-1] if weights else None,  # Envoy uses the last of two entries of one locality and priority
        addresses=frozenset(
            one.endpoint.address.SerializeToString(deterministic=True)
            for entry in entries
            for one in entry.lb_endpoints
            if one.endpoint.address.HasField("socket_address")  # a pipe is another endpoint for each proxy
        ),
    )


def _effective_endpoints(endpoints: Iterable[Any]) -> float:
    weights = [one.load_balancing_weight.value or 1 for one in endpoints]
    return sum(weights) / max(weights) if weights else 0.0


# The order of entries: allotted ones by their priority, then further entries of allotted localities, then localities
# without an allotment.
_ALLOTTED, _SECONDARY, _NOT_ALLOTTED = range(3)
_Rank = tuple[int, int]


def overlay_assignment(pushed: Resource, allotments: Iterable[Allotment], shed: float = 0.0) -> Resource:
    """The ClusterLoadAssignment for the nodes of one source, which replaces the pushed one.

    A locality that is no longer pushed is left out. A locality that was pushed after the decision stays reachable at
    the last priority. If a locality has several entries, those of its lowest priority get the allotment; the others
    come after all allotted ones. Without any allotted locality the result is ``pushed`` itself. ``shed`` is the
    fraction of requests that the nodes are to drop.
    """
    allotted = {one.locality: one for one in allotments}
    message = decode_assignment(pushed)
    entries = list(message.endpoints)
    if not any(locality_of(entry) in allotted for entry in entries):
        return pushed
    best = _best_priorities(entries)
    ranks = [_rank(entry, allotted.get(locality_of(entry)), best) for entry in entries]
    for entry, rank in zip(entries, ranks, strict=True):
        if rank[0] == _ALLOTTED:
            entry.load_balancing_weight.value = allotted[locality_of(entry)].weight
        elif not entry.load_balancing_weight.value:
            entry.load_balancing_weight.value = 1  # an entry without a weight would get no requests
    priorities = {rank: min(at, PRIORITY_LIMIT) for at, rank in enumerate(sorted(set(ranks)))}
    for entry, rank in zip(entries, ranks, strict=True):
        entry.priority = priorities[rank]
    for priority in set(priorities.values()):
        _bound_weights([entry for entry in entries if entry.priority == priority])
    if shed > 0:
        _add_drop(message.policy, shed)
        _scale_weights([entry for entry in entries if entry.priority == 0], 1 + round(shed * _SHED_STEPS))
    body = message.SerializeToString(deterministic=True)
    version = content_version(body, pushed.aliases, pushed.ttl_s)
    return replace(pushed, body=body, version=version)


SHED_CATEGORY = "xds_assignment_surplus"
_SHED_STEPS = 100  # fractions are whole percents (`shed_fractions`)
_MILLION = 1_000_000
_DENOMINATORS = {0: 100, 1: 10_000, 2: _MILLION}  # envoy.type.v3.FractionalPercent


def _add_drop(policy: Any, shed: float) -> None:
    """Drop a further fraction of the requests. Envoy rejects a second category, so a pushed one drops more."""
    passed = 1.0 - shed
    for drop in policy.drop_overloads:
        share = drop.drop_percentage
        passed *= 1.0 - min(share.numerator / _DENOMINATORS.get(share.denominator, 100), 1.0)
    category = policy.drop_overloads[0].category if policy.drop_overloads else SHED_CATEGORY
    del policy.drop_overloads[:]
    added = policy.drop_overloads.add(category=category)
    added.drop_percentage.numerator = min(ceil((1.0 - passed) * _MILLION), _MILLION)
    added.drop_percentage.denominator = 2


def _scale_weights(entries: Sequence[Any], factor: int) -> None:
    """Multiply the weights of a priority by a factor that depends on the dropped fraction.

    Envoy applies a changed ``drop_overload`` only with a change of endpoints or of locality weights
    (docs/internals/clients.md#envoy). The factor changes no share.
    """
    for entry in entries:
        entry.load_balancing_weight.value = min(entry.load_balancing_weight.value * factor, WEIGHT_SUM_LIMIT)
    _bound_weights(entries)


def _best_priorities(entries: Sequence[Any]) -> dict[Locality, int]:
    best: dict[Locality, int] = {}
    for entry in entries:
        locality = locality_of(entry)
        best[locality] = min(entry.priority, best.get(locality, entry.priority))
    return best


def _rank(entry: Any, allotment: Allotment | None, best: dict[Locality, int]) -> _Rank:
    if allotment is None:
        return _NOT_ALLOTTED, entry.priority
    if entry.priority == best[allotment.locality]:
        return _ALLOTTED, allotment.priority
    return _SECONDARY, entry.priority


def _bound_weights(entries: Sequence[Any]) -> None:
    """Scale weights down if their sum exceeds the limit, as entries of several pushed priorities may share one now."""
    total = sum(entry.load_balancing_weight.value for entry in entries)
    if total <= WEIGHT_SUM_LIMIT:
        return
    room = WEIGHT_SUM_LIMIT - len(entries)
    for entry in entries:
        entry.load_balancing_weight.value = max(entry.load_balancing_weight.value * room // total, 1)
