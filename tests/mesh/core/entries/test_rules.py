"""Every rule of every kind of entry: what is refused, and what stands close to it and is not."""

from __future__ import annotations

from typing import Any

import pytest

from xds.mesh.core.entries.defaults import ProxyDefaults, ServiceDefaults
from xds.mesh.core.entries.entry import (
    KINDS,
    OTHER_KINDS,
    ConfigEntry,
    entry_from_json,
    entry_json,
    read_entries,
    read_entry,
)
from xds.mesh.core.entries.resolver import ServiceResolver
from xds.mesh.core.entries.router import ServiceRouter
from xds.mesh.core.entries.splitter import ServiceSplitter
from xds.model.errors import ValidationError


def found(kind: str, text: str) -> list[tuple[str, str]]:
    """Code and pointer of everything that is wrong with an entry called web; ``text`` is the inside of a YAML map."""
    try:
        read_entries(f"{{Kind: {kind}, Name: web, {text}}}", "yaml")
    except ValidationError as error:
        return [(one.code, one.pointer) for one in error.violations]
    return []


def route(match: str = "{}", destination: str = "{}") -> str:
    return f"Routes: [{{Match: {{HTTP: {match}}}, Destination: {destination}}}]"


HTTP = "/Routes/0/Match/HTTP"
ROUTER_RULES = [
    ("VR2_exact_without_slash", route("{PathExact: a}"), [("bad_path", f"{HTTP}/PathExact")]),
    ("VR2_prefix_without_slash", route("{PathPrefix: a}"), [("bad_path", f"{HTTP}/PathPrefix")]),
    ("VR2_both_begin_with_a_slash", route("{PathPrefix: /a}"), []),
    ("VR2_a_regex_needs_none", route("{PathRegex: a}"), []),
    ("VR3_two_kinds_of_path", route("{PathPrefix: /a, PathRegex: /b}"), [("conflict", HTTP)]),
    ("VR4_header_without_name", route("{Header: [{Present: true}]}"), [("missing_name", f"{HTTP}/Header/0/Name")]),
    ("VR5_header_without_kind", route("{Header: [{Name: a}]}"), [("not_one", f"{HTTP}/Header/0")]),
    (
        "VR5_header_with_two_kinds",
        route("{Header: [{Name: a, Exact: b, Suffix: c}]}"),
        [("not_one", f"{HTTP}/Header/0")],
    ),
    ("VR5_inverting_is_no_kind", route("{Header: [{Name: a, Exact: b, Invert: true}]}"), []),
    (
        "VR6_parameter_without_name",
        route("{QueryParam: [{Exact: a}]}"),
        [("missing_name", f"{HTTP}/QueryParam/0/Name")],
    ),
    ("VR7_parameter_without_kind", route("{QueryParam: [{Name: a}]}"), [("not_one", f"{HTTP}/QueryParam/0")]),
    (
        "VR7_parameter_with_two_kinds",
        route("{QueryParam: [{Name: a, Exact: b, Regex: c}]}"),
        [("not_one", f"{HTTP}/QueryParam/0")],
    ),
    ("VR8_unknown_method", route("{Methods: [BREW]}"), [("bad_method", f"{HTTP}/Methods/0")]),
    ("VR8_method_twice_in_another_case", route("{Methods: [get, GET]}"), [("duplicate_method", f"{HTTP}/Methods/1")]),
    ("VR8_method_in_small_letters", route("{Methods: [get]}"), []),
    (
        "VR9_rewrite_with_a_regex",
        route("{PathRegex: /a}", "{PrefixRewrite: /b}"),
        [("rewrite_without_path", "/Routes/0/Destination/PrefixRewrite")],
    ),
    (
        "VR9_rewrite_with_headers_only",
        route("{Header: [{Name: a, Present: true}]}", "{PrefixRewrite: /b}"),
        [("rewrite_without_path", "/Routes/0/Destination/PrefixRewrite")],
    ),
    ("VR9_rewrite_with_a_prefix", route("{PathPrefix: /a}", "{PrefixRewrite: /b}"), []),
    (
        "VR10_unknown_retry_condition",
        route(destination="{RetryOn: [5xx, retriable-status-codes, '']}"),
        [("bad_choice", "/Routes/0/Destination/RetryOn/1"), ("bad_choice", "/Routes/0/Destination/RetryOn/2")],
    ),
    (
        "namespaces_of_destinations",
        route(destination="{Service: api, Namespace: team, Partition: default}"),
        [("enterprise", "/Routes/0/Destination/Namespace")],
    ),
    ("no_routes_at_all", "Routes: []", []),
    ("a_broken_regular_expression_is_not_looked_at", route("{PathRegex: '('}"), []),
]


