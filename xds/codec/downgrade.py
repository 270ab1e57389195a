"""v3 resources for clients that still speak the v2 API.

v3 kept the field numbers of v2, so a v3 message that uses only fields v2 has is a v2 message, byte for byte, once the
type URLs packed in it are renamed. Whatever v2 lacks is reported and the resource is not sent (DESIGN 5.1): dropping
a field silently would change what the resource means. What only tells Envoy which API version to speak is changed or
dropped, because for a v2 client that has one answer.

gRPC's C core until 1.49 takes a v2 listener's HttpConnectionManager for the v2 one, and looks at none of its filters.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError
from google.protobuf.unknown_fields import UnknownFieldSet

from xds.codec import schema
from xds.codec.findings import json_pointer
from xds.codec.packed_types import PACKED_TYPES
from xds.codec.walk import ANY
from xds.model.resource import Reference, Resource, content_version
from xds.model.resource_type import TYPE_PREFIX, V2_URLS, resource_type

Path = tuple[str | int, ...]

# Set for v3 clients only: ConfigSource.resource_api_version and ApiConfigSource.transport_api_version.
_API_VERSIONS = ("resource_api_version", "transport_api_version")

_CLUSTER = "envoy.config.cluster.v3.Cluster"
_HTTP_OPTIONS = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"
_LIFTED = ("common_http_protocol_options", "upstream_http_protocol_options")
_USE_DOWNSTREAM_PROTOCOL = 1  # Cluster.ClusterProtocolSelection


@dataclass(frozen=True, slots=True)
class Downgraded:
    """The resource for a v2 client, or None and what the v2 API cannot express."""

    resource: Resource | None
    problem: str = ""


def downgrade(resource: Resource) -> Downgraded:
    """The same resource under its v2 type URL. A resource that is not of the v3 API comes back as it is."""
    if resource.type_url not in V2_URLS:
        return _outside_v3(resource)
    type_url = V2_URLS[resource.type_url]
    message = schema.require(resource.type_url)()
    target = schema.require(type_url)()
    try:
        message.ParseFromString(resource.body)
        problems = list(_rename(message, target, ()))
        target.ParseFromString(message.SerializeToString())
    except DecodeError:
        return Downgraded(None, "not readable")
    if problems:
        return Downgraded(None, "; ".join(problems))
    return Downgraded(_renamed(resource, type_url, target.SerializeToString(deterministic=True)))


def _outside_v3(resource: Resource) -> Downgraded:
    alias = resource_type(resource.type_url).alias
    if alias == "extension_configs":
        return Downgraded(None, "the v2 API has no extension configs")
    return Downgraded(resource)


def _renamed(resource: Resource, type_url: str, body: bytes) -> Resource:
    references = tuple(
        Reference(V2_URLS.get(one.type_url, one.type_url), one.name, one.source) for one in resource.references
    )
    version = content_version(body, resource.aliases, resource.ttl_s)
    return replace(resource, type_url=type_url, body=body, version=version, references=references)


def _rename(message: Any, target: Any, path: Path) -> Iterator[str]:
    """Rename what is packed in ``message`` and yield what ``target``'s type cannot express."""
    if message.DESCRIPTOR.full_name == ANY:
        yield from _rename_packed(message, path)
        return
    if message.DESCRIPTOR.full_name == _CLUSTER:
        _lift_http_options(message)
    if len(UnknownFieldSet(message)):
        yield f"{json_pointer(path)}: fields that this server does not know"
    for name in _API_VERSIONS:
        if name in message.DESCRIPTOR.fields_by_name:
            message.ClearField(name)
    fields = target.DESCRIPTOR.fields_by_number
    for field, value in message.ListFields():
        place = (*path, field.name)
        counterpart = fields.get(field.number)
        if counterpart is None or not _same_kind(field, counterpart):
            yield f"{json_pointer(place)}: the v2 API has no such field"
        elif field.message_type is not None:
            yield from _rename_field(field, counterpart, value, place)
        elif field.enum_type is not None:
            yield from _unknown_values(counterpart, value, place)


def _lift_http_options(cluster: Any) -> None:
    """v2 has a cluster's HTTP options as fields of the cluster; what they cannot express stays, and is reported."""
    packed = cluster.typed_extension_protocol_options.get(_HTTP_OPTIONS)
    if packed is None or packed.type_url.rpartition("/")[2] != _HTTP_OPTIONS:
        return
    options: Any = schema.require(_HTTP_OPTIONS).FromString(packed.value)
    kind = options.WhichOneof("upstream_protocol_options")
    config = getattr(options, kind) if kind is not None else None
    extra = {field.name for field, _ in options.ListFields()} - {kind, *_LIFTED}
    if extra or kind == "auto_config" or (config is not None and config.HasField("http3_protocol_options")):
        return
    for name in _LIFTED:
        if options.HasField(name):
            getattr(cluster, name).CopyFrom(getattr(options, name))
    if config is not None:
        _lift_protocol(cluster, config)
    if kind == "use_downstream_protocol_config":
        cluster.protocol_selection = _USE_DOWNSTREAM_PROTOCOL
    del cluster.typed_extension_protocol_options[_HTTP_OPTIONS]


def _lift_protocol(cluster: Any, config: Any) -> None:
    for name in ("http_protocol_options", "http2_protocol_options"):
        if config.HasField(name):
            getattr(cluster, name).CopyFrom(getattr(config, name))


def _same_kind(field: Any, counterpart: Any) -> bool:
    return bool(field.type == counterpart.type and field.is_repeated == counterpart.is_repeated)


def _rename_field(field: Any, counterpart: Any, value: Any, path: Path) -> Iterator[str]:
    if field.message_type.GetOptions().map_entry:
        item, target = field.message_type.fields_by_name["value"], counterpart.message_type.fields_by_name["value"]
        entries: Iterator[tuple[str | int, Any]] = iter(value.items() if item.message_type else ())
        message_type = target.message_type
    elif field.is_repeated:
        entries, message_type = iter(enumerate(value)), counterpart.message_type
    else:
        yield from _rename(value, schema.require(counterpart.message_type.full_name), path)
        return
    for key, one in entries:
        yield from _rename(one, schema.require(message_type.full_name), (*path, key))


def _unknown_values(counterpart: FieldDescriptor, value: Any, path: Path) -> Iterator[str]:
    enum = counterpart.enum_type
    for one in value if counterpart.is_repeated else (value,):
        if enum is not None and one not in enum.values_by_number:
            yield f"{json_pointer(path)}: the v2 API has no value {one}"


def _rename_packed(packed: Any, path: Path) -> Iterator[str]:
    """Types of the v2 API and those that are no part of Envoy's stay as they are."""
    name = packed.type_url.rpartition("/")[2]
    if name not in PACKED_TYPES:
        if name.startswith("envoy.") and ".v3" in name:
            yield f"{json_pointer(path)}: the v2 API has no {name}"
        return
    message, target = schema.require(name)(), schema.require(PACKED_TYPES[name])
    try:
        message.ParseFromString(packed.value)
    except DecodeError:
        yield f"{json_pointer(path)}: not readable"
        return
    yield from _rename(message, target, path)
    packed.type_url = TYPE_PREFIX + PACKED_TYPES[name]
    packed.value = message.SerializeToString(deterministic=True)
