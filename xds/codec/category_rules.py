"""Which extensions fit where: the clusters' TLS context in a listener is refused by Envoy, and here.

Envoy finds an extension by the type of its configuration, in the category of the place (`xds.proto.extensions`). A type
that no extension of the standard build has, of contrib, of a custom filter or of a ``TypedStruct``, may belong anywhere
and passes; but a resource such as a listener is no extension. A type of several categories fits in each of them.

Places where Envoy ignores what it does not know, or does not need, are left out: optional filters, load balancing
policies, cluster specifiers, options of QUIC. So are those of matchers, whose categories follow from where the matcher
is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

from google.protobuf.descriptor import FieldDescriptor

from xds.codec.rules import MessageRule, Problem
from xds.codec.walk import ANY
from xds.model.resource_type import (
    CLUSTER,
    ENDPOINT,
    EXTENSION_CONFIG,
    LISTENER,
    ROUTE,
    RUNTIME,
    SCOPED_ROUTE,
    SECRET,
    VIRTUAL_HOST,
)
from xds.proto.extensions import categories_of

_CODE = "wrong_extension"
_REMEMBERED = 2048
_CORE = "envoy.config.core.v3"
_ROUTE = "envoy.config.route.v3"
_LISTENER = "envoy.config.listener.v3"
_CLUSTER = "envoy.config.cluster.v3"
_HTTP = "envoy.extensions.filters.http"
_NETWORK = "envoy.extensions.filters.network"
_SOCKETS = "envoy.extensions.transport_sockets"
_MANAGER = f"{_NETWORK}.http_connection_manager.v3"
_LOGGERS = "envoy.extensions.access_loggers"

HTTP_FILTERS = frozenset(("envoy.filters.http", "envoy.filters.http.upstream"))
_DOWNSTREAM = ("envoy.transport_sockets.downstream",)
_UPSTREAM = ("envoy.transport_sockets.upstream",)
_RESOLVERS = ("envoy.network.dns_resolver",)
_FORMATTERS = ("envoy.formatter",)
_DETECTORS = ("envoy.tracers.opentelemetry.resource_detectors",)
_SAMPLERS = ("envoy.tracers.opentelemetry.samplers",)
_COMPRESSORS = ("envoy.compression.compressor",)
# By the type and the field that holds the extension: as an ``Any``, or in a message with a ``typed_config``.
_PLACES: Mapping[str, Mapping[str, Iterable[str]]] = {
    "envoy.config.accesslog.v3.AccessLog": {"typed_config": ("envoy.access_loggers",)},
    "envoy.config.accesslog.v3.ExtensionFilter": {"typed_config": ("envoy.access_loggers.extension_filters",)},
    "envoy.config.rbac.v3.Permission": {"matcher": ("envoy.rbac.matchers",), "uri_template": ("envoy.path.match",)},
    "envoy.config.rbac.v3.Principal": {"custom": ("envoy.rbac.principals",)},
    "envoy.config.trace.v3.OpenTelemetryConfig": {"resource_detectors": _DETECTORS, "sampler": _SAMPLERS},
    "envoy.config.trace.v3.Tracing.Http": {"typed_config": ("envoy.tracers",)},
    f"{_CLUSTER}.Cluster": {"transport_socket": _UPSTREAM},
    f"{_CLUSTER}.Cluster.CustomClusterType": {"typed_config": ("envoy.clusters",)},
    f"{_CLUSTER}.Cluster.TransportSocketMatch": {"transport_socket": _UPSTREAM},
    f"{_CORE}.ApiConfigSource": {"config_validators": ("envoy.config.validators",)},
    f"{_CORE}.HealthCheck": {"event_logger": ("envoy.health_check.event_sinks",)},
    f"{_CORE}.HealthCheck.CustomHealthCheck": {"typed_config": ("envoy.health_checkers",)},
    f"{_CORE}.Http1ProtocolOptions.HeaderKeyFormat": {"stateful_formatter": ("envoy.http.stateful_header_formatters",)},
    f"{_CORE}.HttpService": {"formatters": _FORMATTERS},
    f"{_CORE}.SubstitutionFormatString": {"formatters": _FORMATTERS},
    f"{_LISTENER}.Filter": {"typed_config": ("envoy.filters.network",)},
    f"{_LISTENER}.FilterChain": {"transport_socket": _DOWNSTREAM},
    f"{_LISTENER}.ListenerFilter": {
        "typed_config": ("envoy.filters.listener", "envoy.filters.udp_listener", "envoy.filters.quic_listener")
    },
    f"{_ROUTE}.InternalRedirectPolicy": {"predicates": ("envoy.internal_redirect_predicates",)},
    f"{_ROUTE}.RateLimit.Action": {"extension": ("envoy.rate_limit_descriptors",)},
    f"{_ROUTE}.RetryPolicy.RetryHostPredicate": {"typed_config": ("envoy.retry_host_predicates",)},
    f"{_ROUTE}.RetryPolicy.RetryPriority": {"typed_config": ("envoy.retry_priorities",)},
    f"{_ROUTE}.RouteAction": {
        "path_rewrite_policy": ("envoy.path.rewrite",),
        "early_data_policy": ("envoy.route.early_data_policy",),
    },
    f"{_ROUTE}.RouteMatch": {"path_match_policy": ("envoy.path.match",)},
    **{
        f"{_ROUTE}.{holder}.TypedPerFilterConfigEntry": {"value": HTTP_FILTERS}
        for holder in ("Route", "RouteConfiguration", "VirtualHost", "WeightedCluster.ClusterWeight")
    },
    f"{_LOGGERS}.fluentd.v3.FluentdAccessLogConfig": {"formatters": _FORMATTERS},
    f"{_LOGGERS}.open_telemetry.v3.OpenTelemetryAccessLogConfig": {
        "formatters": _FORMATTERS,
        "resource_detectors": _DETECTORS,
    },
    "envoy.extensions.clusters.dns.v3.DnsCluster": {"typed_dns_resolver_config": _RESOLVERS},
    "envoy.extensions.common.dynamic_forward_proxy.v3.DnsCacheConfig": {"typed_dns_resolver_config": _RESOLVERS},
    f"{_HTTP}.cache.v3.CacheConfig": {"typed_config": ("envoy.http.cache",)},
    f"{_HTTP}.cache_v2.v3.CacheV2Config": {"typed_config": ("envoy.http.cache_v2",)},
    f"{_HTTP}.compressor.v3.Compressor": {"compressor_library": _COMPRESSORS},
    f"{_HTTP}.compressor.v3.CompressorOverrides": {"compressor_library": _COMPRESSORS},
    f"{_HTTP}.credential_injector.v3.CredentialInjector": {"credential": ("envoy.http.injected_credentials",)},
    f"{_HTTP}.decompressor.v3.Decompressor": {"decompressor_library": ("envoy.compression.decompressor",)},
    f"{_HTTP}.geoip.v3.Geoip": {"provider": ("envoy.geoip_providers",)},
    f"{_HTTP}.header_mutation.v3.Mutations": {"formatters": _FORMATTERS},
    f"{_HTTP}.stateful_session.v3.StatefulSession": {"session_state": ("envoy.http.stateful_session",)},
    f"{_NETWORK}.generic_proxy.v3.GenericProxy": {
        "codec_config": ("envoy.generic_proxy.codecs",),
        "filters": ("envoy.generic_proxy.filters",),
    },
    f"{_NETWORK}.geoip.v3.Geoip": {"provider": ("envoy.geoip_providers",)},
    f"{_MANAGER}.HttpConnectionManager": {
        "early_header_mutation_extensions": ("envoy.http.early_header_mutation",),
        "original_ip_detection_extensions": ("envoy.http.original_ip_detection",),
    },
    f"{_MANAGER}.RequestIDExtension": {"typed_config": ("envoy.request_id",)},
    f"{_NETWORK}.thrift_proxy.v3.ThriftFilter": {"typed_config": ("envoy.thrift_proxy.filters",)},
    "envoy.extensions.filters.udp.udp_proxy.v3.UdpProxyConfig.SessionFilter": {
        "typed_config": ("envoy.filters.udp.session",)
    },
    f"{_SOCKETS}.http_11_proxy.v3.Http11ProxyUpstreamTransport": {"transport_socket": _UPSTREAM},
    f"{_SOCKETS}.internal_upstream.v3.InternalUpstreamTransport": {"transport_socket": _UPSTREAM},
    f"{_SOCKETS}.proxy_protocol.v3.ProxyProtocolUpstreamTransport": {"transport_socket": _UPSTREAM},
    "envoy.extensions.tracers.opentelemetry.samplers.v3.ParentBasedSamplerConfig": {"wrapped_sampler": _SAMPLERS},
    "envoy.type.matcher.v3.StringMatcher": {"custom": ("envoy.string_matcher",)},
}
_RESOURCES = frozenset(
    url.rpartition("/")[2]
    for url in (CLUSTER, ENDPOINT, EXTENSION_CONFIG, LISTENER, ROUTE, RUNTIME, SCOPED_ROUTE, SECRET, VIRTUAL_HOST)
)


def category_rule(field: FieldDescriptor) -> MessageRule | None:
    """The rule for a value of a field that holds an extension; None for other fields."""
    owner = field.containing_type
    fitting = _PLACES.get(owner.full_name, {}).get(field.name) if owner is not None else None
    if fitting is None or field.message_type is None:
        return None
    needed = frozenset(fitting)
    if field.message_type.full_name == ANY:
        return lambda packed: misplaced(packed.type_url, needed)

    def rule(holder: Any) -> list[Problem]:
        problem = misplaced(holder.typed_config.type_url, needed)
        return [one.below("typed_config") for one in problem] if problem else problem

    return rule


@lru_cache(_REMEMBERED)
def _fault(type_url: str, needed: frozenset[str]) -> str:
    """Why a type does not fit, as a sentence; empty if it may."""
    name = type_url.rpartition("/")[2]
    own = categories_of(name)
    if own.isdisjoint(needed) and own:
        return f"{name} configures an extension of {_words(own)}; here is one of {_words(needed)} needed"
    return f"{name} is a resource and no extension of {_words(needed)}" if name in _RESOURCES else ""


def _words(categories: Iterable[str]) -> str:
    return " or ".join(sorted(categories))


_NOTHING: list[Problem] = []


def misplaced(type_url: str, needed: frozenset[str]) -> list[Problem]:
    """The problem of a type whose categories are all others than those that are ``needed``."""
    fault = _fault(type_url, needed)
    return [Problem((), _CODE, fault, "Envoy finds extensions by type and category")] if fault else _NOTHING
