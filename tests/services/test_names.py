"""Names of services are compared without case, and shown as their sources write them."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from random import Random

import pytest

from tests.live.test_by_hand import push
from tests.services.test_bindings import bind
from tests.services.test_bindings import instances as at_ports
from tests.services.test_bindings import served as served_ports
from tests.services.test_bindings import sink as sink_of
from tests.services.test_catalog import Clock, catalog, clock, instances, shown
from tests.support.plane import Plane
from xds.services.catalog import ServiceCatalog
from xds.services.core.holding import HoldRule
from xds.services.core.index import CatalogLimits
from xds.services.core.instance import Health
from xds.services.view import ALL_SERVICES, ServiceView
from xds.store.sqlite.memory import MemoryStore

__all__ = ["catalog", "clock"]  # fixtures


async def test_all_names_of_a_service_lead_to_all_its_instances(catalog: ServiceCatalog) -> None:
    notified: list[frozenset[str]] = []

    async def listen(changed: Collection[str]) -> None:
        notified.append(frozenset(changed))

    catalog.listen(listen)
    sink = catalog.sink("a", "files", 1.0)
    sink.put("web", instances(1))
    sink.put("Web", instances(2))
    catalog.sink("b", "files").put("WEB", instances(3))
    for name in ("web", "WEB", "wEb"):  # before a tick: what is pending counts as well
        assert set(shown(catalog, name)) == {"i1", "i2", "i3"}
        assert catalog.is_known(name)
        assert catalog.is_shown(name)
    assert [(one.source, one.service) for one in catalog.instances("web")] == [("a", "web"), ("a", "Web"), ("b", "WEB")]
    await catalog.tick()
    assert notified == [{"web"}]
    assert catalog.names() == ["WEB"]
    assert catalog.services_n == 1


async def test_one_name_that_goes_takes_only_its_instances(catalog: ServiceCatalog, clock: Clock) -> None:
    sink = catalog.sink("a", "files", 1.0)
    sink.replace({"web": instances(1), "Web": instances(2)})
    await catalog.tick()
    sink.replace({"web": instances(1)})
    await catalog.tick()
    assert shown(catalog, "WEB") == {"i1": Health.PASSING, "i2": Health.DRAINING}
    clock.now += 15.0
    await catalog.tick()
    assert shown(catalog, "WEB") == {"i1": Health.PASSING}
    assert catalog.names() == ["web"]


async def test_an_instance_that_takes_another_name_does_not_drain(catalog: ServiceCatalog) -> None:
    sink = catalog.sink("a", "files", 1.0)
    sink.put("web", instances(1))
    await catalog.tick()
    sink.put("Web", instances(1))
    sink.remove("web")
    await catalog.tick()
    assert shown(catalog, "web") == {"i1": Health.PASSING}
    assert [one.service for one in catalog.instances("web")] == ["Web"]


async def test_a_used_service_stays_known_under_another_name(catalog: ServiceCatalog, clock: Clock) -> None:
    sink = catalog.sink("a", "files", 1.0)
    catalog.use("user", ["WEB"])
    sink.put("web", instances(1))
    await catalog.tick()
    sink.remove("web")
    await catalog.tick()
    clock.now += 15.0
    await catalog.tick()
    assert catalog.is_known("Web")
    assert catalog.instances("Web") == ()
    catalog.use("user", [])
    assert not catalog.is_known("Web")


async def test_a_held_loss_is_accepted_in_any_case() -> None:
    catalog = ServiceCatalog(HoldRule(0.5), CatalogLimits(), Clock())
    sink = catalog.sink("a", "files", 0.5)
    sink.put("Web", instances(1, 2, 3))
    await catalog.tick()
    sink.put("Web", ())
    await catalog.tick()
    assert catalog.held_losses("a", "web") == {"Web": 3}
    assert catalog.held_losses("a", "api") == {}
    assert catalog.accept("a", "WEB") == {"Web": 3}


async def test_names_are_kept_through_a_restart() -> None:
    store = MemoryStore()
    await store.open()
    before = ServiceCatalog(store=store)
    before.sink("a", "files").replace({"web": instances(1), "Web": instances(2)})
    await before.tick()
    await before.save()
    after = ServiceCatalog(store=store)
    await after.load()
    assert [(one.service, one.instance.id) for one in after.instances("WEB")] == [("web", "i1"), ("Web", "i2")]


@pytest.mark.parametrize("pending", [False, True])
async def test_names_that_differ_in_case_pass_no_limit(pending: bool) -> None:
    catalog = ServiceCatalog(HoldRule(), CatalogLimits(services=3), Clock())
    sink = catalog.sink("a", "files", 1.0)
    random = Random(1)
    names = {"".join(random.choice((each.upper(), each)) for each in "averylongname") for _ in range(50)}
    for name in sorted(names):
        sink.put(name, instances(1))
        if not pending:
            await catalog.tick()
    await catalog.tick()
    (holdings,) = catalog.holdings()
    assert len(holdings.by_service) == 3
    sink.put(next(iter(holdings.by_service)), instances(1, 2))  # what is there can change
    await catalog.tick()
    assert set(shown(catalog, "averylongname")) == {"i1", "i2"}


async def test_a_view_shows_each_name_with_its_tags_and_wakes_waiting_readers(catalog: ServiceCatalog) -> None:
    view, sink = ServiceView(catalog), catalog.sink("a", "files", 1.0)
    sink.put("web", instances(1))
    await catalog.tick()
    state = view.state("WEB")
    assert state is not None
    assert (state.tags, view.service_revision("wEb")) == ({"web": ()}, state.revision)
    waits = [view.wait("WEB", state.revision, lambda: view.service_revision("WEB"), 20)]
    waits += [view.wait(ALL_SERVICES, view.names_revision, lambda: view.names_revision, 20)]
    waiting = asyncio.gather(*waits)
    await asyncio.sleep(0)
    sink.put("Web", instances(2))
    await catalog.tick()
    await asyncio.wait_for(waiting, 15)
    changed = view.state("web")
    assert changed is not None
    assert changed.tags == {"web": (), "Web": ()}
    assert view.names() == ["web"]


async def test_a_binding_follows_a_service_in_any_case(plane: Plane) -> None:
    await push(plane, 9)
    sink = sink_of(plane)
    await bind(plane, "WEB")
    sink.put("web", at_ports(1))
    sink.put("Web", at_ports(2))
    await plane.catalog.tick()
    assert set(served_ports(plane) or ()) == {1, 2}
    sink.put("wEb", at_ports(3))
    await plane.catalog.tick()
    assert set(served_ports(plane) or ()) == {1, 2, 3}
    assert plane.bindings.followed.of_service("web") == plane.bindings.followed.of_service("WEB") != []
    assert plane.catalog.wanted == {"WEB"}
