"""A random run of pushes, rollouts and answers of proxies: all places tell the same of one rollout."""

from __future__ import annotations

import random
from time import time
from typing import Any

import pytest

from tests.admin.conftest import Api
from tests.support.connected import Client
from tests.support.resources import cluster_load_assignment, eds_cluster, static_cluster
from xds.fleet.event_log import EventFilter, EventKind
from xds.model.node import Node
from xds.model.resource_type import CLUSTER
from xds.model.snapshot import Snapshot
from xds.push.rollout_runner import RolloutRunner
from xds.server.counters import Metrics
from xds.server.metrics.collectors import RolloutMetrics

GROUP = "edge"
PATH = f"/api/v1/groups/{GROUP}"
NODES = tuple(f"n{number}" for number in range(8))
CONTENTS = 6  # so few that some are pushed again
PLANS = (
    {"waves": ["1", "50%"], "hold_s": 0},
    {"waves": ["50%"], "hold_s": 0, "on_failure": "hold"},
    {"waves": ["10%"], "selector": 'node.id == "n9"'},
    {"waves": ["100%"], "hold_s": 0},
    "all_at_once",
    None,
)
ACTIONS = {"pause": "rollout.paused", "resume": "rollout.resumed", "promote": "rollout.promoting", "abort": "rollback"}
# The last event of a rollout in this state.
LAST = {"running": {"started", "wave", "resumed", "promoting"}}
STEPS = 40
Json = dict[str, Any]