def splits(*legs: str) -> str:
    return f"Splits: [{', '.join(f'{{{leg}}}' for leg in legs)}]"


SPLITTER_RULES = [
    ("no_splits", "Splits: []", [("missing_field", "/Splits")]),
    ("a_single_split_is_100", splits("Weight: 99"), [("bad_sum", "/Splits")]),
    ("weights_of_a_hundredth", splits("Weight: 99.999", "Weight: 0.001, Service: a"), []),
    ("a_hundredth_is_missing", splits("Weight: 50", "Weight: 49.99, Service: a"), [("bad_sum", "/Splits")]),
    ("a_tenth_too_much", splits("Weight: 50.1", "Weight: 50, Service: a"), [("bad_sum", "/Splits")]),
    ("a_leg_of_nothing", splits("Weight: 100", "Weight: 0, Service: a"), []),
    ("equal_legs", splits("Weight: 50", "Weight: 50"), [("duplicate_destination", "/Splits/1")]),
    (
        "equal_legs_of_other_weights_by_name",
        splits("Weight: 40", "Weight: 60, Service: web"),
        [("duplicate_destination", "/Splits/1")],
    ),
    (
        "equal_legs_with_headers_of_their_own",
        splits("Weight: 40, RequestHeaders: {Set: {a: b}}", "Weight: 60"),
        [("duplicate_destination", "/Splits/1")],
    ),
    ("legs_to_two_subsets", splits("Weight: 40, ServiceSubset: a", "Weight: 60, ServiceSubset: b"), []),
    (
        "weights_out_of_range",
        splits("Weight: 150", "Weight: -50, Service: a"),
        [("out_of_range", "/Splits/0/Weight"), ("out_of_range", "/Splits/1/Weight"), ("bad_sum", "/Splits")],
    ),
    ("a_partition", splits("Weight: 100, Partition: team"), [("enterprise", "/Splits/0/Partition")]),
]

SUBSETS = "Subsets: {a: {}, b: {}}"


def failover(inside: str, key: str = "'*'") -> str:
    return f"{SUBSETS}, Failover: {{{key}: {{{inside}}}}}"


def target(inside: str) -> str:
    return failover(f"Targets: [{{{inside}}}]")


def hashing(inside: str) -> str:
    return f"LoadBalancer: {{Policy: maglev, HashPolicies: [{{{inside}}}]}}"


