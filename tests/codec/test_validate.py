"""Rules and deprecations of Envoy's .proto files; `test_shapes` compares the verdicts with Envoy's own."""

from __future__ import annotations

import json
from typing import Any

import pytest
from google.protobuf.duration_pb2 import Duration

from tests.codec.cases import CASES, HCM, T
from tests.codec.wrong_shapes import cluster, endpoint, http_filter, manager, resolved_by, route
from tests.support import resources as r
from xds.codec import schema
from xds.codec.findings import Findings
from xds.codec.resources import decode_document, decode_resource, resource_from_bytes
from xds.codec.rules import compile_rules, nanoseconds
from xds.codec.validate import check_constraints
from xds.model.errors import ValidationError, Violation
from xds.proto import field_options


def _check(message: Any) -> Findings:
    findings = Findings()
    check_constraints(message, findings)
    return findings


def _refused(document: dict[str, Any]) -> list[Violation]:
    with pytest.raises(ValidationError) as caught:
        decode_resource(document)
    return caught.value.violations


def test_every_rule_of_every_type_is_known() -> None:
    """An unknown rule would raise when its type is first met."""
    compiled = 0
    for name in field_options.messages():
        message_class = schema.message_class(name)
        if message_class is not None:
            _check(message_class())
            compiled += 1
    assert compiled > 1000


@pytest.mark.parametrize(
    ("kind", "rules", "good", "bad", "code"),
    [
        ("string", {"min_len": "2"}, ["éé", "ab"], ["é"], "too_short"),
        ("string", {"max_len": "2"}, ["éé"], ["abc"], "too_long"),
        ("string", {"min_bytes": "2"}, ["é"], ["a"], "too_short"),
        ("string", {"max_bytes": "2"}, ["é"], ["éa"], "too_long"),
        ("string", {"len": "2"}, ["éé"], ["é"], "out_of_range"),
        ("string", {"len_bytes": "2"}, ["é"], ["éé"], "out_of_range"),
        ("string", {"pattern": "^[a-z]*$"}, ["", "ab"], ["ab\n", "A", "é"], "pattern"),
        ("string", {"pattern": r"^$|^.*\.mmdb$"}, ["", "a.mmdb"], ["a.mmdb\n", "mmdb"], "pattern"),
        ("string", {"prefix": "%", "suffix": "%"}, ["%A%"], ["A%", "%A"], "pattern"),
        ("string", {"contains": "a"}, ["bab"], ["b"], "pattern"),
        ("string", {"not_contains": "a"}, ["b"], ["ba"], "pattern"),
        ("string", {"in": ["a", ""]}, ["a", ""], ["b"], "not_allowed"),
        ("string", {"not_in": ["a"]}, ["b"], ["a"], "not_allowed"),
        ("string", {"const": "a"}, ["a"], ["b"], "not_allowed"),
        ("string", {"well_known_regex": "HTTP_HEADER_NAME"}, [":path", "X-a"], ["", "a b", "a\n", "é"], "pattern"),
        ("string", {"well_known_regex": "HTTP_HEADER_NAME", "strict": False}, ["", "a b"], ["a\nb", "a\0"], "pattern"),
        ("string", {"well_known_regex": "HTTP_HEADER_VALUE"}, ["", "a\tb", "é"], ["a\x01", "a\x7f", "\n"], "pattern"),
        ("string", {"min_len": "2", "ignore_empty": True}, ["", "ab"], ["a"], "too_short"),
        ("bytes", {"min_len": "1"}, [b"a"], [b""], "too_short"),
        ("bytes", {"max_len": "1"}, [b"a"], [b"ab"], "too_long"),
        ("uint32", {"gt": 1, "lte": 3}, [2, 3], [1, 4], "out_of_range"),
        ("uint64", {"gte": "18446744073709551615"}, [2**64 - 1], [2**64 - 2], "out_of_range"),
        ("int32", {"in": [1, 2]}, [1], [3], "not_allowed"),
        ("double", {"gt": 0.0, "lt": 1.5}, [0.1], [0.0, 1.5, float("nan")], "out_of_range"),
        ("bool", {"const": True}, [True], [False], "not_allowed"),
        ("enum", {"not_in": [0, 6]}, [1], [0, 6], "not_allowed"),
        ("repeated", {"min_items": "1", "max_items": "2"}, [["a"]], [[]], "too_few"),
        ("repeated", {"max_items": "1"}, [["a"]], [["a", "b"]], "too_many"),
        ("repeated", {"unique": True}, [["a", "b"]], [["a", "b", "a"]], "duplicate_item"),
        ("map", {"min_pairs": "1"}, [{"a": 1}], [{}], "too_few"),
        ("map", {"max_pairs": "1"}, [{"a": 1}], [{"a": 1, "b": 2}], "too_many"),
        ("duration", {"gte": "0.001s"}, [10**6], [10**6 - 1], "out_of_range"),
        ("duration", {"gt": "0s", "lt": "1.5s"}, [1], [0, -1, 1_500_000_000], "out_of_range"),
    ],
)
def test_rule(kind: str, rules: dict[str, Any], good: list[Any], bad: list[Any], code: str) -> None:
    test = compile_rules(kind, rules)
    assert test is not None
    assert [value for value in good if test(value) is not None] == []
    assert [breach.code if (breach := test(value)) else "" for value in bad] == [code] * len(bad)


