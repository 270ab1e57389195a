"""Clusters in use without an endpoint that serves: which they are, and that only what has changed is read again."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support import resources as r
from xds.codec.resources import decode_resource
from xds.live import unserved_clusters
from xds.live.draining import has_serving_endpoint
from xds.live.unserved_clusters import UnservedClusters
from xds.model.resource import Resource
from xds.model.snapshot import build_snapshot
from xds.snapshots.cache import SnapshotCache

Json = dict[str, Any]
ROUTES = r.route_config("all", *(r.route(name, f"/{name}") for name in ("a", "b", "gone")))


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The assignments that were read, in order."""
    names: list[str] = []

    def judge(resource: Resource) -> bool:
        names.append(resource.name)
        return has_serving_endpoint(resource)

    monkeypatch.setattr(unserved_clusters, "has_serving_endpoint", judge)
    return names


class World:
    def __init__(self) -> None:
        self.cache = SnapshotCache("test")
        self.unserved = UnservedClusters(self.cache.get)
        self.revision = 0

    def push(self, group: str, *documents: Json, routes: Json = ROUTES) -> None:
        self.revision += 1
        resources = [decode_resource(each) for each in (routes, *documents)]
        self.cache.set(build_snapshot(group, self.revision, resources, {}, self.cache.get(group)))

    def of(self, *groups: str) -> dict[str, list[str]]:
        return self.unserved.of(groups)


@pytest.fixture
def world() -> World:
    return World()


CLUSTERS = [r.eds_cluster(name) for name in ("a", "b", "unused", "gone")]
EMPTY = [r.cluster_load_assignment(name) for name in ("a", "b", "unused")]


def test_they_are_in_use_and_have_an_assignment_without_an_endpoint(world: World) -> None:
    world.push("edge", *CLUSTERS, *EMPTY)
    world.push("well", *CLUSTERS[:1], r.cluster_load_assignment("a", 80))
    assert world.of("edge", "well", "none") == {"edge": ["a", "b"], "well": []}
    world.push("edge", *CLUSTERS, r.cluster_load_assignment("a", 80), EMPTY[1])
    assert world.of("edge") == {"edge": ["b"]}


def test_a_cluster_that_nothing_names_any_more_is_left_out(world: World) -> None:
    world.push("edge", *CLUSTERS, *EMPTY)
    assert world.of("edge") == {"edge": ["a", "b"]}
    world.push("edge", *CLUSTERS, *EMPTY, routes=r.route_config("all", r.route("b")))
    assert world.of("edge") == {"edge": ["b"]}


def test_an_assignment_is_read_once_until_it_changes(world: World, read: list[str]) -> None:
    world.push("edge", *CLUSTERS, *EMPTY)
    for _ in range(3):
        world.of("edge")
    assert read == ["a", "b"]
    world.push("edge", *CLUSTERS, EMPTY[0], r.cluster_load_assignment("b", 80), EMPTY[2])
    assert world.of("edge") == {"edge": ["a"]}
    assert read == ["a", "b", "b"]
    assert world.of() == {}
    world.of("edge")
    assert read == ["a", "b", "b", "a", "b"], "nothing is kept of a group that is not asked for any more"