STAR, TARGET, HASH = "/Failover/*", "/Failover/*/Targets/0", "/LoadBalancer/HashPolicies/0"
RESOLVER_RULES = [
    ("VS2_empty_subset_name", "Subsets: {'': {}}", [("bad_subset", "/Subsets/")]),
    ("VS3_filter_that_is_none", "Subsets: {a: {Filter: 'x =='}}", [("bad_filter", "/Subsets/a/Filter")]),
    ("VS3_unknown_selectors_pass", "Subsets: {a: {Filter: 'No.Such == x'}}", []),
    ("VS3_an_empty_filter", "Subsets: {a: {Filter: ''}}", []),
    ("VS4_unknown_default_subset", f"{SUBSETS}, DefaultSubset: c", [("unknown_subset", "/DefaultSubset")]),
    (
        "VS5_redirect_and_failover",
        "Redirect: {Service: api}, Failover: {'*': {Service: alt}}",
        [("conflict", "/Redirect")],
    ),
    ("VS6_empty_redirect", "Redirect: {}", [("empty_redirect", "/Redirect")]),
    (
        "VS7_peer_and_subset",
        "Redirect: {Service: api, Peer: e, ServiceSubset: a}",
        [("conflict", "/Redirect/ServiceSubset")],
    ),
    (
        "VS7_peer_and_partition",
        "Redirect: {Service: api, Peer: e, Partition: default}",
        [("conflict", "/Redirect/Partition")],
    ),
    (
        "VS7_peer_and_datacenter",
        "Redirect: {Service: api, Peer: e, Datacenter: d}",
        [("conflict", "/Redirect/Datacenter")],
    ),
    (
        "VS8_sameness_group_and_datacenter",
        "Redirect: {SamenessGroup: g, Datacenter: d}",
        [("conflict", "/Redirect/Datacenter"), ("enterprise", "/Redirect/SamenessGroup")],
    ),
    (
        "VS9_subset_without_service",
        f"{SUBSETS}, Redirect: {{ServiceSubset: a}}",
        [("missing_service", "/Redirect/ServiceSubset")],
    ),
    ("VS9_namespace_without_service", "Redirect: {Namespace: default}", [("missing_service", "/Redirect/Namespace")]),
    ("VS9_partition_without_service", "Redirect: {Partition: default}", [("missing_service", "/Redirect/Partition")]),
    ("VS9_peer_without_service", "Redirect: {Peer: e}", [("missing_service", "/Redirect/Peer")]),
    ("VS9_a_datacenter_stands_alone", "Redirect: {Datacenter: d}", []),
    (
        "VS10_own_unknown_subset",
        f"{SUBSETS}, Redirect: {{Service: web, ServiceSubset: c}}",
        [("unknown_subset", "/Redirect/ServiceSubset")],
    ),
    ("VS10_a_subset_of_another_service", "Redirect: {Service: api, ServiceSubset: c}", []),
    ("VS11_failover_of_an_unknown_subset", failover("Service: api", "c"), [("unknown_subset", "/Failover/c")]),
    ("VS11_failover_of_a_subset_and_of_any", f"{SUBSETS}, Failover: {{a: {{Service: x}}, '*': {{Service: y}}}}", []),
    ("VS12_failover_to_nowhere", failover(""), [("empty_failover", STAR)]),
    ("VS13_own_unknown_subset", failover("ServiceSubset: c"), [("unknown_subset", f"{STAR}/ServiceSubset")]),
    ("VS13_by_name", failover("Service: web, ServiceSubset: c"), [("unknown_subset", f"{STAR}/ServiceSubset")]),
    ("VS13_a_subset_of_another_service", failover("Service: api, ServiceSubset: c"), []),
    (
        "VS14_targets_and_datacenters",
        failover("Targets: [{Service: x}], Datacenters: [d]"),
        [("conflict", f"{STAR}/Targets")],
    ),
    (
        "VS14_targets_and_subset",
        failover("Targets: [{Service: x}], ServiceSubset: a"),
        [("conflict", f"{STAR}/Targets")],
    ),
    ("VS14_targets_and_service", failover("Targets: [{Service: x}], Service: y"), [("conflict", f"{STAR}/Targets")]),
    (
        "VS15_sameness_group_and_datacenters",
        failover("SamenessGroup: g, Datacenters: [d]"),
        [("conflict", f"{STAR}/Datacenters"), ("enterprise", f"{STAR}/SamenessGroup")],
    ),
    (
        "VS15_sameness_group_and_subset",
        failover("SamenessGroup: g, ServiceSubset: a"),
        [("conflict", f"{STAR}/ServiceSubset"), ("enterprise", f"{STAR}/SamenessGroup")],
    ),
    (
        "VS15_sameness_group_and_targets",
        failover("SamenessGroup: g, Targets: [{Service: x}]"),
        [("conflict", f"{STAR}/Targets"), ("enterprise", f"{STAR}/SamenessGroup")],
    ),
    (
        "VS16_peer_and_subset",
        target("Service: x, Peer: e, ServiceSubset: a"),
        [("conflict", f"{TARGET}/ServiceSubset")],
    ),
    ("VS16_peer_and_partition", target("Peer: e, Partition: default"), [("conflict", f"{TARGET}/Partition")]),
    ("VS16_peer_and_datacenter", target("Peer: e, Datacenter: d"), [("conflict", f"{TARGET}/Datacenter")]),
    (
        "VS16_partition_and_datacenter",
        target("Partition: default, Datacenter: d"),
        [("conflict", f"{TARGET}/Datacenter")],
    ),
    ("VS17_own_unknown_subset", target("ServiceSubset: c"), [("unknown_subset", f"{TARGET}/ServiceSubset")]),
    (
        "VS17_a_whole_list_of_targets",
        failover(
            "Targets: [{Service: x, ServiceSubset: q}, {Datacenter: d}, {ServiceSubset: a}, {Service: x, Peer: e}]"
        ),
        [],
    ),
    ("VS18_empty_datacenter", failover("Datacenters: [d, '']"), [("empty_datacenter", f"{STAR}/Datacenters/1")]),
    ("VS19_unknown_mode", failover("Service: x, Policy: {Mode: any}"), [("bad_choice", f"{STAR}/Policy/Mode")]),
    ("VS20_negative_connect_timeout", "ConnectTimeout: -1s", [("negative", "/ConnectTimeout")]),
    ("VS20_negative_request_timeout", "RequestTimeout: -1ns", [("negative", "/RequestTimeout")]),
    ("VS21_unknown_policy", "LoadBalancer: {Policy: ringhash}", [("bad_choice", "/LoadBalancer/Policy")]),
    (
        "VS21_ring_with_another_policy",
        "LoadBalancer: {Policy: maglev, RingHashConfig: {}}",
        [("incompatible_policy", "/LoadBalancer/RingHashConfig")],
    ),
    (
        "VS21_choices_with_another_policy",
        "LoadBalancer: {LeastRequestConfig: {ChoiceCount: 2}}",
        [("incompatible_policy", "/LoadBalancer/LeastRequestConfig")],
    ),
    (
        "VS21_hashing_without_a_policy_that_hashes",
        "LoadBalancer: {HashPolicies: [{SourceIP: true}]}",
        [("incompatible_policy", "/LoadBalancer/HashPolicies")],
    ),
    ("VS22_unknown_field", hashing("Field: body, FieldValue: x"), [("bad_choice", f"{HASH}/Field")]),
    (
        "VS22_address_and_field",
        hashing("SourceIP: true, Field: header"),
        [("conflict", f"{HASH}/SourceIP"), ("missing_field", f"{HASH}/FieldValue")],
    ),
    (
        "VS22_address_and_value",
        hashing("SourceIP: true, FieldValue: x"),
        [("conflict", f"{HASH}/FieldValue"), ("missing_field", f"{HASH}/Field")],
    ),
    ("VS22_field_without_value", hashing("Field: header"), [("missing_field", f"{HASH}/FieldValue")]),
    ("VS22_value_without_field", hashing("FieldValue: x"), [("missing_field", f"{HASH}/Field")]),
    (
        "VS22_cookie_of_a_header",
        hashing("Field: header, FieldValue: x, CookieConfig: {}"),
        [("conflict", f"{HASH}/CookieConfig")],
    ),
    (
        "VS22_session_with_a_lifetime",
        hashing("Field: cookie, FieldValue: x, CookieConfig: {Session: true, TTL: 1s}"),
        [("conflict", f"{HASH}/CookieConfig/TTL")],
    ),
    (
        "VS22_all_kinds_of_hashing",
        hashing("Field: cookie, FieldValue: x, CookieConfig: {TTL: 1s, Path: /}, Terminal: true"),
        [],
    ),
    ("VS24_namespace", "Redirect: {Service: api, Namespace: team}", [("enterprise", "/Redirect/Namespace")]),
    ("VS24_partition", "Redirect: {Service: api, Partition: team}", [("enterprise", "/Redirect/Partition")]),
    ("VS24_the_default_ones_are_taken", "Redirect: {Service: api, Namespace: default, Partition: default}", []),
    ("VS24_namespace_of_failover", failover("Namespace: team"), [("enterprise", f"{STAR}/Namespace")]),
    ("VS24_namespace_of_a_target", target("Namespace: team"), [("enterprise", f"{TARGET}/Namespace")]),
    ("VS24_mode", failover("Service: x, Policy: {Mode: sequential}"), [("enterprise", f"{STAR}/Policy")]),
    ("VS24_regions", failover("Service: x, Policy: {Regions: [r]}"), [("enterprise", f"{STAR}/Policy")]),
    ("VS24_an_empty_policy", failover("Service: x, Policy: {}"), []),
    ("VS24_locality", "PrioritizeByLocality: {Mode: failover}", [("enterprise", "/PrioritizeByLocality/Mode")]),
    ("a_redirect_beside_subsets", f"{SUBSETS}, DefaultSubset: a, ConnectTimeout: 1s, Redirect: {{Service: api}}", []),
    ("a_name_alone", "Meta: {}", []),
]

