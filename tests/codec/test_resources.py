"""Pushed values to resources: bytes, names, aliases, TTL, and every error with its place."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import json_format

from tests.codec.cases import CASES, HCM, T
from tests.support.resources import UPSTREAM_TLS_TYPE as TLS
from xds.codec import schema
from xds.codec.findings import FINDINGS_LIMIT
from xds.codec.resources import decode_document, decode_resource, resource_from_bytes
from xds.model.errors import MalformedError, ValidationError, Violation
from xds.model.resource_type import CLUSTER, ENDPOINT, LISTENER, VIRTUAL_HOST

GOLDEN = json.loads((Path(__file__).parent / "golden.json").read_text())
WRAPPER = f"{T}envoy.service.discovery.v3.Resource"


def _cluster(name: str = "c1", /, **fields: object) -> dict[str, object]:
    return {"@type": CLUSTER, "name": name, **fields}


def _violations(value: object) -> list[Violation]:
    with pytest.raises(ValidationError) as caught:
        decode_resource(value)
    return caught.value.violations


def _places(value: object) -> list[tuple[str, str]]:
    return [(one.code, one.pointer) for one in _violations(value)]


@pytest.mark.parametrize("name", CASES)
def test_golden_bytes(name: str) -> None:
    """Bytes and versions never change: they are in stores, and clients hold them."""
    resource = decode_resource(CASES[name])
    assert base64.b64encode(resource.body).decode() == GOLDEN[name]["body"]
    assert (resource.name, resource.version) == (GOLDEN[name]["name"], GOLDEN[name]["version"])


@pytest.mark.parametrize("name", CASES)
def test_bytes_are_those_of_json_format(name: str) -> None:
    value = dict(CASES[name])
    message: Any = schema.require(value.pop("@type").rpartition("/")[2])()
    json_format.ParseDict(value, message, descriptor_pool=schema.pool())
    assert decode_resource(CASES[name]).body == message.SerializeToString(deterministic=True)


def test_both_spellings_give_the_same_bytes() -> None:
    snake, camel = (decode_resource(CASES[f"listener with rds, {kind} case"]) for kind in ("snake", "camel"))
    assert snake == camel


@pytest.mark.parametrize(
    ("lax", "strict"),
    [
        ({"type": "strict_dns"}, {"type": "STRICT_DNS"}),
        ({"respect_dns_ttl": "true"}, {"respect_dns_ttl": True}),
        ({"dns_resolvers": {"pipe": {"path": "/x"}}}, {"dns_resolvers": [{"pipe": {"path": "/x"}}]}),
        ({"per_connection_buffer_limit_bytes": "5"}, {"per_connection_buffer_limit_bytes": 5}),
        ({"per_connection_buffer_limit_bytes": 5.0}, {"per_connection_buffer_limit_bytes": 5}),
        ({"alt_stat_name": None}, {}),
    ],
)
def test_as_lax_as_envoy(lax: dict[str, object], strict: dict[str, object]) -> None:
    assert decode_resource(_cluster(**lax)) == decode_resource(_cluster(**strict))


@pytest.mark.parametrize(
    ("fields", "code", "pointer"),
    [
        ({"conect_timeout": "1s"}, "unknown_field", "/conect_timeout"),
        ({"connect_timeout": 1}, "bad_duration", "/connect_timeout"),
        ({"connect_timeout": "1"}, "bad_duration", "/connect_timeout"),
        ({"connect_timeout": "1 s"}, "bad_duration", "/connect_timeout"),
        ({"connect_timeout": "999999999999s"}, "bad_duration", "/connect_timeout"),
        ({"connect_timeout": "999999999h"}, "bad_duration", "/connect_timeout"),
        ({"type": "NOPE"}, "unknown_enum_value", "/type"),
        ({"alt_stat_name": 5}, "wrong_type", "/alt_stat_name"),
        ({"alt_stat_name": "\ud800"}, "encoding", "/alt_stat_name"),
        ({"respect_dns_ttl": 1}, "wrong_type", "/respect_dns_ttl"),
        ({"respect_dns_ttl": "maybe"}, "wrong_type", "/respect_dns_ttl"),
        ({"per_connection_buffer_limit_bytes": 1.5}, "wrong_type", "/per_connection_buffer_limit_bytes"),
        ({"per_connection_buffer_limit_bytes": -1}, "out_of_range", "/per_connection_buffer_limit_bytes"),
        ({"perConnectionBufferLimitBytes": 2**32}, "out_of_range", "/perConnectionBufferLimitBytes"),
        (
            {"eds_cluster_config": {"eds_config": {"api_config_source": {}, "apiConfigSource": {}}}},
            "duplicate_field",
            "/eds_cluster_config/eds_config/apiConfigSource",
        ),
        (
            {"metadata": {"filter_metadata": {"a": {"x": [1, 1e400]}}}},
            "out_of_range",
            "/metadata/filter_metadata/a/x/1",
        ),
        ({"dns_resolvers": [{}, {"pipe": {"pth": ""}}]}, "unknown_field", "/dns_resolvers/1/pipe/pth"),
        ({"type": "EDS", "cluster_type": {"name": "x"}}, "oneof_conflict", "/cluster_type"),
        ({"metadata": {"filter_metadata": {"a/b": 3}}}, "wrong_type", "/metadata/filter_metadata/a~1b"),
        ({"load_assignment": []}, "wrong_type", "/load_assignment"),
        ({"transport_socket": {"typed_config": {"a": 1}}}, "missing_type", "/transport_socket/typed_config"),
        (
            {"transport_socket": {"typed_config": {"@type": "x/y.Z"}}},
            "unknown_type",
            "/transport_socket/typed_config/@type",
        ),
        (
            {"transport_socket": {"typed_config": {"@type": TLS, "allow_renegotiation": 3}}},
            "wrong_type",
            "/transport_socket/typed_config/allow_renegotiation",
        ),
        (
            {"transport_socket": {"typed_config": {"@type": f"{T}google.protobuf.Duration", "value": 3}}},
            "bad_duration",
            "/transport_socket/typed_config/value",
        ),
        (
            {"transport_socket": {"typed_config": {"@type": f"{T}google.protobuf.Empty", "value": {}}}},
            "unknown_field",
            "/transport_socket/typed_config/value",
        ),
    ],
)
def test_errors_say_where(fields: dict[str, object], code: str, pointer: str) -> None:
    (violation,) = _violations(_cluster(**fields))
    assert (violation.code, violation.pointer, violation.resource) == (code, pointer, "clusters/c1")


@pytest.mark.parametrize("text", ["***", "aGk", "a", "aGk=aGk=", "aG k", "aGk\n", "====="])
def test_base64_is_checked(text: str) -> None:
    route = {"match": {"path": "/"}, "direct_response": {"status": 200, "body": {"inline_bytes": text}}}
    value = {**CASES["route with weights"], "virtual_hosts": [{"name": "a", "domains": ["*"], "routes": [route]}]}
    if text == "aGk":
        assert decode_resource(value).body.endswith(b"hi")
    else:
        assert _places(value) == [("bad_base64", "/virtual_hosts/0/routes/0/direct_response/body/inline_bytes")]


def test_all_errors_come_at_once_with_hints() -> None:
    listener: dict[str, Any] = {
        "@type": LISTENER,
        "nmae": "l1",
        "filter_chains": [
            {"filters": [{"name": "h", "typed_config": {"@type": HCM, "codec_type": "HTPP2", "rds": 3}}]}
        ],
    }
    violations = _violations(listener)
    config = "/filter_chains/0/filters/0/typed_config"
    assert [(one.code, one.pointer) for one in violations] == [
        ("unknown_field", "/nmae"),
        ("unknown_enum_value", f"{config}/codec_type"),
        ("wrong_type", f"{config}/rds"),
    ]
    assert [one.hint for one in violations] == ['did you mean "name"?', 'did you mean "HTTP2"?', ""]


@pytest.mark.parametrize(
    ("fields", "hint"),
    [
        ({"ConnectTimeout": "1s"}, 'did you mean "connect_timeout"?'),
        ({"connect-timeout": "1s"}, 'did you mean "connect_timeout"?'),
        ({"connect_timeout": "250ms"}, 'write "0.250s"'),
        ({"connect_timeout": 5}, 'write "5s"'),
        ({"connect_timeout": "2m"}, 'write "120s"'),
        ({"connect_timeout": "soon"}, 'such as "1.5s"'),
        ({"alt_stat_name": 5}, 'write it in quotes: "5"'),
        ({"type": "X"}, "one of STATIC, STRICT_DNS, LOGICAL_DNS, EDS, ORIGINAL_DST"),
        ({"type": "EDS", "cluster_type": {}}, "leave one of them out"),
    ],
)
def test_findings_have_a_hint(fields: dict[str, object], hint: str) -> None:
    (violation,) = _violations(_cluster(**fields))
    assert violation.hint == hint


@pytest.mark.parametrize(
    ("type_url", "hint"),
    [
        ("envoy.config.cluster.v3.Clustre", "envoy.config.cluster.v3.Cluster"),
        ("envoy.config.filter.http.router.v3.Router", "envoy.extensions.filters.http.router.v3.Router"),
        ("envoy.extensions.filters.http.rotuer.v3.Router", "envoy.extensions.filters.http.router.v3.Router"),
    ],
)
def test_unknown_types_come_with_a_suggestion(type_url: str, hint: str) -> None:
    (violation,) = _violations({"@type": f"{T}{type_url}", "name": "x"})
    assert violation.hint.startswith(f'did you mean "{T}{hint}"? or pass it as bytes')


@pytest.mark.parametrize(
    "type_url",
    [
        "envoy.config.cluster.v4.Cluster",
        "envoy.extensions.filters.network.kafka_brokers_of_ours.v3.KafkaBroker",
        "my.own.v3.Config",
    ],
)
def test_no_hint_at_another_version_or_extension(type_url: str) -> None:
    (violation,) = _violations({"@type": f"{T}{type_url}", "name": "x"})
    assert "did you mean" not in violation.hint
    assert "--descriptor-set" in violation.hint


@pytest.mark.parametrize(
    "config",
    [
        {"@type": f"{T}envoy.extensions.filters.network.kafka_broker.v3.KafkaBroker", "stat_prefix": "k"},
        {"@type": f"{T}envoy.extensions.filters.network.mysql_proxy.v3.MySQLProxy", "stat_prefix": "m"},
        {"@type": f"{T}envoy.extensions.filters.network.postgres_proxy.v3alpha.PostgresProxy", "stat_prefix": "p"},
        {"@type": f"{T}stats.PluginConfig"},
    ],
)
def test_extensions_of_contrib_are_known(config: dict[str, str]) -> None:
    extension = {"@type": f"{T}envoy.config.core.v3.TypedExtensionConfig", "name": "x", "typed_config": config}
    assert decode_resource(extension).name == "x"
    (violation,) = _violations({**extension, "typed_config": {**config, "nope": 1}})
    assert violation.code == "unknown_field"


def test_rules_of_contrib_are_known() -> None:
    config = {"@type": f"{T}envoy.extensions.filters.network.mysql_proxy.v3.MySQLProxy"}
    extension = {"@type": f"{T}envoy.config.core.v3.TypedExtensionConfig", "name": "x", "typed_config": config}
    assert [(one.code, one.pointer) for one in _violations(extension)] == [
        ("missing_field", "/typed_config/stat_prefix")
    ]


def test_findings_are_bounded() -> None:
    value = _cluster(**{f"field_{number}": 1 for number in range(1000)})
    assert len(_violations(value)) == FINDINGS_LIMIT


def test_findings_name_their_resource() -> None:
    text = json.dumps({"resources": [_cluster(bad=1), 3, {"name": "x"}, {"@type": "x/y.Z"}, {"@type": CLUSTER}]})
    with pytest.raises(ValidationError) as caught:
        decode_document(text, source="f.json")
    assert [(one.resource, one.index, one.code) for one in caught.value.violations] == [
        ("clusters/c1", 0, "unknown_field"),
        ("resources[1]", 1, "wrong_type"),
        ("resources[2]", 2, "missing_type"),
        ("resources[3]", 3, "unknown_type"),
        ("resources[4]", 4, "missing_name"),
    ]


def test_input_too_deep_for_a_parser_is_refused() -> None:
    nested: dict[str, Any] = {}
    for _ in range(60):
        nested = {"a": nested}
    assert {code for code, _ in _places(_cluster(metadata={"filter_metadata": {"x": nested}}))} <= {
        "too_deep",
        "wrong_type",
    }


@pytest.mark.parametrize("depth", [101, 150, 240])
@pytest.mark.parametrize("is_list", [False, True])
def test_input_that_is_too_deep_is_refused_with_its_place(depth: int, is_list: bool) -> None:
    opened, closed = ("[", "]") if is_list else ('{"a":', "}")
    nested = opened * depth + ("" if is_list else "1") + closed * depth
    text = f'[{{"@type": "{CLUSTER}", "name": "c1",\n "metadata": {{"filter_metadata": {{"x": {{"k": {nested}}}}}}}}}]'
    with pytest.raises(ValidationError) as caught:
        decode_document(text, "json")
    assert {one.code for one in caught.value.violations} == {"too_deep"}
    # Parsers of bytes count other levels than ours do: what only they refuse stands at the resource.
    assert all(one.source.startswith(("2:", "1:2")) for one in caught.value.violations)


def test_duplicate_names_and_aliases() -> None:
    hosts = [{**CASES["virtual host"], "name": name} for name in ("r1/a", "r1/b")]
    with pytest.raises(ValidationError) as caught:
        decode_document(json.dumps([_cluster(), _cluster(), *hosts]))
    assert [(one.code, one.resource) for one in caught.value.violations] == [
        ("duplicate_name", "clusters/c1"),
        ("duplicate_alias", "virtual_hosts/r1/b"),
        ("duplicate_alias", "virtual_hosts/r1/b"),
    ]


def test_size_limit() -> None:
    with pytest.raises(ValidationError, match="the limit is 100"):
        decode_document(json.dumps([_cluster(alt_stat_name="x" * 200)]), resource_limit=100)


def test_document_labels() -> None:
    pushed = decode_document(json.dumps({"resources": [_cluster()], "version": "v7", "versions": {"endpoints": "e"}}))
    assert (pushed.label, pushed.labels) == ("v7", {ENDPOINT: "e"})
    assert [resource.name for resource in pushed.resources] == ["c1"]


def test_endpoints_are_named_by_cluster_name() -> None:
    assert decode_resource({"@type": ENDPOINT, "clusterName": "s1"}).name == "s1"
    (violation,) = _violations({"@type": ENDPOINT, "cluster_name": "s1", "nope": 1})
    assert violation.resource == "endpoints/s1"


def test_xdstp_names_are_canonical() -> None:
    name = "xdstp://a/envoy.config.cluster.v3.Cluster/foo?b=2&a=1"
    assert decode_resource(_cluster(name)).name == "xdstp://a/envoy.config.cluster.v3.Cluster/foo?a=1&b=2"


def test_virtual_hosts_are_known_by_their_domains() -> None:
    resource = decode_resource({"@type": VIRTUAL_HOST, "name": "r1/foo.com", "domains": ["foo.com", "bar.com"]})
    assert (resource.name, resource.aliases) == ("r1/foo.com", ("r1/bar.com",))


def test_wrapper_gives_name_aliases_and_ttl() -> None:
    host = {"@type": VIRTUAL_HOST, "name": "inner", "domains": ["foo.com"]}
    resource = decode_resource(
        {"@type": WRAPPER, "name": "r1/foo", "aliases": ["r1/x"], "ttl": "1.5s", "resource": host, "version": "9"}
    )
    assert (resource.type_url, resource.name, resource.ttl_s) == (VIRTUAL_HOST, "r1/foo", 1.5)
    assert resource.aliases == ("r1/foo.com", "r1/x")
    assert resource.body == decode_resource({**host, "name": "inner"}).body


@pytest.mark.parametrize(
    ("wrapper", "place"),
    [
        ({"name": "c1"}, ("missing_field", "/resource")),
        ({"name": "c2", "resource": _cluster()}, ("name_mismatch", "/name")),
        ({"resource": _cluster(), "ttl": "0s"}, ("out_of_range", "/ttl")),
        ({"resource": _cluster(), "cache_control": {"do_not_cache": True}}, ("unsupported_field", "/cache_control")),
        ({"resource": _cluster(bad=1)}, ("unknown_field", "/resource/bad")),
        ({"resource": {"@type": WRAPPER, "resource": _cluster()}}, ("unsupported_type", "")),
    ],
)
def test_wrapper_errors(wrapper: dict[str, object], place: tuple[str, str]) -> None:
    assert _places({"@type": WRAPPER, **wrapper}) == [place]


def test_unknown_types_pass_through() -> None:
    value = {"@type": "type.googleapis.com/my.Type", "@name": "n1", "@value_base64": "AAEC"}
    resource = decode_resource(value)
    assert (resource.type_url, resource.name, resource.body) == (value["@type"], "n1", b"\x00\x01\x02")
    del value["@name"]
    assert _places(value) == [("missing_name", "/@name")]
    assert decode_resource({"@type": WRAPPER, "name": "n1", "resource": value}) == resource


def test_unknown_types_pass_through_within_a_resource() -> None:
    opaque = {"@type": "type.googleapis.com/my.Filter", "@value_base64": "AAEC"}
    resource = decode_resource(_cluster(transport_socket={"name": "x", "typed_config": opaque}))
    cluster: Any = schema.require("envoy.config.cluster.v3.Cluster").FromString(resource.body)
    assert cluster.transport_socket.typed_config.value == b"\x00\x01\x02"


def test_bytes_of_a_known_type_must_be_its_own() -> None:
    assert _places({"@type": CLUSTER, "@value_base64": "AAEC"}) == [("malformed", "/@value_base64")]
    assert _places({"@type": CLUSTER, "@value_base64": "", "name": "x"}) == [("unknown_field", "/name")]


def test_known_types_get_the_prefix_clients_know() -> None:
    assert decode_resource({"@type": "example.org/envoy.config.cluster.v3.Cluster", "name": "c"}).type_url == CLUSTER


def test_single_resource_of_a_known_place() -> None:
    assert decode_resource({"name": "c1"}, type_url=CLUSTER, name="c1") == decode_resource(_cluster())
    with pytest.raises(ValidationError, match="expected the name 'c2'"):
        decode_resource({"name": "c1"}, type_url=CLUSTER, name="c2")
    with pytest.raises(ValidationError, match="expected type"):
        decode_resource(_cluster(), type_url=LISTENER)


def _response(*packed: tuple[str, bytes]) -> bytes:
    response: Any = schema.require(schema.RESPONSE_TYPE)(version_info="7")
    for type_url, value in packed:
        response.resources.add(type_url=type_url, value=value)
    return bytes(response.SerializeToString())


def test_binary_push_equals_the_text_push() -> None:
    resources = [decode_resource(value) for name, value in CASES.items() if name.endswith("snake case")]
    resources += [decode_resource(CASES["cluster with tls and http2"]), decode_resource(CASES["virtual host"])]
    pushed = decode_document(_response(*((one.type_url, one.body) for one in resources)), "protobuf")
    assert (pushed.resources, pushed.label) == (resources, "7")


def test_binary_bytes_become_canonical_all_the_way_down() -> None:
    """A map packed in an Any in another order is the same resource."""
    struct: Any = schema.require("google.protobuf.Struct")
    one, other = struct(), struct()
    one.update({"a": 1, "b": 2})
    first, second = struct(), struct()
    first.update({"a": 1})
    second.update({"b": 2})
    other.ParseFromString(second.SerializeToString() + first.SerializeToString())
    swapped = second.SerializeToString() + first.SerializeToString()
    assert swapped != one.SerializeToString(deterministic=True)
    extension: Any = schema.require("envoy.config.core.v3.TypedExtensionConfig")
    bodies = []
    for value in (one.SerializeToString(deterministic=True), swapped):
        message = extension(name="e")
        message.typed_config.type_url = f"{T}google.protobuf.Struct"
        message.typed_config.value = value
        bodies.append(resource_from_bytes(f"{T}envoy.config.core.v3.TypedExtensionConfig", message.SerializeToString()))
    assert bodies[0] == bodies[1]


def test_binary_unknown_fields_are_kept() -> None:
    body = decode_resource(_cluster()).body + b"\xfa\x3f\x02hi"  # field 1023
    assert resource_from_bytes(CLUSTER, body).body == body


def test_binary_errors() -> None:
    with pytest.raises(ValidationError) as caught:
        decode_document(_response((CLUSTER, b"\xff"), ("x/my.Type", b""), ("nope", b""), (CLUSTER, b"")), "protobuf")
    assert [(one.resource, one.code) for one in caught.value.violations] == [
        ("resources[0]", "malformed"),
        ("resources[1]", "missing_name"),
        ("resources[2]", "missing_type"),
        ("resources[3]", "missing_name"),
    ]


@pytest.mark.parametrize("body", [b"\xff\xff", b'{"resources": []}', b"\xfa\x3f\x02hi"])
def test_bytes_that_are_no_response_are_malformed(body: bytes) -> None:
    with pytest.raises(MalformedError):
        decode_document(body, "protobuf")


def test_references_do_not_depend_on_the_form() -> None:
    value = CASES["api listener"]
    resource = decode_resource(value)
    assert resource_from_bytes(resource.type_url, resource.body).references == resource.references


def test_half_a_surrogate_pair_is_no_enum_value() -> None:
    with pytest.raises(ValidationError) as caught:
        decode_resource({"@type": CLUSTER, "name": "c", "type": "\ud800"})
    assert [(one.code, one.pointer) for one in caught.value.violations] == [("unknown_enum_value", "/type")]
