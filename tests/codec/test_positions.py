"""From a resource and a pointer back to a line and a column of the text."""

from __future__ import annotations

import json

import pytest

from xds.codec.document import TextFormat, parse_document
from xds.codec.positions import locate
from xds.codec.resources import decode_document
from xds.model.errors import MalformedError, ValidationError, Violation

YAML = """\
# a comment
version: v1
resources:
- name: a
  inner: {deep: [1, {x: 2}]}

- "quoted": 1
  block: |
    text: no key
  after: &anchor
    y: 1
  alias: *anchor
  single: {z: 1}
  fooBar: 2
---
---
[{q: 1}, {r: 2}]
---
"@type": T
s:
  - t: 1
"""
IGNORED = """
resources:
- !ignore name: {x: 1}
  name: a
  !ignore inner: {deep: 1}
  inner:
    deep: 2
"""
JSON = """
{"other": {"resources": [1]}, "version": "]\\"}", "resources": [
  {"a": [[], {"b": "\\u007d", "c": 1}],
   "fooBar": {"x": null}},
  5, [],
  {"foo_bar": 1, "fooBar": 2, "a/b": {"~": 0}, "\\u0061": 3}
]}
"""


def _place(text: str, format: TextFormat, index: int, pointer: str) -> str:
    document = parse_document(text.replace('"other": {"resources": [1]}, ', ""), format, "f")
    (found,) = locate(document.layout, [Violation("", "", pointer=pointer, index=index)])
    return found.source


@pytest.mark.parametrize(
    ("index", "pointer", "place"),
    [
        (0, "", "4:3"),
        (0, "/name", "4:3"),
        (0, "/inner/deep/1/x", "5:22"),
        (0, "/inner/deep/0", "5:18"),
        (0, "/inner/missing/x", "5:3"),
        (1, "/quoted", "7:3"),
        (1, "/block", "8:3"),
        (1, "/after/y", "11:5"),
        (1, "/alias/y", "12:3"),
        (1, "/single/0/z", "13:12"),
        (1, "/foo_bar", "14:3"),
        (2, "/q", "17:3"),
        (3, "/r", "17:11"),
        (4, "/s/0/t", "21:5"),
        (4, "/@type", "19:1"),
        (99, "/x", "1:1"),
    ],
)
def test_places_in_yaml(index: int, pointer: str, place: str) -> None:
    if index == 99:  # of no resource there is: the beginning of the text, behind its comment
        place = "2:1"
    assert _place(YAML, "yaml", index, pointer) == f"f:{place}"


@pytest.mark.parametrize(("pointer", "place"), [("/name", "4:3"), ("/inner/deep", "7:5")])
def test_a_place_is_never_in_an_ignored_part(pointer: str, place: str) -> None:
    assert _place(IGNORED, "yaml", 0, pointer) == f"f:{place}"


@pytest.mark.parametrize(
    ("index", "pointer", "words"),
    [
        (0, "", '{"a": [['),
        (0, "/a/1/c", '"c": 1'),
        (0, "/a/0/x", "[], {"),
        (0, "/foo_bar/x", '"x": null'),
        (1, "/x", "5, []"),
        (3, "/foo_bar", '"foo_bar": 1'),
        (3, "/fooBar", '"fooBar": 2'),
        (3, "/a~1b/~0", '"~": 0'),
        (3, "/a", '"\\u0061"'),
    ],
)
def test_places_in_json(index: int, pointer: str, words: str) -> None:
    text = JSON.replace('"other": {"resources": [1]}, ', "")
    offset = text.index(words)
    line, column = text.count("\n", 0, offset) + 1, offset - text.rfind("\n", 0, offset)
    assert _place(JSON, "json", index, pointer) == f"f:{line}:{column}"


def test_json_has_the_places_of_yaml() -> None:
    """JSON is YAML: both walks must agree."""
    value = [{"name": f"n{index}", "list": [{"k": index, "own": [[1], {"m": {}}]}]} for index in range(5)]
    text = json.dumps({"resources": value}, indent=2)
    wanted = [
        Violation("", "", pointer=pointer, index=index)
        for index in range(5)
        for pointer in ("", "/name", "/list/0", "/list/0/own/1/m", "/list/0/own/0/0", "/list/3", "/nothing")
    ]
    one, other = (locate(parse_document(text, format).layout, wanted) for format in ("json", "yaml"))
    assert [found.source for found in one] == [found.source for found in other]
    assert len({found.source for found in one}) == 30


@pytest.mark.parametrize(
    ("text", "source"),
    [
        ('{"resources": [],\n "resuorces": []}', "2:2"),
        ("resources: []\nversions: {clusters: 1}\n", "2:12"),
        ("resources: []\n---\nversion: 5\nresources: []\n", "3:1"),
        ("resources: 5\n", "1:1"),
    ],
)
def test_errors_around_the_resources_have_a_place(text: str, source: str) -> None:
    with pytest.raises(ValidationError) as caught:
        decode_document(text)
    assert [found.source for found in caught.value.violations] == [source]


def test_a_resource_in_a_wrapper_is_placed_within_it() -> None:
    text = """\
- "@type": type.googleapis.com/envoy.service.discovery.v3.Resource
  name: w
  resource:
    "@type": type.googleapis.com/envoy.config.route.v3.RouteConfiguration
    name: w
    virtualHosts:
    - name: v
      domains: []
"""
    with pytest.raises(ValidationError) as caught:
        decode_document(text)
    (violation,) = caught.value.violations
    assert (violation.pointer, violation.source) == ("/resource/virtual_hosts/0/domains", "8:7")


@pytest.mark.parametrize(
    ("text", "place"),
    [("\x01", "1:1"), ("a: é\x01", "1:5"), ("a: 1\r\nb\x01", "2:2"), ("\u2028\u0085\n\x01", "4:1")],
)
def test_a_control_character_stands_where_yaml_counts_it(text: str, place: str) -> None:
    with pytest.raises(MalformedError) as caught:
        parse_document(text, "yaml")
    assert [violation.source for violation in caught.value.violations] == [place]
