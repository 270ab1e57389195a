"""The JSON Schemas: they take what the server takes in its plain form, and refuse what it refuses."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import jsonschema_rs
import pytest

from tests.codec.cases import CASES
from xds.codec.json_schema import resource_schema, snapshot_schema
from xds.codec.render import render_resource
from xds.codec.resources import decode_document
from xds.model.resource_type import V3_TYPES, type_url_of

CLUSTER = type_url_of("clusters")
SIZE_LIMIT = 4 << 20


@cache
def validator(type_url: str) -> Any:
    found = resource_schema(type_url)
    assert found is not None
    return jsonschema_rs.validator_for(found)


@pytest.mark.parametrize("rule", V3_TYPES, ids=lambda rule: rule.alias)
def test_each_type_has_a_valid_schema_of_bounded_size(rule: Any) -> None:
    found = resource_schema(rule.type_url)
    assert found is not None
    assert jsonschema_rs.meta.is_valid(found)
    assert len(json.dumps(found)) < SIZE_LIMIT


@pytest.mark.parametrize("case", CASES)
def test_answers_of_the_server_match_the_schema(case: str) -> None:
    [resource] = decode_document(json.dumps({"resources": [CASES[case]]})).resources
    document = {key: value for key, value in render_resource(resource).items() if key != "@name"}
    errors = [f"{error.instance_path}: {error.message}" for error in validator(document["@type"]).iter_errors(document)]
    assert errors == []


@pytest.mark.parametrize(
    "wrong",
    [
        {"nam": "a"},
        {"name": 7},
        {"connect_timeout": "5"},
        {"connect_timeout": 5},
        {"type": "STRICT"},
        {"lb_policy": []},
        {"type": "EDS", "cluster_type": {"name": "x"}},
        {"load_assignment": {"endpoints": {}}},
        {"circuit_breakers": {"thresholds": [{"max_connections": -1}]}},
        {"transport_socket": {"name": "tls", "typed_config": {"sni": "a"}}},
        {"@type": "type.googleapis.com/envoy.config.listener.v3.Listener"},
    ],
)
def test_invalid_documents_do_not_match_the_schema(wrong: dict[str, Any]) -> None:
    assert not validator(CLUSTER).is_valid({"@type": CLUSTER, "name": "a", **wrong})


@pytest.mark.parametrize(
    "right",
    [
        {},
        {"connectTimeout": "5s"},
        {"connect_timeout": "0.25s", "type": "EDS", "lb_policy": 1},
        {"circuit_breakers": {"thresholds": [{"max_connections": 5, "retry_budget": {}}]}},
        {"typed_extension_protocol_options": {"x": {"@type": "type.googleapis.com/made.up.Type", "any": "thing"}}},
        {"metadata": {"filter_metadata": {"a": {"b": [1, None]}}}},
    ],
)
def test_valid_documents_match_the_schema(right: dict[str, Any]) -> None:
    assert validator(CLUSTER).is_valid({"@type": CLUSTER, "name": "a", **right})


def test_a_whole_push_has_one() -> None:
    check = jsonschema_rs.validator_for(snapshot_schema())
    cluster = {"@type": CLUSTER, "name": "a"}
    assert check.is_valid({"resources": [cluster, {"@type": "type.googleapis.com/made.up.Type", "x": 1}]})
    assert not check.is_valid({"resources": [{**cluster, "nam": "b"}]})
    assert not check.is_valid({"resources": [{"name": "a"}]})
    assert not check.is_valid([])


def test_deprecated_fields_are_marked() -> None:
    found = resource_schema(CLUSTER)
    assert found is not None
    assert found["$defs"]["envoy.config.cluster.v3.Cluster"]["properties"]["http2_protocol_options"]["deprecated"]


def test_an_unknown_type_has_no_schema() -> None:
    assert resource_schema("made.up.Type") is None
