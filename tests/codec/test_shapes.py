"""Whole configurations: the same bytes as google.protobuf's own codec makes, and the same verdicts as Envoy's."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest

from tests.codec.envoy_pool import envoy_pool
from tests.codec.reference_bytes import body_of
from tests.codec.shape_files import NEWER, Json, bootstrap_of, load_shape, make_files, shape_names
from tests.codec.wrong_shapes import ACCEPTED, FORM, RULES
from tests.support.envoy import validate
from tools.proto.reference import run_reference
from xds.codec.resources import decode_resource
from xds.model.errors import ValidationError, Violation

REFERENCE_BYTES = Path(__file__).with_name("reference_bytes.py")


def _body(resource: Json) -> bytes:
    """A bootstrap has no name of its own."""
    named = "name" in resource or "cluster_name" in resource
    return decode_resource(resource, name="" if named else "unnamed").body


def _findings(resource: Json) -> list[Violation]:
    try:
        _body(resource)
    except ValidationError as error:
        return error.violations
    return []


def test_shapes_are_many() -> None:
    assert len(shape_names()) >= 60
    assert len(FORM) + len(RULES) >= 30


@pytest.fixture(scope="module")
def reference_bytes() -> dict[str, list[str | None]]:
    """The bytes of each shape's resources, in base64, over the classes of xds-protos; None for what it cannot read."""
    shapes = {name: load_shape(name) for name in shape_names()}
    asked = json.dumps([resource for resources in shapes.values() for resource in resources]).encode()
    bodies = iter(json.loads(run_reference(REFERENCE_BYTES, asked)))
    return {name: [next(bodies) for _ in resources] for name, resources in shapes.items()}


@pytest.mark.xdist_group("reference_bytes")
@pytest.mark.timeout(600)  # the first run installs xds-protos in an environment of its own
@pytest.mark.parametrize("name", shape_names())
def test_bytes_are_those_of_json_format(name: str, reference_bytes: dict[str, list[str | None]]) -> None:
    """xds-protos cannot read the newer shapes."""
    if name.startswith(NEWER):
        assert None in reference_bytes[name]
    else:
        assert [base64.b64encode(_body(resource)).decode() for resource in load_shape(name)] == reference_bytes[name]


def test_bytes_are_those_of_json_format_over_the_types_of_envoy() -> None:
    """Over the descriptors in Envoy's binary, those that this server knows from elsewhere left aside."""
    pool = envoy_pool()
    cases = [(name, resource) for name in shape_names() for resource in load_shape(name)]
    assert {name for name, resource in cases if _body(resource) != body_of(resource, pool)} == set()


def test_envoy_accepts_every_shape(tmp_path: Path) -> None:
    make_files(tmp_path)
    resources = [resource for name in shape_names() for resource in load_shape(name, tmp_path)]
    assert validate(bootstrap_of(resources), tmp_path) == ""


@pytest.mark.parametrize("name", sorted(FORM))
def test_wrong_form_is_refused_as_by_envoy(name: str, tmp_path: Path) -> None:
    resource, code, pointer = FORM[name]
    assert (code, True) in [(found.code, found.pointer == pointer or not pointer) for found in _findings(resource)]
    assert validate(bootstrap_of([resource]), tmp_path) != ""


@pytest.mark.parametrize("name", sorted(RULES))
def test_broken_rule_is_refused_as_by_envoy(name: str, tmp_path: Path) -> None:
    """Envoy says that it is a rule; ours is found at its place."""
    resource, code, pointer = RULES[name]
    assert (code, pointer) in [(found.code, found.pointer) for found in _findings(resource)]
    refusal = validate(bootstrap_of([resource]), tmp_path)
    assert any(words in refusal for words in ("constraint validation failed", "deprecated")), refusal


def test_messages_that_break_no_rule_are_accepted_as_by_envoy(tmp_path: Path) -> None:
    assert {name: found for name, resource in ACCEPTED.items() if (found := _findings(resource))} == {}
    renamed = [{**resource, "name": name} for name, resource in ACCEPTED.items()]
    for port, resource in enumerate(renamed, 1):
        if "address" in resource:
            resource["address"] = {"socket_address": {"address": "127.0.0.1", "port_value": port}}
    assert validate(bootstrap_of(renamed), tmp_path) == ""
