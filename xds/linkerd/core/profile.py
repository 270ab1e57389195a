"""Profiles of destinations: routes, retries, overrides, the single endpoint of an address; and their encoding."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from xds.codec.naming import to_duration
from xds.linkerd.core.endpoint import DestinationEndpoint
from xds.linkerd.core.rust_regex import anchored
from xds.linkerd.core.update_messages import encoded_address
from xds.linkerd.proto import destination_pb2 as pb
from xds.linkerd.proto import http_types_pb2, meta_pb2

_PROFILES_CACHED = 4096
WEIGHT_WHOLE = 10_000  # of all overrides together

_METHODS = frozenset(http_types_pb2.HttpMethod.Registered.DESCRIPTOR.values_by_name)

# Clients reject a budget outside of these limits, and then do not retry at all.
RATIO_MAX = 1_000.0
RETRIES_MAX = 2**31 - 1
TTL_MIN_S, TTL_MAX_S = 1.0, 60.0


@dataclass(frozen=True, slots=True)
class RetryBudget:
    """The limit of retries of a client. The default is Linkerd's."""

    ratio: float = 0.2
    min_per_s: int = 10
    ttl_s: float = 10.0

    def clamped(self) -> RetryBudget:
        """The budget within the limits of clients."""
        ratio, ttl_s = min(max(self.ratio, 0.0), RATIO_MAX), min(max(self.ttl_s, TTL_MIN_S), TTL_MAX_S)
        return RetryBudget(ratio, min(max(self.min_per_s, 0), RETRIES_MAX), ttl_s)


@dataclass(frozen=True, slots=True)
class Subject:
    """The resource that a profile or a backend is about, as clients show it. Nothing is looked up by it.

    If one of the texts is empty, a proxy rejects the policy, and fails every request.
    """

    group: str
    kind: str
    name: str
    namespace: str
    port: int = 0


@dataclass(frozen=True, slots=True)
class RequestCondition:
    """The requests of a route: the whole path matches ``path_regex``, and the method is one of ``methods``.

    Empty parts match everything. ``inverted``: the method is not one of ``methods``.
    """

    path_regex: str = ""
    methods: tuple[str, ...] = ()
    inverted: bool = False


StatusRange = tuple[int, int]  # inclusive
SERVER_ERRORS: StatusRange = (500, 599)


@dataclass(frozen=True, slots=True)
class ProfileRoute:
    """A route of a profile. It has no destination of its own.

    ``failures`` are the statuses of which a request is repeated; empty for a route without retries. A ``timeout_s`` of
    0 means none.
    """

    name: str
    condition: RequestCondition
    timeout_s: float = 0.0
    failures: tuple[StatusRange, ...] = ()


@dataclass(frozen=True, slots=True)
class WeightedAuthority:
    """Requests go to ``authority`` instead, in proportion to ``weight``."""

    authority: str
    weight: int
    subject: Subject | None = None


@dataclass(frozen=True, slots=True)
class Profile:
    """The profile of a destination. With ``endpoint`` the client uses only that endpoint, and ignores the rest."""

    name: str = ""
    is_opaque: bool = False
    routes: tuple[ProfileRoute, ...] = ()
    budget: RetryBudget | None = None
    overrides: tuple[WeightedAuthority, ...] = ()
    endpoint: DestinationEndpoint | None = None
    namespace: str = ""  # of the endpoint, as a label
    subject: Subject | None = None


@lru_cache(_PROFILES_CACHED)
def encode_profile(profile: Profile) -> bytes:
    """The serialized ``DestinationProfile``. Equal profiles have equal bytes."""
    message = pb.DestinationProfile(
        fully_qualified_name=profile.name,
        opaque_protocol=profile.is_opaque,
        routes=[_route(route) for route in profile.routes],
        retry_budget=_budget(profile.budget) if profile.budget is not None else None,
        dst_overrides=[
            pb.WeightedDst(authority=one.authority, weight=one.weight, backend_ref=metadata_of(one.subject))
            for one in profile.overrides
        ],
        parent_ref=metadata_of(profile.subject),
    )
    if profile.endpoint is not None:
        labels = {"namespace": profile.namespace} if profile.namespace else {}
        message.endpoint.MergeFromString(encoded_address(profile.endpoint, **labels))
    return message.SerializeToString(deterministic=True)


def metadata_of(subject: Subject | None) -> meta_pb2.Metadata | None:
    """The subject as a message; None without one."""
    if subject is None:
        return None
    resource = meta_pb2.Resource(
        group=subject.group, kind=subject.kind, name=subject.name, namespace=subject.namespace, port=subject.port
    )
    return meta_pb2.Metadata(resource=resource)


def _budget(budget: RetryBudget) -> pb.RetryBudget:
    clamped = budget.clamped()
    return pb.RetryBudget(
        retry_ratio=clamped.ratio, min_retries_per_second=clamped.min_per_s, ttl=to_duration(clamped.ttl_s)
    )


def _route(route: ProfileRoute) -> pb.Route:
    return pb.Route(
        condition=_condition(route.condition),
        response_classes=list(_classes(route.failures)),
        metrics_labels={"route": route.name},
        is_retryable=bool(route.failures),
        timeout=to_duration(route.timeout_s) if route.timeout_s > 0 else None,
    )


def _condition(condition: RequestCondition) -> pb.RequestMatch:
    parts = []
    if condition.path_regex:
        parts.append(pb.RequestMatch(path=pb.PathMatch(regex=anchored(condition.path_regex))))
    if condition.methods:
        parts.append(_methods(condition))
    if not parts:  # a client drops a route without a condition
        return pb.RequestMatch(path=pb.PathMatch(regex=".*"))
    return parts[0] if len(parts) == 1 else pb.RequestMatch(all=pb.RequestMatch.Seq(matches=parts))


def _methods(condition: RequestCondition) -> pb.RequestMatch:
    matches = [pb.RequestMatch(method=method_of(name)) for name in condition.methods]
    match = matches[0] if len(matches) == 1 else pb.RequestMatch(any=pb.RequestMatch.Seq(matches=matches))
    if not condition.inverted:
        return match
    inverted = pb.RequestMatch()
    getattr(inverted, "not").CopyFrom(match)  # the name is a keyword
    return inverted


def method_of(name: str) -> http_types_pb2.HttpMethod:
    """A method by its name."""
    upper = name.upper()
    if upper in _METHODS:
        return http_types_pb2.HttpMethod(registered=upper)
    return http_types_pb2.HttpMethod(unregistered=upper)


def _classes(failures: tuple[StatusRange, ...]) -> Iterator[pb.ResponseClass]:
    """The failures, and all other server errors as successes.

    A client repeats what is a failure. It takes server errors for failures unless a class says otherwise
    (linkerd2-proxy, ``linkerd/app/core/src/classify.rs``), so it would repeat more than was asked for.
    """
    yield from (_class(low, high, is_failure=True) for low, high in failures)
    low, high = SERVER_ERRORS
    if failures and not any(first <= low and high <= last for first, last in failures):
        yield _class(low, high, is_failure=False)


def _class(low: int, high: int, *, is_failure: bool) -> pb.ResponseClass:
    """A range of statuses. Both ends are always set, because clients drop a range without one."""
    condition = pb.ResponseMatch(status=pb.HttpStatusRange(min=low, max=high))
    return pb.ResponseClass(condition=condition, is_failure=is_failure)
