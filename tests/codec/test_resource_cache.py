"""Resources that are pushed again are not read again, and nobody can tell."""

from __future__ import annotations

import gc
import json
from typing import Any

import pytest

from xds.codec.resource_reader import ResourceCache
from xds.codec.resources import ResourceDecoder
from xds.model.errors import ValidationError
from xds.model.resource import Resource
from xds.model.resource_type import CLUSTER
from xds.proto import wire_pb2

WRAPPER = "type.googleapis.com/envoy.service.discovery.v3.Resource"


DECODER = ResourceDecoder()


def read(*values: dict[str, Any]) -> Any:
    return DECODER.document(json.dumps({"resources": values}).encode(), "json")


def cluster(name: str, **more: Any) -> dict[str, Any]:
    return {"@type": CLUSTER, "name": name, "connect_timeout": "1s", **more}


def test_the_same_content_is_the_same_object_in_both_forms() -> None:
    (first,) = read(cluster("an-interned-one")).resources
    (second,) = read(cluster("an-interned-one")).resources
    assert second is first
    response = wire_pb2.DiscoveryResponse()
    response.resources.add(type_url=CLUSTER, value=first.body)
    (third,) = DECODER.document(response.SerializeToString(), "protobuf").resources
    assert third is first


def test_two_decoders_share_nothing() -> None:
    body = json.dumps({"resources": [cluster("a-lone-one")]})
    (first,), (second,) = (ResourceDecoder().document(body, "json").resources for _ in range(2))
    assert first == second
    assert first is not second


def test_a_cached_resource_is_dropped_with_its_last_user() -> None:
    cache = ResourceCache()
    body = b"the bytes"
    resource = Resource(CLUSTER, "a", body, "1")
    cache.add(resource)
    assert cache.get(CLUSTER, body) is resource
    del resource
    gc.collect()
    assert cache.get(CLUSTER, body) is None


def test_the_end_of_an_older_one_takes_no_newer_one_along() -> None:
    cache, body = ResourceCache(), b"the bytes of both"
    older, newer = (Resource(CLUSTER, "a", body, version) for version in ("1", "2"))
    cache.add(older)
    cache.add(newer)
    del older
    gc.collect()
    assert cache.get(CLUSTER, body) is newer


def test_warnings_come_each_time() -> None:
    value = cluster("a-deprecated-one", max_requests_per_connection=5)
    assert [one.code for one in read(value).warnings] == ["deprecated_field"]
    assert [one.code for one in read(value).warnings] == ["deprecated_field"]


def test_fields_outside_of_the_message_count() -> None:
    plain = cluster("a-wrapped-one")
    (bare,) = read(plain).resources
    (wrapped,) = read({"@type": WRAPPER, "name": "a-wrapped-one", "ttl": "5s", "resource": plain}).resources
    assert (bare.ttl_s, wrapped.ttl_s) == (None, 5.0)
    assert bare.body == wrapped.body
    assert read(plain).resources[0] is bare


def test_a_smaller_limit_still_holds() -> None:
    (held,) = read(cluster("a-large-one", alt_stat_name="x" * 1000)).resources
    with pytest.raises(ValidationError) as caught:
        document = {"resources": [cluster("a-large-one", alt_stat_name="x" * 1000)]}
        ResourceDecoder(500).document(json.dumps(document), "json")
    assert [one.code for one in caught.value.violations] == ["too_large"]
    assert held.name == "a-large-one"


def test_two_of_one_name_are_still_an_error() -> None:
    (held,) = read(cluster("a-twin")).resources
    with pytest.raises(ValidationError) as caught:
        read(cluster("a-twin"), cluster("a-twin"))
    assert [one.code for one in caught.value.violations] == ["duplicate_name"]
    assert held.name == "a-twin"
