"""The blobs and lines that a push gives to the store, whatever the group holds already."""

from __future__ import annotations

from typing import Any

from tests.support.plane import Plane
from xds.codec.record import dump_record
from xds.codec.resources import decode_resource
from xds.model.resource import Resource
from xds.model.resource_type import CLUSTER, LISTENER
from xds.model.snapshot import Change
from xds.push.content import encode_resources
from xds.store.base import FullSet, GroupPush


def cluster(name: str, **more: Any) -> Resource:
    return decode_resource({"@type": CLUSTER, "name": name, "connect_timeout": "3s", **more})


async def test_a_known_resource_is_encoded_like_a_new_one(plane: Plane) -> None:
    kept, changed = cluster("kept"), cluster("changed")
    await plane.publisher.push("g", [kept, changed])
    pushed = [kept, cluster("changed", alt_stat_name="x"), cluster("added")]
    entries, blobs = encode_resources(pushed, plane.publisher.groups.content("g"))
    assert (entries, dict(blobs)) == (encode_resources(pushed)[0], dict(encode_resources(pushed)[1]))
    assert [blobs[entry.blob_id] for entry in entries] == [dump_record(one) for one in pushed]
    assert len(blobs) == 3
    assert "no blob" not in blobs


async def test_a_blob_is_recognised_by_its_content_and_not_by_its_name(plane: Plane) -> None:
    await plane.publisher.push("g", [cluster("c")])
    other = cluster("c", alt_stat_name="x")
    ((entry,), blobs) = encode_resources([other], plane.publisher.groups.content("g"))
    assert blobs[entry.blob_id] == dump_record(other)


async def test_sets_in_which_nothing_changes_are_kept(plane: Plane) -> None:
    names = [f"c{index}" for index in range(400)]
    listener = decode_resource({"@type": LISTENER, "name": "l", "internal_listener": {}, "default_filter_chain": {}})
    await plane.publisher.push("g", [*map(cluster, names), listener])
    before = plane.publisher.groups.content("g").snapshot
    again = [cluster(name, alt_stat_name="x") if index % 3 else cluster(name) for index, name in enumerate(names)]
    result = await plane.publisher.push("g", [*again, listener])
    after = plane.publisher.groups.content("g").snapshot
    assert after.get(LISTENER) is before.get(LISTENER)
    assert result.changes == {"clusters": Change(changed=tuple(one for n, one in enumerate(names) if n % 3))}
    assert list(after.get(CLUSTER).resources.values()) == again


async def test_blobs_that_the_store_lost_meanwhile_are_given_again(plane: Plane) -> None:
    """The store may have deleted the base of a push before the push is committed."""
    kept = cluster("kept")
    await plane.publisher.push("g", [kept])
    entries, blobs = encode_resources([kept], plane.publisher.groups.content("g"))
    fresh = Plane().store
    await fresh.open()
    await fresh.commit_all([GroupPush("g", FullSet(entries, blobs))], push_id="p")
    assert await fresh.blobs([entries[0].blob_id]) == {entries[0].blob_id: dump_record(kept)}
    await fresh.close()
