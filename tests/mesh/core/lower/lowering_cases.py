"""Fixtures of lowering: entries, upstreams and instances; what they make stands in ``goldens``.

``python -m tests.mesh.core.lower.lowering_cases`` writes the goldens anew. Read the difference before it is committed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.lowering import catalog_of, golden_text, lowered

GOLDENS = Path(__file__).parent / "goldens"
WEB = "upstreams: [{service: web, bind_port: 9191}]"


def http(*services: str) -> str:
    return "".join(f"- {{Kind: service-defaults, Name: {service}, Protocol: http}}\n" for service in services)


ALL_HTTP = "- {Kind: proxy-defaults, Config: {protocol: http}}\n"
ALL_GRPC = "- {Kind: proxy-defaults, Config: {protocol: grpc}}\n"
VERSIONS = """
- Kind: service-resolver
  Name: web
  Subsets: {v1: {Filter: Service.Meta.version == v1}, v2: {Filter: Service.Meta.version == v2}}
"""


@dataclass(frozen=True)
class LoweringCase:
    """``instances`` are by service, as `tests.support.lowering.instance` reads them."""

    name: str
    entries: str
    document: str = WEB
    instances: Mapping[str, Sequence[str]] = field(default_factory=dict)

    @property
    def golden(self) -> Path:
        return GOLDENS / f"{self.name}.yaml"

    def text(self) -> str:
        return golden_text(lowered(self.document, self.entries), catalog_of(self.instances))


CASES = [
    LoweringCase("L01_tcp_without_entries", "", instances={"web": ["10.0.0.1:80", "10.0.0.2:80 critical"]}),
    LoweringCase("L02_http_default_chain", ALL_HTTP),
    LoweringCase(
        "L04_split_of_subsets",
        http("web")
        + """
- Kind: service-splitter
  Name: web
  Splits: [{Weight: 70, ServiceSubset: v2}, {Weight: 30, ServiceSubset: v1}]
"""
        + VERSIONS,
        instances={"web": ["10.0.0.1:80 v1", "10.0.0.2:80 v2", "10.0.0.3:80"]},
    ),
    LoweringCase(
        "L05_split_in_basis_points",
        ALL_HTTP
        + """
- Kind: service-splitter
  Name: web
  Splits: [{Weight: 95.5}, {Weight: 4, Service: api}, {Weight: 0.5, Service: alt}]
""",
    ),
    LoweringCase(
        "L07_every_match_of_a_router",
        ALL_HTTP
        + """
- Kind: service-router
  Name: web
  Routes:
  - {Match: {HTTP: {PathExact: /exact}}, Destination: {Service: exact}}
  - {Match: {HTTP: {PathPrefix: /prefix, CaseInsensitive: true}}, Destination: {Service: prefix}}
  - {Match: {HTTP: {PathRegex: "/regex/[0-9]+"}}, Destination: {Service: regex}}
  - Match:
      HTTP:
        Header:
        - {Name: x-present, Present: true}
        - {Name: x-absent, Present: true, Invert: true}
        - {Name: x-exact, Exact: a}
        - {Name: x-prefix, Prefix: a}
        - {Name: x-suffix, Suffix: a}
        - {Name: x-regex, Regex: "a|b"}
        - {Name: x-other, Exact: a, Invert: true}
        Methods: [get, POST]
    Destination: {Service: headers}
  - Match:
      HTTP:
        QueryParam: [{Name: p, Present: true}, {Name: e, Exact: a}, {Name: r, Regex: "a+"}]
    Destination: {Service: query}
  - {Destination: {Service: any}}
""",
    ),
    LoweringCase(
        "L08_retries",
        ALL_HTTP
        + """
- Kind: service-router
  Name: web
  Routes:
  - Match: {HTTP: {PathPrefix: /codes}}
    Destination: {RetryOnConnectFailure: true, RetryOnStatusCodes: [401, 409], NumRetries: 15}
  - Match: {HTTP: {PathPrefix: /conditions}}
    Destination: {RetryOn: [reset, connect-failure], RetryOnConnectFailure: true}
  - Match: {HTTP: {PathPrefix: /number}}
    Destination: {NumRetries: 3}
""",
    ),
    LoweringCase(
        "L10_timeouts",
        ALL_HTTP
        + """
- Kind: service-router
  Name: web
  Routes:
  - {Match: {HTTP: {PathPrefix: /never}}, Destination: {RequestTimeout: -1s, IdleTimeout: -1s}}
  - {Match: {HTTP: {PathPrefix: /some}}, Destination: {RequestTimeout: 1500ms, IdleTimeout: 2m}}
