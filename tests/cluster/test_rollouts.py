"""A rollout of several servers: one decides by the facts of all, and each serves its nodes by the document."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from time import time
from typing import Any

import pytest

from tests.cluster.conftest import Site
from tests.support.connected import Client
from tests.support.resources import static_cluster
from xds.admin.rollout_facts import FactsOfAll
from xds.codec.resources import decode_resource
from xds.model.node import Locality, Node
from xds.model.resource_type import CLUSTER
from xds.push.request import PushOptions
from xds.push.rollout_runner import RolloutRunner
from xds.push.rollout_step import Effect
from xds.rollouts.rollout import Rollout, RolloutState
from xds.store.member_register import Member
from xds.store.sqlite.memory import MemoryStore

NODES = {"a": ("n1", "n2"), "b": ("n3", "n4", "n5")}
PLAN = {"waves": ["60%"], "hold_s": 0.0}
DEADLINE_S = 20.0


class Fleet:
    """The nodes of two servers on one store. ``runner`` is that of server a, which holds the lease."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self.clients: dict[str, Client] = {}
        self.has: dict[str, str] = {}
        self.places = {id: name for name, ids in NODES.items() for id in ids}
        services = site["a"].services
        publisher = site["a"].plane.publisher
        gather = FactsOfAll(publisher.rollout_facts, services.others).gather
        publisher.rollout_pushes.gather = gather
        self.runner = RolloutRunner(publisher.rollouts, site["a"].plane.fleet, gather)
        for id, place in self.places.items():
            self.clients[id] = site.connect(place, id)

    async def push(self, name: str, **plan: object) -> None:
        options = PushOptions(rollout={**PLAN, **plan}) if plan else PushOptions()
        resources = [decode_resource(static_cluster(name, 80))]
        await self.site["a"].plane.publisher.push("edge", resources, options=options)
        await self.until(lambda: all(self.rollout(at) == self.rollout("a") for at in NODES) and self.is_level())

    def is_level(self) -> bool:
        contents = [self.site[name].plane.publisher.groups.find("edge") for name in NODES]
        return len({each.revision if each is not None else 0 for each in contents}) == 1

    def rollout(self, name: str) -> Rollout | None:
        return self.site[name].plane.publisher.rollouts.find("edge")

    def served(self, id: str) -> str:
        view = self.site[self.places[id]].plane.cache.resolve(Node(id, "edge", Locality("eu", "1a")))
        assert view is not None
        (name,) = view.snapshot.get(CLUSTER).resources
        return name

    def wave(self, name: str = "b") -> set[str]:
        return {id for id in self.clients if self.served(id) == name}

    def answer(self, refuses: str = "", refused: str = "") -> None:
        """Nodes ACK what they are served; the node ``refuses`` NACKs the cluster ``refused``."""
        for id, client in self.clients.items():
            name = self.served(id)
            if self.has.get(id) == name:
                continue
            view = self.site[self.places[id]].plane.cache.resolve(Node(id, "edge", Locality("eu", "1a")))
            assert view is not None
            held = view.snapshot.get(CLUSTER)
            if (id, name) == (refuses, refused):
                client.nack(held, "cannot bind", time())
            else:
                client.ack(held)
            self.has[id] = name

    async def until(self, condition: Callable[[], bool], each: Callable[[], None] = lambda: None) -> None:
        async with asyncio.timeout(DEADLINE_S):
            while not condition():
                each()
                await asyncio.sleep(0.01)


@pytest.fixture
async def fleet() -> AsyncIterator[Fleet]:
    site = Site(store=MemoryStore())
    assert site.store is not None
    await site.store.open()
    for name in NODES:
        api = await site.add(name)
        await api.plane.publisher.load()
        api.plane.publisher.following.start()
    made = Fleet(site)
    await made.push("a")
    made.answer()
    yield made
    await made.runner.close()
    await site.close()


async def test_a_wave_is_of_the_nodes_of_all_servers(fleet: Fleet) -> None:
    await fleet.push("b", hold_s=0.0)
    assert len(fleet.wave()) == 3
    fleet.runner.start()
    await fleet.until(lambda: len(fleet.wave()) == 5, fleet.answer)
    await fleet.until(lambda: not (found := fleet.rollout("b")) or not found.is_open, fleet.answer)
    assert fleet.rollout("b") == fleet.rollout("a")
    found = fleet.rollout("a")
    assert found is not None and found.state is RolloutState.PROMOTED


