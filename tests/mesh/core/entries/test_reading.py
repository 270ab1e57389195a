"""Config entries as people write them: notations, kinds of values, places of what is wrong, and bounds."""

from __future__ import annotations

import json
from dataclasses import fields, is_dataclass
from typing import Any

import pytest

from xds.codec.findings import FINDINGS_LIMIT
from xds.consul.quantities import duration_text, parse_duration
from xds.consul.shape import ITEMS_LIMIT, ListOf, MapOf, Message, members
from xds.mesh.core.entries.entry import KINDS, entry_from_json, entry_json, read_entries, read_entry
from xds.mesh.core.entries.resolver import ServiceResolver
from xds.model.errors import MalformedError, ValidationError, Violation


def violations(text: str, source: str = "") -> list[Violation]:
    with pytest.raises(ValidationError) as caught:
        read_entries(text, source=source)
    return caught.value.violations


CAMEL = """{"Kind": "service-resolver", "Name": "web", "ConnectTimeout": "1m30s", "DefaultSubset": "v1",
"Subsets": {"v1": {"OnlyPassing": true}}, "LoadBalancer": {"Policy": "ring_hash",
"RingHashConfig": {"MinimumRingSize": 5}, "HashPolicies": [{"SourceIP": true}]}}"""
SNAKE = """
kind: service-resolver
name: web
connect_timeout: 90000000000
default_subset: v1
subsets: {v1: {only_passing: true}}
load_balancer:
  policy: ring_hash
  ring_hash_config: {minimum_ring_size: 5}
  hash_policies: [{source_ip: true}]
"""


def test_both_notations_say_the_same() -> None:
    assert read_entries(CAMEL) == read_entries(SNAKE)


def every_class(kind: type[Any]) -> list[type[Any]]:
    found = [kind]
    for one in members(kind).values():
        shape = one.shape.item if isinstance(one.shape, ListOf | MapOf) else one.shape
        if isinstance(shape, Message):
            found += every_class(shape.kind)
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_every_field_of_every_kind_has_a_name_in_json(kind: str) -> None:
    for one in every_class(KINDS[kind]):
        assert is_dataclass(one)
        assert {member.attribute for member in members(one).values()} == {each.name for each in fields(one)}


def test_one_field_in_two_notations_is_refused() -> None:
    (found,) = violations(
        '{"Kind": "service-resolver", "Name": "web", "ConnectTimeout": "1s", "connect_timeout": "2s"}'
    )
    assert found.code == "duplicate_field"


def test_all_errors_come_at_once_with_file_line_column_pointer_and_hint() -> None:
    text = """
kind: service-router
name: web
routes:
- match:
    http: {path_prefix: a, methods: [GET, FETCH]}
  destination: {retry_on: [5xxx], bogus: 1}
---
- Kind: service-splitter
  Name: web
  Splits:
  - {Weight: 50}
  - {Weight: 40, Service: api, RequestHeader: {}}
"""
    found = [(one.source, one.resource, one.pointer, one.code, one.hint) for one in violations(text, "a.yaml")]
    router, splitter = "service-router/web", "service-splitter/web"
    assert found == [
        ("a.yaml:7:35", router, "/Routes/0/Destination/bogus", "unknown_field", ""),
        ("a.yaml:6:12", router, "/Routes/0/Match/HTTP/PathPrefix", "bad_path", 'write "/a"'),
        (
            "a.yaml:6:43",
            router,
            "/Routes/0/Match/HTTP/Methods/1",
            "bad_method",
            "one of GET, HEAD, POST, PUT, PATCH, DELETE, CONNECT, OPTIONS, TRACE",
        ),
        ("a.yaml:7:28", router, "/Routes/0/Destination/RetryOn/0", "bad_choice", 'did you mean "5xx"?'),
        ("a.yaml:13:32", splitter, "/Splits/1/RequestHeader", "unknown_field", 'did you mean "RequestHeaders"?'),
        ("a.yaml:11:3", splitter, "/Splits", "bad_sum", "weights count in steps of 0.01"),
    ]


def test_places_in_json() -> None:
    (found,) = violations('{"Kind": "service-resolver", "Name": "web",\n "ConnectTimeout": "5 s"}', "a.json")
    assert (found.source, found.code) == ("a.json:2:2", "bad_duration")


def test_two_entries_of_one_name_are_refused() -> None:
    (found,) = violations('[{"Kind": "service-resolver", "Name": "web"}, {"Kind": "service-resolver", "Name": "web"}]')
    assert (found.code, found.index) == ("duplicate_entry", 1)


@pytest.mark.parametrize("text", ["", "{", "kind: [", "- - -"])
def test_text_that_is_no_entry(text: str) -> None:
    with pytest.raises((MalformedError, ValidationError)):
        read_entries(text)


@pytest.mark.parametrize("value", [None, 1, "web", [], True])
def test_values_that_are_no_entry(value: object) -> None:
    with pytest.raises(ValidationError, match="an object"):
        read_entry(value)


