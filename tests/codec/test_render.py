"""Resources rendered, or stored, come back as they were."""

from __future__ import annotations

import json
from typing import Any

import pytest
from google.protobuf import json_format

from tests.codec.cases import CASES, T
from xds.codec import schema
from xds.codec.record import blob_id, dump_record, load_record
from xds.codec.render import render_resource
from xds.codec.resources import decode_resource, resource_from_bytes
from xds.model.errors import MalformedError
from xds.model.resource import Resource
from xds.model.resource_type import CLUSTER, ENDPOINT, EXTENSION_CONFIG, RUNTIME, VIRTUAL_HOST

HOST = decode_resource(CASES["virtual host"])
OPAQUE = resource_from_bytes("type.googleapis.com/my.Type", b"\x00\xff", name="n")

SPECIAL = {
    "ttl": resource_from_bytes(CLUSTER, decode_resource(CASES["wrappers and digits"]).body, ttl_s=1.25),
    "aliases": resource_from_bytes(VIRTUAL_HOST, HOST.body, name="r9/h", aliases=["r9/x", "r9/foo.com"]),
    "opaque": OPAQUE,
    "opaque with ttl": resource_from_bytes(OPAQUE.type_url, OPAQUE.body, name="n", ttl_s=3, aliases=["m"]),
    "no name of its own": resource_from_bytes(
        f"{T}envoy.config.endpoint.v3.LbEndpoint", b"\x10\x01", name="xdstp://a/b/c"
    ),
    "unknown fields": resource_from_bytes(CLUSTER, b"\x0a\x02c1\xfa\x3f\x02hi"),
    "unknown fields in an any": resource_from_bytes(EXTENSION_CONFIG, b"\x0a\x01e\x12\x05\xfa\x3f\x02hi"),
    "empty value in a struct": resource_from_bytes(RUNTIME, b"\x0a\x01r\x12\x07\x0a\x05\x0a\x01x\x12\x00"),
    "bytes of no type in an any": resource_from_bytes(
        CLUSTER, b"\x0a\x02c1\xca\x01\x09\x12\x07\x0a\x01f\x12\x02\x12\x00"
    ),
}
ALL: dict[str, Resource] = {name: decode_resource(value) for name, value in CASES.items()} | SPECIAL


@pytest.mark.parametrize("name", ALL)
def test_rendered_resources_read_back(name: str) -> None:
    rendered = json.loads(json.dumps(render_resource(ALL[name])))
    assert decode_resource(rendered) == ALL[name]


@pytest.mark.parametrize("name", CASES)
def test_known_resources_are_rendered_as_json_format_does(name: str) -> None:
    resource = ALL[name]
    message: Any = schema.require(resource.type_url).FromString(resource.body)
    expected = json_format.MessageToDict(message, preserving_proto_field_name=True, descriptor_pool=schema.pool())
    assert render_resource(resource) == {"@type": resource.type_url, **expected}


def test_single_precision_is_short() -> None:
    endpoint: Any = schema.require("envoy.config.cluster.v3.Cluster")(name="c")
    endpoint.metadata.filter_metadata["a"].update({"x": 0.1, "y": float(2**60)})
    rendered: Any = render_resource(resource_from_bytes(CLUSTER, endpoint.SerializeToString()))
    assert rendered["metadata"]["filter_metadata"]["a"] == {"x": 0.1, "y": float(2**60)}


def test_a_number_that_json_lacks_is_shown_as_bytes() -> None:
    runtime: Any = schema.require("envoy.service.runtime.v3.Runtime")(name="r")
    runtime.layer.fields["x"].number_value = float("inf")
    resource = resource_from_bytes(RUNTIME, runtime.SerializeToString())
    assert set(render_resource(resource)) == {"@type", "@value_base64"}
    assert decode_resource(render_resource(resource)) == resource


def test_an_unknown_nested_type_keeps_the_rest_readable() -> None:
    config = {"@type": "type.googleapis.com/my.Filter", "@value_base64": "AAEC"}
    value = {"@type": CLUSTER, "name": "c", "transport_socket": {"name": "x", "typed_config": config}}
    assert render_resource(decode_resource(value)) == value


@pytest.mark.parametrize("name", ALL)
def test_stored_resources_come_back(name: str) -> None:
    blob = dump_record(ALL[name])
    assert load_record(blob) == ALL[name]
    assert dump_record(load_record(blob)) == blob


@pytest.mark.parametrize("name", ["c", "n" * 127, "n" * 128, "é" * 9000, ""])
@pytest.mark.parametrize("size", [0, 1, 127, 128, 20_000])
def test_a_stored_blob_is_a_message_of_envoy(name: str, size: int) -> None:
    wrapper: Any = schema.require(schema.WRAPPER_TYPE)(name=name)
    wrapper.resource.type_url, wrapper.resource.value = CLUSTER, b"x" * size
    blob = dump_record(Resource(CLUSTER, name, b"x" * size, ""))
    assert blob == wrapper.SerializeToString(deterministic=True)


def test_stored_bytes_are_not_touched() -> None:
    """Another release's idea of canonical must not change what clients hold."""
    body = b"\x30\x03\x0a\x02c1"  # fields out of order
    stored = Resource(CLUSTER, "c1", body, "")
    loaded = load_record(dump_record(stored))
    assert loaded.body == body
    assert loaded.version == Resource(CLUSTER, "c1", body, loaded.version).version


def test_blob_ids() -> None:
    assert blob_id(b"") == "3345524abf6bbe1809449224b5972c41790b6cf2"
    assert len(blob_id(b"x")) == 40


@pytest.mark.parametrize("blob", [b"", b"\xff", b"\x1a\x01n", b"\x12\x03\x0a\x01t"])
def test_an_invalid_blob_is_refused(blob: bytes) -> None:
    with pytest.raises(MalformedError):
        load_record(blob)


def test_references_are_found_when_loaded() -> None:
    resource = ALL["cluster with tls and http2"]
    assert ENDPOINT in {one.type_url for one in load_record(dump_record(resource)).references}


def test_structs_are_rendered_in_one_order() -> None:
    """In memory their order differs from process to process: an export would differ without a change."""
    names = [f"{number * 7 % 50:02}" for number in range(50)]
    inner = {name: [dict.fromkeys(names, True)] for name in names}
    cluster = {"@type": CLUSTER, "name": "c", "type": "STATIC", "metadata": {"filter_metadata": {"f": inner}}}
    rendered: Any = render_resource(decode_resource(cluster))
    members = rendered["metadata"]["filter_metadata"]["f"]
    assert list(members) == sorted(names)
    assert list(members["00"][0]) == sorted(names)
