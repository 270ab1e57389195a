"""What is passed by its bytes breaks no rule: `check_constraints` has nothing to say of it."""

from __future__ import annotations

import random
from typing import Any

import pytest
from google.protobuf.descriptor import FieldDescriptor

from bench.pushes import assignment, cluster
from tests.codec.shape_files import load_shape, shape_names
from tests.codec.wrong_shapes import RULES
from xds.codec import schema, validate_fast
from xds.codec.findings import Findings
from xds.codec.parse import MessageParser
from xds.codec.resources import decode_resource
from xds.codec.validate import check_constraints
from xds.codec.validate_fast import FastValidator
from xds.model.errors import ValidationError
from xds.model.resource import Resource
from xds.proto import field_options

TYPE = "type.googleapis.com/"
TEXTS = ("", "a", "10.0.0.1", "a b", "x\ny", "x" * 300, "ü")
NUMBERS = (0, 1, 2, 79, 100, 101, 65535, 65536, 2**31 - 1)
DEPTH = 4
VALIDATOR = FastValidator()
WORTH_A_FIELD = 0.4


def says(message: Any) -> list[Any]:
    """What the full check says."""
    findings = Findings()
    check_constraints(message, findings)
    return [*findings.violations, *findings.warnings]


def verdict(message: Any) -> bool:
    """That by the bytes, compared with what the full check says."""
    body = message.SerializeToString(deterministic=True)
    passed = VALIDATOR.is_surely_valid(message.DESCRIPTOR, body)
    if passed:
        assert says(type(message).FromString(body)) == [], message
    return passed


def scalar(field: FieldDescriptor, chance: random.Random) -> Any:
    match field.cpp_type:
        case FieldDescriptor.CPPTYPE_STRING:
            text = chance.choice(TEXTS)
            return text.encode() if field.type == FieldDescriptor.TYPE_BYTES else text
        case FieldDescriptor.CPPTYPE_BOOL:
            return chance.random() < 0.5
        case FieldDescriptor.CPPTYPE_FLOAT | FieldDescriptor.CPPTYPE_DOUBLE:
            return float(chance.choice(NUMBERS))
        case FieldDescriptor.CPPTYPE_UINT32 | FieldDescriptor.CPPTYPE_UINT64:
            return chance.choice((*NUMBERS, 2**32 - 1))
        case FieldDescriptor.CPPTYPE_ENUM:
            assert field.enum_type is not None
            return chance.choice(
                ([value.number for value in field.enum_type.values], NUMBERS, (-1,))[chance.randrange(3)]
            )
    return chance.choice((*NUMBERS, -1, -(2**31)))


def fill(message: Any, chance: random.Random, depth: int = 0) -> None:
    """Set some of the fields to something."""
    for field in message.DESCRIPTOR.fields:
        if chance.random() > WORTH_A_FIELD:
            continue
        if field.message_type is None:
            if field.is_repeated:
                getattr(message, field.name).extend(scalar(field, chance) for _ in range(chance.randrange(3)))
            else:
                setattr(message, field.name, scalar(field, chance))
        elif depth < DEPTH:
            held = getattr(message, field.name)
            if field.message_type.GetOptions().map_entry:
                fill_map(held, field.message_type.fields_by_name, chance, depth)
            elif field.is_repeated:
                for _ in range(chance.randrange(3)):
                    fill(held.add(), chance, depth + 1)
            else:
                held.SetInParent()
                fill(held, chance, depth + 1)


def fill_map(held: Any, entry: Any, chance: random.Random, depth: int) -> None:
    for _ in range(chance.randrange(3)):
        key = scalar(entry["key"], chance)
        if entry["value"].message_type is None:
            held[key] = scalar(entry["value"], chance)
        else:
            fill(held[key], chance, depth + 1)


def test_random_messages_of_every_type_with_rules() -> None:
    chance = random.Random(5)
    passed = failed = 0
    for name in field_options.messages():
        message_class = schema.message_class(name)
        for _ in range(3 if message_class is not None else 0):
            assert message_class is not None
            message = message_class()
            fill(message, chance)
            passes = verdict(message)
            passed += passes
            failed += bool(not passes and says(message))
    assert passed > 200
    assert failed > 200


