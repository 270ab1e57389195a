"""The wire schema is current, and field-compatible with Envoy's v3 and v2 transport messages."""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from betterproto2 import FieldMetadata
from google.protobuf.descriptor import Descriptor, FieldDescriptor

from tools.proto import generate
from xds.proto import wire_pb2

DISCOVERY = "envoy.service.discovery.v3"
CORE = "envoy.config.core.v3"
ENDPOINT = "envoy.config.endpoint.v3"
STATUS = "envoy.service.status.v3"

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of envoy_data_plane, on import

# Our message -> (module of envoy_data_plane, class).
V3 = {
    "Status": ("google.rpc", "Status"),
    "DiscoveryRequest": (DISCOVERY, "DiscoveryRequest"),
    "DiscoveryResponse": (DISCOVERY, "DiscoveryResponse"),
    "DeltaDiscoveryRequest": (DISCOVERY, "DeltaDiscoveryRequest"),
    "DeltaDiscoveryResponse": (DISCOVERY, "DeltaDiscoveryResponse"),
    "Resource": (DISCOVERY, "Resource"),
    "Resource.CacheControl": (DISCOVERY, "ResourceCacheControl"),
    "ResourceLocator": (DISCOVERY, "ResourceLocator"),
    "ResourceName": (DISCOVERY, "ResourceName"),
    "ResourceError": (DISCOVERY, "ResourceError"),
    "ControlPlane": (CORE, "ControlPlane"),
    "Node": (CORE, "Node"),
    "BuildVersion": (CORE, "BuildVersion"),
    "SemanticVersion": ("envoy.type.v3", "SemanticVersion"),
    "Locality": (CORE, "Locality"),
    "Address": (CORE, "Address"),
    "SocketAddress": (CORE, "SocketAddress"),
    "Pipe": (CORE, "Pipe"),
    "LoadStatsRequest": ("envoy.service.load_stats.v3", "LoadStatsRequest"),
    "LoadStatsResponse": ("envoy.service.load_stats.v3", "LoadStatsResponse"),
    "ClusterStats": (ENDPOINT, "ClusterStats"),
    "ClusterStats.DroppedRequests": (ENDPOINT, "ClusterStatsDroppedRequests"),
    "UpstreamLocalityStats": (ENDPOINT, "UpstreamLocalityStats"),
    "UpstreamEndpointStats": (ENDPOINT, "UpstreamEndpointStats"),
    "EndpointLoadMetricStats": (ENDPOINT, "EndpointLoadMetricStats"),
    "UnnamedEndpointLoadMetricStats": (ENDPOINT, "UnnamedEndpointLoadMetricStats"),
    "ClientStatusRequest": (STATUS, "ClientStatusRequest"),
    "ClientStatusResponse": (STATUS, "ClientStatusResponse"),
    "ClientConfig": (STATUS, "ClientConfig"),
    "ClientConfig.GenericXdsConfig": (STATUS, "ClientConfigGenericXdsConfig"),
    "PerXdsConfig": (STATUS, "PerXdsConfig"),
    "UpdateFailureState": ("envoy.admin.v3", "UpdateFailureState"),
}
ENUMS = {
    "ConfigStatus": (STATUS, "ConfigStatus"),
    "ClientConfigStatus": (STATUS, "ClientConfigStatus"),
    "ClientResourceStatus.Value": ("envoy.admin.v3", "ClientResourceStatus"),
}
# Other readings of the same bytes: what is length-delimited may stay serialized, and stand for all of its kind.
TALLIES = {
    "LoadTally": "LoadStatsRequest",
    "ClusterTally": "ClusterStats",
    "LocalityTally": "UpstreamLocalityStats",
}
UNTALLIED = {
    "LocalityTally": {"total_active_connections", "total_fail_connections", "total_new_connections"},
}
V2_ONLY = {("Node", "build_version")}
# Fields that stay unknown on purpose; whatever else Envoy adds must be looked at.
LEFT_OUT = {
    "Node": {"dynamic_parameters", "extensions", "listening_addresses"},
    "Pipe": {"mode"},
    "Address": {"envoy_internal_address"},
    "SocketAddress": {"protocol", "resolver_name", "ipv4_compat", "network_namespace_filepath"},
}
V2_API = "envoy.api.v2"
V2 = {
    "DiscoveryRequest": (V2_API, "DiscoveryRequest"),
    "DiscoveryResponse": (V2_API, "DiscoveryResponse"),
    "DeltaDiscoveryRequest": (V2_API, "DeltaDiscoveryRequest"),
    "DeltaDiscoveryResponse": (V2_API, "DeltaDiscoveryResponse"),
    "Resource": (V2_API, "Resource"),
    "ControlPlane": (f"{V2_API}.core", "ControlPlane"),
    "Node": (f"{V2_API}.core", "Node"),
    "BuildVersion": (f"{V2_API}.core", "BuildVersion"),
    "Locality": (f"{V2_API}.core", "Locality"),
    "Address": (f"{V2_API}.core", "Address"),
    "SocketAddress": (f"{V2_API}.core", "SocketAddress"),
    "LoadStatsRequest": ("envoy.service.load_stats.v2", "LoadStatsRequest"),
    "LoadStatsResponse": ("envoy.service.load_stats.v2", "LoadStatsResponse"),
    "ClusterStats": (f"{V2_API}.endpoint", "ClusterStats"),
    "ClusterStats.DroppedRequests": (f"{V2_API}.endpoint", "ClusterStatsDroppedRequests"),
    "UpstreamLocalityStats": (f"{V2_API}.endpoint", "UpstreamLocalityStats"),
    "UpstreamEndpointStats": (f"{V2_API}.endpoint", "UpstreamEndpointStats"),
    "EndpointLoadMetricStats": (f"{V2_API}.endpoint", "EndpointLoadMetricStats"),
}
SCALARS = {
    FieldDescriptor.TYPE_STRING: "string",
    FieldDescriptor.TYPE_BOOL: "bool",
    FieldDescriptor.TYPE_INT32: "int32",
    FieldDescriptor.TYPE_UINT32: "uint32",
    FieldDescriptor.TYPE_UINT64: "uint64",
    FieldDescriptor.TYPE_DOUBLE: "double",
    FieldDescriptor.TYPE_ENUM: "enum",
}


