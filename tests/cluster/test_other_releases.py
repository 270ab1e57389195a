"""A server of another release answers in a form that this one cannot read: it is named, and the answer goes on."""

from __future__ import annotations

from collections.abc import Iterator
from time import time
from typing import Any

import pytest

from tests.cluster.conftest import Site
from tests.support.http_peer import Peer, serving
from tests.support.resources import static_cluster
from xds.fleet.event_log import EventKind
from xds.store.member_register import Member

A, B = static_cluster("a", 80), static_cluster("b", 80)
# What servers of a release before answered: of a node whether it was connected, and when it was seen.
EARLIER: dict[str, Any] = {"items": [{"id": "n2"}], "released": ["n2"], "nodes": {"n1": [True, 4e9], "n2": [True, 4e9]}}
READ = (
    *("/nodes", "/nodes?counts=true", "/nodes/n1/explain", "/nodes/n1/resources", "/nodes/n1/timeline"),
    *("/groups", "/groups/edge", "/groups/edge/rollout", "/nacks", "/nacks?by=message", "/streams/refused"),
    *("/check", "/load"),
)


@pytest.fixture
def earlier(site: Site) -> Iterator[Peer]:
    """A server of another release in place of the server `b`."""
    with serving() as peer:
        peer.answers(200, EARLIER)
        site.rows[1] = Member("b", peer.url)
        yield peer


@pytest.mark.parametrize("path", READ)
async def test_what_cannot_be_read_is_missing_and_said_to_be(site: Site, earlier: Peer, path: str) -> None:
    await site.put("edge", A)
    site.connect("a", "n1").ack(site.held("a"))
    answer = await site["a"].client.get(f"/api/v1{path}", timeout=30)
    assert answer.status_code == 200, answer.text
    is_asked = any(asked.startswith("/internal/v1/") and not asked.endswith("/alive") for asked, _ in earlier.asked)
    assert answer.json().get("partial", []) == (["b"] if is_asked else [])


@pytest.mark.parametrize(
    "line",
    [b"nonsense\n", b'["kind"]\n', b'{"id": "~b:1", "kind": "push"}\n', b'{"id": "1"}\n', b"[" * 100_000 + b"\n"],
)
async def test_events_that_cannot_be_read_are_missing_and_said_to_be(site: Site, earlier: Peer, line: bytes) -> None:
    earlier.answers(200, line)
    site["a"].plane.fleet.events.record(EventKind.PUSH, "committed", time(), group="edge")
    for accepted in ("application/x-ndjson", "text/event-stream"):
        answer = await site["a"].client.get(
            "/api/v1/events", params={"last_event_id": "0", "follow": "false"}, headers={"Accept": accepted}
        )
        assert [answer.text.count(f'"kind":"{kind}"') for kind in ("partial", "push")] == [1, 1], answer.text


async def test_a_node_with_streams_here_is_shown_whole(site: Site, earlier: Peer) -> None:
    await site.put("edge", A)
    site.connect("a", "n1").ack(site.held("a"))
    node = await site.get("a", "/nodes/n1")
    assert node["types"]["clusters"]["state"] == "synced" and "partial" not in node


async def test_what_only_that_server_may_have_is_refused(site: Site, earlier: Peer) -> None:
    for method, path in (("GET", "/nodes/n2"), ("GET", "/nodes/n2/explain"), ("DELETE", "/nodes/n2")):
        answer = await site["a"].client.request(method, f"/api/v1{path}")
        assert answer.status_code == 503 and answer.json()["partial"] == ["b"], (path, answer.text)


async def test_what_that_server_did_is_missing_in_the_answer_of_a_command(site: Site, earlier: Peer) -> None:
    await site.put("edge", A)
    answer = await site["a"].client.post("/api/v1/groups/edge/release")
    assert answer.status_code == 200 and answer.json()["partial"] == ["b"], answer.text
    answer = await site["a"].client.put("/api/v1/groups/edge", json={"removal_delay_s": 7})
    assert answer.status_code == 200, answer.text


async def test_a_push_is_made_once_and_not_done_without_that_server(site: Site, earlier: Peer) -> None:
    await site["a"].put("edge", A)
    site.connect("a", "n1").ack(site.held("a"))
    answer = await site["a"].client.put(
        "/api/v1/groups/edge/snapshot", json={"resources": [B]}, headers={"Prefer": "wait=1"}, timeout=30
    )
    assert answer.status_code in (200, 202), answer.text
    assert answer.json()["revision"] == 2 and answer.json()["progress"]["partial"] == ["b"]
