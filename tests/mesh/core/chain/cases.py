"""Cases of compiling: entries, and the whole chain that comes of them."""

from __future__ import annotations

from dataclasses import dataclass

from xds.consul.quantities import SECOND_NS
from xds.mesh.core.chain.request import Overrides


def http(*services: str) -> str:
    return "".join(f"- {{Kind: service-defaults, Name: {service}, Protocol: http}}\n" for service in services)


PD_HTTP = "- {Kind: proxy-defaults, Config: {protocol: http}}\n"


@dataclass(frozen=True)
class Case:
    name: str
    entries: str
    expected: str
    overrides: Overrides | None = None
    datacenter: str = "dc1"


CASES = [
    Case(
        "01_nothing",
        "",
        """
        tcp default
        x:web@dc1 default 5s
        web@dc1 5s
        """,
    ),
    Case(
        "02_proxy_defaults_only",
        "- {Kind: proxy-defaults, Config: {protocol: grpc}, MeshGateway: {Mode: remote}}",
        """
        grpc default
        x:web@dc1 default 5s
        web@dc1 5s gateway=remote
        """,
    ),
    Case(
        "04_empty_router_and_resolver",
        http("web") + "- {Kind: service-router, Name: web}\n- {Kind: service-resolver, Name: web, ConnectTimeout: 12s}",
        """
        http
        r:web -> x:web@dc1
        x:web@dc1 12s
        web@dc1 12s
        """,
    ),
    Case(
        "05_route_without_destination",
        http("web") + "- {Kind: service-router, Name: web, Routes: [{Match: {HTTP: {PathPrefix: /}}}]}",
        """
        http
        r:web -> x:web@dc1, x:web@dc1
        x:web@dc1 default 5s
        web@dc1 5s
        """,
    ),
    Case(
        "07_router_trivial_split_and_resolver",
        http("web")
        + """
- {Kind: service-router, Name: web}
- {Kind: service-splitter, Name: web, Splits: [{Weight: 100}]}
- {Kind: service-resolver, Name: web, ConnectTimeout: 12s}
""",
        """
        http
        r:web -> s:web
        s:web -> 100 x:web@dc1
        x:web@dc1 12s
        web@dc1 12s
        """,
    ),
    Case(
        "08_protocol_from_proxy_defaults",
        PD_HTTP + "- {Kind: service-router, Name: web}\n- {Kind: service-splitter, Name: web, Splits: [{Weight: 100}]}",
        """
        http
        r:web -> s:web
        s:web -> 100 x:web@dc1
        x:web@dc1 default 5s
        web@dc1 5s
        """,
    ),
    Case(
        "10_trivial_split",
        http("web") + "- {Kind: service-splitter, Name: web, Splits: [{Weight: 100}]}",
        """
        http
        s:web -> 100 x:web@dc1
        x:web@dc1 default 5s
        web@dc1 5s
        """,
    ),
    Case(
        "11_trivial_split_and_resolver",
        http("web")
        + """
- {Kind: service-splitter, Name: web, Splits: [{Weight: 100}]}
- {Kind: service-resolver, Name: web, ConnectTimeout: 12s}
""",
        """
        http
        s:web -> 100 x:web@dc1
        x:web@dc1 12s
        web@dc1 12s
        """,
    ),
    Case(
        "13_service_split",
        http("web", "api", "alt")
        + "- {Kind: service-splitter, Name: web, Splits: [{Weight: 70, Service: api}, {Weight: 30, Service: alt}]}",
        """
        http
        s:web -> 70 x:api@dc1, 30 x:alt@dc1
        x:api@dc1 default 5s
        x:alt@dc1 default 5s
        alt@dc1 5s
        api@dc1 5s
        """,
    ),
    Case(
        "14_a_leg_with_a_subset_skips_the_next_splitter",
        http("web", "api")
        + """
- {Kind: service-splitter, Name: web, Splits: [{Weight: 100, Service: api, ServiceSubset: a}]}
- {Kind: service-splitter, Name: api, Splits: [{Weight: 100, ServiceSubset: b}]}
- {Kind: service-resolver, Name: api, Subsets: {a: {}, b: {}}}
""",
        """
        http
        s:web -> 100 x:a/api@dc1
        x:a/api@dc1 5s
        a/api@dc1 5s
        """,
    ),
    Case(
        "16_default_subset",
        "- {Kind: service-resolver, Name: web, DefaultSubset: v2, Subsets: {v1: {}, v2: {}}}",
        """
        tcp
        x:v2/web@dc1 5s
        v2/web@dc1 5s
        """,
    ),
    Case(
        "17_service_redirect",
        "- {Kind: service-resolver, Name: web, Redirect: {Service: api}}",
        """
        tcp
        x:api@dc1 default 5s
        api@dc1 5s
        """,
    ),
    Case(
        "19_service_and_subset_redirect",
        """
- {Kind: service-resolver, Name: web, Redirect: {Service: api, ServiceSubset: v2}}
- {Kind: service-resolver, Name: api, Subsets: {v1: {}, v2: {}}}
""",
        """
        tcp
        x:v2/api@dc1 5s
        v2/api@dc1 5s
        """,
    ),
    Case(
        "20_datacenter_redirect",
        "- {Kind: service-resolver, Name: web, Redirect: {Datacenter: dc9}}",
        """
        tcp
        x:web@dc9 5s
        web@dc9 5s
        """,
    ),
    Case(
        "22_peer_redirect",
        "- {Kind: service-resolver, Name: web, Redirect: {Service: api, Peer: east}}",
        """
        tcp
        x:api@peer:east default 5s
        api@peer:east 5s
        """,
    ),
    Case(
        "23_peer_redirect_with_http_proxy_defaults",
        PD_HTTP + "- {Kind: service-resolver, Name: web, Redirect: {Service: api, Peer: east}}",
        """
        http
        x:api@peer:east default 5s
        api@peer:east 5s
        """,
    ),
    Case(
        "25_service_failover",
        '- {Kind: service-resolver, Name: web, Failover: {"*": {Service: backup}}}',
        """
        tcp
        x:web@dc1 5s failover backup@dc1
        backup@dc1 5s
        web@dc1 5s
        """,
    ),
    Case(
        "26_failover_through_redirect",
        """
- {Kind: service-resolver, Name: web, Failover: {"*": {Service: backup}}}
- {Kind: service-resolver, Name: backup, Redirect: {Service: real}}
""",
        """
        tcp
        x:web@dc1 5s failover real@dc1
        real@dc1 5s
        web@dc1 5s
        """,
    ),
    Case(
        "28_subset_failover",
        """
- Kind: service-resolver
  Name: web
  Subsets: {b: {Filter: Service.Meta.version == b}}
  Failover: {"*": {ServiceSubset: b}}
""",
        """
        tcp
        x:web@dc1 5s failover b/web@dc1
        b/web@dc1 5s filter=Service.Meta.version == b
        web@dc1 5s
        """,
    ),
    Case(
        "29_datacenter_failover",
        '- {Kind: service-resolver, Name: web, Failover: {"*": {Datacenters: [dc4, dc2]}}}',
        """
        tcp
        x:web@dc1 5s failover web@dc4 web@dc2
        web@dc1 5s
        web@dc2 5s
        web@dc4 5s
        """,
    ),
    Case(
        "31_target_list_failover",
        """
- {Kind: proxy-defaults, MeshGateway: {Mode: remote}}
- Kind: service-resolver
  Name: web
  Failover: {"*": {Targets: [{Datacenter: dc3}, {Service: new}, {Peer: e}, {Peer: f}]}}
""",
        """
        tcp
        x:web@dc1 5s failover web@dc3 new@dc1 web@peer:e web@peer:f
        new@dc1 5s gateway=remote
        web@dc1 5s gateway=remote
        web@dc3 5s gateway=remote
        web@peer:e 5s gateway=remote
        web@peer:f 5s gateway=remote
        """,
    ),
    Case(
        "32_external_sni",
        """
- {Kind: proxy-defaults, MeshGateway: {Mode: remote}}
- {Kind: service-defaults, Name: web, ExternalSNI: x.example}
""",
        """
        tcp default
        x:web@dc1 default 5s
        web@dc1 5s sni=x.example external
        """,
    ),
    Case(
        "34_meta",
        '- {Kind: service-defaults, Name: web, Meta: {a: "1"}}',
        """
        tcp default a=1
        x:web@dc1 default 5s
        web@dc1 5s
        """,
    ),
    Case(
        "35_meta_and_redirect",
        """
- {Kind: service-defaults, Name: web, Meta: {a: "1"}}
- {Kind: service-defaults, Name: api, Meta: {a: "2", b: "3"}}
- {Kind: service-resolver, Name: web, Redirect: {Service: api}}
""",
        """
        tcp a=1
        x:api@dc1 default 5s
        api@dc1 5s
        """,
    ),
    Case(
        "37_load_balancer_through_splitter",
        http("a", "b", "c")
        + """
- Kind: service-splitter
  Name: web
  Splits: [{Weight: 60, Service: a}, {Weight: 20, Service: b}, {Weight: 20, Service: c}]
- {Kind: service-resolver, Name: a, LoadBalancer: {Policy: least_request}}
- {Kind: service-resolver, Name: b, LoadBalancer: {Policy: ring_hash}}
- {Kind: service-resolver, Name: c, LoadBalancer: {Policy: maglev}}
""",
        """
        http
        s:web -> 60 x:a@dc1, 20 x:b@dc1, 20 x:c@dc1 ring_hash
        x:a@dc1 5s least_request
        x:b@dc1 5s ring_hash
        x:c@dc1 5s maglev
        a@dc1 5s
        b@dc1 5s
        c@dc1 5s
        """,
    ),
    Case(
        "38_multi_datacenter_canary",
        http("web", "w2", "w3")
        + """
- {Kind: service-splitter, Name: web, Splits: [{Weight: 60, Service: w2}, {Weight: 40, Service: w3}]}
- {Kind: service-resolver, Name: w2, Redirect: {Service: web, Datacenter: dc2}}
- {Kind: service-resolver, Name: w3, Redirect: {Service: web, Datacenter: dc3}}
- {Kind: service-resolver, Name: web, ConnectTimeout: 12s}
""",
        """
        http
        s:web -> 60 x:web@dc2, 40 x:web@dc3
        x:web@dc2 12s
        x:web@dc3 12s
        web@dc2 12s
        web@dc3 12s
        """,
    ),
    Case(
        "40_protocol_override",
        "- {Kind: service-defaults, Name: web, Protocol: grpc}",
        """
        http2 default customized
        x:web@dc1 default 5s
        web@dc1 5s
        """,
        Overrides(protocol="http2"),
    ),
    Case(
        "41_override_equals",
        "- {Kind: service-defaults, Name: web, Protocol: http2}",
        """
        http2 default
        x:web@dc1 default 5s
        web@dc1 5s
        """,
        Overrides(protocol="http2"),
    ),
    Case(
        "43_transparent_proxy_from_service_defaults",
        "- {Kind: service-defaults, Name: web, TransparentProxy: {DialedDirectly: true}}",
        """
        tcp default
        x:web@dc1 default 5s
        web@dc1 5s dialed-directly
        """,
    ),
    Case(
        "44_transparent_proxy_from_proxy_defaults",
        "- {Kind: proxy-defaults, TransparentProxy: {DialedDirectly: true}}",
        """
        tcp default
        x:web@dc1 default 5s
        web@dc1 5s dialed-directly
        """,
    ),
    # 4.3
    Case(
        "59_evaluated_in_another_datacenter",
        "",
        """
        tcp default
        x:web@dc2 default 5s
        web@dc2 5s
        """,
        datacenter="dc2",
    ),
    Case(
        "61_a_subset_survives_a_datacenter_redirect",
        http("web")
        + """
- {Kind: service-splitter, Name: web, Splits: [{Weight: 50, ServiceSubset: v1}, {Weight: 50, ServiceSubset: v2}]}
- {Kind: service-resolver, Name: web, Subsets: {v1: {}, v2: {}}, Redirect: {Datacenter: dc2}}
""",
        """
        http
        s:web -> 50 x:v1/web@dc2, 50 x:v2/web@dc2
        x:v1/web@dc2 5s
        x:v2/web@dc2 5s
        v1/web@dc2 5s
        v2/web@dc2 5s
        """,
    ),
    Case(
        "62_a_service_redirect_drops_the_subset",
        http("web", "api", "alt")
        + """
- {Kind: service-splitter, Name: web, Splits: [{Weight: 100, Service: api, ServiceSubset: v1}]}
- {Kind: service-resolver, Name: api, Redirect: {Service: alt}}
""",
        """
        http
        s:web -> 100 x:alt@dc1
        x:alt@dc1 default 5s
        alt@dc1 5s
        """,
    ),
    Case(
        "64_splitters_that_lead_to_each_other_without_a_cycle",
        http("web", "api")
        + """
- {Kind: service-resolver, Name: web, Subsets: {v1: {}}}
- {Kind: service-splitter, Name: web, Splits: [{Weight: 50}, {Weight: 50, Service: api}]}
- {Kind: service-splitter, Name: api, Splits: [{Weight: 50}, {Weight: 50, Service: web, ServiceSubset: v1}]}
""",
        """
        http
        s:web -> 50 x:web@dc1, 25 x:api@dc1, 25 x:v1/web@dc1
        x:web@dc1 5s
        x:api@dc1 default 5s
        x:v1/web@dc1 5s
        api@dc1 5s
        v1/web@dc1 5s
        web@dc1 5s
        """,
    ),
    Case(
        "65_failover_by_subset_and_for_any",
        http("web", "api")
        + """
- {Kind: service-splitter, Name: web, Splits: [{Weight: 50, ServiceSubset: v1}, {Weight: 50, ServiceSubset: v2}]}
- Kind: service-resolver
  Name: web
  Subsets: {v1: {}, v2: {}}
  Failover: {v1: {Service: api}, "*": {Datacenters: [dc2]}}
""",
        """
        http
        s:web -> 50 x:v1/web@dc1, 50 x:v2/web@dc1
        x:v1/web@dc1 5s failover api@dc1
        x:v2/web@dc1 5s failover v2/web@dc2
        api@dc1 5s
        v1/web@dc1 5s
        v2/web@dc1 5s
        v2/web@dc2 5s
        """,
    ),
    Case(
        "67_failover_to_itself_is_none",
        '- {Kind: service-resolver, Name: web, Failover: {"*": {Service: web}}}',
        """
        tcp
        x:web@dc1 5s
        web@dc1 5s
        """,
    ),
    Case(
        "68_failover_takes_the_default_subset",
        """
- {Kind: service-resolver, Name: web, Failover: {"*": {Service: api}}}
- {Kind: service-resolver, Name: api, DefaultSubset: p, Subsets: {p: {}}}
""",
        """
        tcp
        x:web@dc1 5s failover p/api@dc1
        p/api@dc1 5s
        web@dc1 5s
        """,
    ),
    Case(
        "70_weights_of_flattened_splits",
        http("web", "api", "alt")
        + """
- {Kind: service-resolver, Name: api, Subsets: {v1: {}, v2: {}}}
- {Kind: service-splitter, Name: web, Splits: [{Weight: 33.33, Service: api}, {Weight: 66.67, Service: alt}]}
- {Kind: service-splitter, Name: api, Splits: [{Weight: 33.33, ServiceSubset: v1}, {Weight: 66.67, ServiceSubset: v2}]}
""",
        """
        http
        s:web -> 11.11 x:v1/api@dc1, 22.22 x:v2/api@dc1, 66.67 x:alt@dc1
        x:v1/api@dc1 5s
        x:v2/api@dc1 5s
        x:alt@dc1 default 5s
        alt@dc1 5s
        v1/api@dc1 5s
        v2/api@dc1 5s
        """,
    ),
    Case(
        "71_connect_timeout_override",
        "",
        """
        tcp default customized
        x:web@dc1 default 7s
        web@dc1 7s
        """,
        Overrides(connect_timeout_ns=7 * SECOND_NS),
    ),
    Case(
        "71b_connect_timeout_override_that_changes_nothing",
        "",
        """
        tcp default
        x:web@dc1 default 5s
        web@dc1 5s
        """,
        Overrides(connect_timeout_ns=5 * SECOND_NS),
    ),
    Case(
        "73_override_to_tcp_ignores_the_splitter",
        http("web") + "- {Kind: service-splitter, Name: web, Splits: [{Weight: 100}]}",
        """
        tcp default customized
        x:web@dc1 default 5s
        web@dc1 5s
        """,
        Overrides(protocol="tcp"),
    ),
    Case(
        "74_routes_share_a_node",
        http("web", "api")
        + """
- Kind: service-router
  Name: web
  Routes:
  - {Match: {HTTP: {PathPrefix: /a}}, Destination: {Service: api}}
  - {Match: {HTTP: {PathPrefix: /b}}, Destination: {Service: api}}
""",
        """
        http
        r:web -> x:api@dc1, x:api@dc1, x:web@dc1
        x:api@dc1 default 5s
        x:web@dc1 default 5s
        api@dc1 5s
        web@dc1 5s
        """,
    ),
    Case(
        "76_redirect_to_an_external_service",
        """
- {Kind: proxy-defaults, MeshGateway: {Mode: remote}}
- {Kind: service-defaults, Name: api, ExternalSNI: x.example}
- {Kind: service-resolver, Name: web, Redirect: {Service: api}}
""",
        """
        tcp
        x:api@dc1 default 5s
        api@dc1 5s sni=x.example external
        """,
    ),
    Case(
        "77_a_resolver_that_says_nothing",
        "- {Kind: service-resolver, Name: web}",
        """
        tcp default
        x:web@dc1 default 5s
        web@dc1 5s
        """,
    ),
]
