"""The gRPC services as tables: full names, methods and resource types as in Envoy's protos.

Sources: envoy/service/*/v3/*.proto, envoy/service/load_stats/v2/lrs.proto, envoy/api/v2/*.proto.
VHDS has a Delta method only (rule 1).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from xds.model.resource_type import (
    CLUSTER,
    ENDPOINT,
    EXTENSION_CONFIG,
    LISTENER,
    ROUTE,
    RUNTIME,
    SCOPED_ROUTE,
    SECRET,
    V2_URLS,
    VIRTUAL_HOST,
)

V2 = "v2"
AGGREGATED = "AggregatedResources"


@dataclass(frozen=True, slots=True)
class DiscoveryService:
    """One gRPC service.

    ``label`` is its short name in metrics and logs. ``noun`` completes the method names: ``Stream<noun>``,
    ``Delta<noun>``, ``Fetch<noun>``. ``type_url`` is empty for ADS. ``api`` is ``v2`` for the v2 API.
    """

    service: str
    label: str
    noun: str
    type_url: str = ""
    api: str = ""
    delta_only: bool = False

    @property
    def stream_method(self) -> str:
        """The SotW method; empty where there is none."""
        return "" if self.delta_only else f"Stream{self.noun}"

    @property
    def delta_method(self) -> str:
        """The incremental method."""
        return f"Delta{self.noun}"

    @property
    def fetch_method(self) -> str:
        """The unary method; empty where there is none."""
        return "" if self.delta_only or not self.type_url else f"Fetch{self.noun}"

    def methods(self) -> Iterator[str]:
        """Full method names, ``/service/Method``."""
        for method in (self.stream_method, self.delta_method, self.fetch_method):
            if method:
                yield f"/{self.service}/{method}"


_V3 = (
    DiscoveryService("envoy.service.discovery.v3.AggregatedDiscoveryService", "ADS", AGGREGATED),
    DiscoveryService("envoy.service.cluster.v3.ClusterDiscoveryService", "CDS", "Clusters", CLUSTER),
    DiscoveryService("envoy.service.endpoint.v3.EndpointDiscoveryService", "EDS", "Endpoints", ENDPOINT),
    DiscoveryService("envoy.service.listener.v3.ListenerDiscoveryService", "LDS", "Listeners", LISTENER),
    DiscoveryService("envoy.service.route.v3.RouteDiscoveryService", "RDS", "Routes", ROUTE),
    DiscoveryService("envoy.service.route.v3.ScopedRoutesDiscoveryService", "SRDS", "ScopedRoutes", SCOPED_ROUTE),
    DiscoveryService(
        "envoy.service.route.v3.VirtualHostDiscoveryService", "VHDS", "VirtualHosts", VIRTUAL_HOST, delta_only=True
    ),
    DiscoveryService("envoy.service.secret.v3.SecretDiscoveryService", "SDS", "Secrets", SECRET),
    DiscoveryService("envoy.service.runtime.v3.RuntimeDiscoveryService", "RTDS", "Runtime", RUNTIME),
    DiscoveryService(
        "envoy.service.extension.v3.ExtensionConfigDiscoveryService", "ECDS", "ExtensionConfigs", EXTENSION_CONFIG
    ),
)

_V2_NAMES = {
    "ADS": "envoy.service.discovery.v2.AggregatedDiscoveryService",
    "CDS": "envoy.api.v2.ClusterDiscoveryService",
    "EDS": "envoy.api.v2.EndpointDiscoveryService",
    "LDS": "envoy.api.v2.ListenerDiscoveryService",
    "RDS": "envoy.api.v2.RouteDiscoveryService",
    "SRDS": "envoy.api.v2.ScopedRoutesDiscoveryService",
    "VHDS": "envoy.api.v2.VirtualHostDiscoveryService",
    "SDS": "envoy.service.discovery.v2.SecretDiscoveryService",
    "RTDS": "envoy.service.discovery.v2.RuntimeDiscoveryService",
}

_V2 = tuple(
    DiscoveryService(
        _V2_NAMES[service.label],
        service.label,
        service.noun,
        V2_URLS[service.type_url] if service.type_url else "",
        V2,
        service.delta_only,
    )
    for service in _V3
    if service.label in _V2_NAMES
)

SERVICES: tuple[DiscoveryService, ...] = (*_V3, *_V2)


@dataclass(frozen=True, slots=True)
class LoadService:
    """A load reporting service, which has one method. ``api`` as in `DiscoveryService`."""

    service: str
    api: str = ""


LOAD_LABEL = "LRS"
LOAD_METHOD = "StreamLoadStats"
LOAD_SERVICES = (
    LoadService("envoy.service.load_stats.v3.LoadReportingService"),
    LoadService("envoy.service.load_stats.v2.LoadReportingService", V2),
)


REST_LABEL = "REST"


@dataclass(frozen=True, slots=True)
class RestPath:
    """Where a type is polled (rule 74). ``api`` as in `DiscoveryService`."""

    path: str
    type_url: str
    api: str = ""


_REST_WORDS = {
    "clusters": CLUSTER,
    "endpoints": ENDPOINT,
    "listeners": LISTENER,
    "routes": ROUTE,
    "secrets": SECRET,
    "runtime": RUNTIME,
    "scoped-routes": SCOPED_ROUTE,
    "extension_configs": EXTENSION_CONFIG,
}
REST_PATHS = (
    *(RestPath(f"/v3/discovery:{word}", type_url) for word, type_url in _REST_WORDS.items()),
    *(
        RestPath(f"/v2/discovery:{word}", V2_URLS[type_url], V2)
        for word, type_url in _REST_WORDS.items()
        if type_url in V2_URLS
    ),
)
