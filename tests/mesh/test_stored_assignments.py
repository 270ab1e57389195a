"""What is served where the stored upstreams cannot be lowered anew: the stored clusters, with their endpoints."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest

from tests.mesh.test_lowered_groups import (
    GROUP,
    HTTP,
    RESOLVER,
    V1,
    V2,
    bodies,
    put_entries,
    put_upstreams,
    served,
    splitter,
)
from tests.services.test_bindings import instances, sink
from tests.support.plane import Plane
from xds.codec import schema
from xds.mesh.core.chain.index import ChainContext
from xds.mesh.core.lower.upstream_context import UpstreamContext
from xds.model.resource_type import CLUSTER, ENDPOINT
from xds.store.base import NO_META, Commit, GroupPush, Meta, UnavailableError
from xds.store.sqlite.memory import MemoryStore

API = "api.default.dc1.internal.consul"
LEGS = {f"failover-target~{index}~{API}" for index in range(2)}
ELSEWHERE = ChainContext("dc9", "a.internal.acme")  # both are parts of the names of clusters


class RefusingStore(MemoryStore):
    """Commits nothing while ``refuses``."""

    refuses = False

    async def commit_all(self, pushes: Sequence[GroupPush], *, push_id: str, meta: Meta = NO_META) -> list[Commit]:
        if self.refuses:
            raise UnavailableError("the disk is full")
        return await super().commit_all(pushes, push_id=push_id, meta=meta)


@pytest.fixture
async def store() -> AsyncIterator[RefusingStore]:
    made = RefusingStore()
    await made.open()
    yield made
    await made.close()


@pytest.fixture
async def shop(store: RefusingStore) -> AsyncIterator[Plane]:
    """A group with two upstreams: one is split, the other fails over."""
    plane = Plane(store)
    failover = {"Kind": "service-resolver", "Name": "api", "Failover": {"*": {"Datacenters": ["dc2"]}}}
    await put_entries(plane, HTTP, RESOLVER, splitter(90), failover)
    await put_upstreams(plane, "web", "api")
    sink(plane).put("web", instances(10))
    sink(plane).put("api", instances(20))
    await plane.catalog.tick()
    await plane.catalog.save()
    yield plane
    await plane.publisher.close()


async def start(plane: Plane) -> Plane:
    await plane.publisher.load()
    await plane.catalog.load()
    return plane


def ports(plane: Plane, name: str) -> list[int]:
    """Where the endpoints of an assignment are."""
    message: Any = schema.require("envoy.config.endpoint.v3.ClusterLoadAssignment")()
    message.ParseFromString(served(plane, ENDPOINT)[name].body)
    found = [one for each in message.endpoints for one in each.lb_endpoints]
    return [one.endpoint.address.socket_address.port_value for one in found]


async def test_stored_clusters_keep_endpoints_when_their_names_cannot_change(
    store: RefusingStore, shop: Plane, capsys: pytest.CaptureFixture[str]
) -> None:
    store.refuses = True
    again = await start(Plane(store, chain_context=ELSEWHERE))
    assert set(served(again, CLUSTER)) == {V1, V2, API, *LEGS}
    assert set(served(again, ENDPOINT)) == {V1, V2, *LEGS}
    assert bodies(again) == bodies(shop)
    assert ports(again, f"failover-target~0~{API}") == [20]
    assert again.mesh.lowered.get(GROUP).error == "the disk is full"
    assert "upstreams.not_lowered" in capsys.readouterr().out
    await again.publisher.close()


async def test_the_names_change_with_the_next_write(store: RefusingStore, shop: Plane) -> None:
    store.refuses = True
    again = await start(Plane(store, chain_context=ELSEWHERE))
    store.refuses = False
    await put_entries(again, splitter(50))
    names = {f"{each}.web.default.dc9.internal.a.internal.acme" for each in ("v1", "v2")}
    assert names <= set(served(again, CLUSTER))
    assert names <= set(served(again, ENDPOINT))
    assert not {V1, V2, *LEGS} & set(again.mesh.lowered.content(GROUP).assignments)
    assert again.mesh.lowered.get(GROUP).error == ""
    await again.publisher.close()


async def test_upstreams_that_a_release_refuses_keep_endpoints(
    store: RefusingStore, shop: Plane, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(context: UpstreamContext) -> None:
        context.refuse("stricter", "this release refuses it", "service-splitter", "web")

    monkeypatch.setattr("xds.mesh.core.lower.lowering.check_routes", refuse)
    again = await start(shop.restarted())
    assert bodies(again) == bodies(shop)
    assert set(served(again, ENDPOINT)) == {V1, V2, *LEGS}
    assert "this release refuses it" in again.mesh.lowered.get(GROUP).error
    sink(again).put("api", instances(21))
    await again.catalog.tick()
    assert 21 in ports(again, f"failover-target~0~{API}")
    await again.publisher.close()


async def test_a_backup_of_another_trust_domain_is_lowered_again(store: RefusingStore, shop: Plane) -> None:
    records = [record async for batch in shop.store.dump() for record in batch]
    target = MemoryStore()
    await target.open()
    plane = await start(Plane(target, chain_context=ELSEWHERE))
    for service in ("web", "api"):
        sink(plane).put(service, instances(30))
    await plane.catalog.tick()
    await target.restore(lambda: iter(records), replace=True)
    await plane.publisher.reload()
    names = {one for one in served(plane, CLUSTER) if not one.startswith("api.")}
    assert {one.partition(".internal.")[2] for one in names} == {"a.internal.acme"}
    assert set(served(plane, ENDPOINT)) == names
    await plane.publisher.close()
    await target.close()
