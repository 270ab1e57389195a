"""Who lays which assignment over the pushed ones: one owner for each name, and one wake for each change."""

from __future__ import annotations

from collections.abc import Collection

import pytest

from tests.support.sansio import make_resource
from xds.live.owners import HAND, LiveEndpoints, OwnedError, Owner
from xds.model.resource import Resource
from xds.model.resource_type import ENDPOINT
from xds.model.snapshot import build_snapshot
from xds.services.bindings import BINDING
from xds.snapshots.cache import SnapshotCache

ALICE = Owner(HAND, actor="alice")
BOUND = Owner(BINDING, "bound to service 'shop'", "shop")


class World:
    def __init__(self) -> None:
        self.cache = SnapshotCache("test")
        self.woken: list[tuple[str, ...]] = []
        self.live = LiveEndpoints(self.cache, self._wake)
        self.cache.set(build_snapshot("edge", 1, [self.one("web", "pushed"), self.one("api", "pushed")], {}))

    def _wake(self, groups: Collection[str]) -> None:
        self.woken.append(tuple(groups))

    @staticmethod
    def one(name: str, text: str) -> Resource:
        return make_resource(ENDPOINT, name, text)

    def served(self, name: str) -> bytes | None:
        snapshot = self.cache.get("edge")
        assert snapshot is not None
        found = snapshot.get(ENDPOINT).resources.get(name)
        return found.body if found is not None else None


@pytest.fixture
def world() -> World:
    return World()


def test_many_names_are_laid_in_one_step_with_one_wake(world: World) -> None:
    put = {name: world.one(name, "live") for name in ("web", "api", "new")}
    assert world.live.assign("edge", BOUND, put)
    assert world.woken == [("edge",)]
    assert [world.served(name) for name in put] == [b"web=live", b"api=live", b"new=live"]
    assert not world.live.assign("edge", BOUND, put), "the same again changes nothing"
    assert world.woken == [("edge",)]
    assert world.live.assign("edge", BOUND, {"web": world.one("web", "2")}, removed=["api", "new"])
    assert world.woken == [("edge",), ("edge",)]
    assert [world.served(name) for name in put] == [b"web=2", b"api=pushed", None]


def test_a_second_owner_is_refused_with_both_named_and_nothing_changes(world: World) -> None:
    world.live.assign("edge", BOUND, {"web": world.one("web", "live")})
    with pytest.raises(OwnedError) as caught:
        world.live.assign("edge", ALICE, {"api": world.one("api", "mine"), "web": world.one("web", "mine")})
    assert str(caught.value) == (
        "assignment 'web' of group 'edge' is bound to service 'shop': it cannot be set by hand by alice"
    )
    assert world.live.owner("edge", "api") is None
    assert world.served("api") == b"api=pushed"
    with pytest.raises(OwnedError):
        world.live.release("edge", ["web"], ALICE)
    assert world.served("web") == b"web=live"


def test_a_name_is_free_again_when_its_owner_gives_it_up(world: World) -> None:
    world.live.assign("edge", BOUND, {"web": world.one("web", "live")})
    world.live.release("edge", ["web"], BOUND)
    assert world.served("web") == b"web=pushed"
    assert world.live.owners("edge") == {}
    assert world.live.assign("edge", ALICE, {"web": world.one("web", "mine")})
    assert world.live.owner("edge", "web") == ALICE


def test_a_claim_holds_before_there_are_endpoints(world: World) -> None:
    """A binding to a service that no source has shown yet keeps other owners away."""
    world.live.claim("edge", "web", BOUND)
    assert world.served("web") == b"web=pushed" and world.woken == []
    with pytest.raises(OwnedError):
        world.live.claim("edge", "web", ALICE)
    other = Owner(BINDING, "bound to service 'shop-2'", "shop-2")
    world.live.claim("edge", "web", other)
    world.live.assign("edge", BOUND, {"web": world.one("web", "live")})
    assert world.live.owner("edge", "web") == other, "the claim says which service, the batch does not"


def test_groups_have_owners_of_their_own_and_may_come_later(world: World) -> None:
    world.live.assign("edge", BOUND, {"web": world.one("web", "live")})
    assert not world.live.assign("later", ALICE, {"web": world.one("web", "live")})
    assert world.woken == [("edge",)]
    world.cache.set(build_snapshot("later", 1, [world.one("web", "pushed")], {}))
    snapshot = world.cache.get("later")
    assert snapshot is not None and snapshot.get(ENDPOINT).resources["web"].body == b"web=live"