def test_unknown_rule_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"string\.uuid"):
        compile_rules("string", {"uuid": True})


def test_rules_of_presence_say_nothing_of_a_value() -> None:
    assert compile_rules("duration", {"required": True}) is None


def test_durations_are_compared_to_the_nanosecond() -> None:
    assert nanoseconds(Duration(seconds=-1, nanos=-5)) == -1_000_000_005


def test_a_finding_has_the_allowed_and_the_given_value() -> None:
    (found,) = _refused(endpoint(port_value=70000))
    assert found.detail == "port_value must be at most 65535, and is 70000"
    (found,) = _refused(cluster(connect_timeout="-0.5s"))
    assert found.detail == "connect_timeout must be greater than 0s, and is -0.5s"


def test_a_missing_field_has_a_hint() -> None:
    (found,) = _refused(manager(stat_prefix=None))
    assert (found.code, found.detail, found.hint) == ("missing_field", "stat_prefix is required", "set stat_prefix")


def test_every_breach_is_found_at_once() -> None:
    found = _refused(
        cluster(
            connect_timeout="0s",
            outlier_detection={"interval": "0s", "max_ejection_percent": 500},
            health_checks=[{"timeout": "1s"}, {"interval": "1s"}],
        )
    )
    pointers = [one.pointer for one in found]
    assert len(pointers) == len(set(pointers)) == 11
    assert "/health_checks/1/timeout" in pointers


def test_envoy_takes_one_category_of_drops() -> None:
    """It says so in no .proto file: "Cluster drop_overloads config has 2 categories. Envoy only support one."."""
    drops = [{"category": name, "drop_percentage": {"numerator": 1}} for name in ("one", "two")]
    assignment = r.cluster_load_assignment("c", 80)
    inline = r.static_cluster("c", 80)
    for number, place in ((1, assignment), (1, inline["load_assignment"]), (2, assignment)):
        place["policy"] = {"drop_overloads": drops[:number]}
    decode_resource(inline)
    (found,) = _refused(assignment)
    assert (found.code, found.pointer) == ("too_many", "/policy/drop_overloads")
    inline["load_assignment"]["policy"] = {"drop_overloads": drops}
    (found,) = _refused(inline)
    assert found.pointer == "/load_assignment/policy/drop_overloads"


def test_broken_rules_are_reported_beside_errors_of_form() -> None:
    """What could not be read is not called missing as well."""
    found = _refused(endpoint(port_value=70000, adress="x", address=5))
    assert {one.code for one in found} == {"out_of_range", "unknown_field", "wrong_type"}
    assert len(found) == 3


