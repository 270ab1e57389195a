"""The timeline of a node over HTTP: after a NACK, a roll-back, a late ACK, a move and a rollout."""

from __future__ import annotations

from time import time
from typing import Any
from urllib.parse import quote

import pytest

from tests.admin.conftest import Api
from tests.fleet import conftest
from tests.fleet.conftest import response
from tests.support.resources import static_cluster
from xds.fleet.node_past import KEPT_MOMENTS
from xds.model.resource_type import CLUSTER
from xds.model.snapshot import ResourceSet
from xds.protocol.events import Acked, Event
from xds.push.rollout_runner import RolloutRunner


class Client(conftest.Client):
    """Its events happen now; ``later_s`` later if a test says so."""

    later_s = 0.0

    def apply_events(self, *events: Event) -> None:
        self.now = time() + self.later_s
        self.fleet.apply_events(self.id, events, self.now)


A, B = static_cluster("a", 80), static_cluster("b", 80)


def held(api: Api, group: str = "edge") -> ResourceSet:
    return api.plane.publisher.groups.content(group).snapshot.get(CLUSTER)


def connected(api: Api, node: str = "n1", group: str = "edge") -> Client:
    client = Client(api.plane.fleet, node, group)
    client.subscribe("clusters", "*")
    return client


async def items(api: Api, node: str = "n1", **query: Any) -> list[dict[str, Any]]:
    """The items, oldest first."""
    answer = await api.client.get(f"/api/v1/nodes/{quote(node, safe='')}/timeline", params=query)
    assert answer.status_code == 200, answer.text
    found = answer.json()
    assert found["node"] == node
    times = [item["time"] for item in found["items"]]
    assert times == sorted(times, reverse=True)
    return list(reversed(found["items"]))


def told(found: list[dict[str, Any]]) -> list[tuple[str, int | None]]:
    return [(item["kind"], item["revision"]) for item in found]


async def test_a_nack_and_a_rollback(api: Api) -> None:
    await api.put("edge", A)
    client = connected(api, "n/1")
    client.ack(response(held(api)))
    await api.put("edge", A, B, params={"author": "me", "message": "add b"})
    client.nack(response(held(api)), "no such port", ["b"])
    await api.client.post("/api/v1/groups/edge/rollback", json={"to": 1})
    client.ack(response(held(api)))
    found = await items(api, "n/1")
    assert told(found) == [
        ("connected", 1),
        ("sent", 2),
        ("nacked", 2),
        ("sent", 3),
        ("resolved", None),
    ]
    assert (found[1]["text"], found[1]["by"]) == ("push: add b", "me")
    assert (found[2]["text"], found[2]["names"], found[2]["type"]) == ("no such port", ["b"], "clusters")
    assert found[3]["text"] == "rollback to 1" and found[4]["nack"] == found[2]["nack"]


async def test_a_late_ack_and_a_move(api: Api) -> None:
    await api.put("edge", A)
    await api.put("blue", A)
    client = connected(api)
    sent = response(held(api))
    client.send(sent)
    client.later_s = 70
    client.apply_events(Acked(CLUSTER, sent.nonce, sent))
    client.follow("blue")
    found = {item["kind"]: item for item in await items(api)}
    late, moved = found["acked"], found["moved"]
    assert (late["type"], late["revision"], late["late_s"], late["text"]) == (
        "clusters",
        1,
        70,
        "70 s after it was sent",
    )
    assert (moved["group"], moved["previous"]) == ("blue", "edge")


async def test_the_waves_of_a_rollout(api: Api) -> None:
    """The canary is served the head, and the base again; the other node keeps what it has."""
    publisher = api.plane.publisher
    await api.put("edge", A)
    clients = {id: connected(api, id) for id in ("n1", "n2")}
    for client in clients.values():
        client.ack(response(held(api)))
    plan = {"waves": "1", "hold_s": 60}
    assert (
        await api.client.put("/api/v1/groups/edge/snapshot", json={"resources": [A, B], "rollout": plan})
    ).is_success
    rollout = publisher.rollouts.find("edge")
    assert rollout is not None
    (canary,) = (id for id, client in clients.items() if rollout.in_wave(client.node))
    (other,) = clients.keys() - {canary}
    clients[canary].nack(response(held(api)), "no such port", ["b"])
    runner = RolloutRunner(publisher.rollouts, api.plane.fleet, publisher.rollout_facts.gather)
    await runner.look()
    of_canary, of_other = await items(api, canary), await items(api, other)
    assert told(of_canary) == [
        ("connected", 1),
        ("pushed", 2),
        ("line", 2),
        ("nacked", 2),
        ("line", 1),
        ("sent", 3),
    ]
    lines = [item for item in of_canary if item["kind"] == "line"]
    assert [item["line"] for item in lines] == ["head", "base"] and lines[0]["text"] == "wave 1 of 2"
    assert "no such port" in lines[1]["text"] or canary in lines[1]["text"]
    assert told(of_other) == [("connected", 1), ("pushed", 2), ("pushed", 3)]


async def test_it_is_bounded(api: Api) -> None:
    for number in range(6):
        await api.put("edge", static_cluster("a", 80 + number))
    connected(api)
    for number in range(6, 9):
        await api.put("edge", static_cluster("a", 80 + number))
    whole = (await api.client.get("/api/v1/nodes/n1/timeline")).json()
    assert not whole["truncated"]
    three = (await api.client.get("/api/v1/nodes/n1/timeline", params={"limit": 4})).json()
    assert three["items"] == whole["items"] and not three["truncated"], "earlier pushes are not of this node"
    short = (await api.client.get("/api/v1/nodes/n1/timeline", params={"limit": 2})).json()
    assert short["truncated"] and short["items"] == whole["items"][:2]
    for _ in range(KEPT_MOMENTS):
        connected(api, "n2").close()
    assert (await api.client.get("/api/v1/nodes/n2/timeline")).json()["truncated"]


async def test_a_node_that_is_gone(api: Api) -> None:
    """It is known for an hour, then not."""
    await api.put("edge", A)
    client = connected(api, "<b>n1</b>")
    client.close()
    assert told(await items(api, "<b>n1</b>"))[-1] == ("disconnected", 1)
    api.plane.fleet.stream_opened(999, "", "ADS", "sotw", time() + 7200)
    answer = await api.client.get(f"/api/v1/nodes/{quote('<b>n1</b>', safe='')}/timeline")
    assert (answer.status_code, answer.json()["detail"]) == (
        404,
        "no node '<b>n1</b>' is connected or was connected recently",
    )


@pytest.mark.parametrize("query", [{"limit": 0}, {"limit": 1001}, {"limit": "x"}])
async def test_an_invalid_limit_is_named(api: Api, query: dict[str, str]) -> None:
    connected(api)
    answer = await api.client.get("/api/v1/nodes/n1/timeline", params=query)
    assert answer.status_code == 422 and "limit" in answer.text


async def test_a_group_that_is_deleted_has_no_history_but_the_node_its_past(api: Api) -> None:
    client = connected(api, group="nosuch")
    assert told(await items(api)) == [("connected", None)]
    client.follow("")
    assert told(await items(api)) == [("connected", None), ("orphaned", None)]
