"""Endpoints that a binding takes away drain: when it begins, changes or ends, when ports change, and over restarts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.live.test_by_hand import ALICE, KEY, NOW, G, push, setting
from tests.services.test_bindings import BY, bind, instances, restarted, served, sink
from tests.support.plane import Plane
from tests.support.resources import eds_cluster
from xds.codec.resources import decode_resource
from xds.live.by_hand import KIND as HAND_KIND
from xds.live.draining import endpoint_states
from xds.live.owners import HAND, LEAVING
from xds.model.drains import DRAINING_LIMIT
from xds.model.node import Locality
from xds.model.resource_type import ENDPOINT
from xds.push.request import PushOptions
from xds.services import followed_target
from xds.services.bindings import BINDING, KIND
from xds.services.core.binding import Binding, InstanceSelection
from xds.services.core.endpoints import ServedEndpoint, endpoint_of
from xds.services.core.instance import Health, Instance
from xds.services.followed_target import FollowedTarget
from xds.store.base import UnavailableError


@pytest.fixture
async def serving(plane: Plane) -> AsyncIterator[Plane]:
    """A plane whose proxies are served, and where what goes drains for 15 s."""
    plane.bindings.followed.start()
    yield plane


async def unbound(plane: Plane, *ports: int) -> None:
    """A binding took the place of the pushed port 1, which has drained, and ends: its own endpoints drain."""
    await push(plane, 1)
    sink(plane).put("web", instances(*ports))
    await bind(plane)
    plane.now_s += 15
    await plane.bindings.delete(KEY, by=BY)


def ported(number: int, **ports: int) -> Instance:
    return Instance(f"i{number}", "127.0.0.1", number, ports=ports)


async def test_pushed_endpoints_drain_when_the_name_is_bound(serving: Plane) -> None:
    await push(serving, 1, 10)
    sink(serving).put("web", instances(10, 11))
    await bind(serving)
    assert served(serving) == {1: "DRAINING", 10: "HEALTHY", 11: "HEALTHY"}
    serving.now_s += 15
    sink(serving).put("web", instances(10, 12))
    await serving.catalog.tick()
    assert served(serving) == {10: "HEALTHY", 11: "DRAINING", 12: "HEALTHY"}


async def test_pushed_endpoints_drain_when_an_awaited_service_appears(serving: Plane) -> None:
    await push(serving, 1)
    await bind(serving)
    assert served(serving) == {1: "UNKNOWN"}
    await push(serving, 2)
    sink(serving).put("web", instances(10))
    await serving.catalog.tick()
    assert served(serving) == {2: "DRAINING", 10: "HEALTHY"}


async def test_after_a_restart_only_endpoints_removed_later_drain(serving: Plane) -> None:
    await push(serving, 1)
    await bind(serving)
    await serving.bindings.put((G, "web-2"), Binding("api"), by=BY)
    sink(serving).put("web", instances(10))
    async with restarted(serving) as again:
        assert served(again) == {10: "HEALTHY"}, "no proxy has had what is pushed since"
        again.bindings.followed.start()
        await push(again, 2)
        assert served(again) == {10: "HEALTHY"}
        await again.by_hand.edit((G, "other"), setting(5, name="other"), NOW)
        sink(again).put("api", instances(20))
        await again.catalog.tick()
        assert served(again, "web-2") == {20: "HEALTHY"}


async def test_the_other_port_drains_when_a_binding_changes_its_port(serving: Plane) -> None:
    await push(serving)
    sink(serving).put("web", [ported(10, grpc=90), ported(11, grpc=91)])
    await bind(serving)
    await bind(serving, port="grpc")
    assert served(serving) == {10: "DRAINING", 11: "DRAINING", 90: "HEALTHY", 91: "HEALTHY"}
    await bind(serving)
    assert served(serving) == {10: "HEALTHY", 11: "HEALTHY", 90: "DRAINING", 91: "DRAINING"}


async def test_an_instance_that_changes_its_port_drains_at_the_old_one(serving: Plane) -> None:
    await push(serving)
    targets = sink(serving)
    targets.put("web", [ported(10, grpc=90), ported(11, grpc=91)])
    await bind(serving, port="grpc")
    targets.put("web", [ported(10, grpc=92), ported(11)])
    await serving.catalog.tick()
    assert served(serving) == {90: "DRAINING", 91: "DRAINING", 92: "HEALTHY"}


async def test_an_instance_that_moves_to_another_datacenter_drains(serving: Plane) -> None:
    await push(serving)
    targets = sink(serving)
    targets.put("web", instances(10, 11))
    await bind(serving, datacenter="dc1")
    targets.put("web", [*instances(10), *instances(11, datacenter="dc2")])
    await serving.catalog.tick()
    assert served(serving) == {10: "HEALTHY", 11: "DRAINING"}


async def test_a_port_that_two_instances_share_at_one_address_is_one_endpoint(serving: Plane) -> None:
    await push(serving)
    sink(serving).put("web", [ported(10, grpc=90), ported(11, grpc=90)])
    await bind(serving, port="grpc")
    assert served(serving) == {90: "HEALTHY"}
    snapshot = serving.cache.get(G)
    assert snapshot is not None
    assert len(endpoint_states(snapshot.get(ENDPOINT).resources["web"])) == 1


async def test_endpoints_that_drained_at_a_restart_do_not_drain_again(serving: Plane) -> None:
    await push(serving)
    targets = sink(serving)
    targets.put("web", instances(10, 11))
    await bind(serving)
    targets.put("web", instances(10))
    serving.catalog.start()
    await serving.catalog.close()
    assert served(serving) == {10: "HEALTHY", 11: "DRAINING"}
    again = await serving.reloaded()
    await again.catalog.load()
    again.bindings.followed.start()
    again.now_s += 15
    await again.catalog.tick()
    assert served(again) == {10: "HEALTHY"}
    await again.publisher.close()


async def test_instances_that_a_new_filter_excludes_drain(serving: Plane) -> None:
    await push(serving)
    sink(serving).put("web", [*instances(10, meta={"v": "1"}), *instances(11, meta={"v": "2"})])
    await bind(serving)
    await bind(serving, filter="Service.Meta.v == 2")
    assert served(serving) == {10: "DRAINING", 11: "HEALTHY"}
    serving.now_s += 8
    await bind(serving, filter="Service.Meta.v == 3")
    assert served(serving) == {10: "DRAINING", 11: "DRAINING"}
    serving.now_s += 7
    await bind(serving, filter="Service.Meta.v == 4")
    assert served(serving) == {11: "DRAINING"}, "a second change does not begin the time of the first anew"


async def test_draining_ends_in_time_whatever_began_meanwhile(serving: Plane) -> None:
    """One that ends as another begins must not stay: the timer is that of the next end."""
    serving.catalog._rule = type(serving.catalog._rule)(drain_s=0.2)
    await push(serving)
    targets = sink(serving)
    targets.put("web", [*instances(10, meta={"v": "1"}), *instances(11, meta={"v": "1"})])
    await bind(serving, filter="Service.Meta.v == 1")
    targets.put("web", [*instances(10, meta={"v": "2"}), *instances(11, meta={"v": "1"})])
    await serving.catalog.tick()
    assert served(serving) == {10: "DRAINING", 11: "HEALTHY"}
    serving.now_s += 0.2
    targets.put("web", [*instances(10, meta={"v": "2"}), *instances(11, meta={"v": "2"})])
    await serving.catalog.tick()
    assert served(serving) == {11: "DRAINING"}
    serving.now_s += 0.2
    async with asyncio.timeout(5):
        while served(serving) != {}:
            await asyncio.sleep(0.02)


async def test_endpoints_of_a_deleted_binding_drain(serving: Plane) -> None:
    await push(serving, 1, 10)
    sink(serving).put("web", instances(10, 11))
    await bind(serving)
    serving.now_s += 15
    await serving.bindings.delete(KEY, by=BY)
    assert served(serving) == {1: "UNKNOWN", 10: "UNKNOWN", 11: "DRAINING"}
    owner = serving.publisher.live.owner(*KEY)
    assert owner is not None and (owner.kind, owner.actor) == (LEAVING, "alice")
    sink(serving).put("web", instances(10, 12))
    await serving.catalog.tick()
    assert served(serving) == {1: "UNKNOWN", 10: "UNKNOWN", 11: "DRAINING"}
    serving.now_s += 15
    await serving.by_hand.end_drains(serving.now_s)
    assert served(serving) == {1: "UNKNOWN", 10: "UNKNOWN"}
    assert serving.publisher.live.owner(*KEY) is None
    assert serving.cache.observed(G) == {} and await serving.store.docs(HAND_KIND) == []


async def test_an_assignment_that_was_never_pushed_is_gone_once_it_has_drained(serving: Plane) -> None:
    key = (G, "new")
    await push(serving, 1)
    sink(serving).put("web", instances(10))
    await serving.bindings.put(key, Binding("web"), by=BY)
    await serving.bindings.delete(key, by=BY)
    assert served(serving, "new") == {10: "DRAINING"}
    serving.now_s += 15
    await serving.by_hand.end_drains(serving.now_s)
    assert served(serving, "new") is None


async def test_a_push_amid_draining_is_served_with_draining_endpoints(serving: Plane) -> None:
    await unbound(serving, 10, 11)
    await push(serving, 2, 10)
    await serving.by_hand.end_drains(serving.now_s)
    assert served(serving) == {2: "UNKNOWN", 10: "UNKNOWN", 11: "DRAINING"}


async def test_a_push_without_the_assignment_leaves_draining_endpoints(serving: Plane) -> None:
    await unbound(serving, 10)
    await serving.publisher.push(G, [decode_resource(eds_cluster("web"))], options=PushOptions(allow_empty=True))
    await serving.by_hand.end_drains(serving.now_s)
    assert served(serving) == {10: "DRAINING"}
    serving.now_s += 15
    await serving.by_hand.end_drains(serving.now_s)
    assert served(serving) is None


async def test_a_set_by_hand_that_was_deleted_follows_pushes_too(serving: Plane) -> None:
    await push(serving, 1)
    await serving.by_hand.edit(KEY, setting(5), ALICE)
    await serving.by_hand.delete(KEY, ALICE)
    await push(serving, 2)
    await serving.by_hand.end_drains(serving.now_s)
    assert served(serving) == {2: "UNKNOWN", 5: "DRAINING"}


@pytest.mark.parametrize("by_hand", [False, True])
async def test_a_name_that_is_leaving_may_be_bound_or_set_at_once(serving: Plane, by_hand: bool) -> None:
    await push(serving, 1)
    sink(serving).put("web", instances(10, 11))
    sink(serving).put("api", instances(11, 12))
    await bind(serving)
    serving.now_s += 15
    await serving.bindings.delete(KEY, by=BY)
    if by_hand:
        await serving.by_hand.edit(KEY, setting(11, 12), ALICE)
    else:
        await bind(serving, "api")
        assert await serving.store.docs(HAND_KIND) == []
    found = served(serving)
    assert found is not None
    assert {port for port, health in found.items() if health == "DRAINING"} == {1, 10}
    assert found.keys() == {1, 10, 11, 12}


async def test_endpoints_of_a_deleted_binding_drain_over_a_restart(serving: Plane) -> None:
    await unbound(serving, 10)
    again = await serving.reloaded()
    assert served(again) == {1: "UNKNOWN", 10: "DRAINING"}
    again.now_s += 15
    await again.by_hand.end_drains(again.now_s)
    assert served(again) == {1: "UNKNOWN"}
    await again.publisher.close()


async def test_a_binding_whose_end_was_cut_off_is_bound_after_a_restart(serving: Plane) -> None:
    """The server died between the two documents: both are there, and the binding counts."""
    await push(serving, 1)
    sink(serving).put("web", instances(10))
    await bind(serving)
    await serving.bindings.delete(KEY, by=BY)
    (left,) = await serving.store.docs(HAND_KIND)
    await bind(serving)
    await serving.store.put_doc(HAND_KIND, left.id, left.body)
    async with restarted(serving) as again:
        again.bindings.followed.start()
        again.now_s += 30
        await again.by_hand.end_drains(again.now_s)
        assert served(again) == {10: "HEALTHY"}
        assert await again.store.docs(HAND_KIND) == []


async def test_a_restore_loads_bindings_while_it_holds_all_locks(serving: Plane) -> None:
    await push(serving, 1)
    sink(serving).put("web", instances(10))
    await bind(serving)
    await serving.bindings.delete(KEY, by=BY)
    (left,) = await serving.store.docs(HAND_KIND)
    await bind(serving)
    await serving.store.put_doc(HAND_KIND, left.id, left.body)
    async with asyncio.timeout(5), serving.by_hand.lock, serving.bindings.lock:
        await serving.publisher.reload()
    assert await serving.store.docs(HAND_KIND) == []
    assert serving.by_hand.find(KEY) is None and serving.bindings.find(KEY) is not None
    owner = serving.publisher.live.owner(*KEY)
    assert owner is not None and (owner.kind, owner.follows) == (BINDING, "web")


async def test_a_restore_may_replace_a_binding_by_an_assignment_set_by_hand(serving: Plane) -> None:
    """And the other way round: the documents of the archive are all that counts."""
    await push(serving, 1)
    sink(serving).put("web", instances(10))
    await bind(serving)
    (bound_doc,) = await serving.store.docs(KIND)
    other = (G, "web-2")
    await serving.by_hand.edit(other, setting(5, name="web-2"), NOW)
    (hand,) = await serving.store.docs(HAND_KIND)
    await serving.store.put_doc(KIND, bound_doc.id, None)
    await serving.store.put_doc(KIND, "edge/web-2", bound_doc.body)
    await serving.store.put_doc(HAND_KIND, hand.id, None)
    await serving.store.put_doc(HAND_KIND, "edge/web", hand.body)
    async with asyncio.timeout(5), serving.by_hand.lock, serving.bindings.lock:
        await serving.publisher.reload()
    kinds = {name: owner.kind for name, owner in serving.publisher.live.owners(G).items()}
    assert kinds == {"web": HAND, "web-2": BINDING}
    assert list(serving.bindings) == [other]
    await serving.catalog.tick()
    found = served(serving, "web-2")
    assert found is not None and found[10] == "HEALTHY"


async def test_a_restore_may_bind_to_a_service_that_nobody_knows(serving: Plane) -> None:
    await push(serving, 1)
    sink(serving).put("web", instances(10))
    await bind(serving, "unknown")
    (doc,) = await serving.store.docs(KIND)
    await bind(serving)
    await serving.store.put_doc(KIND, doc.id, doc.body)
    async with asyncio.timeout(5), serving.by_hand.lock, serving.bindings.lock:
        await serving.publisher.reload()
    assert served(serving) == {1: "UNKNOWN", 10: "DRAINING"}


async def test_a_leaving_name_that_is_bound_to_a_service_that_nobody_knows_ends_draining(serving: Plane) -> None:
    serving.catalog._rule = type(serving.catalog._rule)(drain_s=0.2)
    await push(serving, 1)
    sink(serving).put("web", instances(10))
    await bind(serving)
    await serving.bindings.delete(KEY, by=BY)
    await bind(serving, "unknown")
    assert served(serving) == {1: "UNKNOWN", 10: "DRAINING"}
    serving.now_s += 0.2
    async with asyncio.timeout(5):
        while served(serving) != {1: "UNKNOWN"}:
            await asyncio.sleep(0.02)


async def test_an_end_that_cannot_be_stored_changes_nothing(serving: Plane) -> None:
    await push(serving, 1)
    sink(serving).put("web", instances(10))
    await bind(serving)
    serving.now_s += 15
    await serving.catalog.tick()
    before = served(serving)
    await serving.store.close()
    with pytest.raises(UnavailableError):
        await serving.bindings.delete(KEY, by=BY)
    assert served(serving) == before
    assert serving.bindings.find(KEY) is not None
    await serving.store.open()


async def test_a_name_that_cannot_be_bound_continues_to_drain(serving: Plane) -> None:
    await unbound(serving, 10)
    await serving.store.close()
    with pytest.raises(UnavailableError):
        await bind(serving)
    await serving.store.open()
    assert served(serving) == {1: "UNKNOWN", 10: "DRAINING"}
    serving.now_s += 15
    await serving.by_hand.end_drains(serving.now_s)
    assert served(serving) == {1: "UNKNOWN"}


def target(**fields: Any) -> FollowedTarget:
    return FollowedTarget(InstanceSelection(Binding("web", **fields)))


def endpoint(number: int, status: int = 1) -> ServedEndpoint:
    return ServedEndpoint.at((f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}", 80), status, 1, Locality())


def test_at_most_so_many_endpoints_drain_and_the_oldest_go_first() -> None:
    one = target(port="grpc")
    one.drain(map(endpoint, range(DRAINING_LIMIT + 5)), 10.0)
    assert len(one.draining) == DRAINING_LIMIT
    assert endpoint(4).address not in one.draining and endpoint(5).address in one.draining


def test_an_endpoint_that_was_served_as_draining_does_not_drain_again() -> None:
    one = target(port="grpc")
    one.advance([endpoint(1, status=3)], 0.0, 15.0)
    assert one.advance([], 1.0, 15.0) == []
    one.advance([endpoint(1)], 2.0, 15.0)
    (left,) = one.advance([], 3.0, 15.0)
    assert left.drains and one.draining.next_end == 18.0
    assert one.advance([endpoint(1)], 4.0, 15.0) == [endpoint(1)], "it is back"
    assert one.draining.next_end is None


async def test_a_large_service_is_served_as_a_small_one(serving: Plane) -> None:
    """Endpoints of unchanged instances are cached: each kind of change must still be seen."""
    await push(serving)
    targets = sink(serving)
    many = {n: Instance(f"i{n}", "127.0.0.1", n, ports={"grpc": n + 1000}, meta={"v": "1"}) for n in range(100, 400)}
    targets.put("web", list(many.values()))
    await serving.catalog.tick()
    await bind(serving, filter="Service.Meta.v == 1")
    await serving.bindings.put((G, "grpc"), Binding("web", port="grpc"), by=BY)
    many[100] = Instance("i100", "127.0.0.1", 100, ports={"grpc": 1100}, meta={"v": "2"})
    many[101] = Instance("i101", "127.0.0.1", 101, ports={"grpc": 2000}, weight=7, meta={"v": "1"})
    del many[102]
    targets.put("web", list(many.values()))
    await serving.catalog.tick()
    drains = dict.fromkeys((100, 102), "DRAINING")
    assert served(serving) == dict.fromkeys(many, "HEALTHY") | drains
    expected = {n + 1000: "HEALTHY" for n in many} | {2000: "HEALTHY", 1101: "DRAINING", 1102: "DRAINING"}
    assert served(serving, "grpc") == expected
    snapshot = serving.cache.get(G)
    assert snapshot is not None
    assert len(snapshot.get(ENDPOINT).resources["web"].body) > 0
    serving.now_s += 15
    await serving.catalog.tick()
    many[100] = Instance("i100", "127.0.0.1", 100, ports={"grpc": 1100}, meta={"v": "1"})
    targets.put("web", list(many.values()))
    await serving.catalog.tick()
    assert served(serving) == dict.fromkeys(many, "HEALTHY")


async def test_a_change_in_a_large_service_builds_one_endpoint(serving: Plane, monkeypatch: pytest.MonkeyPatch) -> None:
    await push(serving)
    targets = sink(serving)
    many = instances(*range(1000, 1300))
    targets.put("web", many)
    await bind(serving)
    made: list[str] = []

    def counted(instance: Instance, health: Health, rule: Binding) -> ServedEndpoint | None:
        made.append(instance.id)
        return endpoint_of(instance, health, rule)

    monkeypatch.setattr(followed_target, "endpoint_of", counted)
    targets.put("web", [*many[:-1], *instances(1299, weight=2)])
    await serving.catalog.tick()
    assert made == ["i1299"]
    targets.put("web", instances(*range(1000, 1299), 1300))  # others that are equal, one that goes, one that comes
    await serving.catalog.tick()
    assert made == ["i1299", "i1299", "i1300"], "the one that goes drains"
    serving.now_s += 15
    await serving.catalog.tick()
    assert made == ["i1299", "i1299", "i1300"]
    assert served(serving) == dict.fromkeys([*range(1000, 1299), 1300], "HEALTHY")
    (target,) = serving.bindings.get(KEY).targets
    assert len(target._cached) == 300, "nothing is remembered of what is gone"