def test_binary_resources_are_checked_by_the_same_rules() -> None:
    body = schema.require("envoy.config.cluster.v3.Cluster")(name="c", lb_policy=77).SerializeToString()
    with pytest.raises(ValidationError, match="lb_policy must be a value of LbPolicy; not 77"):
        resource_from_bytes(f"{T}envoy.config.cluster.v3.Cluster", body)


def test_payloads_of_any_are_checked_to_any_depth() -> None:
    inner = http_filter("buffer.v3.Buffer")["filter_chains"][0]["filters"][0]["typed_config"]["http_filters"][0]
    extension = {"@type": f"{T}envoy.config.core.v3.TypedExtensionConfig", **inner}
    nested = {"@type": f"{T}google.protobuf.Any", "value": extension}
    (found,) = _refused({**extension, "name": "outer", "typed_config": nested})
    assert found.pointer == "/typed_config/value/typed_config/max_request_bytes"


def test_payloads_of_unknown_types_pass() -> None:
    decode_resource(
        {
            "@type": f"{T}envoy.config.core.v3.TypedExtensionConfig",
            "name": "x",
            "typed_config": {"@type": f"{T}no.Such", "@value_base64": "CgA="},
        }
    )


def test_api_listeners_are_for_other_clients() -> None:
    """gRPC does not want a stat_prefix."""
    pushed = decode_document(json.dumps({"resources": [CASES["api listener"]]}), "json")
    (warning,) = pushed.warnings
    assert (warning.severity, warning.code) == ("warning", "missing_field")
    assert warning.pointer == "/api_listener/api_listener/stat_prefix"


def test_deprecated_field_is_a_warning() -> None:
    found = _check(_message(cluster(type="STRICT_DNS", dns_refresh_rate="5s")))
    assert not found
    (warning,) = found.warnings
    assert (warning.code, warning.pointer) == ("deprecated_field", "/dns_refresh_rate")
    assert warning.hint == "see cluster_type, DnsCluster"


def test_rules_that_envoy_does_not_enforce_are_warnings() -> None:
    resolver = resolved_by("cares.v3.CaresDnsResolverConfig", query_tries=0)
    (warning,) = decode_document(json.dumps({"resources": [resolver]}), "json").warnings
    assert (warning.code, warning.severity) == ("out_of_range", "warning")
    assert warning.pointer == "/typed_dns_resolver_config/typed_config/query_tries"


def test_disallowed_fields_are_errors_in_v3_and_warnings_in_v2() -> None:
    """Clients of v2 are of its age: they take what later releases refuse."""
    action = {"dynamic_metadata": {"descriptor_key": "k", "metadata_key": {"key": "a", "path": [{"key": "b"}]}}}
    (error,) = _refused(route(route={"cluster": "c", "rate_limits": [{"actions": [action]}]}, direct_response=None))
    assert "refused by Envoy" in error.detail
    found = _check(_message(CASES["v2 cluster"]))
    assert not found
    assert [one.pointer for one in found.warnings] == ["/tls_context"]


def _message(document: dict[str, Any]) -> Any:
    resource = decode_resource(document)
    return schema.require(resource.type_url.rpartition("/")[2]).FromString(resource.body)


def test_deeply_nested_messages_end_in_a_finding() -> None:
    """Each Any starts a parser of its own; only the walk counts the depth."""
    extension = schema.require("envoy.config.core.v3.TypedExtensionConfig")
    inner = extension(name="x")
    for _ in range(2000):
        outer: Any = extension(name="x")
        outer.typed_config.type_url = f"{T}envoy.config.core.v3.TypedExtensionConfig"
        outer.typed_config.value = inner.SerializeToString()
        inner = outer
    assert [one.code for one in _check(inner).violations] == ["too_deep"]


def test_findings_stay_bounded() -> None:
    config: Any = schema.require(HCM.rpartition("/")[2])()
    for _ in range(1000):
        config.http_filters.add()
    assert len(_check(config)) <= 100
