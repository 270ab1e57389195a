"""Messages that stand packed in v2 resources, by their v3 names: what Envoy's versioning annotations say, as far as v2
clients know them."""

from __future__ import annotations

from collections.abc import Mapping

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
