"""Nodes as several servers show them: one list, and commands that reach the server with the streams."""

from __future__ import annotations

import asyncio
from time import time

import pytest

from tests.cluster.conftest import Site
from tests.support.connected import Client
from tests.support.resources import static_cluster
from xds.model.resource_type import ENDPOINT
from xds.store.member_register import Member

A = static_cluster("a", 80)


async def test_both_show_the_nodes_of_both(site: Site) -> None:
    await site.put("edge", A)
    for server, node in (("a", "n1"), ("b", "n2"), ("a", "n10")):
        site.connect(server, node).ack(site.held(server))
    for asked in ("a", "b"):
        page = await site.get(asked, "/nodes")
        assert [(node["id"], node["server"]) for node in page["items"]] == [("n1", "a"), ("n2", "b"), ("n10", "a")]
        assert page.keys() == {"items"}


async def test_one_server_alone_names_no_server(site: Site) -> None:
    site.connect("a", "n1")
    del site.rows[1]
    page = await site.get("a", "/nodes")
    assert "server" not in page["items"][0] and "partial" not in page


async def test_pages_over_all_servers_miss_and_repeat_nothing(site: Site) -> None:
    ids = [f"n{number}" for number in range(1, 24)]
    for number, id in enumerate(ids):
        site.connect("a" if number % 3 else "b", id)
    found, token, pages_n = [], "", 0
    while True:
        page = await site.get("b" if pages_n % 2 else "a", "/nodes", limit=5, page_token=token)
        found += [node["id"] for node in page["items"]]
        pages_n += 1
        if "next_page_token" not in page:
            break
        assert len(page["items"]) == 5
        token = page["next_page_token"]
    assert found == ids and pages_n == 5


async def test_the_server_with_the_stream_shows_a_node_that_moved(site: Site) -> None:
    await site.put("edge", A)
    site.connect("a", "n1").leave()
    site.connect("b", "n1").ack(site.held("b"))
    (node,) = (await site.get("a", "/nodes"))["items"]
    assert node["server"] == "b" and node["connected"]
    one = await site.get("a", "/nodes/n1")
    assert one == await site.get("b", "/nodes/n1") == node


async def test_a_node_whose_streams_are_at_several_servers_is_shown_with_all(site: Site) -> None:
    """Behind a name with several addresses, a proxy opens each of its streams to one of them."""
    await site.put("edge", A)
    client = site.connect("a", "n1")
    client.ack(site.held("a"))
    site["b"].plane.fleet.reporter_opened(client.node, "edge", time())
    for asked in ("a", "b"):
        (node,) = (await site.get(asked, "/nodes"))["items"]
        assert node["server"] == "a" and node["types"]["clusters"]["state"] == "synced"
        assert await site.get(asked, "/nodes/n1") == node
        assert [item["name"] for item in (await site.get(asked, "/nodes/n1/resources"))["items"]] == ["a"]
        assert [row["name"] for row in (await site.get(asked, "/nodes/n1/explain"))["resources"]] == ["a"]
    endpoints = Client(site["b"].plane.fleet, client.node, "edge")
    endpoints.subscribe(ENDPOINT)
    (node,) = (await site.get("b", "/nodes"))["items"]
    assert node["types"].keys() == {"clusters", "endpoints"} and len(node["streams"]) == 2
    client.leave()
    endpoints.leave()
    (node,) = (await site.get("a", "/nodes"))["items"]
    assert node["server"] == "b" and node["connected"]


async def test_a_filter_does_not_show_where_a_node_was_before(site: Site) -> None:
    """The server that it left still knows it in the state that the filter asks for."""
    await site.put("edge", A)
    site.connect("a", "n1").leave()
    site.connect("b", "n1").ack(site.held("b"))
    assert (await site.get("a", "/nodes", state="pending"))["items"] == []
    assert [node["server"] for node in (await site.get("a", "/nodes", state="synced"))["items"]] == ["b"]


