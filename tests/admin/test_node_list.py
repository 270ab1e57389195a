"""The list of nodes: text, order by trouble, counts over all that match, and pages."""

from __future__ import annotations

from collections import Counter
from itertools import islice
from time import time
from typing import Any

import pytest

from tests.admin.conftest import Api
from tests.support.connected import Client
from tests.support.resources import static_cluster
from xds.model.node import Locality, Node
from xds.model.resource_type import CLUSTER, LISTENER

A = static_cluster("a", 80)
PATH = "/api/v1/nodes"
FILTERS: tuple[dict[str, str], ...] = (
    {},
    {"group": "edge"},
    {"state": "nacked"},
    {"state": "pending"},
    {"state": "synced"},
    {"text": "1.35"},
    {"text": "EDGE-1"},
    {"text": "no such port"},
    {"text": "EU"},
    {"selector": 'node.locality.zone == "1b"'},
    {"group": "edge", "state": "nacked", "text": "edge-1"},
    {"text": "nobody"},
    {"user_agent": "envoy 1.36.0"},
    {"user_agent": "envoy 1.36"},
)
RANK = {"nacked": 0, "orphaned": 1, "pending": 2, "synced": 3, "not_subscribed": 3}


@pytest.fixture
async def fleet(api: Api) -> Api:
    """Nodes in all states: every fourth one rejects, is pending, is synced, or is gone."""
    await api.put("edge", A)
    held = api.plane.publisher.groups.content("edge").snapshot.get(CLUSTER)
    for number in range(24):
        where, version = Locality("eu", f"1{'ab'[number % 2]}"), f"envoy 1.{35 + number % 2}.0"
        client = Client(api.plane.fleet, Node(f"edge-{number}", "edge", where, user_agent=version), "edge")
        client.subscribe(CLUSTER)
        match number % 4:
            case 0:
                client.nack(held, f"No such port: {number}")
            case 1:
                client.send(held)
            case 2:
                client.ack(held)
            case _:
                client.ack(held)
                client.leave()
    orphan = Client(api.plane.fleet, Node("orphan", "other"), "edge")
    orphan.subscribe(LISTENER)
    orphan.move("")
    api.plane.fleet.reporter_opened(Node("reporter", "edge"), "edge", time())
    return api


async def every(api: Api, **query: str) -> list[dict[str, Any]]:
    """All items, page by page."""
    found: list[dict[str, Any]] = []
    token = ""
    while True:
        page = (await api.client.get(PATH, params={**query, "limit": 5, "page_token": token})).json()
        found += page["items"]
        if "next_page_token" not in page:
            return found
        assert len(page["items"]) == 5
        token = page["next_page_token"]


def state_of(item: dict[str, Any]) -> str:
    states = [type["state"] for type in item["types"].values()]
    return min(states, key=lambda state: (RANK[state], state != "synced"), default="not_subscribed")


@pytest.mark.parametrize("query", FILTERS, ids=str)
async def test_counts_are_those_of_the_items(fleet: Api, query: dict[str, str]) -> None:
    """Under every filter, whatever the order and the page."""
    items = await every(fleet, **query)
    for more in ({}, {"order": "trouble"}, {"limit": "1"}):
        counts = (await fleet.client.get(PATH, params={**query, **more, "counts": "true"})).json()["counts"]
        present = [item for item in items if item["connected"]]
        assert counts["total"] == len(items)
        assert counts["connected"] == len(present) == sum(counts["by_state"].values())
        assert Counter(counts["by_state"]) == Counter(map(state_of, present)), "all others are gone"
        assert counts["by_version"] == Counter(item["user_agent"] for item in items)
        assert counts["by_group"] == Counter(item["group"] for item in items if item["connected"])
        nacked = [item["group"] for item in items if item["connected"] and state_of(item) == "nacked"]
        assert counts["nacked_by_group"] == Counter(nacked)
    assert "counts" not in (await fleet.client.get(PATH, params=query)).json()


@pytest.mark.parametrize("query", FILTERS, ids=str)
async def test_trouble_comes_first(fleet: Api, query: dict[str, str]) -> None:
    by_id = await every(fleet, **query)
    assert await every(fleet, **query, order="trouble") == sorted(by_id, key=lambda item: RANK[state_of(item)])


async def test_counts_equal_the_census(fleet: Api) -> None:
    census = fleet.plane.fleet.census(time())
    items = await every(fleet, group="edge", state="nacked")
    assert census.nacked["clusters", "edge"] == len(items) == 6
    counts = (await fleet.client.get(PATH, params={"group": "edge", "counts": "true"})).json()["counts"]
    assert counts["connected"] == census.nodes["edge"] + 1, "and the one that only reports load"


async def test_a_client_is_named_exactly(fleet: Api) -> None:
    for agent, number in (("envoy 1.36.0", 12), ("envoy 1.36", 0), ("", 2)):
        items = await every(fleet, user_agent=agent)
        assert [item["user_agent"] for item in items] == [agent] * number


@pytest.mark.parametrize("text", [".*", "[", "(", "\\", "%", "<b>edge</b>", '"><script>', "\x01", "\u0130"])
async def test_text_is_no_pattern(fleet: Api, text: str) -> None:
    answer = await fleet.client.get(PATH, params={"text": text, "counts": "true"})
    assert (answer.status_code, answer.json()["items"], answer.json()["counts"]["total"]) == (200, [], 0)


async def test_text_of_a_message_is_found_literally(fleet: Api) -> None:
    held = fleet.plane.publisher.groups.content("edge").snapshot.get(CLUSTER)
    client = Client(fleet.plane.fleet, Node("hostile"), "edge")
    client.subscribe(CLUSTER)
    client.nack(held, "<img src=x onerror=alert(1)> (a|b)*")
    for text in ("<IMG", "(A|B)*"):
        assert [item["id"] for item in await every(fleet, text=text)] == ["hostile"]
    client.leave()
    assert [item["id"] for item in await every(fleet, text="<img")] == ["hostile"], "as long as the NACK is shown"


@pytest.mark.parametrize(
    ("query", "name"),
    [({"order": "worst"}, "order"), ({"text": "x" * 257}, "text"), ({"counts": "some"}, "counts")],
)
async def test_an_invalid_parameter_is_named(fleet: Api, query: dict[str, str], name: str) -> None:
    problem = await fleet.client.get(PATH, params=query)
    assert problem.status_code == 422 and name in problem.text, problem.text


@pytest.mark.parametrize("token", ["ZWRnZS0x", "IA==", "eCB5"])  # "edge-1", " ", "x y"
async def test_a_place_of_another_order_is_refused(fleet: Api, token: str) -> None:
    answer = await fleet.client.get(PATH, params={"order": "trouble", "page_token": token})
    assert answer.status_code == 400 and "page_token" in answer.json()["detail"]


async def test_a_node_that_is_forgotten_between_two_pages(fleet: Api) -> None:
    first = (await fleet.client.get(PATH, params={"order": "trouble", "limit": 2})).json()
    fleet.plane.fleet.stream_closed(next(islice(fleet.plane.fleet.streams(), 1)).id, time())
    fleet.plane.fleet.stream_opened(999, "", "ADS", "sotw", time() + 7200)
    rest = (await fleet.client.get(PATH, params={"order": "trouble", "page_token": first["next_page_token"]})).json()
    ids = [item["id"] for item in [*first["items"], *rest["items"]]]
    assert len(set(ids)) == len(ids) and ids[:2] == ["edge-0", "edge-4"]
