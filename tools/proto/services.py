"""The gRPC services of Envoy's management API as descriptors, for reflection.

envoy-data-plane has no services; names and methods are those of Envoy's .proto files.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from google.protobuf.descriptor_pb2 import FileDescriptorProto, MethodDescriptorProto, ServiceDescriptorProto

_V3 = "envoy.service.discovery.v3"
_V2 = "envoy.api.v2"

# Service -> the end of its methods' names. Each has Stream, Delta and Fetch, except those in _METHODS.
_DISCOVERY: Mapping[str, str] = {
    "envoy.service.discovery.v3.AggregatedDiscoveryService": "AggregatedResources",
    "envoy.service.cluster.v3.ClusterDiscoveryService": "Clusters",
    "envoy.service.endpoint.v3.EndpointDiscoveryService": "Endpoints",
    "envoy.service.extension.v3.ExtensionConfigDiscoveryService": "ExtensionConfigs",
    "envoy.service.listener.v3.ListenerDiscoveryService": "Listeners",
    "envoy.service.route.v3.RouteDiscoveryService": "Routes",
    "envoy.service.route.v3.ScopedRoutesDiscoveryService": "ScopedRoutes",
    "envoy.service.route.v3.VirtualHostDiscoveryService": "VirtualHosts",
    "envoy.service.runtime.v3.RuntimeDiscoveryService": "Runtime",
    "envoy.service.secret.v3.SecretDiscoveryService": "Secrets",
    "envoy.service.discovery.v2.AggregatedDiscoveryService": "AggregatedResources",
    "envoy.service.discovery.v2.RuntimeDiscoveryService": "Runtime",
    "envoy.service.discovery.v2.SecretDiscoveryService": "Secrets",
    "envoy.api.v2.ClusterDiscoveryService": "Clusters",
    "envoy.api.v2.EndpointDiscoveryService": "Endpoints",
    "envoy.api.v2.ListenerDiscoveryService": "Listeners",
    "envoy.api.v2.RouteDiscoveryService": "Routes",
    "envoy.api.v2.ScopedRoutesDiscoveryService": "ScopedRoutes",
    "envoy.api.v2.VirtualHostDiscoveryService": "VirtualHosts",
}
_METHODS: Mapping[str, tuple[str, ...]] = {
    "AggregatedResources": ("Stream", "Delta"),
    "VirtualHosts": ("Delta",),
}

# Service -> (method, message it is named after, client streams, server streams).
_OTHERS: Mapping[str, tuple[tuple[str, str, bool, bool], ...]] = {
    "envoy.service.load_stats.v3.LoadReportingService": (("StreamLoadStats", "LoadStats", True, True),),
    "envoy.service.load_stats.v2.LoadReportingService": (("StreamLoadStats", "LoadStats", True, True),),
    "envoy.service.status.v3.ClientStatusDiscoveryService": (
        ("StreamClientStatus", "ClientStatus", True, True),
        ("FetchClientStatus", "ClientStatus", False, False),
    ),
}


def describe_services(files: Mapping[str, str]) -> list[FileDescriptorProto]:
    """A file per package. ``files`` maps the full name of a top-level message to the file that defines it."""
    services: dict[str, list[ServiceDescriptorProto]] = {}
    for name in (*_DISCOVERY, *_OTHERS):
        service = _discovery(name) if name in _DISCOVERY else _other(name)
        services.setdefault(name.rpartition(".")[0], []).append(service)
    return [_file(package, services[package], files) for package in sorted(services)]


def _discovery(full_name: str) -> ServiceDescriptorProto:
    subject = _DISCOVERY[full_name]
    package = _V2 if ".v2." in full_name else _V3
    service = ServiceDescriptorProto(name=full_name.rpartition(".")[2])
    for verb in _METHODS.get(subject, ("Stream", "Delta", "Fetch")):
        message = f".{package}.{'Delta' if verb == 'Delta' else ''}Discovery"
        _add_method(service, verb + subject, message, client=verb != "Fetch", server=verb != "Fetch")
    return service


def _other(full_name: str) -> ServiceDescriptorProto:
    package, _, name = full_name.rpartition(".")
    service = ServiceDescriptorProto(name=name)
    for method, message, client, server in _OTHERS[full_name]:
        _add_method(service, method, f".{package}.{message}", client=client, server=server)
    return service


def _add_method(service: ServiceDescriptorProto, name: str, message: str, *, client: bool, server: bool) -> None:
    service.method.add(
        name=name,
        input_type=f"{message}Request",
        output_type=f"{message}Response",
        client_streaming=client,
        server_streaming=server,
    )


def _file(package: str, services: Iterable[ServiceDescriptorProto], files: Mapping[str, str]) -> FileDescriptorProto:
    file = FileDescriptorProto(name=f"{package.replace('.', '/')}/services.proto", package=package, syntax="proto3")
    file.service.extend(sorted(services, key=lambda service: service.name))
    used = {name for service in file.service for method in service.method for name in _types(method)}
    file.dependency.extend(sorted({files[name.removeprefix(".")] for name in used}))
    return file


def _types(method: MethodDescriptorProto) -> tuple[str, str]:
    return (method.input_type, method.output_type)