def test_kind_and_name_of_the_path_may_be_left_out_but_not_contradicted() -> None:
    (entry,) = read_entry({"ConnectTimeout": "1s"}, kind="service-resolver", name="web").entries
    assert (entry.kind, entry.name) == ("service-resolver", "web")
    with pytest.raises(ValidationError, match="expected the name 'web'"):
        read_entry({"name": "api"}, kind="service-resolver", name="web")
    with pytest.raises(ValidationError, match="expected the kind service-router"):
        read_entry({"Kind": "service-resolver"}, kind="service-router", name="web")


def test_answers_of_consul_can_be_written_back() -> None:
    text = {"Kind": "service-resolver", "Name": "web", "CreateIndex": 4, "ModifyIndex": 7, "Hash": 9, "Redirect": None}
    assert read_entry(text).entries == (ServiceResolver("web"),)


@pytest.mark.parametrize(
    ("value", "read", "warnings"),
    [
        ({"NumRetries": "5"}, 5, 0),
        ({"NumRetries": 5.0}, 5, 0),
        ({"NumRetries": " 5"}, None, 0),
        ({"NumRetries": "0x5"}, 5, 1),
        ({"NumRetries": -1}, None, 0),
        ({"NumRetries": 2**32}, None, 0),
        ({"NumRetries": True}, None, 0),
    ],
)
def test_numbers(value: dict[str, object], read: int | None, warnings: int) -> None:
    entry = {"Kind": "service-router", "Name": "web", "Routes": [{"Destination": value}]}
    if read is None:
        with pytest.raises(ValidationError, match="NumRetries"):
            read_entry(entry)
        return
    found = read_entry(entry)
    assert entry_json(found.entries[0])["Routes"] == [{"Destination": {"NumRetries": read}}]
    assert len(found.warnings) == warnings


def test_a_list_of_one_for_an_object_and_an_object_for_a_list_are_taken_with_a_warning() -> None:
    found = read_entry({"Kind": "service-resolver", "Name": "web", "Redirect": [{"Service": "api"}]})
    assert entry_json(found.entries[0])["Redirect"] == {"Service": "api"}
    assert [one.code for one in found.warnings] == ["lax"]
    found = read_entry({"Kind": "service-splitter", "Name": "web", "Splits": {"Weight": 100}})
    assert entry_json(found.entries[0])["Splits"] == [{"Weight": 100}]
    assert [one.pointer for one in found.warnings] == ["/Splits"]


def test_a_subset_without_a_value_is_an_empty_one() -> None:
    """YAML reads ``v1:`` as null."""
    found = read_entries(
        "Kind: service-resolver\nName: web\nDefaultSubset: v1\nSubsets:\n  v1:\n  v2: {OnlyPassing: true}"
    )
    assert entry_json(found.entries[0])["Subsets"] == {"v1": {}, "v2": {"OnlyPassing": True}}
    assert [(one.code, one.pointer) for one in found.warnings] == [("lax", "/Subsets/v1")]


@pytest.mark.parametrize(
    ("text", "value_ns", "printed"),
    [
        ("0", 0, "0s"),
        ("1ns", 1, "1ns"),
        ("1500us", 1_500_000, "1.5ms"),
        ("1\u00b5s", 1_000, "1\u00b5s"),
        ("250ms", 250_000_000, "250ms"),
        ("1.5s", 1_500_000_000, "1.5s"),
        (".5s", 500_000_000, "500ms"),
        ("1m30s", 90_000_000_000, "1m30s"),
        ("90s", 90_000_000_000, "1m30s"),
        ("1h", 3_600_000_000_000, "1h0m0s"),
        ("1.5h", 5_400_000_000_000, "1h30m0s"),
        ("-1.5s", -1_500_000_000, "-1.5s"),
        ("+5s", 5_000_000_000, "5s"),
        ("1.0000000009s", 1_000_000_000, "1s"),
    ],
)
def test_durations_are_those_of_go(text: str, value_ns: int, printed: str) -> None:
    assert parse_duration(text) == value_ns
    assert duration_text(value_ns) == printed
    assert parse_duration(printed) == value_ns


@pytest.mark.parametrize(
    "text", ["", "5", "s", "5 s", "5S", "1d", "-", "--5s", "5s5", "1e3s", "300000000h", "5s" * 150]
)
def test_invalid_durations_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="duration"):
        parse_duration(text)


def test_a_number_in_quotes_is_no_duration_and_the_hint_names_one() -> None:
    (found,) = violations('{"Kind": "service-resolver", "Name": "web", "ConnectTimeout": "5"}')
    assert (found.code, found.hint) == ("bad_duration", 'write "5s" for seconds')


def test_a_duration_beyond_every_range_is_refused_without_a_hint() -> None:
    (found,) = violations('{"Kind": "service-resolver", "Name": "web", "ConnectTimeout": "999999999h"}')
    assert (found.code, found.hint) == ("bad_duration", "")


