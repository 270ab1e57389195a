"""What gRPC clients need of an assignment, and Envoy does not.

gRPC's C core (1.85) ignores localities without a ``load_balancing_weight``: with none left, calls fail with "contains
no localities", although the client ACKs the assignment. It refuses an assignment with a gap in its priorities or with
two endpoints of one address.

gRPC clients start from a listener with an ``api_listener``. Only what that leads to concerns them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from typing import Any

from xds.codec import schema
from xds.codec.rules import Problem
from xds.model.resource import Reference, Resource
from xds.model.resource_type import CLUSTER, ENDPOINT, LISTENER, ROUTE

_API_LISTENER = b"\x9a\x01"  # the tag of the field; other fields may contain these bytes too
_REMEMBERED = 4096
_LEADING = frozenset((ROUTE, CLUSTER, ENDPOINT))
REACHED_LIMIT = 20_000  # resources

# The resource that a reference means; None where there is none.
Find = Callable[[Reference], Resource | None]


def reached_assignments(listeners: Iterable[Resource], find: Find) -> list[Resource]:
    """The assignments that the API listeners among ``listeners`` lead to, over routes and clusters."""
    waiting = [one for one in listeners if _API_LISTENER in one.body and is_api_listener(one.type_url, one.body)]
    seen = {(one.type_url, one.name) for one in waiting}
    assignments = []
    while waiting and len(seen) < REACHED_LIMIT:
        resource = waiting.pop()
        if resource.type_url == ENDPOINT:
            assignments.append(resource)
            continue
        for reference in resource.references:
            key = reference.type_url, reference.name
            if reference.type_url in _LEADING and key not in seen and (target := find(reference)) is not None:
                seen.add(key)
                waiting.append(target)
    return assignments


@lru_cache(_REMEMBERED)
def is_api_listener(type_url: str, body: bytes) -> bool:
    """Whether a listener is for gRPC clients."""
    message = schema.parsed(type_url, body) if type_url == LISTENER else None
    return message is not None and bool(message.HasField("api_listener"))


def assignment_warnings(assignment: Resource) -> list[Problem]:
    """What gRPC clients refuse or ignore in an assignment."""
    message = schema.parsed(assignment.type_url, assignment.body)
    if message is None or not message.endpoints:
        return []
    return [*_weightless(message), *_gaps(message), *_repeated(message)]


def _weightless(assignment: Any) -> Iterator[Problem]:
    without = [place for place, one in enumerate(assignment.endpoints) if not one.load_balancing_weight.value]
    all_of_them = "; no other is left, and calls fail" if len(without) == len(assignment.endpoints) else ""
    for place in without:
        detail = f"gRPC clients ignore a locality without a load_balancing_weight{all_of_them}"
        yield Problem(("endpoints", place), "grpc_locality", detail, "load_balancing_weight: 1")


def _gaps(assignment: Any) -> Iterator[Problem]:
    """gRPC counts the localities that it does not ignore."""
    used = {one.priority for one in assignment.endpoints if one.load_balancing_weight.value}
    missing = next((priority for priority in range(len(used)) if priority not in used), None)
    if missing is not None:
        detail = f"gRPC clients refuse the assignment: there is no locality of priority {missing}, and one above it"
        yield Problem(("endpoints",), "grpc_priorities", detail, "priorities count from 0 without gaps")


def _repeated(assignment: Any) -> Iterator[Problem]:
    seen: set[bytes] = set()
    for place, locality in enumerate(assignment.endpoints):
        for index, member in enumerate(locality.lb_endpoints if locality.load_balancing_weight.value else ()):
            address = member.endpoint.address.SerializeToString(deterministic=True)
            if address in seen:
                detail = "gRPC clients refuse the assignment: an earlier endpoint has this address"
                yield Problem(("endpoints", place, "lb_endpoints", index), "grpc_endpoint", detail)
            seen.add(address)
