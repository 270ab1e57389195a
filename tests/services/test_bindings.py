"""Bindings: what is laid over a group for a service, when, and for how long."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.live.test_by_hand import KEY, NOW, G, push, setting
from tests.support.plane import Plane
from tests.support.resources import eds_cluster
from xds.access.caller import Caller
from xds.codec.resources import decode_resource
from xds.live.draining import endpoint_states
from xds.live.owners import OwnedError
from xds.model.errors import ConflictError, NotFoundError, ValidationError
from xds.model.resource_type import ENDPOINT
from xds.services.bindings import KIND
from xds.services.core.binding import Binding, read_binding
from xds.services.core.instance import Check, Health, Instance
from xds.services.core.source import Sink
from xds.store.base import UnavailableError
from xds.store.etags import NO_ETAG

BY = Caller("alice")


def instances(*ports: int, **fields: Any) -> list[Instance]:
    return [Instance(f"i{port}", "127.0.0.1", port, **fields) for port in ports]


def served(plane: Plane, name: str = "web", group: str = G) -> dict[int, str] | None:
    """The health of the served endpoints by port; None without an assignment."""
    snapshot = plane.cache.get(group)
    assert snapshot is not None
    found = snapshot.get(ENDPOINT).resources.get(name)
    if found is None:
        return None
    return {int(state.address.rpartition(":")[2]): state.health for state in endpoint_states(found)}


def sink(plane: Plane, name: str = "targets", hold_share: float | None = 1.0) -> Sink:
    return plane.catalog.sink(name, "files", hold_share)


async def bind(plane: Plane, service: str = "web", **fields: Any) -> bool:
    return await plane.bindings.put(KEY, Binding(service, **fields), by=BY)


@asynccontextmanager
async def restarted(plane: Plane) -> AsyncIterator[Plane]:
    """The plane of another server, which reads what this one has stored."""
    plane.catalog.start()
    await plane.catalog.close()
    again = await plane.reloaded()
    await again.catalog.load()
    yield again
    await again.publisher.close()


async def test_the_instances_are_laid_over_the_push_without_a_revision(plane: Plane) -> None:
    await push(plane, 1)
    sink(plane).put("web", instances(10, 11))
    assert await bind(plane)
    assert served(plane) == {10: "HEALTHY", 11: "HEALTHY"}
    sink(plane).put("web", [*instances(10), *instances(11, checks=(Check("c", Health.CRITICAL),))])
    await plane.catalog.tick()
    assert served(plane) == {10: "HEALTHY", 11: "UNHEALTHY"}
    assert plane.publisher.groups.content(G).revision == 1
    await push(plane, 2)
    assert served(plane) == {10: "HEALTHY", 11: "UNHEALTHY"}
    await plane.publisher.rollback(G, 1)
    assert served(plane) == {10: "HEALTHY", 11: "UNHEALTHY"}


async def test_one_change_of_one_service_wakes_its_groups_once_and_no_others(plane: Plane) -> None:
    await push(plane, 1)
    targets = sink(plane)
    targets.put("web", instances(10))
    targets.put("api", instances(20))
    await bind(plane)
    await plane.bindings.put((G, "web-2"), Binding("web"))
    with pytest.raises(NotFoundError, match="no such group: 'other'"):
        await plane.bindings.put(("other", "web"), Binding("web"))
    plane.woken.clear()
    targets.put("api", instances(21))
    await plane.catalog.tick()
    assert plane.woken == []
    targets.put("web", instances(10, 11))
    await plane.catalog.tick()
    assert plane.woken == [G]


async def test_the_push_is_served_until_a_source_has_shown_the_service(plane: Plane) -> None:
    await push(plane, 1)
    files, consul = sink(plane), sink(plane, "consul")
    await bind(plane)
    files.replace({"api": instances(20)})
    consul.put("web", ())
    await plane.catalog.tick()
    assert served(plane) == {1: "UNKNOWN"}, "a service that nobody has is likely a name that is wrong"
    consul.put("web", instances(10))
    await plane.catalog.tick()
    assert served(plane) == {10: "HEALTHY"}


async def test_a_service_that_is_gone_leaves_an_empty_assignment_not_the_push(plane: Plane) -> None:
    await push(plane, 1)
    targets = sink(plane)
    targets.put("web", instances(10))
    await bind(plane)
    targets.remove("web")
    await plane.catalog.tick()
    assert served(plane) == {10: "DRAINING"}
    plane.now_s += 15
    await plane.catalog.tick()
    assert served(plane) == {}


@pytest.mark.parametrize("is_removed", [False, True])
async def test_a_service_that_has_lost_its_last_instance_stays_known(plane: Plane, is_removed: bool) -> None:
    """Over a restart, and for a name that is bound later: what was pushed is not what the service has now."""
    await push(plane, 1)
    targets = sink(plane)
    targets.put("web", instances(10))
    await bind(plane)
    if is_removed:
        targets.remove("web")
    else:
        targets.put("web", ())
    await plane.catalog.tick()
    plane.now_s += 15
    await plane.catalog.tick()
    await plane.bindings.put((G, "web-2"), Binding("web"), by=BY)
    assert (served(plane), served(plane, "web-2")) == ({}, {})
    async with restarted(plane) as again:
        assert served(again) == {}


async def test_a_push_warns_of_an_assignment_that_is_neither_pushed_nor_bound(plane: Plane) -> None:
    """What leads to its cluster waits for the assignment."""
    await push(plane, 1)
    await bind(plane)
    pushed = await plane.publisher.push(G, [decode_resource(eds_cluster(name)) for name in ("web", "late")])
    assert [(one.code, one.resource, one.severity) for one in pushed.warnings] == [
        ("missing_reference", "clusters/late", "warning")
    ]
    assert "what newly leads to it waits up to order_timeout_s" in pushed.warnings[0].detail


async def test_unbound_the_push_is_served_again(plane: Plane) -> None:
    await push(plane, 1)
    sink(plane).put("web", instances(10))
    await bind(plane)
    await plane.bindings.delete(KEY, by=BY, drain_s=0)
    assert served(plane) == {1: "UNKNOWN"}
    assert plane.publisher.live.owner(*KEY) is None
    sink(plane).put("web", instances(10, 11))
    await plane.catalog.tick()
    assert served(plane) == {1: "UNKNOWN"}
    with pytest.raises(NotFoundError, match="not bound"):
        await plane.bindings.delete(KEY)


async def test_a_name_set_by_hand_cannot_be_bound_and_the_other_way_round(plane: Plane) -> None:
    await push(plane, 1)
    await plane.by_hand.edit(KEY, setting(5), NOW)
    with pytest.raises(OwnedError, match="is set by hand by alice: it cannot be bound to service 'web'"):
        await bind(plane)
    assert await plane.store.docs(KIND) == []
    await plane.by_hand.delete(KEY, NOW)
    await bind(plane)
    with pytest.raises(OwnedError, match="is bound to service 'web': it cannot be set by hand"):
        await plane.by_hand.edit(KEY, setting(5), NOW)


async def test_bindings_and_their_assignments_are_served_after_a_restart_before_a_source_is_read(plane: Plane) -> None:
    await push(plane, 1)
    sink(plane).put("web", instances(10))
    await bind(plane, filter='Service.Port == "10"')
    async with restarted(plane) as again:
        assert again.bindings.get(KEY).binding == Binding("web", filter='Service.Port == "10"')
        assert served(again) == {10: "HEALTHY"}


async def test_a_binding_selects_by_service_tag_filter_and_port(plane: Plane) -> None:
    await push(plane, 1)
    warning = (Check("c", Health.WARNING),)
    sink(plane).put(
        "web",
        [
            Instance("a", "127.0.0.1", 10, ports={"grpc": 90}, meta={"version": "2"}),
            Instance("b", "127.0.0.1", 11, ports={"grpc": 91}, meta={"version": "1"}),
            Instance("c", "127.0.0.1", 12, ports={"grpc": 92}, meta={"version": "2"}, checks=warning),
            Instance("d", "127.0.0.1", 13, ports={"grpc": 93}, meta={"version": "2"}, datacenter="dc2"),
            Instance("e", "127.0.0.1", 14, meta={"version": "2"}),
        ],
    )
    await bind(plane, filter="Service.Meta.version == 2", port="grpc", datacenter="dc1", only_passing=True)
    assert served(plane) == {90: "HEALTHY", 92: "UNHEALTHY"}


async def test_an_instance_that_is_not_selected_any_more_drains(plane: Plane) -> None:
    await push(plane, 1)
    targets = sink(plane)
    targets.put("web", [*instances(10, meta={"v": "1"}), *instances(11, meta={"v": "1"})])
    await bind(plane, filter="Service.Meta.v == 1")
    targets.put("web", [*instances(10, meta={"v": "1"}), *instances(11, meta={"v": "2"})])
    await plane.catalog.tick()
    assert served(plane) == {10: "HEALTHY", 11: "DRAINING"}
    plane.now_s += 15
    targets.put("web", [*instances(10, meta={"v": "1"}), *instances(11, meta={"v": "3"})])
    await plane.catalog.tick()
    assert served(plane) == {10: "HEALTHY"}


async def test_instances_that_a_changed_binding_excludes_drain(plane: Plane) -> None:
    await push(plane, 1)
    targets = sink(plane)
    targets.put("web", instances(10, 11))
    targets.put("api", instances(11, 12))
    await bind(plane)
    await bind(plane, "api")
    assert served(plane) == {10: "DRAINING", 11: "HEALTHY", 12: "HEALTHY"}
    plane.bindings.followed.start()
    await bind(plane, "unknown")
    drains = dict.fromkeys((10, 11, 12), "DRAINING")
    assert served(plane) == {1: "UNKNOWN", **drains}, "nothing is known of the new service"
    targets.put("unknown", instances(13))
    await plane.catalog.tick()
    assert served(plane) == {1: "DRAINING", **drains, 13: "HEALTHY"}


async def test_a_binding_of_an_unknown_service_serves_the_push_and_not_its_earlier_assignment(
    plane: Plane,
) -> None:
    """The instances of the service before are not followed any more, and a restart would not have them."""
    plane.bindings.followed.start()
    plane.catalog._rule = type(plane.catalog._rule)(drain_s=0.2)
    await push(plane, 1)
    sink(plane).put("web", instances(10, 11))
    await bind(plane)
    await bind(plane, "unknown")
    assert served(plane) == {1: "UNKNOWN", 10: "DRAINING", 11: "DRAINING"}
    await push(plane, 2, 10)
    plane.now_s += 0.2
    async with asyncio.timeout(5):
        while served(plane) != {2: "UNKNOWN", 10: "UNKNOWN"}:
            await asyncio.sleep(0.02)
    await push(plane, 3)
    assert served(plane) == {3: "UNKNOWN"}
    owner = plane.publisher.live.owner(*KEY)
    assert owner is not None and owner.follows == "unknown"
    sink(plane).put("unknown", instances(12))
    await plane.catalog.tick()
    assert served(plane) == {3: "DRAINING", 12: "HEALTHY"}


async def test_compare_and_set_by_etag(plane: Plane) -> None:
    await push(plane, 1)
    with pytest.raises(ConflictError, match="has no binding"):
        await plane.bindings.put(KEY, Binding("web"), "b-00000000")
    await plane.bindings.put(KEY, Binding("web"), NO_ETAG, BY)
    with pytest.raises(ConflictError, match="has the binding b-"):
        await plane.bindings.put(KEY, Binding("api"), NO_ETAG)
    assert not await bind(plane), "the same again"
    (entry,) = [entry for entry in (await plane.store.audit()).entries if entry.note.action == "binding.put"]
    assert (entry.note.actor, entry.note.group, entry.note.subject) == ("alice", G, "web")


async def test_a_binding_that_cannot_be_stored_is_not_in_force(plane: Plane) -> None:
    await push(plane, 1)
    sink(plane).put("web", instances(10))
    await plane.store.close()
    with pytest.raises(UnavailableError):
        await bind(plane)
    assert plane.bindings.find(KEY) is None
    assert plane.publisher.live.owner(*KEY) is None
    assert served(plane) == {1: "UNKNOWN"}
    await plane.store.open()


async def test_a_binding_goes_with_its_group(plane: Plane) -> None:
    await push(plane, 1)
    sink(plane).put("web", instances(10))
    await bind(plane)
    await plane.publisher.delete_group(G)
    assert await plane.store.docs(KIND) == []
    assert plane.catalog.wanted == frozenset()
    await push(plane, 1)
    assert served(plane) == {1: "UNKNOWN"}


async def test_sources_know_bound_services(plane: Plane) -> None:
    await push(plane, 1)
    targets = sink(plane)
    waiting = asyncio.create_task(targets.wait_for_wanted(frozenset()))
    await asyncio.sleep(0)
    await bind(plane)
    assert await asyncio.wait_for(waiting, 20) == {"web"}
    await bind(plane, "api")
    assert targets.wanted() == {"api"}


async def test_an_unreadable_binding_affects_no_other(plane: Plane) -> None:
    await push(plane, 1)
    await bind(plane)
    for id, body in (
        ("edge/bad", b"{"),
        ("edge/worse", b'{"service": 3}'),
        ("edge/filter", b'{"service": "a", "filter": "("}'),
    ):
        await plane.store.put_doc(KIND, id, body)
    again = await plane.reloaded()
    assert list(again.bindings) == [KEY]
    await again.publisher.close()


@pytest.mark.parametrize(
    ("document", "pointer"),
    [
        ([], ""),
        ({}, "/service"),
        ({"service": ""}, "/service"),
        ({"service": "a b"}, "/service"),
        ({"service": "a" * 256}, "/service"),
        ({"service": 1}, "/service"),
        ({"service": "a", "serivce": "b"}, "/serivce"),
        ({"service": "a", "only_passing": 1}, "/only_passing"),
        ({"service": "a", "filter": "Service.Metta.x == 1"}, "/filter"),
        ({"service": "a", "filter": "Service.Meta.x =="}, "/filter"),
        ({"service": "a", "filter": "x" * 5000}, "/filter"),
    ],
)
def test_bad_bindings_are_refused_by_place(document: object, pointer: str) -> None:
    with pytest.raises(ValidationError) as caught:
        read_binding(document)
    assert [violation.pointer for violation in caught.value.violations] == [pointer]


def test_a_binding_is_read_from_what_it_writes() -> None:
    binding = Binding("web", "Service.Meta.x == 1", "grpc", "dc2", True)
    assert read_binding(binding.document()) == binding
    assert Binding("web").document() == {"service": "web"}