DEFAULTS_RULES = [
    ("unknown_protocol", "Protocol: htp", [("bad_choice", "/Protocol")]),
    ("protocol_in_capitals", "Protocol: GRPC", []),
    ("gateway_mode", "MeshGateway: {Mode: far}", [("bad_choice", "/MeshGateway/Mode")]),
    ("proxy_mode", "Mode: opaque", [("bad_choice", "/Mode")]),
    ("mutual_tls_mode", "MutualTLSMode: none", [("bad_choice", "/MutualTLSMode")]),
    ("balance", "BalanceInboundConnections: even", [("bad_choice", "/BalanceInboundConnections")]),
    (
        "upstreams_and_a_destination",
        "UpstreamConfig: {}, Destination: {Addresses: [a], Port: 1}",
        [("conflict", "/Destination")],
    ),
    (
        "override_without_a_name",
        "UpstreamConfig: {Overrides: [{}]}",
        [("missing_name", "/UpstreamConfig/Overrides/0/Name")],
    ),
    (
        "override_of_all",
        "UpstreamConfig: {Overrides: [{Name: '*'}]}",
        [("bad_name", "/UpstreamConfig/Overrides/0/Name")],
    ),
    (
        "defaults_with_a_name",
        "UpstreamConfig: {Defaults: {Name: a}}",
        [("not_allowed", "/UpstreamConfig/Defaults/Name")],
    ),
    (
        "limits",
        "UpstreamConfig: {Defaults: {Limits: {MaxConnections: -1, MaxPendingRequests: 0}}}",
        [("negative", "/UpstreamConfig/Defaults/Limits/MaxConnections")],
    ),
    (
        "passive_health_checks",
        "UpstreamConfig: {Defaults: {PassiveHealthCheck: "
        "{Interval: -1s, MaxEjectionPercent: 101, EnforcingConsecutive5xx: 0}}}",
        [
            ("negative", "/UpstreamConfig/Defaults/PassiveHealthCheck/Interval"),
            ("out_of_range", "/UpstreamConfig/Defaults/PassiveHealthCheck/MaxEjectionPercent"),
        ],
    ),
    (
        "balance_of_an_upstream",
        "UpstreamConfig: {Defaults: {BalanceOutboundConnections: x}}",
        [("bad_choice", "/UpstreamConfig/Defaults/BalanceOutboundConnections")],
    ),
    ("destination_without_address", "Destination: {Port: 1}", [("missing_field", "/Destination/Addresses")]),
    (
        "destination_twice_and_a_wildcard",
        "Destination: {Addresses: [a.example, a.example, '*.example', '10.0.0.1', '::1'], Port: 65535}",
        [("duplicate_address", "/Destination/Addresses/1"), ("bad_address", "/Destination/Addresses/2")],
    ),
    ("destination_port", "Destination: {Addresses: [a], Port: 65536}", [("out_of_range", "/Destination/Port")]),
    (
        "an_extension_without_a_name",
        "EnvoyExtensions: [{Required: true}]",
        [("missing_name", "/EnvoyExtensions/0/Name")],
    ),
    ("a_namespace", "Namespace: team", [("enterprise", "/Namespace")]),
]
RULES = [
    *((ServiceRouter.kind, *rule) for rule in ROUTER_RULES),
    *((ServiceSplitter.kind, *rule) for rule in SPLITTER_RULES),
    *((ServiceResolver.kind, *rule) for rule in RESOLVER_RULES),
    *((ServiceDefaults.kind, *rule) for rule in DEFAULTS_RULES),
]


