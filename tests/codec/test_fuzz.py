"""Whatever comes in, what comes out is a resource that survives, or one of our errors."""

from __future__ import annotations

import json
import re
from contextlib import suppress
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from tests.codec.cases import CASES
from tests.support.examples import examples
from xds.codec.downgrade import downgrade
from xds.codec.record import dump_record, load_record
from xds.codec.render import render_resource
from xds.codec.resources import decode_document, decode_resource, resource_from_bytes
from xds.model.errors import ValidationError, Violation
from xds.model.resource import Resource
from xds.model.resource_type import V3_TYPES

SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=8),
    st.sampled_from(["1s", "AUTO", "aGk=", "ads", "type.googleapis.com/google.protobuf.Struct", "true", "-1"]),
)
JSON = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=10,
)
TYPE_URLS = st.sampled_from([one.type_url for one in V3_TYPES])


def _paths(value: object, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    items: list[tuple[Any, object]] = []
    if isinstance(value, dict):
        items = list(value.items())
    elif isinstance(value, list):
        items = list(enumerate(value))
    return [path] + [found for key, item in items for found in _paths(item, (*path, key))]


def _replaced(value: Any, path: tuple[Any, ...], new: object) -> Any:
    if not path:
        return new
    copy = dict(value) if isinstance(value, dict) else list(value)
    copy[path[0]] = _replaced(value[path[0]], path[1:], new)
    return copy


@st.composite
def damaged_resources(draw: st.DrawFn) -> object:
    """A valid resource with one of its values replaced."""
    value = CASES[draw(st.sampled_from(sorted(CASES)))]
    return _replaced(value, draw(st.sampled_from(_paths(value))), draw(JSON))


def _check(resource: Resource) -> None:
    assert decode_resource(json.loads(json.dumps(render_resource(resource)))) == resource
    assert load_record(dump_record(resource)) == resource
    downgrade(resource)


@examples(300)
@given(damaged_resources())
def test_damaged_resources(value: object) -> None:
    with suppress(ValidationError):
        _check(decode_resource(value))


def _is_placed(body: bytes | str, violation: Violation) -> bool:
    """A line and a column that the text has; the end of it included."""
    found = re.fullmatch(r"([0-9]+):([0-9]+)", violation.source)
    text = body if isinstance(body, str) else body.decode("utf-8-sig", "replace")
    lines = re.split(r"\r\n|[\n\r\x85\u2028\u2029]", text)
    return found is not None and 1 <= int(found[1]) <= len(lines) + 1 and 1 <= int(found[2]) <= max(map(len, lines)) + 2


def _decode(body: bytes | str, media: Any) -> None:
    """What is wrong with a text has a place in it, unless there is nothing in it at all."""
    try:
        decode_document(body, media)
    except ValidationError as error:
        assert media == "protobuf" or all(
            _is_placed(body, one) or one.detail == "empty document" for one in error.violations
        ), error.violations


@example(b"\x00\x00\r\x00\x80", "json")
@examples(200)
@given(st.binary(max_size=60) | st.text(max_size=60), st.sampled_from(["json", "yaml", "auto", "protobuf"]))
def test_random_documents(body: bytes | str, media: Any) -> None:
    _decode(body, media)


@examples(200)
@given(JSON, st.sampled_from(["json", "yaml", "auto"]))
def test_random_json_documents(value: object, media: Any) -> None:
    _decode(json.dumps({"resources": value}), media)


@examples(200)
@given(st.lists(damaged_resources(), max_size=3), st.sampled_from(["json", "yaml", "auto"]), st.sampled_from([None, 1]))
def test_damaged_documents(values: list[object], media: Any, indent: int | None) -> None:
    _decode(json.dumps({"resources": values}, indent=indent), media)


@examples(200)
@given(st.text(alphabet=" \n:-[]{}&*!|>'\"#%@,?ab01~<=.", max_size=60))
def test_random_yaml(text: str) -> None:
    _decode(text, "yaml")


@examples(100)
@given(st.sampled_from(sorted(CASES)), st.data())
def test_damaged_text(name: str, data: st.DataObject) -> None:
    text = json.dumps([CASES[name]], indent=1)
    at = data.draw(st.integers(0, len(text)))
    _decode(
        text[:at] + data.draw(st.sampled_from(['"', "}", "[", ",", "NaN", "1e999", "\x00", "\\"])) + text[at:], "json"
    )


@examples(300)
@given(TYPE_URLS, st.binary(max_size=60))
def test_random_bytes_as_resources(type_url: str, body: bytes) -> None:
    with suppress(ValidationError):
        _check(resource_from_bytes(type_url, body))


@examples(200)
@given(st.sampled_from(sorted(CASES)), st.data())
def test_damaged_bytes_as_resources(name: str, data: st.DataObject) -> None:
    resource = decode_resource(CASES[name])
    body = bytearray(resource.body)
    place = data.draw(st.integers(0, len(body) - 1))
    body[place] = data.draw(st.integers(0, 255))
    with suppress(ValidationError):
        _check(resource_from_bytes(resource.type_url, bytes(body)))
