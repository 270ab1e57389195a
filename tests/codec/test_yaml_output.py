"""What is written as YAML is read back as the very same values, and can be read by a person."""

from __future__ import annotations

import json
import random

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from tests.support.examples import examples
from xds.codec.text import parse_yaml, to_yaml

PEM = "-----BEGIN CERTIFICATE-----\nMIIB\ndef==\n-----END CERTIFICATE-----\n"
LUA = "function envoy_on_request(handle)\n  -- a: comment\n\n\tlocal n = 1\n  return n\nend"
# Other YAML readers take these for numbers if they are not quoted (docs/internals/design.md#codec).
LIKE_NUMBERS = ["12e03", "70696e67", "50494E47", "1e3", "1.5e3", "0o17", "08", "0123456789", "-.9", "0x1f", "+7"]
LIKE_OTHER_THINGS = [
    "",
    "~",
    "null",
    "yes",
    "no",
    "on",
    "true",
    "1:20",
    "2001-01-01",
    "=",
    "<<",
    ".inf",
    ".nan",
    "1_000",
]

marked = st.sampled_from(" \t\n\r#:-?|>'\"{}[],&*!%@`ab0eE.x_\u2028\ue009\ufeff\x85\x00\x7f~ü😀")
texts = st.text(marked | st.characters(exclude_categories=["Cs"]))
scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | texts
    | st.sampled_from(LIKE_NUMBERS + LIKE_OTHER_THINGS)
)
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4), max_leaves=8
)


def same(left: object, right: object) -> bool:
    """Equal, and of the same types: ``1``, ``1.0`` and ``True`` differ."""
    return json.dumps(left) == json.dumps(right)


@pytest.mark.parametrize("count", [6_000, pytest.param(60_000, marks=pytest.mark.soak)])
def test_random_strings_stay_strings(count: int) -> None:
    source = random.Random(0)
    made = ["".join(source.choices("0123456789abcdefeE+-._xo", k=source.randint(1, 12))) for _ in range(count)]
    assert parse_yaml(to_yaml(made)) == [made]
    assert parse_yaml(to_yaml(dict.fromkeys(made))) == [dict.fromkeys(made)]


@pytest.mark.parametrize("text", LIKE_NUMBERS + LIKE_OTHER_THINGS)
def test_strings_that_look_like_other_types_are_read_as_strings_by_both_versions(text: str) -> None:
    written = to_yaml({"a": text})
    assert parse_yaml(written) == [{"a": text}]
    assert yaml.safe_load(written) == {"a": text}


@examples(100, in_soak=5_000)
@given(values)
def test_every_value_comes_back(value: object) -> None:
    (read,) = parse_yaml(to_yaml(value))
    assert same(read, value)


@pytest.mark.parametrize("text", [PEM, LUA, "ü\n", "a\n\n\n", "- a\n- b\n", "a # b\nc: d"])
def test_lines_are_written_as_a_block(text: str) -> None:
    written = to_yaml({"resources": [{"inline_string": text}, [text]]})
    assert "inline_string: |" in written
    for line in filter(None, text.split("\n")):
        assert written.count(f"  {line}\n") == 2, "each line stands there as it is"
    assert parse_yaml(written) == [{"resources": [{"inline_string": text}, [text]]}]
    assert yaml.safe_load(written) == {"resources": [{"inline_string": text}, [text]]}


@pytest.mark.parametrize(
    "text", [" a\nb", "a \nb", "a\n b ", "\na", "a\r\nb", "\ta\nb", "\ufeffa\nb", "a\u2028b\nc", "\n"]
)
def test_lines_that_a_block_would_change_are_quoted(text: str) -> None:
    assert "|" not in to_yaml({"a": text})
    assert parse_yaml(to_yaml({"a": text})) == [{"a": text}]


def test_a_tab_may_be_in_the_document() -> None:
    document = {"a": "x\n\ty", "b": "\ue009"}
    assert parse_yaml(to_yaml(document)) == [document]


def test_a_value_that_occurs_twice_is_written_twice() -> None:
    shared = {"address": "127.0.0.1"}
    assert "&" not in to_yaml([shared, shared])