@pytest.mark.parametrize(("kind", "name", "text", "expected"), RULES, ids=[f"{rule[0]}_{rule[1]}" for rule in RULES])
def test_rule(kind: str, name: str, text: str, expected: list[tuple[str, str]]) -> None:
    assert sorted(found(kind, text)) == sorted(expected)


def test_an_object_of_consuls_crds_has_a_hint() -> None:
    spec = {"routes": [{"match": {"http": {"pathPrefix": "/admin"}}, "destination": {"service": "admin"}}]}
    given = {
        "apiVersion": "consul.hashicorp.com/v1alpha1",
        "kind": "ServiceRouter",
        "metadata": {"name": "web"},
        "spec": spec,
    }
    with pytest.raises(ValidationError) as caught:
        read_entry(given)
    assert "with Kind: service-router and Name: web beside them" in caught.value.violations[0].hint
    assert read_entry({"Kind": "service-router", "Name": "web", **spec}).entries[0].name == "web"


@pytest.mark.parametrize("name", ["a", "2a", "a--a", "01", "a" * 63])
def test_VS2_subset_names_that_are_sound(name: str) -> None:
    assert found(ServiceResolver.kind, f"Subsets: {{'{name}': {{}}}}") == []


@pytest.mark.parametrize("name", ["A", "_a", "a.a", "-a", "a-", " a", "a" * 64])
def test_VS2_subset_names_that_are_not(name: str) -> None:
    assert found(ServiceResolver.kind, f"Subsets: {{'{name}': {{}}}}") == [("bad_subset", f"/Subsets/{name}")]


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != ProxyDefaults.kind])
def test_VR1_VS1_a_name_is_required(kind: str) -> None:
    with pytest.raises(ValidationError) as caught:
        read_entry({"Kind": kind, "Splits": [{"Weight": 100}]} if kind == ServiceSplitter.kind else {"Kind": kind})
    assert [(one.code, one.pointer) for one in caught.value.violations] == [("missing_name", "/Name")]


