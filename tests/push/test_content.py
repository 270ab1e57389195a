"""Amended contents equal newly built ones, at the cost of what changed."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xds.model.resource import Reference, Resource, content_version
from xds.model.resource_type import CLUSTER, ENDPOINT
from xds.model.snapshot import ResourceSet, Snapshot, amend_snapshot, build_snapshot, content_digest, diff, mix
from xds.protocol.delta import DELTA
from xds.push.content import BlobIds, changes
from xds.snapshots.cache import SnapshotCache, precompute
from xds.snapshots.content import ResponseKey
from xds.snapshots.interest import Interest
from xds.snapshots.responses import NO_PARTS, PREPARED_FROM, PartsByName, ResponseBuilder, prepare_parts

NAMES = st.sampled_from([f"c{index}" for index in range(6)])
EDITS = st.lists(st.tuples(NAMES, st.one_of(st.none(), st.integers(0, 2))), max_size=12)


def resource(name: str, edition: int) -> Resource:
    body = f"{name}:{edition}".encode()
    return Resource(CLUSTER, name, body, content_version(body), aliases=(f"alias-{edition}",) if edition else ())


def edited(snapshot: Snapshot, name: str, edition: int | None) -> Snapshot:
    """The next revision: ``name`` put with new content, or deleted if it exists."""
    held = snapshot.get(CLUSTER).resources
    if edition is None and name not in held:
        return snapshot
    put = [] if edition is None else [resource(name, edition)]
    removed = [(CLUSTER, name)] if edition is None else []
    revision = snapshot.revision + 1
    return amend_snapshot(snapshot, revision, put, removed, {CLUSTER: str(revision)})


@given(EDITS)
def test_amended_snapshot_is_the_one_built_from_its_resources(edits: list[tuple[str, int | None]]) -> None:
    line = [build_snapshot("g", 1, [resource("c0", 0)], {CLUSTER: "1"})]
    line[0].get(CLUSTER).prepare()
    for name, edition in edits:
        line.append(edited(line[-1], name, edition))
    made = line[-1].get(CLUSTER)
    built = build_snapshot("g", 1, made.resources.values(), {CLUSTER: made.version_info}).get(CLUSTER)
    assert made.digest == built.digest
    assert made.by_alias.keys() == built.by_alias.keys()
    assert made.shortest_ttl_s == built.shortest_ttl_s
    for earlier in line:
        before = earlier.get(CLUSTER)
        amended_diff, recomputed = diff(before, made), diff(before, built)
        assert set(amended_diff.added) == set(recomputed.added)
        assert set(amended_diff.changed) == set(recomputed.changed)
        assert set(amended_diff.removed) == set(recomputed.removed)
        assert (
            mix(made, before, amended_diff.removed).resources.keys() == before.resources.keys() | made.resources.keys()
        )


@given(EDITS)
def test_amended_blob_ids_tell_the_changes_of_a_full_comparison(edits: list[tuple[str, int | None]]) -> None:
    held = BlobIds({(CLUSTER, "c0"): "0"})
    for name, edition in edits:
        key = (CLUSTER, name)
        if edition is None and key not in held:
            continue
        made = held.amended({} if edition is None else {key: str(edition)}, [key] if edition is None else [])
        assert changes(held, made) == changes(held, BlobIds(made))
        held = made


@given(st.permutations([f"c{index}" for index in range(3)]), st.lists(st.integers(0, 1), min_size=2, max_size=3))
def test_replaced_blob_ids_tell_the_changes_of_a_full_comparison(names: list[str], editions: list[int]) -> None:
    held = BlobIds({(CLUSTER, f"c{index}"): "0" for index in range(3)})
    lines = {(CLUSTER, name): str(edition) for name, edition in zip(names, editions, strict=False)}
    made = held.replaced(lines)
    assert made == lines
    assert changes(held, made) == changes(held, BlobIds(lines))
    assert (made.touched_since(held) is not None) == (list(lines) == list(held))


def test_a_set_amended_long_ago_is_compared_in_full() -> None:
    oldest = newest = build_snapshot("g", 1, [resource("c0", 0)], {CLUSTER: "1"})
    for number in range(600):
        newest = edited(newest, "c1", number % 3)
    assert newest.get(CLUSTER).touched_since(oldest.get(CLUSTER)) is None
    assert diff(oldest.get(CLUSTER), newest.get(CLUSTER)).added == ("c1",)


def test_prepared_sets_are_sent_in_the_same_bytes() -> None:
    members = [resource(f"c{index}", 1) for index in range(PREPARED_FROM)]
    prepared = build_snapshot("g", 1, members, {CLUSTER: "1"}).get(CLUSTER)
    parts = {prepared.lineage_id: prepare_parts(prepared, NO_PARTS)}
    amended = prepared.amended("2", {"c1": resource("c1", 2), "new": resource("new", 1)}, ["c0"])
    for held in (prepared, amended):
        plain = build_snapshot("g", 1, held.resources.values(), {CLUSTER: held.version_info}).get(CLUSTER)
        assert encoded_set(held, parts) == encoded_set(plain)


@pytest.mark.parametrize("changed", [300, 600, 1000])
def test_a_set_of_which_much_changes_is_the_one_built_from_its_resources(changed: int) -> None:
    before = build_snapshot("g", 1, [resource(f"c{index}", 0) for index in range(1000)], {CLUSTER: "1"})
    old = before.get(CLUSTER)
    parts = prepare_parts(old, NO_PARTS)
    made = amend_snapshot(before, 2, [resource(f"c{index}", 1) for index in range(changed)], (), {CLUSTER: "2"})
    new = made.get(CLUSTER)
    assert new.lineage_id != old.lineage_id, "too many of its parts would be void"
    new_parts = prepare_parts(new, parts)
    built = build_snapshot("g", 2, list(new.resources.values()), {CLUSTER: "2"}).get(CLUSTER)
    assert (new.digest, new.by_alias, new.shortest_ttl_s) == (built.digest, built.by_alias, built.shortest_ttl_s)
    assert list(new.resources) == list(old.resources)
    assert all(each[0] is new.resources[name] for name, each in new_parts.items())
    assert [name for name in parts if new_parts[name] is parts[name]] == list(old.resources)[changed:]
    assert encoded_set(new, {new.lineage_id: new_parts}) == encoded_set(built)


@given(st.sets(NAMES), st.sets(NAMES), st.lists(st.tuples(NAMES, st.just("removed")), max_size=3))
def test_digest_of_a_part_is_that_of_its_content(
    held: set[str], some: set[str], besides: list[tuple[str, str]]
) -> None:
    members = [resource(name, 1) for name in sorted(held)]
    found = build_snapshot("g", 1, members, {CLUSTER: "1"}).get(CLUSTER)
    names = sorted(held & some)
    pairs = [(name, found.resources[name].version) for name in names]
    assert found.digest_of(names, besides) == content_digest([*pairs, *besides])


def cluster(name: str, edition: int) -> Resource:
    body = f"{name}:{edition}".encode()
    reference = Reference(ENDPOINT, f"assignment of {name}", "ads")
    return Resource(CLUSTER, name, body, content_version(body), references=(reference,))


@given(st.dictionaries(NAMES, st.integers(0, 2)), st.dictionaries(NAMES, st.integers(0, 2)))
def test_precomputed_content_equals_that_computed_by_streams(before: dict[str, int], after: dict[str, int]) -> None:
    old, new = (
        build_snapshot("g", revision, [cluster(*item) for item in content.items()], {CLUSTER: str(revision)})
        for revision, content in enumerate((before, after))
    )
    prepared, plain = SnapshotCache(), SnapshotCache()
    precomputed = precompute(old, new)
    prepared.set(old)
    prepared.set(new, precomputed=precomputed)
    steps = old.get(CLUSTER), new.get(CLUSTER)
    assert prepared.diffs.change(*steps) == plain.diffs.change(*steps)
    assert prepared.diffs.assignments(*steps) == plain.diffs.assignments(*steps)
    assert (prepared.diffs.between(*steps) in precomputed.diffs) == (old.get(CLUSTER) is not new.get(CLUSTER))


def encoded_set(resource_set: ResourceSet, parts: Mapping[int, PartsByName] = MappingProxyType({})) -> bytes:
    """The first response to a Delta client with a wildcard."""
    builder = ResponseBuilder("server", "n", diff, 1 << 20)
    builder.keep_parts(parts)
    built = builder.build(ResponseKey(DELTA, None, resource_set, Interest(wildcard=True), is_first=True), {})
    assert built is not None
    assert built.response is not None
    return built.response.body
