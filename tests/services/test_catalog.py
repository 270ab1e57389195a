"""The catalog of services, from what sources put into their sinks to notifications of listeners."""

from __future__ import annotations

from collections.abc import Collection
from functools import partial

import pytest

from xds.services.catalog import ServiceCatalog
from xds.services.core.holding import HoldRule
from xds.services.core.index import CatalogLimits
from xds.services.core.instance import Health, Instance


class Clock:
    """Epoch seconds that a test sets."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


def instances(*numbers: int, port: int = 80) -> list[Instance]:
    """Instances ``i1``, ``i2`` ... at 10.0.0.1, 10.0.0.2 ..."""
    return [Instance(f"i{number}", f"10.0.0.{number}", port) for number in numbers]


def shown(catalog: ServiceCatalog, service: str) -> dict[str, Health]:
    """The served instances of a service: id to health."""
    return {each.instance.id: each.health for each in catalog.instances(service)}


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def catalog(clock: Clock) -> ServiceCatalog:
    return ServiceCatalog(HoldRule(drain_s=15.0), CatalogLimits(), clock)


async def test_a_listener_is_notified_once_of_all_changes_of_a_tick(catalog: ServiceCatalog) -> None:
    notified: list[frozenset[str]] = []

    async def listen(changed: Collection[str]) -> None:
        notified.append(frozenset(changed))

    catalog.listen(listen)
    sink = catalog.sink("a", "files")
    for count in range(1, 4):
        sink.put("web", instances(*range(count)))
        sink.put("api", instances(*range(count)))
    await catalog.tick()
    await catalog.tick()
    assert notified == [{"web", "api"}]


async def test_an_instance_that_goes_drains_and_is_gone_then(catalog: ServiceCatalog, clock: Clock) -> None:
    sink = catalog.sink("a", "files")
    sink.put("web", instances(1, 2))
    await catalog.tick()
    sink.put("web", instances(1))
    await catalog.tick()
    assert shown(catalog, "web") == {"i1": Health.PASSING, "i2": Health.DRAINING}
    clock.now += 14.9
    await catalog.tick()
    assert shown(catalog, "web") == {"i1": Health.PASSING, "i2": Health.DRAINING}
    clock.now += 0.1
    await catalog.tick()
    assert shown(catalog, "web") == {"i1": Health.PASSING}


@pytest.mark.parametrize("order", [(1, 2), (2, 1)])
async def test_of_two_instances_of_a_source_at_one_place_the_least_id_counts(
    catalog: ServiceCatalog, order: tuple[int, int]
) -> None:
    catalog.sink("a", "files").put("web", [Instance(f"i{number}", "10.0.0.9", 80) for number in order])
    assert shown(catalog, "web") == {"i1": Health.PASSING}


async def test_a_reader_sees_changes_made_before_the_tick(catalog: ServiceCatalog) -> None:
    catalog.sink("a", "files").put("web", instances(1))
    assert shown(catalog, "web") == {"i1": Health.PASSING}
    assert catalog.names() == ["web"]


async def test_what_a_source_offers_is_made_once_and_the_next_reader_sees_all_of_it(catalog: ServiceCatalog) -> None:
    made: list[str] = []

    def make(service: str) -> list[Instance] | None:
        made.append(service)
        return instances(1) if service != "gone" else None

    feed = catalog.sink("a", "registration", 1.0)
    feed.put("gone", instances(1))
    await catalog.tick()
    many = ["gone", *(f"s{number}" for number in range(1_000))]
    for service in many * 3:
        feed.offer(service, partial(make, service))
    assert len(catalog.names()) == len(many), "more than are taken over of a source that floods; one drains"
    assert made == many


@pytest.mark.parametrize(("share", "health"), [(0.5, Health.PASSING), (1.0, Health.DRAINING)])
async def test_a_held_loss_is_judged_again_when_the_share_of_its_source_changes(
    catalog: ServiceCatalog, share: float, health: Health
) -> None:
    catalog.sink("a", "files").put("web", instances(1, 2, 3))
    await catalog.tick()
    catalog.sink("a", "files").put("web", instances(1))
    await catalog.tick()
    assert shown(catalog, "web") == dict.fromkeys(("i1", "i2", "i3"), Health.PASSING)
    catalog.sink("a", "files", share).put("web", instances(1))
    await catalog.tick()
    assert shown(catalog, "web") == {"i1": Health.PASSING, "i2": health, "i3": health}


async def test_replace_with_nothing_is_held_until_it_is_accepted(catalog: ServiceCatalog, clock: Clock) -> None:
    sink = catalog.sink("a", "files")
    sink.replace({"web": instances(1, 2, 3), "api": instances(1)})
    await catalog.tick()
    sink.replace({})
    await catalog.tick()
    assert shown(catalog, "web") == dict.fromkeys(("i1", "i2", "i3"), Health.PASSING)
    assert catalog.accept("a") == {"web": 3, "api": 1}
    assert shown(catalog, "web") == dict.fromkeys(("i1", "i2", "i3"), Health.DRAINING)
    clock.now += 15
    await catalog.tick()
    assert catalog.names() == []


async def test_a_catalog_is_ready_once_listeners_have_the_instances_of_its_sources(catalog: ServiceCatalog) -> None:
    """Before that, an index that a listener keeps may lack a service, and nobody may take it for absent."""
    seen: list[bool] = []

    async def listen(services: Collection[str]) -> None:
        seen.append(catalog.is_read)

    catalog.listen(listen)
    sink = catalog.sink("targets", "files")
    assert not catalog.is_read
    sink.put("web", instances(1))
    assert not catalog.is_read
    assert shown(catalog, "web"), "a reader took it over before the listeners were notified"
    assert not catalog.is_read
    await catalog.tick()
    assert seen == [False]
    assert catalog.is_read
    catalog.sink("others", "files")
    assert not catalog.is_read
