"""Names that get a second owner while the server does not look: it starts, tells the clash and serves the rest."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from tests.mesh.test_config_entries import ForgetfulStore
from tests.mesh.test_lowered_groups import (
    GROUP,
    HTTP,
    RESOLVER,
    V1,
    V2,
    WEB,
    cluster,
    put_entries,
    put_upstreams,
    served,
    splitter,
)
from tests.services.test_bindings import instances, sink
from tests.support.plane import Plane
from xds.live.owners import OwnedError
from xds.mesh.core.chain.index import ChainContext
from xds.mesh.entry_records import DeleteEntry
from xds.mesh.lowered_endpoints import LOWERED
from xds.model.resource_type import CLUSTER, ENDPOINT
from xds.services.bindings import BINDING
from xds.services.bindings import KIND as BINDING_KIND
from xds.services.core.binding import Binding
from xds.store.base import UnavailableError
from xds.store.document_keys import document_id
from xds.store.sqlite.memory import MemoryStore

ACME = ChainContext("dc1", "acme")  # the trust domain is part of the names of clusters
WEB_ACME, API_ACME = "web.default.dc1.internal.acme", "api.default.dc1.internal.acme"


@pytest.fixture
async def shop(plane: Plane) -> Plane:
    """A group with two upstreams, which have instances."""
    await put_entries(plane, HTTP)
    await put_upstreams(plane, "web", "api")
    for service, host in (("web", 10), ("api", 20)):
        sink(plane).put(service, instances(host))
    await plane.catalog.tick()
    await plane.catalog.save()
    return plane


async def start(plane: Plane) -> Plane:
    await plane.publisher.load()
    await plane.catalog.load()
    return plane


def owners(plane: Plane) -> dict[str, str]:
    return {name: owner.kind for name, owner in plane.publisher.live.owners(GROUP).items()}


async def test_a_binding_under_a_name_that_is_lowered_later_is_reported_and_kept(
    shop: Plane, capsys: pytest.CaptureFixture[str]
) -> None:
    await shop.bindings.put((GROUP, WEB_ACME), Binding("other"))
    again = await start(Plane(shop.store, chain_context=ACME))
    assert owners(again) == {WEB_ACME: LOWERED, API_ACME: LOWERED}
    assert set(served(again, CLUSTER)) == set(served(again, ENDPOINT)) == {WEB_ACME, API_ACME}
    output = capsys.readouterr().out
    assert "lowered from upstream 'web': it cannot be bound to service 'other'" in output
    assert [doc.id for doc in await again.store.docs(BINDING_KIND)] == [document_id((GROUP, WEB_ACME))]


async def test_a_clash_of_a_pushed_and_a_lowered_name_removes_only_that_upstream(shop: Plane) -> None:
    await shop.publisher.push(GROUP, [cluster(API_ACME)])
    again = await start(Plane(shop.store, chain_context=ACME))
    assert "which is pushed to this group" in again.mesh.lowered.get(GROUP).error
    assert set(served(again, CLUSTER)) == {WEB_ACME, API_ACME}
    assert served(again, CLUSTER)[API_ACME].body == cluster(API_ACME).body
    assert WEB_ACME in served(again, ENDPOINT)
    with pytest.raises(Exception, match="which is pushed"):
        await put_entries(again, {"Kind": "service-resolver", "Name": "api", "ConnectTimeout": "1s"})
    await again.publisher.push(GROUP, [])
    third = await start(Plane(shop.store, chain_context=ACME))
    assert third.mesh.lowered.get(GROUP).error == ""
    assert set(served(third, CLUSTER)) == set(served(third, ENDPOINT)) == {WEB_ACME, API_ACME}


class TestRestored:
    async def test_a_name_that_is_bound_now_and_lowered_in_the_backup(self, shop: Plane) -> None:
        records = [record async for batch in shop.store.dump() for record in batch]
        other = MemoryStore()
        await other.open()
        plane = Plane(other)
        await plane.publisher.load()
        await plane.publisher.push(GROUP, [cluster("pushed")])
        await plane.bindings.put((GROUP, WEB), Binding("other"))
        sink(plane).put("other", instances(30))
        await plane.catalog.tick()
        await other.restore(lambda: iter(records), replace=True)
        # Instances change while the store is read.
        sink(plane).put("other", instances(31))
        _, _ = await asyncio.gather(plane.publisher.reload(), plane.catalog.tick())
        assert plane.catalog.failures == 0
        assert owners(plane)[WEB] == LOWERED
        await plane.publisher.close()
        await other.close()

    async def test_a_name_that_is_lowered_now_and_bound_in_the_backup(self, shop: Plane) -> None:
        other = MemoryStore()
        await other.open()
        plane = Plane(other)
        await plane.publisher.load()
        await plane.publisher.push(GROUP, [cluster("pushed")])
        await plane.bindings.put((GROUP, WEB), Binding("web"))
        records = [record async for batch in other.dump() for record in batch]
        await shop.store.restore(lambda: iter(records), replace=True)
        await asyncio.gather(shop.publisher.reload(), shop.catalog.tick())
        assert owners(shop) == {WEB: BINDING}
        assert set(served(shop, ENDPOINT)) == {WEB}
        assert shop.catalog.failures == 0
        await plane.publisher.close()
        await other.close()


class TestLostAnswers:
    """The store has committed a change, and its answer was lost. Before the server knows, the name gets an owner."""

    @pytest.fixture
    async def forgetful(self) -> AsyncIterator[Plane]:
        store = ForgetfulStore()
        await store.open()
        plane = Plane(store)
        await put_entries(plane, HTTP, RESOLVER, splitter(90))
        await put_upstreams(plane, "web", "api")
        for service, host in (("web", 10), ("api", 20)):
            sink(plane).put(service, instances(host))
        await plane.catalog.tick()
        store.fails = True
        with pytest.raises(UnavailableError):
            await plane.mesh.entries.apply([DeleteEntry("service-splitter", "web")])
        store.fails = False
        await plane.bindings.put((GROUP, WEB), Binding("other"))
        yield plane
        await plane.publisher.close()
        await store.close()

    async def test_the_server_keeps_serving_and_reports_the_clash(self, forgetful: Plane) -> None:
        await put_entries(forgetful, {"Kind": "service-resolver", "Name": "api", "ConnectTimeout": "1s"})
        assert "bound to service 'other'" in forgetful.mesh.lowered.get(GROUP).error
        assert owners(forgetful)[WEB] == BINDING
        assert set(served(forgetful, CLUSTER)) == {WEB, "api.default.dc1.internal.consul"}

    async def test_a_clashing_name_may_be_lowered_again(self, forgetful: Plane) -> None:
        await put_entries(forgetful, {"Kind": "service-resolver", "Name": "api", "ConnectTimeout": "1s"})
        await put_entries(forgetful, splitter(50))
        assert owners(forgetful)[WEB] == BINDING
        assert {V1, V2} <= set(served(forgetful, ENDPOINT))
        with pytest.raises(OwnedError):
            await forgetful.mesh.entries.apply([DeleteEntry("service-splitter", "web")])
        await forgetful.bindings.delete((GROUP, WEB))
        await forgetful.mesh.entries.apply([DeleteEntry("service-splitter", "web")])
        assert owners(forgetful)[WEB] == LOWERED
        assert forgetful.mesh.lowered.get(GROUP).error == ""

    async def test_a_restart_serves_lowered_resources(self, forgetful: Plane) -> None:
        again = await start(forgetful.restarted())
        assert owners(again)[WEB] == LOWERED
