"""What is read straight is what the full reader reads, and nothing that it would speak of is read straight."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.codec.cases import CASES
from tests.codec.lax_cases import LAX, PLAIN, REFUSED, STRICT
from tests.codec.shape_files import load_shape, shape_names
from tests.codec.test_fuzz import damaged_resources
from tests.support.examples import examples
from xds.codec import schema
from xds.codec.findings import Findings
from xds.codec.naming import TYPE_KEY
from xds.codec.parse import MessageParser
from xds.codec.parse_fast import parse_fast
from xds.model.resource_type import CLUSTER, LISTENER, TYPE_PREFIX

STRUCT_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)
EDGES = [2**31 - 1, 2**31, 2**32 - 1, 2**32, -1, 1.0, 0.5, "7", " 7", "0x10", True, "true", None, [], {}, "", "\ud800"]

NOT_STRAIGHT = frozenset(("wasm",))  # a payload with a JSON form of its own


def read_both(value: Any) -> bool:
    """Whether the value is read straight; what is read so must be what the full reader reads without a word."""
    message_class = schema.message_class(value[TYPE_KEY]) if isinstance(value.get(TYPE_KEY), str) else None
    if message_class is None:
        return False
    straight, full, findings = message_class(), message_class(), Findings()
    if not parse_fast(straight, value):
        return False
    MessageParser(findings).read_fully(full, value, frozenset((TYPE_KEY,)))
    assert not findings.violations
    assert not findings.warnings
    assert straight.SerializeToString(deterministic=True) == full.SerializeToString(deterministic=True)
    return True


def of_cluster(inside: str) -> Any:
    return json.loads(f'{{"{TYPE_KEY}":"{CLUSTER}","name":"c",{inside}}}')


@pytest.mark.parametrize("name", CASES)
def test_cases(name: str) -> None:
    read_both(CASES[name])


@pytest.mark.parametrize("name", shape_names())
def test_shapes_are_read_straight(name: str) -> None:
    for resource in load_shape(name):
        assert read_both(resource) or name in NOT_STRAIGHT


@pytest.mark.parametrize("name", LAX)
def test_what_is_lax_is_not_read_straight(name: str) -> None:
    assert not read_both(of_cluster(LAX[name][0]))


def is_json(inside: str) -> bool:
    try:
        of_cluster(inside)
    except ValueError:
        return False
    return True


@pytest.mark.parametrize(
    "inside", [one for one in (*PLAIN.values(), *REFUSED.values(), *STRICT.values()) if is_json(one)]
)
def test_what_is_plain_or_refused(inside: str) -> None:
    read_both(of_cluster(inside))


@examples(400)
@given(damaged_resources())
def test_damaged_resources(value: Any) -> None:
    if isinstance(value, dict):
        read_both(value)


@examples(200)
@given(STRUCT_VALUES)
def test_free_forms(value: Any) -> None:
    read_both({TYPE_KEY: CLUSTER, "metadata": {"filter_metadata": {"a": {"b": value}}}})
    read_both({TYPE_KEY: CLUSTER, "metadata": {"filter_metadata": value}})


@pytest.mark.parametrize("edge", EDGES, ids=repr)
@pytest.mark.parametrize(
    "field",
    [
        "name",
        "type",
        "connect_timeout",
        "per_connection_buffer_limit_bytes",
        "ignore_health_on_host_removal",
        "filters",
    ],
)
def test_edges_of_fields(field: str, edge: Any) -> None:
    read_both({TYPE_KEY: CLUSTER, field: edge})


@pytest.mark.parametrize(
    "seconds", ["1s", "0s", "-1s", "1.5s", "999999999s", "999999999999s", "1", "1S", "\u0661s", "+1s"]
)
def test_durations(seconds: str) -> None:
    read_both({TYPE_KEY: CLUSTER, "connect_timeout": seconds})


def test_both_spellings_of_a_field_are_not_read_straight() -> None:
    assert read_both({TYPE_KEY: CLUSTER, "connectTimeout": "1s"})
    assert not read_both({TYPE_KEY: CLUSTER, "connectTimeout": "1s", "connect_timeout": "1s"})
    assert not read_both({TYPE_KEY: CLUSTER, "connect_timeout": "1s", "connectTimeout": "1s"})


def test_two_members_of_a_oneof_are_not_read_straight() -> None:
    assert not read_both({TYPE_KEY: CLUSTER, "type": "STATIC", "cluster_type": {"name": "x"}})


@pytest.mark.parametrize("levels", [10, 30, 60, 99, 120])
def test_nested_payloads_are_bounded_as_in_full(levels: int) -> None:
    """Each level is a listener within a matcher's action, within an Any: no parser's limit adds up over them."""
    value: dict[str, Any] = {TYPE_KEY: LISTENER, "name": "innermost"}
    for _ in range(levels):
        inner = {"name": "x", "typed_config": value}
        value = {TYPE_KEY: LISTENER, "listener_filters": [inner]}
    assert read_both(value) == (levels <= 10)


def test_a_payload_with_a_form_of_its_own_is_left_to_the_full_reader() -> None:
    duration = {TYPE_KEY: f"{TYPE_PREFIX}google.protobuf.Duration", "value": "1s"}
    assert not read_both({TYPE_KEY: CLUSTER, "metadata": {"typed_filter_metadata": {"a": duration}}})
    assert not read_both(duration)