""",
    ),
    LoweringCase(
        "L10_request_timeout_of_a_resolver",
        http("web") + "- {Kind: service-resolver, Name: web, RequestTimeout: 90s, ConnectTimeout: 250ms}",
    ),
    LoweringCase(
        "L11_rewrites",
        ALL_HTTP
        + """
- Kind: service-router
  Name: web
  Routes:
  - {Match: {HTTP: {PathPrefix: /none}}, Destination: {PrefixRewrite: ""}}
  - {Match: {HTTP: {PathPrefix: /some}}, Destination: {PrefixRewrite: /x}}
  - {Match: {HTTP: {PathPrefix: /root.v1}}, Destination: {PrefixRewrite: /}}
  - {Match: {HTTP: {PathPrefix: /any-case, CaseInsensitive: true}}, Destination: {PrefixRewrite: /}}
  - {Match: {HTTP: {PathPrefix: /folder/}}, Destination: {PrefixRewrite: /}}
  - {Match: {HTTP: {PathExact: /one}}, Destination: {PrefixRewrite: /}}
""",
    ),
    LoweringCase(
        "L13_overrides_prefix_names_with_a_hash",
        "",
        "upstreams: [{service: web, bind_port: 9191, connect_timeout: 7s}]",
    ),
    LoweringCase(
        "L14_only_passing_or_with_warnings",
        http("web")
        + """
- Kind: service-splitter
  Name: web
  Splits: [{Weight: 50, ServiceSubset: strict}, {Weight: 50}]
- {Kind: service-resolver, Name: web, Subsets: {strict: {OnlyPassing: true}}}
""",
        instances={"web": ["10.0.0.1:80 weight=10/3", "10.0.0.2:80 warning weight=10/3", "10.0.0.3:80 critical"]},
    ),
    LoweringCase("L16_grpc", ALL_GRPC + VERSIONS + "  DefaultSubset: v2\n"),
    LoweringCase("L16_http2_by_override", ALL_HTTP, "upstreams: [{service: web, bind_port: 9191, protocol: http2}]"),
    LoweringCase(
        "L17_hash_policies",
        ALL_HTTP
        + """
- Kind: service-router
  Name: web
  Routes: [{Match: {HTTP: {PathPrefix: /maglev}}, Destination: {Service: maglev}}]
- Kind: service-resolver
  Name: web
  LoadBalancer:
    Policy: ring_hash
    RingHashConfig: {MinimumRingSize: 0, MaximumRingSize: 0}
    HashPolicies:
    - {Field: cookie, FieldValue: session, CookieConfig: {Session: true}}
    - {Field: cookie, FieldValue: lasting, CookieConfig: {TTL: 90s, Path: /}}
    - {Field: cookie, FieldValue: client}
    - {Field: header, FieldValue: x-user, Terminal: true}
    - {Field: query_parameter, FieldValue: q}
    - {SourceIP: true}
- Kind: service-resolver
  Name: maglev
  LoadBalancer: {Policy: maglev, HashPolicies: [{Field: header, FieldValue: x-user}]}
""",
    ),
    LoweringCase(
        "L19_weights",
        "",
        instances={"web": ["10.0.0.1:80 weight=500/0", "10.0.0.2:80 warning weight=500/0"]},
    ),
    LoweringCase(
        "L21_failover_by_aggregate",
        http("web", "backup")
        + VERSIONS
        + """
  DefaultSubset: v1
  ConnectTimeout: 3s
  Failover: {"*": {Targets: [{Datacenter: dc2}, {Service: backup}]}}
  LoadBalancer: {Policy: least_request, LeastRequestConfig: {ChoiceCount: 4}}
""",
        instances={"web": ["10.0.0.1:80 v1", "10.2.0.1:80 v1 dc2"], "backup": ["10.0.0.9:80"]},
    ),
    LoweringCase(
        "L21_failover_by_priority",
        http("web", "backup")
        + VERSIONS
        + '  DefaultSubset: v1\n  Failover: {"*": {Targets: [{Datacenter: dc2}, {Service: backup}]}}\n',
        f"{WEB}\nfailover: priority",
        {"web": ["10.0.0.1:80 v1 critical", "10.0.0.2:80"], "backup": ["10.0.0.9:80 zone=z1", "10.0.0.8:80 zone=z2"]},
    ),
    LoweringCase(
        "L22_tcp_redirect_and_failover",
        """
- {Kind: service-resolver, Name: web, Redirect: {Service: db}}
- {Kind: service-resolver, Name: db, Failover: {"*": {Datacenters: [dc2]}}}
""",
    ),
    LoweringCase(
        "L23_header_changes",
        http("web")
        + VERSIONS
        + """
