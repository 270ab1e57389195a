"""The outbound policy of an address: how a proxy balances its connections over the endpoints of `Destination.Get`.

A proxy asks for it in its normal mode, and balances nothing without it. Routes are those of the profile: a policy here
only says which destinations share the requests.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from xds.destination.profile import Subject, WeightedAuthority, metadata_of
from xds.destination.update_messages import duration
from xds.proto.linkerd import http_route_pb2, meta_pb2
from xds.proto.linkerd import outbound_pb2 as pb

_REMEMBERED = 4096  # serialized policies
# As Linkerd's own controller says them.
DETECT_TIMEOUT_S = 10.0
_QUEUE_CAPACITY, _FAIL_FAST_S = 100, 3.0
_DEFAULT_RTT_S, _DECAY_S = 0.03, 10.0


@dataclass(frozen=True, slots=True)
class OutboundRule:
    """Connections to an address go to these authorities in proportion to their weights. ``is_opaque``: as bytes."""

    backends: tuple[WeightedAuthority, ...]
    subject: Subject
    is_opaque: bool = False


@lru_cache(_REMEMBERED)
def encode_outbound(rule: OutboundRule) -> bytes:
    """The message. Equal rules have equal bytes."""
    opaque = pb.ProxyProtocol.Opaque(routes=[_opaque_route(rule)])
    if rule.is_opaque:
        protocol = pb.ProxyProtocol(opaque=opaque)
    else:
        detect = pb.ProxyProtocol.Detect(
            timeout=duration(DETECT_TIMEOUT_S),
            opaque=opaque,
            http1=pb.ProxyProtocol.Http1(routes=[_http_route(rule)]),
            http2=pb.ProxyProtocol.Http2(routes=[_http_route(rule)]),
        )
        protocol = pb.ProxyProtocol(detect=detect)
    policy = pb.OutboundPolicy(protocol=protocol, metadata=metadata_of(rule.subject))
    return policy.SerializeToString(deterministic=True)


def _http_route(rule: OutboundRule) -> pb.HttpRoute:
    backends = [pb.HttpRoute.RouteBackend(backend=_backend(rule, one)) for one in rule.backends]
    match = http_route_pb2.HttpRouteMatch(path=http_route_pb2.PathMatch(prefix="/"))
    shared = pb.HttpRoute.Distribution(
        first_available=pb.HttpRoute.Distribution.FirstAvailable(backends=backends) if len(backends) == 1 else None,
        random_available=pb.HttpRoute.Distribution.RandomAvailable(
            backends=[
                pb.HttpRoute.WeightedRouteBackend(backend=backend, weight=one.weight)
                for backend, one in zip(backends, rule.backends, strict=True)
            ]
        )
        if len(backends) > 1
        else None,
    )
    return pb.HttpRoute(metadata=_default("http"), rules=[pb.HttpRoute.Rule(matches=[match], backends=shared)])


def _opaque_route(rule: OutboundRule) -> pb.OpaqueRoute:
    backends = [pb.OpaqueRoute.RouteBackend(backend=_backend(rule, one)) for one in rule.backends]
    shared = pb.OpaqueRoute.Distribution(
        first_available=pb.OpaqueRoute.Distribution.FirstAvailable(backends=backends) if len(backends) == 1 else None,
        random_available=pb.OpaqueRoute.Distribution.RandomAvailable(
            backends=[
                pb.OpaqueRoute.WeightedRouteBackend(backend=backend, weight=one.weight)
                for backend, one in zip(backends, rule.backends, strict=True)
            ]
        )
        if len(backends) > 1
        else None,
    )
    return pb.OpaqueRoute(metadata=_default("opaque"), rules=[pb.OpaqueRoute.Rule(backends=shared)])


def _backend(rule: OutboundRule, one: WeightedAuthority) -> pb.Backend:
    """A balancer over what `Destination.Get` tells of the authority. All of its parts are required by the proxy."""
    balancer = pb.Backend.BalanceP2c(
        discovery=pb.Backend.EndpointDiscovery(dst=pb.Backend.EndpointDiscovery.DestinationGet(path=one.authority)),
        peak_ewma=pb.Backend.BalanceP2c.PeakEwma(default_rtt=duration(_DEFAULT_RTT_S), decay=duration(_DECAY_S)),
    )
    queue = pb.Queue(capacity=_QUEUE_CAPACITY, failfast_timeout=duration(_FAIL_FAST_S))
    return pb.Backend(metadata=metadata_of(one.subject or rule.subject), balancer=balancer, queue=queue)


def _default(name: str) -> meta_pb2.Metadata:
    return meta_pb2.Metadata(default=name)


def single_backend(authority: str, overrides: Sequence[WeightedAuthority]) -> tuple[WeightedAuthority, ...]:
    """The overrides of a profile as backends; without any, the destination itself."""
    return tuple(overrides) or (WeightedAuthority(authority, 1),)
