"""Endpoints that a lowered assignment takes away drain: when its selection changes, and when it takes a name over."""

from __future__ import annotations

import asyncio
from functools import partial

import pytest

from tests.live.test_by_hand import ALICE, setting
from tests.mesh.test_lowered_groups import GROUP, HTTP, WEB, Json, put_entries, put_upstreams
from tests.services.test_bindings import BY, instances, served, sink
from tests.support.plane import Plane
from xds.live.by_hand import KIND as HAND_KIND
from xds.mesh.core.lower.assignments import lower_priorities
from xds.mesh.core.lower.lowered import LoweredAssignment
from xds.mesh.lowered_endpoints import LOWERED
from xds.model.node import Locality
from xds.services.core.binding import Binding, InstanceSelection
from xds.services.core.endpoints import ServedEndpoint, priorities_in
from xds.services.followed_assignments import FollowedAssignment
from xds.services.followed_target import FollowedTarget


def resolver(version: str) -> Json:
    subsets = {"some": {"Filter": f"Service.Meta.v == {version}"}}
    return {"Kind": "service-resolver", "Name": "web", "DefaultSubset": "some", "Subsets": subsets}


SOME = f"some.{WEB}"


@pytest.fixture
async def shop(plane: Plane) -> Plane:
    """A proxy's upstream takes the instances of version 1."""
    lowered = plane.mesh.lowered.endpoints
    assert lowered is not None
    lowered.followed.start()
    await put_entries(plane, HTTP, resolver("1"))
    await put_upstreams(plane, "web")
    sink(plane).put("web", [*instances(10, meta={"v": "1"}), *instances(11, meta={"v": "2"})])
    await plane.catalog.tick()
    assert served(plane, SOME, GROUP) == {10: "HEALTHY"}
    return plane


async def test_instances_that_a_new_subset_filter_excludes_drain(shop: Plane) -> None:
    await put_entries(shop, resolver("2"))
    assert served(shop, SOME, GROUP) == {10: "DRAINING", 11: "HEALTHY"}
    shop.now_s += 8
    await put_entries(shop, resolver("3"))
    assert served(shop, SOME, GROUP) == {10: "DRAINING", 11: "DRAINING"}
    shop.now_s += 7
    await put_entries(shop, resolver("4"))
    assert served(shop, SOME, GROUP) == {11: "DRAINING"}, "a second change does not begin the time of the first anew"


async def test_drained_instances_of_a_subset_are_removed_without_another_change(shop: Plane) -> None:
    shop.catalog._rule = type(shop.catalog._rule)(drain_s=0.2)
    sink(shop).put("web", instances(10, 11, meta={"v": "2"}))
    await shop.catalog.tick()
    assert served(shop, SOME, GROUP) == {10: "DRAINING"}
    shop.now_s += 0.2
    async with asyncio.timeout(5):
        while served(shop, SOME, GROUP) != {}:
            await asyncio.sleep(0.02)


@pytest.mark.parametrize("by_hand", [False, True])
async def test_a_name_that_is_leaving_may_be_lowered_at_once(plane: Plane, by_hand: bool) -> None:
    lowered = plane.mesh.lowered.endpoints
    assert lowered is not None
    lowered.followed.start()
    await put_entries(plane, HTTP)
    await put_upstreams(plane, "api")
    key, other = (GROUP, WEB), (GROUP, "other")
    sink(plane).put("web", instances(10))
    sink(plane).put("old", instances(9))
    await plane.catalog.tick()
    if by_hand:
        await plane.by_hand.edit(key, setting(9, name=WEB), ALICE)
        await plane.by_hand.delete(key, ALICE)
    else:
        await plane.bindings.put(key, Binding("old"), by=BY)
        await plane.bindings.delete(key, by=BY)
    await plane.by_hand.edit(other, setting(5, name="other"), ALICE)
    await plane.by_hand.delete(other, ALICE)
    await put_upstreams(plane, "web")
    assert served(plane, WEB, GROUP) == {9: "DRAINING", 10: "HEALTHY"}
    owner = plane.publisher.live.owner(*key)
    assert owner is not None and owner.kind == LOWERED
    plane.now_s += 15
    await plane.by_hand.end_drains(plane.now_s)
    assert served(plane, "other", GROUP) is None, "what else is leaving ends"
    assert await plane.store.docs(HAND_KIND) == []
    sink(plane).put("web", instances(10, 12))
    await plane.catalog.tick()
    assert served(plane, WEB, GROUP) == {10: "HEALTHY", 12: "HEALTHY"}