# Bounds


def test_findings_are_bounded() -> None:
    routes = [{"Match": {"HTTP": {"PathPrefix": "a"}}}] * 1_000
    found = violations(json.dumps({"Kind": "service-router", "Name": "web", "Routes": routes}))
    assert len(found) == FINDINGS_LIMIT


def test_an_entry_of_a_megabyte_is_read() -> None:
    routes = [
        {"Match": {"HTTP": {"PathPrefix": f"/{index}"}}, "Destination": {"Service": "s" * 60}} for index in range(9_000)
    ]
    text = json.dumps({"Kind": "service-router", "Name": "web", "Routes": routes})
    assert len(text) > 1_000_000
    (entry,) = read_entries(text).entries
    assert entry_from_json(json.loads(json.dumps(entry_json(entry)))) == entry


@pytest.mark.parametrize(
    "entry",
    [
        {"Kind": "service-router", "Name": "web", "Routes": [{}] * (ITEMS_LIMIT + 1)},
        {"Kind": "service-resolver", "Name": "web", "Subsets": {f"s{index}": {} for index in range(ITEMS_LIMIT + 1)}},
    ],
)
def test_lists_and_maps_are_bounded(entry: dict[str, object]) -> None:
    with pytest.raises(ValidationError, match=f"{ITEMS_LIMIT} are allowed"):
        read_entry(entry)


@pytest.mark.parametrize("size", [10, 1_000_000])
def test_a_broken_filter_of_any_size_is_refused(size: int) -> None:
    (found,) = violations(
        json.dumps({"Kind": "service-resolver", "Name": "web", "Subsets": {"a": {"Filter": "(" * size}}})
    )
    assert found.code == "bad_filter"
    assert len(found.detail) < 1_000


MEGABYTE = 1_000_000


@pytest.mark.parametrize(
    ("entry", "code"),
    [
        ({"Kind": "x" * MEGABYTE, "Name": "web"}, "unknown_kind"),
        ({"Kind": "service-resolver", "Name": "n" * MEGABYTE}, "bad_name"),
        ({"Kind": "service-resolver", "Name": "web", "y" * MEGABYTE: 1}, "unknown_field"),
        ({"Kind": "service-resolver", "Name": "web", "Subsets": {"s" * MEGABYTE: {"Filter": "("}}}, "too_large"),
        ({"Kind": "service-resolver", "Name": "web", "DefaultSubset": "s" * MEGABYTE}, "unknown_subset"),
        ({"Kind": "service-resolver", "Name": "web", "ConnectTimeout": "5" * MEGABYTE}, "bad_duration"),
        ({"Kind": "service-defaults", "Name": "web", "Protocol": "p" * MEGABYTE}, "bad_choice"),
        (
            {"Kind": "service-router", "Name": "web", "Routes": [{"Match": {"HTTP": {"PathExact": "p" * MEGABYTE}}}]},
            "bad_path",
        ),
    ],
)
def test_the_answer_to_a_megabyte_of_nonsense_is_short(entry: dict[str, object], code: str) -> None:
    (found,) = violations(json.dumps(entry))
    assert found.code == code
    assert len(str(found)) < 2_500


def test_a_text_that_is_nested_too_deeply_is_refused() -> None:
    with pytest.raises(MalformedError):
        read_entries('{"Kind": "proxy-defaults", "Config": ' + '{"a":' * 100_000 + "1" + "}" * 100_001)


@pytest.mark.parametrize(
    "value",
    [
        {"Kind": "service-splitter", "Name": "web", "Splits": 7},
        {"Kind": "service-splitter", "Name": "web", "Splits": [None, {"Weight": 100}]},
        {"Kind": "service-router", "Name": "web", "Routes": [7]},
        {
            "Kind": "service-router",
            "Name": "web",
            "Routes": [{"Match": {"HTTP": {"Header": ["x"], "QueryParam": [1]}}}],
        },
        {"Kind": "service-resolver", "Name": "web", "Subsets": {"v1": 7}},
        {"Kind": "service-resolver", "Name": "web", "Failover": {"*": 7}},
        {"Kind": "service-resolver", "Name": "web", "Failover": {"*": {"Targets": [7]}}},
        {"Kind": "service-resolver", "Name": "web", "LoadBalancer": {"HashPolicies": [7]}},
        {"Kind": "service-defaults", "Name": "web", "UpstreamConfig": {"Overrides": [7]}},
        {"Kind": "service-defaults", "Name": "web", "EnvoyExtensions": [7]},
        {"Kind": "proxy-defaults", "Name": "global", "Expose": {"Paths": [7]}},
        {"Kind": "proxy-defaults", "Name": "global", "EnvoyExtensions": ["x"]},
    ],
)
def test_items_of_the_wrong_type_are_findings(value: dict[str, object]) -> None:
    with pytest.raises(ValidationError) as refused:
        read_entry(value)
    assert "wrong_type" in {each.code for each in refused.value.violations}
