"""v3 resources for clients that still speak the v2 API.

v3 kept the field numbers of v2: a v3 message that uses only fields of v2 is a v2 message byte for byte, once the type
URLs of packed messages are renamed. `PACKED_TYPES` follows Envoy's versioning annotations, as far as v2 clients know
the types. A resource with anything that v2 lacks is reported and not sent (docs/internals/design.md#codec): dropping
a field silently would change its meaning. Fields that only tell Envoy which API version to use are changed or
dropped.

gRPC's C core until 1.49 accepts only the v2 type of a listener's HttpConnectionManager, and ignores its filters.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError
from google.protobuf.unknown_fields import UnknownFieldSet

from xds.codec import schema
from xds.codec.findings import FieldPath, json_pointer
from xds.codec.walk import ANY
from xds.model.resource import Resource, content_version
from xds.model.resource_type import TYPE_PREFIX, V2_URLS, resource_type

_HTTP, _HTTP_V2 = "envoy.extensions.filters.http.", "envoy.config.filter.http."
_NETWORK, _NETWORK_V2 = "envoy.extensions.filters.network.", "envoy.config.filter.network."
# v3 message name -> v2 message name.
PACKED_TYPES: Mapping[str, str] = {
    "envoy.extensions.access_loggers.file.v3.FileAccessLog": "envoy.config.accesslog.v2.FileAccessLog",
    "envoy.extensions.access_loggers.grpc.v3.HttpGrpcAccessLogConfig": (
        "envoy.config.accesslog.v2.HttpGrpcAccessLogConfig"
    ),
    "envoy.extensions.access_loggers.grpc.v3.TcpGrpcAccessLogConfig": (
        "envoy.config.accesslog.v2.TcpGrpcAccessLogConfig"
    ),
    "envoy.extensions.clusters.aggregate.v3.ClusterConfig": "envoy.config.cluster.aggregate.v2alpha.ClusterConfig",
    "envoy.extensions.clusters.dynamic_forward_proxy.v3.ClusterConfig": (
        "envoy.config.cluster.dynamic_forward_proxy.v2alpha.ClusterConfig"
    ),
    f"{_HTTP}buffer.v3.Buffer": f"{_HTTP_V2}buffer.v2.Buffer",
    f"{_HTTP}buffer.v3.BufferPerRoute": f"{_HTTP_V2}buffer.v2.BufferPerRoute",
    f"{_HTTP}compressor.v3.Compressor": f"{_HTTP_V2}compressor.v2.Compressor",
    f"{_HTTP}cors.v3.Cors": f"{_HTTP_V2}cors.v2.Cors",
    f"{_HTTP}csrf.v3.CsrfPolicy": f"{_HTTP_V2}csrf.v2.CsrfPolicy",
    f"{_HTTP}dynamic_forward_proxy.v3.FilterConfig": f"{_HTTP_V2}dynamic_forward_proxy.v2alpha.FilterConfig",
    f"{_HTTP}ext_authz.v3.ExtAuthz": f"{_HTTP_V2}ext_authz.v2.ExtAuthz",
    f"{_HTTP}ext_authz.v3.ExtAuthzPerRoute": f"{_HTTP_V2}ext_authz.v2.ExtAuthzPerRoute",
    f"{_HTTP}fault.v3.HTTPFault": f"{_HTTP_V2}fault.v2.HTTPFault",
    f"{_HTTP}grpc_http1_bridge.v3.Config": f"{_HTTP_V2}grpc_http1_bridge.v2.Config",
    f"{_HTTP}grpc_json_transcoder.v3.GrpcJsonTranscoder": f"{_HTTP_V2}transcoder.v2.GrpcJsonTranscoder",
    f"{_HTTP}grpc_stats.v3.FilterConfig": f"{_HTTP_V2}grpc_stats.v2alpha.FilterConfig",
    f"{_HTTP}grpc_web.v3.GrpcWeb": f"{_HTTP_V2}grpc_web.v2.GrpcWeb",
    f"{_HTTP}header_to_metadata.v3.Config": f"{_HTTP_V2}header_to_metadata.v2.Config",
    f"{_HTTP}health_check.v3.HealthCheck": f"{_HTTP_V2}health_check.v2.HealthCheck",
    f"{_HTTP}ip_tagging.v3.IPTagging": f"{_HTTP_V2}ip_tagging.v2.IPTagging",
    f"{_HTTP}jwt_authn.v3.JwtAuthentication": f"{_HTTP_V2}jwt_authn.v2alpha.JwtAuthentication",
    f"{_HTTP}lua.v3.Lua": f"{_HTTP_V2}lua.v2.Lua",
    f"{_HTTP}on_demand.v3.OnDemand": f"{_HTTP_V2}on_demand.v2.OnDemand",
    f"{_HTTP}original_src.v3.OriginalSrc": f"{_HTTP_V2}original_src.v2alpha1.OriginalSrc",
    f"{_HTTP}ratelimit.v3.RateLimit": f"{_HTTP_V2}rate_limit.v2.RateLimit",
    f"{_HTTP}rbac.v3.RBAC": f"{_HTTP_V2}rbac.v2.RBAC",
    f"{_HTTP}rbac.v3.RBACPerRoute": f"{_HTTP_V2}rbac.v2.RBACPerRoute",
    f"{_HTTP}router.v3.Router": f"{_HTTP_V2}router.v2.Router",
    f"{_HTTP}tap.v3.Tap": f"{_HTTP_V2}tap.v2alpha.Tap",
    "envoy.extensions.filters.listener.http_inspector.v3.HttpInspector": (
        "envoy.config.filter.listener.http_inspector.v2.HttpInspector"
    ),
    "envoy.extensions.filters.listener.original_dst.v3.OriginalDst": (
        "envoy.config.filter.listener.original_dst.v2.OriginalDst"
    ),
    "envoy.extensions.filters.listener.proxy_protocol.v3.ProxyProtocol": (
        "envoy.config.filter.listener.proxy_protocol.v2.ProxyProtocol"
    ),
    "envoy.extensions.filters.listener.tls_inspector.v3.TlsInspector": (
        "envoy.config.filter.listener.tls_inspector.v2.TlsInspector"
    ),
    f"{_NETWORK}direct_response.v3.Config": f"{_NETWORK_V2}direct_response.v2.Config",
    f"{_NETWORK}echo.v3.Echo": f"{_NETWORK_V2}echo.v2.Echo",
    f"{_NETWORK}ext_authz.v3.ExtAuthz": f"{_NETWORK_V2}ext_authz.v2.ExtAuthz",
    f"{_NETWORK}http_connection_manager.v3.HttpConnectionManager": (
        f"{_NETWORK_V2}http_connection_manager.v2.HttpConnectionManager"
    ),
    f"{_NETWORK}local_ratelimit.v3.LocalRateLimit": f"{_NETWORK_V2}local_rate_limit.v2alpha.LocalRateLimit",
    f"{_NETWORK}mongo_proxy.v3.MongoProxy": f"{_NETWORK_V2}mongo_proxy.v2.MongoProxy",
    f"{_NETWORK}ratelimit.v3.RateLimit": f"{_NETWORK_V2}rate_limit.v2.RateLimit",
    f"{_NETWORK}rbac.v3.RBAC": f"{_NETWORK_V2}rbac.v2.RBAC",
    f"{_NETWORK}redis_proxy.v3.RedisProtocolOptions": f"{_NETWORK_V2}redis_proxy.v2.RedisProtocolOptions",
    f"{_NETWORK}redis_proxy.v3.RedisProxy": f"{_NETWORK_V2}redis_proxy.v2.RedisProxy",
    f"{_NETWORK}sni_cluster.v3.SniCluster": f"{_NETWORK_V2}sni_cluster.v2.SniCluster",
    f"{_NETWORK}tcp_proxy.v3.TcpProxy": f"{_NETWORK_V2}tcp_proxy.v2.TcpProxy",
    "envoy.extensions.filters.udp.udp_proxy.v3.UdpProxyConfig": (
        "envoy.config.filter.udp.udp_proxy.v2alpha.UdpProxyConfig"
    ),
    "envoy.extensions.transport_sockets.alts.v3.Alts": "envoy.config.transport_socket.alts.v2alpha.Alts",
    "envoy.extensions.transport_sockets.raw_buffer.v3.RawBuffer": (
        "envoy.config.transport_socket.raw_buffer.v2.RawBuffer"
    ),
    "envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContext": "envoy.api.v2.auth.DownstreamTlsContext",
    "envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext": "envoy.api.v2.auth.UpstreamTlsContext",
}


# Fields for v3 clients only: ConfigSource.resource_api_version and ApiConfigSource.transport_api_version.
_API_VERSIONS = ("resource_api_version", "transport_api_version")

_CLUSTER = "envoy.config.cluster.v3.Cluster"
_HTTP_OPTIONS = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"
_LIFTED = ("common_http_protocol_options", "upstream_http_protocol_options")
_USE_DOWNSTREAM_PROTOCOL = 1  # Cluster.ClusterProtocolSelection


@dataclass(frozen=True, slots=True)
class Downgraded:
    """The resource for a v2 client, or None with what the v2 API cannot express."""

    resource: Resource | None
    problem: str = ""


def downgrade(resource: Resource) -> Downgraded:
    """The same resource under its v2 type URL. A resource outside the v3 API is returned unchanged."""
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
    references = tuple(replace(one, type_url=V2_URLS.get(one.type_url, one.type_url)) for one in resource.references)
    version = content_version(body, resource.aliases, resource.ttl_s)
    return replace(resource, type_url=type_url, body=body, version=version, references=references)


def _rename(message: Any, target: Any, path: FieldPath) -> Iterator[str]:
    """Rename the packed messages in ``message``, and yield what the type of ``target`` cannot express."""
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
    """In v2 a cluster's HTTP options are fields of the cluster; what these cannot express stays, and is reported."""
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


def _rename_field(field: Any, counterpart: Any, value: Any, path: FieldPath) -> Iterator[str]:
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


def _unknown_values(counterpart: FieldDescriptor, value: Any, path: FieldPath) -> Iterator[str]:
    enum = counterpart.enum_type
    for one in value if counterpart.is_repeated else (value,):
        if enum is not None and one not in enum.values_by_number:
            yield f"{json_pointer(path)}: the v2 API has no value {one}"


def _rename_packed(packed: Any, path: FieldPath) -> Iterator[str]:
    """Types of the v2 API, and types outside Envoy's API, stay unchanged."""
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