def endpoint(number: int) -> ServedEndpoint:
    return ServedEndpoint.at((f"10.0.0.{number}", 80), 1, 1, Locality())


def test_draining_instances_keep_their_priority_if_it_exists() -> None:
    """It would be a new endpoint to Envoy in another one."""
    bindings = [Binding(f"s{number}") for number in range(3)]
    before = LoweredAssignment(WEB, tuple(bindings))
    after = LoweredAssignment(WEB, before.targets[:2])
    resource = lower_priorities(before, [[endpoint(n), endpoint(n + 10)] for n in range(3)])
    targets = tuple(FollowedTarget(InstanceSelection(binding)) for binding in bindings[:2])
    made = FollowedAssignment((GROUP, WEB), targets, partial(lower_priorities, after))
    targets[0].drain([endpoint(0)], 5.0)
    made.take_over(resource, 15.0)
    assert made.next_end == 5.0, "what drains already has its time"
    served = [target.advance([endpoint(20 + n)], 1.0, 15.0) for n, target in enumerate(targets)]
    found = priorities_in(made.lower(served))
    numbers = {priority: sorted(int(at[0].split(".")[3]) for at in held) for priority, held in found.items()}
    assert numbers == {0: [0, 10, 20], 1: [1, 2, 11, 12, 21]}
    assert [one.address[0] for held in found.values() for one in held.values() if not one.drains] == [
        "10.0.0.20",
        "10.0.0.21",
    ]


async def test_a_known_service_is_not_waited_for_at_other_sources(
    plane: Plane, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("xds.services.followed_assignments.EMPTY_S", 0.0)
    files, consul = plane.catalog.sink("files", "files"), plane.catalog.sink("consul", "consul")
    plane.catalog.start()
    endpoints = plane.mesh.lowered.endpoints
    assert endpoints is not None
    bindings = Binding("known"), Binding("new")
    targets = tuple(FollowedTarget(InstanceSelection(each)) for each in bindings)
    lowered = LoweredAssignment(WEB, bindings)
    key = (GROUP, WEB)
    owner = endpoints.followed._owner
    endpoints.followed.begin(FollowedAssignment(key, targets, partial(lower_priorities, lowered)), owner)
    endpoints.followed.use()
    consul.wanted()
    files.replace({"known": instances(1)})
    consul.put("new", [])
    await plane.catalog.tick()
    async with asyncio.timeout(5):
        while not endpoints.followed.live_n:
            await asyncio.sleep(0.01)
    await plane.catalog.close()


async def test_nothing_is_computed_repeatedly_while_a_server_starts(
    shop: Plane, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A start with many groups takes long; sources are asked at its end."""
    monkeypatch.setattr("xds.services.followed_assignments.EMPTY_S", 0.01)
    again = await shop.reloaded()
    endpoints = again.mesh.lowered.endpoints
    assert endpoints is not None
    served_groups: list[str] = []
    monkeypatch.setattr(endpoints.followed, "serve", lambda group, keys: served_groups.append(group))
    await asyncio.sleep(0.1)
    assert served_groups == []
    again.catalog.start()
    async with asyncio.timeout(10):
        while not served_groups:
            await asyncio.sleep(0.01)
    assert served_groups == [GROUP]
    await again.catalog.close()