async def test_the_server_that_saw_a_node_last_shows_it(site: Site) -> None:
    now = time()
    for ago_s, server in ((20, "b"), (10, "a")):
        client = site.connect(server, "n1")
        site[server].plane.fleet.stream_closed(client.stream_id, now - ago_s)
    (node,) = (await site.get("b", "/nodes"))["items"]
    assert not node["connected"] and node["server"] == "a"
    assert (await site.get("b", "/nodes/n1"))["server"] == "a"


async def test_a_silent_server_is_named(site: Site, silent: str) -> None:
    site.connect("a", "n1")
    site.rows.append(Member("c", silent))
    begun = asyncio.get_running_loop().time()
    page = await site.get("b", "/nodes")
    assert page["partial"] == ["c"] and [node["id"] for node in page["items"]] == ["n1"]
    assert asyncio.get_running_loop().time() - begun < 10


async def test_a_server_that_is_gone_is_not_waited_for(site: Site) -> None:
    site.rows.append(Member("c", "http://127.0.0.1:1"))
    assert (await site.get("b", "/nodes"))["partial"] == ["c"]
    site.rows.pop()
    assert "partial" not in await site.get("b", "/nodes")


async def test_a_node_that_only_a_silent_server_may_know_is_not_called_unknown(site: Site, silent: str) -> None:
    assert (await site["a"].client.get("/api/v1/nodes/n1")).status_code == 404
    site.rows.append(Member("c", silent))
    answer = await site["a"].client.get("/api/v1/nodes/n1")
    assert answer.status_code == 503 and answer.json()["partial"] == ["c"]
    assert "silent: c" in answer.json()["detail"]


async def test_what_a_node_has_is_asked_from_the_server_with_its_stream(site: Site) -> None:
    await site.put("edge", A)
    site.connect("b", "n/1").ack(site.held("b"))
    for path in ("/nodes/n%2F1/resources", "/nodes/n%2F1/explain"):
        at_a, at_b = await site.get("a", path), await site.get("b", path)
        assert at_a == at_b
    assert (await site.get("a", "/nodes/n%2F1/resources"))["items"][0]["name"] == "a"


async def test_a_command_reaches_the_server_with_the_stream(site: Site) -> None:
    ended: list[str] = []
    site["b"].services.disconnect = lambda id: 1 if not ended.append(id) else 0  # type: ignore[func-returns-value]
    site.connect("b", "n1")
    answer = await site["a"].client.delete("/api/v1/nodes/n1", params={"author": "ada"})
    assert answer.json() == {"node": "n1", "streams": 1} and ended == ["n1"]
    audited = (await site.get("b", "/audit"))["items"][0]
    assert (audited["action"], audited["subject"], audited["author"]) == ("node.disconnected", "n1", "ada")
    assert audited["peer"].startswith("127.0.0.1:")
    assert (await site["a"].client.delete("/api/v1/nodes/n2")).status_code == 404
    assert (await site["a"].client.post("/api/v1/nodes/n1/release")).json()["nodes"] == 0


async def test_a_group_is_released_everywhere(site: Site, silent: str) -> None:
    await site.put("edge", A)
    let_go: list[str] = []

    for name in ("a", "b"):

        async def note(nodes: object, group: str = "", name: str = name) -> None:
            let_go.append(name)

        site[name].services.let_go = note
        site.connect(name, name)
    answer = await site["a"].client.post("/api/v1/groups/edge/release")
    assert answer.json() == {"nodes": 0, "clients": 0, "released": {}} and sorted(let_go) == ["a", "b"]
    site.rows.append(Member("c", silent))
    assert (await site["a"].client.post("/api/v1/groups/edge/release")).json()["partial"] == ["c"]


async def test_the_timeline_of_a_node_that_moved_between_servers(site: Site, silent: str) -> None:
    """Each server tells what it has seen, and the history of the group stands once."""
    await site.put("edge", A)
    before = site.connect("a", "n/1")
    before.nack(site.held("a"), "bad")
    before.leave()
    site.connect("b", "n/1").ack(site.held("b"))
    for asked in ("a", "b"):
        items = (await site.get(asked, "/nodes/n%2F1/timeline"))["items"]
        seen = sorted((item["kind"], item.get("server", "")) for item in items)
        assert seen == [
            ("connected", "a"),
            ("connected", "b"),
            ("disconnected", "a"),
            ("nacked", ""),
            ("sent", ""),
        ]
    assert (await site["a"].client.get("/api/v1/nodes/nobody/timeline")).status_code == 404
    site.rows.append(Member("c", silent))
    assert (await site.get("a", "/nodes/n%2F1/timeline"))["partial"] == ["c"]
    missing = await site["a"].client.get("/api/v1/nodes/nobody/timeline")
    assert (missing.status_code, missing.json()["partial"]) == (503, ["c"])


