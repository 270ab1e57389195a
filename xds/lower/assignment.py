"""A decision of traffic assignment, laid over a pushed ClusterLoadAssignment: priorities and weights, nothing else.

Endpoints, their health and the policy of the assignment stay as they were pushed, entry by entry. What Envoy and gRPC
demand holds of the result: priorities without a gap, weights of at least 1 whose sum in a priority is below 2^32.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from xds.load.assignment import Allotment
from xds.lower.endpoints import locality_of, read_assignment
from xds.model.node import Locality
from xds.model.resource import Resource
from xds.model.versions import content_version

PRIORITY_LIMIT = 128  # Envoy takes no higher one
WEIGHT_SUM_LIMIT = (1 << 32) - 1

# Where an entry comes: those that were allotted by their priority; behind them the entries that stood behind those in
# the push; last the localities that nothing was said of.
_ALLOTTED, _BEHIND, _UNNAMED = range(3)
_Rank = tuple[int, int]


def overlaid(pushed: Resource, allotments: Iterable[Allotment]) -> Resource:
    """The assignment that the nodes of one source are served in the place of the pushed one.

    A locality that is not pushed any more is left out, one that was pushed since stays reachable at the last priority.
    Of several entries of one locality those of its best priority take the allotment, the others come behind all that
    was allotted. Without any allotted locality it is the pushed assignment.
    """
    allotted = {one.locality: one for one in allotments}
    message = read_assignment(pushed)
    entries = list(message.endpoints)
    if not any(locality_of(entry) in allotted for entry in entries):
        return pushed
    best = _best_priorities(entries)
    ranks = [_rank(entry, allotted.get(locality_of(entry)), best) for entry in entries]
    for entry, rank in zip(entries, ranks, strict=True):
        if rank[0] == _ALLOTTED:
            entry.load_balancing_weight.value = allotted[locality_of(entry)].weight
        elif not entry.load_balancing_weight.value:
            entry.load_balancing_weight.value = 1  # without a weight it would get no request at all
    priorities = {rank: min(at, PRIORITY_LIMIT) for at, rank in enumerate(sorted(set(ranks)))}
    for entry, rank in zip(entries, ranks, strict=True):
        entry.priority = priorities[rank]
    for priority in set(priorities.values()):
        _bound_weights([entry for entry in entries if entry.priority == priority])
    body = message.SerializeToString(deterministic=True)
    version = content_version(body, pushed.aliases, pushed.ttl_s)
    return replace(pushed, body=body, version=version)


def _best_priorities(entries: Sequence[Any]) -> dict[Locality, int]:
    best: dict[Locality, int] = {}
    for entry in entries:
        locality = locality_of(entry)
        best[locality] = min(entry.priority, best.get(locality, entry.priority))
    return best


def _rank(entry: Any, allotment: Allotment | None, best: dict[Locality, int]) -> _Rank:
    if allotment is None:
        return _UNNAMED, entry.priority
    if entry.priority == best[allotment.locality]:
        return _ALLOTTED, allotment.priority
    return _BEHIND, entry.priority


def _bound_weights(entries: Sequence[Any]) -> None:
    """Weights that come together from several priorities may sum up to more than is allowed."""
    total = sum(entry.load_balancing_weight.value for entry in entries)
    if total <= WEIGHT_SUM_LIMIT:
        return
    room = WEIGHT_SUM_LIMIT - len(entries)
    for entry in entries:
        entry.load_balancing_weight.value = max(entry.load_balancing_weight.value * room // total, 1)
