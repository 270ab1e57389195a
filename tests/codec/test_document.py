"""Text to plain values: strict YAML 1.2, strict JSON, and what stands around the resources."""

from __future__ import annotations

import pytest

from xds.codec.document import parse_document, parse_values
from xds.codec.text import YAML_DEPTH_LIMIT, YAML_TEXT_LIMIT
from xds.model.errors import MalformedError, ValidationError


def _yaml(text: str) -> object:
    return parse_values(text, "yaml")[0]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("no", "no"),
        ("on", "on"),
        ("y", "y"),
        ("1:20", "1:20"),
        ("012", 12),
        ("0o17", 15),
        ("0x1F", 31),
        ("1_000", "1_000"),
        ("2020-01-01", "2020-01-01"),
        ("1.0.0", "1.0.0"),
        ("1e3", 1000.0),
        ("-3", -3),
        ("~", None),
        ("null", None),
        ("True", True),
        ("'true'", "true"),
        ('"12"', "12"),
        ("!!str 12", "12"),
        (".inf", ".inf"),
        ("=", "="),
    ],
)
def test_scalars_follow_yaml_1_2(text: str, value: object) -> None:
    assert _yaml(f"a: {text}") == {"a": value}


def test_keys_are_strings() -> None:
    assert _yaml("{80: a, true: b, null: c}") == {"80": "a", "true": "b", "null": "c"}


def test_anchors_and_several_documents() -> None:
    assert parse_values("a: &x {b: [1]}\nc: *x\n---\n- 2\n---\n", "yaml") == [{"a": {"b": [1]}, "c": {"b": [1]}}, [2]]


def test_keys_that_envoy_ignores_are_there_for_their_anchors() -> None:
    text = "!ignore a:\n- &x {b: 1}\n!ignore a: 2\na: *x\nc: {!ignore d: 3, e: 4}\n"
    assert _yaml(text) == {"a": {"b": 1}, "c": {"e": 4}}


@pytest.mark.parametrize(
    ("text", "place", "words"),
    [
        ("a: 1\nb: 2\na: 3\n", "3:1", "duplicate key 'a'"),
        ("a: [1\nb: 2", "2:2", ""),
        ("a: *x", "1:4", "unknown alias"),
        ("a: &x [*x]", "1:8", "recursive alias"),
        ("a: !!python/object:os.system x", "1:4", "not supported"),
        ("a: !!binary aGk=", "1:4", "not supported"),
        ("? [1]\n: 2", "1:3", "key must be a string"),
        ("[" * (YAML_DEPTH_LIMIT + 1), f"1:{YAML_DEPTH_LIMIT + 1}", "nested deeper"),
        ("\ta: 1", "1:1", ""),
    ],
)
def test_yaml_errors_say_where(text: str, place: str, words: str) -> None:
    with pytest.raises(MalformedError) as caught:
        parse_values(text, "yaml", "f.yaml")
    (violation,) = caught.value.violations
    assert (violation.code, violation.source) == ("syntax", f"f.yaml:{place}")
    assert words in violation.detail


@pytest.mark.parametrize(
    ("text", "place", "words"),
    [
        ('{"a": 1,}', "1:9", "property name"),
        ('{"a": 1,\n "b": {"c": 1, "c": 2}}', "2:16", "duplicate key 'c'"),
        ('{"a": NaN}', "1:7", "NaN is not JSON"),
        ('{"a": "NaN",\n"b": [1, -Infinity]}', "2:10", "-Infinity is not JSON"),
        ("[" * 100_000, "1:251", "nested deeper"),
        ('{"a": ' + "9" * 5000 + "}", "1:7", "digits"),
        ('{"a": {"\\u0062": 1},\n {"b": 1', "2:2", "property name"),
        ('{"x": {"b": 1,\n  "\\u0062": 1}}', "2:3", "duplicate key 'b'"),
    ],
)
def test_json_errors_say_where(text: str, place: str, words: str) -> None:
    with pytest.raises(MalformedError) as caught:
        parse_values(text, "json")
    (violation,) = caught.value.violations
    assert violation.source == place
    assert words in violation.detail


def test_a_yaml_bomb_is_refused() -> None:
    lines = ["a0: &a0 [lol, lol, lol, lol, lol, lol, lol, lol, lol]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 20)]
    with pytest.raises(MalformedError, match="aliases expand"):
        parse_values("\n".join(lines))


def test_text_that_is_not_utf_8_is_refused() -> None:
    with pytest.raises(MalformedError, match="not UTF-8 at byte 1"):
        parse_values(b"a\xff")


def test_byte_order_mark_is_skipped() -> None:
    assert parse_values(b'\xef\xbb\xbf{"a": 1}') == [{"a": 1}]


def test_flow_yaml_that_is_no_json_is_read() -> None:
    assert parse_values("{a: 1, b: [x, y]}") == [{"a": 1, "b": ["x", "y"]}]


def test_our_own_envelope() -> None:
    document = parse_document('{"resources": [{"@type": "a/b"}], "version": "7", "versions": {"clusters": "x"}}')
    assert (document.resources, document.label) == ([{"@type": "a/b"}], "7")
    assert document.labels == {"type.googleapis.com/envoy.config.cluster.v3.Cluster": "x"}


def test_envoys_file_form() -> None:
    document = parse_document('version_info: "0"\nresources:\n- "@type": a/b\n')
    assert (document.resources, document.label) == ([{"@type": "a/b"}], "0")


@pytest.mark.parametrize("text", ['[{"@type": "a/b"}]', '{"@type": "a/b"}', '{"resources": {"@type": "a/b"}}'])
def test_shorter_forms(text: str) -> None:
    assert parse_document(text).resources == [{"@type": "a/b"}]


def test_several_documents_are_one_push() -> None:
    document = parse_document('resources: []\nversion: "1"\n---\n"@type": a/b\n---\n- "@type": a/c\n')
    assert document.resources == [{"@type": "a/b"}, {"@type": "a/c"}]
    assert document.label == "1"


def test_envelope_errors_come_all_at_once() -> None:
    with pytest.raises(ValidationError) as caught:
        parse_document('{"resource": [], "version": 1, "versions": {"a/b": 2}}')
    assert [(one.code, one.pointer) for one in caught.value.violations] == [
        ("unknown_field", "/resource"),
        ("missing_field", "/resources"),
        ("wrong_type", "/version"),
        ("wrong_type", "/versions/a~1b"),
    ]


@pytest.mark.parametrize("text", ["", "# nothing", "---\n---\n", "3", '"text"'])
def test_a_document_that_is_no_push_is_malformed(text: str) -> None:
    with pytest.raises(MalformedError):
        parse_document(text)


def test_documents_that_disagree_about_the_version() -> None:
    with pytest.raises(ValidationError, match="disagree"):
        parse_document('resources: []\nversion: "1"\n---\nresources: []\nversion: "2"\n')


def test_versions_of_an_unknown_type() -> None:
    with pytest.raises(ValidationError, match=r"'cluster' is not a type; known are .*clusters"):
        parse_document('{"resources": [], "versions": {"cluster": "7", "my.Type": "8"}}')


def test_yaml_has_a_limit_of_its_own() -> None:
    with pytest.raises(MalformedError, match="JSON may be larger"):
        parse_values("#" * (YAML_TEXT_LIMIT + 1), "yaml")
