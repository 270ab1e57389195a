"""The inbound policy of a port: who may connect to it. It is one rule for all workloads, from the settings."""

from __future__ import annotations

from enum import StrEnum
from functools import lru_cache

from xds.codec.naming import to_duration
from xds.linkerd.proto import http_route_pb2, meta_pb2, net_pb2
from xds.linkerd.proto import inbound_pb2 as pb

DETECT_TIMEOUT_S = 10.0


class InboundDefault(StrEnum):
    """Who may connect, in Linkerd's words."""

    ALL_UNAUTHENTICATED = "all-unauthenticated"
    ALL_AUTHENTICATED = "all-authenticated"
    DENY = "deny"


@lru_cache(64)
def encode_inbound(default: InboundDefault, is_opaque: bool) -> bytes:
    """The message ``Server`` of a port. ``is_opaque``: connections are streams of bytes."""
    authorizations = _authorizations(default)
    match = http_route_pb2.HttpRouteMatch(path=http_route_pb2.PathMatch(prefix="/"))
    # A proxy answers 404 to a request that no route matches.
    route = pb.HttpRoute(
        metadata=meta_pb2.Metadata(default="default"),
        authorizations=authorizations,
        rules=[pb.HttpRoute.Rule(matches=[match])],
    )
    detect = pb.ProxyProtocol.Detect(timeout=to_duration(DETECT_TIMEOUT_S), http_routes=[route])
    protocol = pb.ProxyProtocol(opaque=pb.ProxyProtocol.Opaque()) if is_opaque else pb.ProxyProtocol(detect=detect)
    server = pb.Server(protocol=protocol, authorizations=authorizations, labels=_labels(default))
    return server.SerializeToString(deterministic=True)


def _labels(default: InboundDefault) -> dict[str, str]:
    return {"group": "", "kind": "default", "name": default.value}


def _authorizations(default: InboundDefault) -> list[pb.Authz]:
    if default is InboundDefault.DENY:
        return []
    anybody = pb.Authn.PermitUnauthenticated()
    authentication = pb.Authn(unauthenticated=anybody)
    if default is InboundDefault.ALL_AUTHENTICATED:
        suffixes = [pb.IdentitySuffix()]  # without parts: any identity
        identities = pb.Authn.PermitMeshTLS.PermitClientIdentities(suffixes=suffixes)
        authentication = pb.Authn(meshTLS=pb.Authn.PermitMeshTLS(identities=identities))
    everywhere = (net_pb2.IPAddress(ipv4=0), net_pb2.IPAddress(ipv6=net_pb2.IPv6()))
    networks = [pb.Network(net=net_pb2.IPNetwork(ip=ip)) for ip in everywhere]
    metadata = meta_pb2.Metadata(default=default.value)
    return [pb.Authz(networks=networks, authentication=authentication, labels=_labels(default), metadata=metadata)]