def _descriptors(messages: Mapping[str, Descriptor], prefix: str = "") -> Iterator[tuple[str, Descriptor]]:
    for name, descriptor in messages.items():
        if not descriptor.GetOptions().map_entry:
            yield prefix + name, descriptor
            yield from _descriptors(descriptor.nested_types_by_name, f"{prefix}{name}.")


OURS = dict(_descriptors(wire_pb2.DESCRIPTOR.message_types_by_name))


def _envoy_fields(module: str, name: str) -> dict[str, FieldMetadata]:
    cls = getattr(importlib.import_module(f"envoy_data_plane.{module}"), name)
    return {field.name: FieldMetadata.get(field) for field in dataclasses.fields(cls)}


def _is_map(field: FieldDescriptor) -> bool:
    return field.message_type is not None and bool(field.message_type.GetOptions().map_entry)


def _compatible_types(field: FieldDescriptor, envoy: FieldMetadata) -> bool:
    if _is_map(field):
        return bool(envoy.proto_type == "map")
    if envoy.proto_type == "message":
        return field.type in (FieldDescriptor.TYPE_MESSAGE, FieldDescriptor.TYPE_BYTES)
    return bool(SCALARS[field.type] == envoy.proto_type) and field.is_repeated == bool(envoy.repeated)


def test_check_sees_an_edited_schema() -> None:
    outputs = {
        path: content.replace(b"resource_locators", b"resource_l0cators") for path, content in _current().items()
    }
    assert generate.stale_files(outputs) == list(outputs)
    assert generate.stale_files(_current()) == []


def _current() -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in sorted(generate.PACKAGE.glob("wire_pb2.py*"))}