@pytest.mark.parametrize(
    ("meta", "wrong"),
    [
        ({f"k{index}": "" for index in range(64)}, False),
        ({f"k{index}": "" for index in range(65)}, True),
        ({"k" * 128: "v" * 512}, False),
        ({"k" * 129: ""}, True),
        ({"k": "v" * 513}, True),
    ],
)
@pytest.mark.parametrize("kind", KINDS)
def test_VS1_meta_is_bounded(kind: str, meta: dict[str, str], wrong: bool) -> None:
    entry: dict[str, Any] = {"Kind": kind, "Name": "web", "Meta": meta}
    if kind == ServiceSplitter.kind:
        entry["Splits"] = [{"Weight": 100}]
    if kind == ProxyDefaults.kind:
        entry["Name"] = "global"
    if wrong:
        with pytest.raises(ValidationError, match="Meta"):
            read_entry(entry)
    else:
        assert read_entry(entry).entries[0].meta == meta


def test_service_defaults_are_of_one_service() -> None:
    with pytest.raises(ValidationError, match="not a wildcard"):
        read_entry({"Kind": "service-defaults", "Name": "*"})


def test_proxy_defaults_are_global() -> None:
    assert read_entry({"Kind": "proxy-defaults"}).entries[0].name == "global"
    assert read_entry({"Kind": "proxy-defaults", "Name": ""}).entries[0].name == "global"
    with pytest.raises(ValidationError, match="only 'global' is supported"):
        read_entry({"Kind": "proxy-defaults", "Name": "web"})


@pytest.mark.parametrize("key", ["protocol", "Protocol", "PROTOCOL"])
def test_the_protocol_of_proxy_defaults_is_found_in_any_case(key: str) -> None:
    (entry,) = read_entry({"Kind": "proxy-defaults", "Config": {key: "http", "other": 1}}).entries
    assert isinstance(entry, ProxyDefaults)
    assert entry.protocol == "http"


def test_a_negative_connect_timeout_of_an_upstream_counts_as_unset() -> None:
    text = {"Kind": "service-defaults", "Name": "web", "UpstreamConfig": {"Defaults": {"ConnectTimeoutMs": -5}}}
    (entry,) = read_entry(text).entries
    assert isinstance(entry, ServiceDefaults)
    assert entry.upstream_config is not None
    assert entry.upstream_config.defaults is not None
    assert entry.upstream_config.defaults.connect_timeout_ms == 0


def test_weights_are_rounded_to_hundredths() -> None:
    (entry,) = read_entry(
        {"Kind": "service-splitter", "Name": "web", "Splits": [{"Weight": 99.999}, {"Weight": 0.001, "Service": "a"}]}
    ).entries
    assert isinstance(entry, ServiceSplitter)
    assert entry_json(entry)["Splits"] == [{"Weight": 100}, {"Weight": 0, "Service": "a"}]


@pytest.mark.parametrize("kind", OTHER_KINDS)
def test_consuls_other_kinds_are_refused_by_name(kind: str) -> None:
    with pytest.raises(ValidationError, match=f"kind {kind} are not supported"):
        read_entry({"Kind": kind, "Name": "web"})


def test_an_unknown_kind_has_a_hint() -> None:
    with pytest.raises(ValidationError) as caught:
        read_entry({"Kind": "service-resolvr", "Name": "web"})
    assert caught.value.violations[0].hint == 'did you mean "service-resolver"?'


def test_entries_come_back_from_json_as_they_were() -> None:
    def restored(entry: ConfigEntry) -> ConfigEntry:
        return entry_from_json(entry_json(entry))

    for kind, _, text, expected in RULES:
        if not expected:
            (entry,) = read_entries(f"{{Kind: {kind}, Name: web, {text}}}", "yaml").entries
            assert restored(entry) == entry
