"""NACKs, refused streams and the check as several servers show them."""

from __future__ import annotations

from time import time
from typing import Any

from tests.cluster.conftest import Site
from tests.support.resources import static_cluster
from xds.fleet.refused_streams import RefusalReason, StreamRefusal
from xds.store.member_register import Member

A = static_cluster("a", 80)


async def rejecting(site: Site, *nodes: tuple[str, str, str]) -> None:
    """Servers with nodes that reject what they got: server, node and message."""
    await site.put("edge", A)
    for number, api in enumerate(site.apis.values()):
        api.plane.fleet.nack_log.number(number + 1, 2)
    for server, node, message in nodes:
        site.connect(server, node).nack(site.held(server), message)


async def test_nacks_of_all_servers_are_one_list(site: Site) -> None:
    nodes = [("a" if number % 3 else "b", f"n{number}", "bad") for number in range(20)]
    await rejecting(site, *nodes)
    found: list[dict[str, Any]] = []
    token, pages_n = "", 0
    while True:
        page = await site.get("ab"[pages_n % 2], "/nacks", limit=6, page_token=token)
        found += page["items"]
        pages_n += 1
        if "next_page_token" not in page:
            break
        token = page["next_page_token"]
    assert sorted(nack["node"] for nack in found) == sorted(node for _, node, _ in nodes) and pages_n == 4
    places = [(nack["last"], nack["id"]) for nack in found]
    assert places == sorted(places, reverse=True) and len({nack["id"] for nack in found}) == 20
    (one,) = (await site.get("a", "/nacks", node="n3"))["items"]
    assert one["node"] == "n3"


async def test_a_place_in_a_list_is_one_that_a_server_returned(site: Site) -> None:
    answer = await site["a"].client.get("/api/v1/nacks", params={"page_token": "NDI="})
    assert answer.status_code == 400


async def test_equal_nacks_at_several_servers_are_one(site: Site, silent: str) -> None:
    await rejecting(site, ("a", "n1", "bad"), ("b", "n2", "bad"), ("b", "n10", "bad"), ("a", "n3", "worse"))
    query = {"by": "message"}
    page = await site.get("a", "/nacks", **query)
    bad, worse = page["items"]
    assert bad["nodes"] == ["n1", "n2", "n10"] and (bad["count"], bad["nodes_total"]) == (3, 3)
    assert worse["nodes"] == ["n3"] and worse["nodes_total"] == 1
    first = await site.get("b", "/nacks", **query, limit=1)
    rest = await site.get("a", "/nacks", **query, limit=1, page_token=first["next_page_token"])
    assert [*first["items"], *rest["items"]] == page["items"] and "next_page_token" not in rest
    site.rows.append(Member("c", silent))
    assert (await site.get("a", "/nacks", **query))["partial"] == ["c"]
    assert (await site.get("a", "/nacks"))["partial"] == ["c"]


async def test_a_node_that_rejects_at_two_servers_is_one_node(site: Site) -> None:
    await rejecting(site, ("a", "n1", "bad"), ("b", "n1", "bad"))
    (one,) = (await site.get("a", "/nacks", by="message"))["items"]
    assert (one["nodes"], one["nodes_total"], one["count"]) == (["n1"], 1, 2)


def refuse(site: Site, server: str, address: str, message: str, at: float) -> None:
    refusal = StreamRefusal(RefusalReason.TLS, message, f"{address}:1")
    site[server].services.refused.add(refusal, at)


async def test_refused_streams_of_all_servers(site: Site) -> None:
    now = time()
    refuse(site, "a", "10.0.0.1", "no token", now - 5)
    refuse(site, "b", "10.0.0.2", "other", now - 4)
    refuse(site, "b", "10.0.0.1", "no certificate", now - 3)
    at_a, at_b = await site.get("a", "/streams/refused"), await site.get("b", "/streams/refused")
    assert at_a == at_b
    first, second = at_a["items"]
    assert (first["address"], first["count"], first["message"]) == ("10.0.0.1", 2, "no certificate")
    assert (second["address"], second["count"]) == ("10.0.0.2", 1)
    assert at_a["recent"] == 3
    assert at_a["summary"] == "3 streams refused in 10 min, last from 10.0.0.1: no certificate"
    assert len((await site.get("a", "/streams/refused", limit=1))["items"]) == 1


async def test_nothing_refused_anywhere(site: Site) -> None:
    answer = await site.get("a", "/streams/refused")
    assert (answer["items"], answer["recent"], answer["summary"]) == ([], 0, "")


async def test_one_stream_at_each_server_is_two(site: Site) -> None:
    for server in ("a", "b"):
        refuse(site, server, "10.0.0.1", "no token", time())
    answer = await site.get("a", "/streams/refused")
    assert answer["summary"].startswith("2 streams refused in 10 min")


async def test_the_check_has_the_worst_of_all_servers(site: Site, silent: str) -> None:
    await rejecting(site, ("b", "n1", "bad"))
    answer = await site.get("a", "/check")
    rows = {row["check"]: row for row in answer["items"]}
    assert (rows["nacks"]["state"], rows["nacks"]["detail"]) == (
        "warning",
        "b: 1 open, by n1",
    )
    assert rows["store"]["state"] == rows["ready"]["state"] == "ok" and ":" not in rows["ready"]["detail"]
    assert answer["state"] == "warning" and "partial" not in answer
    site.rows.append(Member("c", silent))
    answer = await site.get("a", "/check")
    assert answer["partial"] == ["c"]


async def test_a_check_without_all_servers_is_no_good_check(site: Site, silent: str) -> None:
    assert (await site.get("a", "/check"))["state"] == "ok"
    site.rows.append(Member("c", silent))
    assert (await site.get("a", "/check"))["state"] == "warning"


async def test_what_is_wrong_at_all_servers_is_told_once(site: Site) -> None:
    await rejecting(site, ("a", "n1", "bad"), ("b", "n1", "bad"))
    rows = {row["check"]: row for row in (await site.get("b", "/check"))["items"]}
    assert rows["nacks"]["detail"] == "1 open, by n1"