def test_every_message_is_compared() -> None:
    containers = {"ClientResourceStatus"}  # only holds its enum
    assert set(OURS) - containers == set(V3) | set(TALLIES)


@pytest.mark.parametrize("name", TALLIES)
def test_tallies_read_the_same_bytes(name: str) -> None:
    whole = OURS[TALLIES[name]].fields_by_name
    for field in OURS[name].fields:
        same = whole[field.name]
        assert field.number == same.number, field.full_name
        assert field.type == same.type or (_is_delimited(field) and _is_delimited(same)), field.full_name
    assert set(whole) - set(OURS[name].fields_by_name) == UNTALLIED.get(name, set())


def _is_delimited(field: FieldDescriptor) -> bool:
    return field.type in (FieldDescriptor.TYPE_MESSAGE, FieldDescriptor.TYPE_BYTES, FieldDescriptor.TYPE_STRING)


@pytest.mark.parametrize("name", V3)
def test_fields_are_those_of_envoy_v3(name: str) -> None:
    envoy = _envoy_fields(*V3[name])
    for field in OURS[name].fields:
        if (name, field.name) in V2_ONLY:
            assert all(meta.number != field.number for meta in envoy.values())
            continue
        assert field.number == envoy[field.name].number, field.full_name
        assert _compatible_types(field, envoy[field.name]), field.full_name
    assert set(envoy) - set(OURS[name].fields_by_name) == LEFT_OUT.get(name, set())


@pytest.mark.parametrize("name", ENUMS)
def test_enum_values_are_those_of_envoy_v3(name: str) -> None:
    module, cls = ENUMS[name]
    envoy = getattr(importlib.import_module(f"envoy_data_plane.{module}"), cls)
    owner, _, inner = name.rpartition(".")
    enums = OURS[owner].enum_types_by_name if owner else wire_pb2.DESCRIPTOR.enum_types_by_name
    assert {value.name: value.number for value in enums[inner].values} == {m.name: m.value for m in envoy}


@pytest.mark.parametrize("name", V2)
def test_fields_are_those_of_the_v2_transport(name: str) -> None:
    """Whatever number a v2 peer writes, we either read the same field there or nothing."""
    ours = {field.number: field for field in OURS[name].fields}
    for field_name, meta in _envoy_fields(*V2[name]).items():
        field = ours.get(meta.number)
        assert field is None or (field.name == field_name and _compatible_types(field, meta)), field_name
    missing = set(_envoy_fields(*V2[name])) - set(OURS[name].fields_by_name)
    assert missing <= LEFT_OUT.get(name, set())


def test_package_does_not_clash_with_envoy_protos() -> None:
    assert wire_pb2.DESCRIPTOR.package == "xds_server.wire"


def test_real_envoy_bytes_are_understood() -> None:
    """A DiscoveryRequest and a load report written by Envoy's own schema read back field by field."""
    discovery = importlib.import_module(f"envoy_data_plane.{DISCOVERY}")
    core = importlib.import_module(f"envoy_data_plane.{CORE}")
    node = core.Node(id="n1", cluster="c", locality=core.Locality(region="r", zone="z"), client_features=["f"])
    request = discovery.DeltaDiscoveryRequest(
        node=node, type_url="t", resource_names_subscribe=["a"], initial_resource_versions={"a": "1"}
    )
    read = wire_pb2.DeltaDiscoveryRequest.FromString(bytes(request))
    decoded = wire_pb2.Node.FromString(read.node)
    assert (decoded.id, decoded.locality.zone, list(decoded.client_features)) == ("n1", "z", ["f"])
    assert dict(read.initial_resource_versions) == {"a": "1"}
    assert list(read.resource_names_subscribe) == ["a"]


def test_unknown_node_fields_survive_as_bytes() -> None:
    core = importlib.import_module(f"envoy_data_plane.{CORE}")
    node = bytes(core.Node(id="n1", extensions=[core.Extension(name="envoy.filters.http.router")]))
    request = wire_pb2.DiscoveryRequest.FromString(wire_pb2.DiscoveryRequest(node=node).SerializeToString())
    assert request.node == node