class RandomRun:
    """Random steps. ``begun`` are the heads of rollouts."""

    def __init__(self, api: Api, seed: int) -> None:
        self.api = api
        self.chance = random.Random(seed)
        self.publisher = api.plane.publisher
        self.runner = RolloutRunner(self.publisher.rollouts, api.plane.fleet, self.publisher.rollout_facts.gather)
        self.clients: dict[str, Client] = {}
        self.begun: list[int] = []

    async def step(self) -> None:
        steps = [self.push] * 3 + [self.act] * 2 + [self.runner.look] * 4 + [self.answer] * 5 + [self.come, self.go]
        await self.chance.choice(steps)()

    async def push(self) -> None:
        content = self.chance.randrange(CONTENTS)
        endpoints = cluster_load_assignment("e", 1000 + self.chance.randrange(3))
        body: Json = {"resources": [static_cluster(f"c{content}", 80), eds_cluster("e"), endpoints]}
        plan = self.chance.choice(PLANS)
        answer = await self.api.client.put(
            f"{PATH}/snapshot", json={**body, "retry": content < 3, **({"rollout": plan} if plan is not None else {})}
        )
        assert answer.status_code in {200, 409}, answer.text
        rollout = answer.json().get("rollout", {})
        if rollout.get("effect") in {"started", "superseded"}:
            self.begun.append(rollout["head"])

    async def act(self) -> None:
        """What a person may do; the audit list has it."""
        action = self.chance.choice(list(ACTIONS))
        answer = await self.api.client.post(f"{PATH}/rollout", json={"action": action, "message": "why"})
        assert answer.status_code in {200, 404}, answer.text
        if answer.status_code == 200:
            written = (await self.get("/api/v1/audit", newest="true"))["items"]
            newest = next(each for each in written if each["action"] != "refused")
            assert (newest["action"], newest["group"]) == (ACTIONS[action], GROUP), newest
            assert "why" in newest["message"], newest

    async def answer(self) -> None:
        """Most proxies ACK what they are served; sometimes one rejects it."""
        for name, client in self.clients.items():
            held = self.served(name).get(CLUSTER)
            what = self.chance.random()
            if what < 0.05:
                client.nack(held, "no good", time())
            elif what < 0.8:
                client.ack(held)

    async def come(self) -> None:
        name = self.chance.choice(NODES)
        if name not in self.clients:
            self.clients[name] = Client(self.api.plane.fleet, Node(name, GROUP), GROUP)
            self.clients[name].subscribe(CLUSTER)

    async def go(self) -> None:
        if len(self.clients) > 1:
            self.clients.pop(self.chance.choice(sorted(self.clients))).leave()

    def served(self, name: str) -> Snapshot:
        view = self.api.plane.cache.resolve(Node(name, GROUP))
        assert view is not None
        return view.snapshot

    async def get(self, path: str, **query: str) -> Json:
        answer = await self.api.client.get(path, params=query)
        assert answer.status_code == 200, answer.text
        found: Json = answer.json()
        return found

    # What is told

    async def check(self) -> None:
        if not self.begun:
            return
        status = await self.get(f"{PATH}/rollout")
        is_open = status["state"] in {"running", "paused", "held"}
        assert status["head"] == self.begun[-1]
        await self._check_lists(status, is_open)
        for name in self.clients:
            await self._check_node(name, status, is_open)
        self._check_events(status, is_open)
        self._check_metrics(status, is_open)

    async def _check_lists(self, status: Json, is_open: bool) -> None:
        listed = (await self.get("/api/v1/rollouts"))["items"]
        assert [each["group"] for each in listed] == [GROUP] * is_open
        for each in listed:
            assert {name: each.get(name) for name in each if name != "group"} == {
                name: status.get(name) for name in each if name != "group"
            }
        revisions = (await self.get(f"{PATH}/revisions"))["items"]
        lines = {each["revision"]: each["line"] for each in revisions if "line" in each}
        assert lines == ({status["base"]: "base", status["head"]: "head"} if is_open else {})
        assert revisions[0]["revision"] == status["revision"] == (await self.get(PATH))["revision"]
        (head,) = (each for each in revisions if each["revision"] == status["head"])
        assert bool(head["undone_by"]) >= (status["state"] == "rolled_back")
        (row,) = (each for each in (await self.get("/api/v1/check"))["items"] if each["check"] == "rollouts")
        if is_open:
            told = f"revision {status['head']} {status['state']} at wave {status['wave']} of {status['waves']}"
            assert told in row["detail"]
            assert (row["state"] == "ok") == (status["state"] == "running")

    async def _check_node(self, name: str, status: Json, is_open: bool) -> None:
        node, explained = await self.get(f"/api/v1/nodes/{name}"), await self.get(f"/api/v1/nodes/{name}/explain")
        line = node.get("line", "")
        by_line = [each["id"] for each in (await self.get("/api/v1/nodes", line=line or "head"))["items"]]
        assert (name in by_line) == is_open == bool(line) == ("rollout" in explained)
        assert explained["revision"] == self.served(name).revision
        timeline = (await self.get(f"/api/v1/nodes/{name}/timeline"))["items"]
        if line == "head":
            assert explained["rollout"].startswith(f"served {status['head']}: ")
            assert explained["revision"] == status["revision"]
            newest = next(each for each in timeline if each["kind"] == "line")
            assert (newest["line"], newest["revision"]) == ("head", status["head"])
        elif line == "base":
            assert explained["rollout"].startswith(f"served {status['base']}, not {status['head']}: ")
            assert explained["revision"] == status["base"]

    def _check_events(self, status: Json, is_open: bool) -> None:
        kinds = EventFilter(frozenset({EventKind.ROLLOUT}))
        events = self.api.plane.fleet.events.after(0, kinds, 1_000).events
        actions = [each.action for each in events if each.revision == status["head"]]
        assert actions[-1] in LAST.get(status["state"], {status["state"]}), actions
        started = [each.revision for each in events if each.action == "started"]
        ended = [each.revision for each in events if each.action in {"promoted", "rolled_back", "superseded"}]
        assert (started, ended) == (self.begun, self.begun[: len(self.begun) - is_open])

    def _check_metrics(self, status: Json, is_open: bool) -> None:
        plane, journal = self.api.plane, self.publisher.journal
        collector = RolloutMetrics(self.publisher.rollouts, journal.rollouts, plane.cache, plane.fleet, Metrics())
        found = {
            (sample.name.removeprefix("xds_server_"), *sample.labels.values()): sample.value
            for family in collector.collect()
            for sample in family.samples
        }
        states = {state: int(status["state"] == state) for state in ("running", "paused", "held")}
        assert {state: found["rollouts", state] for state in states} == states
        assert (
            sum(count for (name, *_), count in found.items() if name == "rollouts_ended_total")
            == len(self.begun) - is_open
        )
        if is_open:
            nodes = status["nodes"]
            assert found["rollout_nodes", GROUP, "head"] == nodes["wave"]
            assert found.get(("rollout_nodes", GROUP, "base"), 0) == nodes["outside"]
            assert nodes["wave"] + nodes["outside"] == len(self.clients)


@pytest.mark.parametrize(
    "seed", [*range(3), *(pytest.param(number, marks=pytest.mark.soak) for number in range(3, 30))]
)
async def test_all_places_tell_the_same(api: Api, seed: int) -> None:
    run = RandomRun(api, seed)
    await run.come()
    await api.put(GROUP, static_cluster("c", 80))
    for _ in range(STEPS):
        await run.step()
        await run.check()
    assert run.begun