def resources_of(shape: str) -> list[Resource]:
    found = []
    for value in load_shape(shape):
        try:
            found.append(decode_resource(value))
        except ValidationError:  # some are of a newer schema
            continue
    return found


@pytest.mark.parametrize("shape", shape_names())
def test_shapes_and_what_is_left_of_them_without_a_field(shape: str) -> None:
    for resource in resources_of(shape):
        message_class = schema.require(resource.type_url.rpartition("/")[2])
        verdict(message_class.FromString(resource.body))
        for field, _ in message_class.FromString(resource.body).ListFields():
            lesser = message_class.FromString(resource.body)
            lesser.ClearField(field.name)
            verdict(lesser)


@pytest.mark.parametrize("name", RULES)
def test_a_message_that_breaks_a_rule_is_never_passed(name: str) -> None:
    value, _, _ = RULES[name]
    message, findings = schema.require(value["@type"].rpartition("/")[2])(), Findings()
    MessageParser(findings).read(message, value, frozenset(("@type",)))
    if not findings.violations:
        assert says(message)
        assert not verdict(message)


def test_clusters_and_their_assignments_are_passed() -> None:
    for value in (cluster(1), assignment(1, 3)):
        resource = decode_resource(value)
        assert verdict(schema.require(resource.type_url.rpartition("/")[2]).FromString(resource.body))


def test_the_same_bytes_are_judged_by_their_type() -> None:
    """An empty header needs a key, an empty address a kind; both are empty bytes, which other types may be."""
    for name, passes in (("Locality", True), ("HeaderValue", False), ("Address", False)):
        descriptor = schema.require(f"envoy.config.core.v3.{name}").DESCRIPTOR
        assert VALIDATOR.is_surely_valid(descriptor, b"") is passes


def test_the_memory_of_valid_messages_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(validate_fast, "REMEMBERED_LIMIT", VALIDATOR.remembered + 5)
    for edition in range(40):
        resource = decode_resource(assignment(edition % 3, 1000 + edition))
        descriptor = schema.require(resource.type_url.rpartition("/")[2]).DESCRIPTOR
        assert VALIDATOR.is_surely_valid(descriptor, resource.body)
        assert VALIDATOR.remembered <= validate_fast.REMEMBERED_LIMIT


@pytest.mark.parametrize("is_packing", [False, True])
def test_messages_with_a_packed_message_are_validated_each_time(is_packing: bool) -> None:
    """A type that is made known later may have rules."""
    message: Any = schema.require("envoy.config.cluster.v3.Cluster")(name="c")
    part = message.transport_socket if is_packing else message.outlier_detection
    if is_packing:
        part.name = "packing.test"
        part.typed_config.type_url = "type.googleapis.com/yet.unknown"
    else:
        part.consecutive_5xx.value = 1234
    assert verdict(message)
    body = part.SerializeToString(deterministic=True)
    assert VALIDATOR.remembers(body) is not is_packing


@pytest.mark.parametrize(("text", "passes"), [(b"", False), (b"a", True), ("ü".encode(), True), (b"\xff", False)])
def test_a_text_that_must_not_be_empty(text: bytes, passes: bool) -> None:
    body = b"\x0a" + bytes((len(text),)) + text
    assert (
        VALIDATOR.is_surely_valid(schema.require("envoy.config.endpoint.v3.ClusterLoadAssignment").DESCRIPTOR, body)
        is passes
    )


@pytest.mark.parametrize("body", [b"\x0a", b"\x0a\x05ab", b"\xff" * 12, b"\x0a\x02\xff\xfe", b"\x0b\x0c"])
def test_bytes_of_no_message_are_left_to_others(body: bytes) -> None:
    assert not VALIDATOR.is_surely_valid(
        schema.require("envoy.config.endpoint.v3.ClusterLoadAssignment").DESCRIPTOR, body
    )