async def test_a_nack_at_another_server_takes_it_back(fleet: Fleet) -> None:
    await fleet.push("b", hold_s=0.0)
    outside = fleet.clients.keys() - fleet.wave()
    refuses = next(id for id in sorted(fleet.wave()) if fleet.places[id] == "b")
    fleet.runner.start()
    began_s = asyncio.get_running_loop().time()
    fleet.answer(refuses, "b")

    def check() -> None:
        assert not outside & fleet.wave()

    await fleet.until(lambda: all(not (found := fleet.rollout(at)) or not found.is_open for at in NODES), check)
    assert asyncio.get_running_loop().time() - began_s < 2.0
    found = fleet.rollout("b")
    assert found is not None and found.reason == f"{refuses} rejected it: clusters/b: cannot bind"
    await fleet.until(lambda: fleet.wave("a") == set(NODES["a"]) | set(NODES["b"]))


async def test_without_the_facts_of_a_server_it_waits(fleet: Fleet, silent: str) -> None:
    await fleet.push("b", hold_s=0.0)
    fleet.answer()
    fleet.site.rows.append(Member("c", silent))
    for _ in range(3):
        await fleet.runner.look()
    assert len(fleet.wave()) == 3
    fleet.site.rows.pop()
    for _ in range(2):
        await fleet.runner.look()
    assert len(fleet.wave()) > 3


async def test_any_server_shows_the_rollout_of_all_nodes_and_takes_decisions(fleet: Fleet) -> None:
    at_b = fleet.site["b"].client
    body = {"resources": [static_cluster("b", 80)], "rollout": PLAN}
    a = fleet.site["a"].client
    dry = (await a.put("/api/v1/groups/edge/snapshot", params={"dry_run": "true"}, json=body)).json()["rollout"]
    assert [(wave["size"], wave["count"]) for wave in dry["planned"]] == [("60%", 3), ("100%", 2)]
    await fleet.push("b", hold_s=3600.0, timeout_s=3600.0)
    assert set(dry["planned"][0]["nodes"]) == fleet.wave()
    fleet.answer()
    for client in (a, at_b):
        shown = (await client.get("/api/v1/groups/edge/rollout")).json()
        assert (shown["state"], shown["nodes"]) == ("running", {"wave": 3, "acked": 3, "nacked": 0, "outside": 2})
        assert (shown["synced"], shown["pending"]) == (5, 0)
        assert (shown["types"]["clusters"]["synced"], shown["types"]["clusters"]["at_base"]) == (5, 2)
        head = (await client.get("/api/v1/nodes?line=head")).json()["items"]
        assert {node["id"] for node in head} == fleet.wave()
    paused = await at_b.post("/api/v1/groups/edge/rollout", json={"action": "pause", "message": "lunch"})
    assert (paused.status_code, paused.json()["state"]) == (200, "paused")
    await fleet.until(lambda: fleet.rollout("a") == fleet.rollout("b"))
    (listed,) = (await a.get("/api/v1/rollouts")).json()["items"]
    assert (listed["group"], listed["state"], listed["why"]) == ("edge", "paused", "lunch")
    aborted = await at_b.post("/api/v1/groups/edge/rollout", json={"action": "abort"})
    assert aborted.json()["state"] == "rolled_back"
    await fleet.until(lambda: not fleet.wave() and fleet.is_level(), fleet.answer)


async def test_a_dry_run_tries_a_selector_on_the_nodes_of_all_servers(fleet: Fleet, silent: str) -> None:
    plan = {"waves": ["60%"], "selector": 'node.id == "n4"'}  # a node of server b
    body = {"resources": [static_cluster("b", 80)], "rollout": plan}

    async def dry_run() -> dict[str, Any]:
        answer = await fleet.site["a"].client.put("/api/v1/groups/edge/snapshot", params={"dry_run": "true"}, json=body)
        found: dict[str, Any] = answer.json()["rollout"]
        return found

    dry = await dry_run()
    assert [(wave["size"], wave["count"]) for wave in dry["planned"]] == [("named", 1), ("60%", 2), ("100%", 2)]
    assert dry["planned"][0]["nodes"] == ["n4"]
    assert "no connected node" not in dry.get("detail", "") and "partial" not in dry
    fleet.site.rows.append(Member("c", silent))
    assert (await dry_run())["partial"] == ["c"]
    fleet.site.rows.pop()


async def test_a_silent_server_holds_no_other_push_to_the_group(fleet: Fleet, silent: str) -> None:
    """Only the push that begins a rollout asks the other servers, and nobody waits for it meanwhile."""
    fleet.site.rows.append(Member("c", silent))
    publisher = fleet.site["a"].plane.publisher
    began = asyncio.create_task(
        publisher.push("edge", [decode_resource(static_cluster("b", 80))], options=PushOptions(rollout=PLAN))
    )
    for name in ("c", "d", "e"):
        await publisher.push("edge", [decode_resource(static_cluster(name, 80))])
        assert not began.done()
    result = await began
    assert (result.revision, result.rollout.effect) == (5, Effect.STARTED)
    assert result.rollout.nodes is not None and result.rollout.nodes.silent == ("c",)
    fleet.site.rows.pop()
