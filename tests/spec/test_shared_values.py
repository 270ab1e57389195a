"""What all streams share: sets that nobody writes to, and encoded parts, interests and requests kept beside them."""

from __future__ import annotations

import gc

import pytest

from tests.support.sansio import Client, Server, make_resource
from xds.model.resource_type import CLUSTER, ENDPOINT
from xds.model.snapshot import ResourceSet, Snapshot, build_snapshot, mix
from xds.proto import wire_pb2
from xds.protocol.decode import RequestDecoder
from xds.protocol.dialect import Variant
from xds.protocol.subscription import Subscription
from xds.snapshots.cache import SnapshotCache
from xds.snapshots.interest import InterestTable
from xds.snapshots.overlay import apply_overrides
from xds.snapshots.responses import PREPARED_FROM

MANY = {f"c{index}": "a" for index in range(PREPARED_FROM)}
FIELDS = ("id", "origin_id", "lineage_id", "version_info", "resources", "derivation", "digest", "anything")


def snapshot(revision: int, content: dict[str, str], previous: Snapshot | None = None) -> Snapshot:
    resources = [make_resource(CLUSTER, name, text) for name, text in content.items()]
    return build_snapshot("default", revision, resources, {CLUSTER: str(revision)}, previous)


def serve(cache: SnapshotCache, revision: int, content: dict[str, str]) -> Snapshot:
    """Push as the publisher does."""
    made = snapshot(revision, content, cache.get("default"))
    cache.set(made, precomputed=cache.precompute(made))
    return made


def test_a_resource_set_cannot_be_written_to() -> None:
    pushed = snapshot(1, {"a": "1", "b": "1"}).get(CLUSTER)
    earlier = snapshot(0, {"a": "0", "b": "1"}).get(CLUSTER)
    overlaid = apply_overrides(pushed, {"a": make_resource(CLUSTER, "a", "overlaid")})
    for held in (pushed, mix(pushed, earlier, ["a"]), overlaid):
        for name in FIELDS:
            with pytest.raises(AttributeError, match="immutable"):
                setattr(held, name, None)


def test_a_derived_set_records_its_derivation() -> None:
    pushed, earlier = (snapshot(revision, {"a": str(revision)}).get(CLUSTER) for revision in (2, 1))
    mixed = mix(pushed, earlier, ["a"])
    assert mixed.mixture is not None
    assert (mixed.mixture.base, mixed.mixture.earlier_names) == (pushed, frozenset({"a"}))
    assert mixed.version_info == f"2+{mixed.digest.hex()[:8]}"
    more = mix(pushed, snapshot(1, {"a": "2", "gone": "1"}).get(CLUSTER), ["gone"])
    assert (more.origin_id, mixed.origin_id) == (pushed.id, mixed.id)
    overlaid = apply_overrides(pushed, {"a": make_resource(CLUSTER, "a", "overlaid")})
    assert overlaid.overlaid == {"a": pushed.resources["a"].version}
    assert overlaid.version_info == f"2+{overlaid.digest.hex()[:8]}"


def test_the_digest_of_an_amended_set_is_that_of_its_content() -> None:
    base = snapshot(1, {f"c{index}": "1" for index in range(10)}).get(CLUSTER)
    put = {name: make_resource(CLUSTER, name, "2") for name in ("c1", "new")}
    made = base.amended("2", put, ["c2"])
    assert base.amended_digest(put, ["c2"]) == made.digest
    assert made.digest == ResourceSet(base.type, "2", dict(made.resources)).digest


def test_parts_of_large_sets_are_kept_beside_them() -> None:
    cache = SnapshotCache()
    first = serve(cache, 1, MANY).get(CLUSTER)
    assert cache.responses.parts_of(first).keys() == MANY.keys()
    small = serve(cache, 2, {"c1": "a"}).get(CLUSTER)
    assert not cache.responses.parts_of(small), "few resources are encoded when they are asked for"
    assert not cache.responses.parts_of(first), "what is replaced serves few clients"


def test_parts_do_not_grow_with_pushes_nor_stay_with_dropped_groups() -> None:
    cache = SnapshotCache()
    for revision in range(1, 30):
        serve(cache, revision, {**MANY, "c0": str(revision)})
        assert cache.responses.prepared_sets == 1
    cache.drop("default")
    assert cache.responses.prepared_sets == 0


def test_a_set_that_is_replaced_hands_its_parts_on() -> None:
    cache = SnapshotCache()
    resources = {name: make_resource(CLUSTER, name, text) for name, text in MANY.items()}
    old = build_snapshot("default", 1, resources.values(), {CLUSTER: "1"})
    cache.set(old, precomputed=cache.precompute(old))
    before = cache.responses.parts_of(old.get(CLUSTER))
    resources["c0"] = make_resource(CLUSTER, "c0", "b")
    new = build_snapshot("default", 2, resources.values(), {CLUSTER: "2"}, old)
    cache.set(new, precomputed=cache.precompute(new))
    after = cache.responses.parts_of(new.get(CLUSTER))
    assert [name for name in MANY if after[name] is not before[name]] == ["c0"]


@pytest.mark.parametrize("variant", Variant)
def test_a_hundred_clients_are_sent_the_same_bytes_object(variant: Variant) -> None:
    server = Server()
    server.cache.set(made := snapshot(1, MANY), precomputed=server.cache.precompute(made))
    bodies = []
    for index in range(100):
        client = Client(server, variant, peer=f"10.0.0.{index}:1")
        client.subscribe(CLUSTER)
        bodies.append(client.inbox[-1][0].body)
    assert len(set(map(id, bodies))) == 1


def test_equal_interests_are_one_object_and_are_dropped_with_their_streams() -> None:
    table, other = InterestTable(), InterestTable()
    names = frozenset({"a", "b"})
    first, second, apart = (Subscription(legacy_wildcard=True) for _ in range(3))
    for subscription, interests in ((first, table), (second, table), (apart, other)):
        subscription.replace(frozenset(names), interests)
    assert first.interest is second.interest
    assert first.interest is not apart.interest
    del first, second
    gc.collect()
    assert len(table) == 0
    assert len(other) == 1


def test_decoders_share_nothing() -> None:
    data = wire_pb2.DiscoveryRequest(type_url=ENDPOINT, resource_names=["a"]).SerializeToString()
    first, second = RequestDecoder(), RequestDecoder()
    assert first.decode_sotw(data) is first.decode_sotw(data)
    assert first.decode_sotw(data) == second.decode_sotw(data)
    assert first.decode_sotw(data) is not second.decode_sotw(data)


def test_clients_that_show_equal_versions_share_them() -> None:
    decoder = RequestDecoder()

    def shown(node_id: str, versions: dict[str, str]) -> object:
        message = wire_pb2.DeltaDiscoveryRequest(
            node=wire_pb2.Node(id=node_id).SerializeToString(), type_url=CLUSTER, initial_resource_versions=versions
        )
        return decoder.decode_delta(message.SerializeToString()).initial_versions

    assert shown("one", {"a": "1", "b": "2"}) is shown("two", {"b": "2", "a": "1"})
    assert shown("one", {"a": "1"}) == {"a": "1"}
    assert shown("one", {"a": "2"}) == {"a": "2"}


def test_names_without_a_resource_are_looked_up_in_each_set() -> None:
    cache, names = SnapshotCache("test"), frozenset(("a", "b"))
    before, after = snapshot(1, {"a": "1"}).get(CLUSTER), snapshot(2, {"a": "1", "b": "1"}).get(CLUSTER)
    for _ in range(2):
        assert cache.diffs.unknown(names, before) == {"b"}
        assert not cache.diffs.unknown(names, after)