@pytest.mark.parametrize("method", ["DELETE", "POST"])
async def test_a_command_waits_for_no_silent_server(site: Site, silent: str, method: str) -> None:
    site.rows.append(Member("c", silent))
    path = "/api/v1/nodes/n1" + ("/release" if method == "POST" else "")
    answer = await site["a"].client.request(method, path)
    assert answer.status_code == 503 and answer.json()["partial"] == ["c"]


async def test_a_group_has_the_nodes_of_all_servers(site: Site, silent: str) -> None:
    await site.put("edge", A)
    await site.put("inner", A)
    site.connect("a", "n1")
    site.connect("b", "n2")
    site.connect("b", "n3", "inner")
    site.connect("b", "n4").leave()
    for partial in ([], ["c"]):
        site.rows += [Member(name, silent) for name in partial]
        page = await site.get("a", "/groups")
        assert [(group["group"], group["nodes"]) for group in page["items"]] == [("edge", 2), ("inner", 1)]
        one = await site.get("b", "/groups/inner")
        assert one["nodes"] == 1
        settings = await site["a"].client.put("/api/v1/groups/inner", json={"priority": 1})
        assert settings.json()["nodes"] == 1
        for answer in (page, one, settings.json()):
            assert answer.get("partial", []) == partial


async def test_counts_and_order_over_all_servers(site: Site, silent: str) -> None:
    """A node that left a server, or only reports load to it, is listed and counted as the other server knows it."""
    await site.put("edge", A)
    for number in range(12):
        here, other = ("a", "b") if number % 3 else ("b", "a")
        if number % 4 == 1:
            before = site.connect(other, f"n{number}")
            before.nack(site.held(other), "bad")
            before.leave()
        client = site.connect(here, f"n{number}")
        match number % 4:
            case 0:
                client.nack(site.held(here), "bad")
                site[other].plane.fleet.reporter_opened(client.node, "edge", time())
            case 3:
                client.send(site.held(here))
            case _:
                client.ack(site.held(here))
    left = site.connect("a", "left")
    left.ack(site.held("a"))
    left.leave()
    counts = {
        "total": 13,
        "connected": 12,
        "by_state": {"synced": 6, "pending": 3, "nacked": 3, "not_subscribed": 0, "orphaned": 0},
        "by_version": {"envoy 1.40.0": 13},
        "by_group": {"edge": 12},
        "nacked_by_group": {"edge": 3},
    }
    trouble = ["n0", "n4", "n8", "n3", "n7", "n11", "left", "n1", "n2", "n5", "n6", "n9", "n10"]
    for asked in ("a", "b"):
        assert (await site.get(asked, "/nodes", counts=True, limit=1))["counts"] == counts
        whole = await site.get(asked, "/nodes", order="trouble", counts=True)
        assert [node["id"] for node in whole["items"]] == trouble and whole["counts"] == counts
        nacked = await site.get(asked, "/nodes", state="nacked", counts=True)
        assert [node["id"] for node in nacked["items"]] == trouble[:3] and nacked["counts"]["total"] == 3
    found: list[str] = []
    token, pages_n = "", 0
    while True:
        page = await site.get("ab"[pages_n % 2], "/nodes", order="trouble", limit=4, page_token=token)
        found += [node["id"] for node in page["items"]]
        pages_n += 1
        if "next_page_token" not in page:
            break
        token = page["next_page_token"]
    assert found == trouble
    site.rows.append(Member("c", silent))
    partial = await site.get("a", "/nodes", counts=True)
    assert partial["partial"] == ["c"] and partial["counts"] == counts