- Kind: service-splitter
  Name: web
  Splits:
  - Weight: 60
    ServiceSubset: v1
    RequestHeaders: {Set: {x-leg: one}, Remove: [x-secret]}
    ResponseHeaders: {Add: {x-leg: one}}
  - {Weight: 40, ServiceSubset: v2}
- Kind: service-router
  Name: web
  Routes:
  - Match: {HTTP: {PathPrefix: /a}}
    Destination:
      RequestHeaders: {Add: {x-b: "2", x-a: "1"}, Set: {x-from: "%DOWNSTREAM_REMOTE_ADDRESS%"}}
      ResponseHeaders: {Remove: [server]}
""",
    ),
    LoweringCase(
        "L24_limits_and_outlier_detection",
        "",
        """
upstreams:
- service: web
  bind_port: 9191
  limits: {max_connections: 10, max_pending_requests: 0, max_concurrent_requests: 30}
  passive_health_check:
    {interval: 2s, max_failures: 3, enforcing_consecutive_5xx: 0, max_ejection_percent: 50, base_ejection_time: 5s}
  balance_outbound_connections: exact_balance
""",
    ),
    LoweringCase(
        "L25_external_service",
        "- {Kind: service-defaults, Name: web, Protocol: grpc, ExternalSNI: x.example}",
        f"{WEB}\nexternal_ca_file: /etc/ssl/certs/ca-certificates.crt",
    ),
    LoweringCase(
        "L26_settings_of_proxies",
        ALL_HTTP + "- {Kind: service-splitter, Name: web, Splits: [{Weight: 100}]}",
        f"{WEB}\nvalidate_clusters: true\nlocality_aware: true",
        {"web": ["10.0.0.1:80 zone=z1", "10.0.0.2:80 zone=z2 weight=3/1", "10.0.0.3:80 zone=z2"]},
    ),
    LoweringCase(
        "L27_grpc_clients_without_a_proxy",
        ALL_GRPC
        + """
- Kind: service-router
  Name: web
  Routes: [{Match: {HTTP: {PathPrefix: /pkg.Service/}}, Destination: {Service: api, RequestTimeout: 3s}}]
""",
        "upstreams: [{service: web}, {service: api}]",
    ),
    LoweringCase(
        "L27_least_request_for_grpc_clients_without_a_proxy",
        ALL_GRPC
        + """
- Kind: service-resolver
  Name: web
  LoadBalancer: {Policy: least_request, LeastRequestConfig: {ChoiceCount: 3}}
""",
        "upstreams: [{service: web}]\nlocality_aware: true",
    ),
    LoweringCase(
        "L28_escape_hatches",
        ALL_HTTP,
        """
upstreams:
- service: web
  bind_port: 9191
  envoy_cluster_json: >-
    {"@type": "type.googleapis.com/envoy.config.cluster.v3.Cluster", "type": "STRICT_DNS", "connectTimeout": "1s",
     "loadAssignment": {"clusterName": "web", "endpoints": [{"lbEndpoints": [{"endpoint": {"address":
     {"socketAddress": {"address": "localhost", "portValue": 80}}}}]}]}}
- service: api
  bind_port: 9192
  envoy_listener_json:
    address: {socket_address: {address: 127.0.0.1, port_value: 9192}}
    filter_chains:
    - filters:
      - name: envoy.filters.network.tcp_proxy
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy
          stat_prefix: own
          cluster: api.default.dc1.internal.td.consul
""",
    ),
    LoweringCase(
        "L29_left_out",
        ALL_HTTP
        + """
- Kind: service-router
  Name: web
  Routes: [{Match: {HTTP: {PathPrefix: /peer}}, Destination: {Service: far}}]
- {Kind: service-splitter, Name: web, Splits: [{Weight: 90}, {Weight: 10, Service: far}]}
- {Kind: service-resolver, Name: far, Redirect: {Service: far, Peer: east}}
- {Kind: service-defaults, Name: web, Protocol: http, MeshGateway: {Mode: remote}}
- {Kind: service-resolver, Name: web, Failover: {"*": {Datacenters: [dc2]}}}
""",
        'upstreams: [{service: web, bind_port: 9191, envoy_cluster_json: "{}"}]',
    ),
    LoweringCase(
        "L30_several_upstreams_share_clusters",
        ALL_HTTP
        + """
- {Kind: service-splitter, Name: web, Splits: [{Weight: 50}, {Weight: 50, Service: api}]}
""",
        """
upstreams:
- {service: web, bind_port: 9191}
- {service: api, bind_port: 9192, bind_address: "::1"}
- {service: api, bind_port: 9193, datacenter: dc2}
""",
    ),
]


if __name__ == "__main__":
    GOLDENS.mkdir(exist_ok=True)
    for case in CASES:
        case.golden.write_text(case.text())
