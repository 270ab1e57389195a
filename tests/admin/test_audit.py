"""The audit list over HTTP: all writes with actor and address.

Refused writes displace nothing, and actors are not forged.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from hashlib import sha256
from typing import Any

import httpx
import pytest

from tests.admin.conftest import Api
from tests.support.connected import Client
from tests.support.resources import cluster_load_assignment, eds_cluster, static_cluster
from xds.access.tokens import EVERYTHING, Grant, Tokens
from xds.admin.dependencies import ApiOptions
from xds.model.node import Node
from xds.push.audit_log import APART, TOGETHER
from xds.store.audit_entries import LIMITS, AuditLane

Json = dict[str, Any]
A, B = static_cluster("a", 80), static_cluster("b", 80)
POLICY = {"capacity": {"rates": [{"per_locality_rps": 100}]}}
PEER = "10.1.2.3:4567"


class Asking(Api):
    """Sends requests with tokens, from an address."""

    def __post_init__(self) -> None:
        super().__post_init__()
        assert isinstance(self.client._transport, httpx.ASGITransport)
        self.client._transport.client = ("10.1.2.3", 4567)

    async def ask(self, token: str, method: str, path: str, **arguments: Any) -> httpx.Response:
        headers = {"authorization": f"Bearer {token}", **arguments.pop("headers", {})}
        return await self.client.request(method, f"/api/v1{path}", headers=headers, **arguments)

    async def entries(self, **query: Any) -> list[Json]:
        answer = await self.ask("all", "GET", "/audit", params={"limit": 1000, **query})
        assert answer.status_code == 200, answer.text
        items: list[Json] = answer.json()["items"]
        return items


@pytest.fixture
async def door(api: Api) -> AsyncIterator[Asking]:
    grants = {
        "all": Grant("ops", EVERYTHING.scopes),
        "edge": Grant("team-edge", frozenset({"read", "write:group/edge*"})),
    }
    tokens = Tokens((sha256(token.encode()).hexdigest(), grant) for token, grant in grants.items())
    yield Asking(api.plane, ApiOptions(tokens=tokens))


async def test_every_kind_of_write_is_listed(door: Asking) -> None:
    node = Client(door.plane.fleet, Node("n1"), "edge")
    door.services.disconnect = lambda node_id: 1
    edge = {"resources": [eds_cluster("a"), cluster_load_assignment("a", 1)]}
    await door.ask("edge", "PUT", "/groups/edge/snapshot", json=edge, params={"author": "root", "message": "one"})
    await door.ask("edge", "PUT", "/groups/edge/resources/clusters/b", json=B)
    await door.ask("all", "PUT", "/groups/edge", json={"selector": "node.id == n1"})
    await door.ask("all", "PUT", "/groups/edge", json={"selector": "node.id == n2", "priority": 3})
    await door.ask("edge", "PUT", "/groups/edge/assignments/a", json=POLICY)
    await door.ask("edge", "DELETE", "/groups/edge/assignments/a")
    changes = [{"group": group, "put": [A]} for group in ("edge-1", "edge-2")]
    await door.ask("edge", "POST", "/transactions", json={"changes": changes})
    await door.ask("edge", "POST", "/groups/edge/rollback", json={"to": 1})
    await door.ask("all", "DELETE", "/nodes/n1")
    node.leave()
    await door.ask("edge", "DELETE", "/groups/edge")
    listed = [(item["action"], item["actor"], item.get("group", "")) for item in await door.entries()]
    assert listed == [
        ("push", "team-edge", "edge"),
        ("push", "team-edge", "edge"),
        ("group.configured", "ops", "edge"),
        ("group.configured", "ops", "edge"),
        ("policy.put", "team-edge", "edge"),
        ("policy.deleted", "team-edge", "edge"),
        ("push", "team-edge", "edge-1"),
        ("push", "team-edge", "edge-2"),
        ("rollback", "team-edge", "edge"),
        ("node.disconnected", "ops", ""),
        ("group.deleted", "team-edge", "edge"),
    ]
    everything = await door.entries()
    assert await door.entries(newest="true") == everything[::-1]
    assert await door.entries(newest="true", limit=2, action="push") == [everything[7], everything[6]]


async def test_an_audit_entry_has_actor_time_address_and_operation(door: Asking) -> None:
    answer = await door.ask(
        "edge",
        "PUT",
        "/groups/edge/snapshot",
        json={"resources": [A]},
        params={"author": "root", "message": "why"},
        headers={"x-request-id": "r-1"},
    )
    assert answer.status_code == 200
    await door.ask("all", "PUT", "/groups/edge", json={"selector": "node.id == n1"})
    await door.ask("all", "PUT", "/groups/edge", json={"priority": 3})
    push, _, changed = await door.entries()
    assert {**push, "time": "", "first_time": "", "id": ""} == {
        "id": "",
        "time": "",
        "first_time": "",
        "count": 1,
        "actor": "team-edge",
        "author": "root",
        "peer": PEER,
        "action": "push",
        "refused": False,
        "group": "edge",
        "revision": 1,
        "message": "why",
        "request_id": "r-1",
        "old": {"revision": 0},
        "new": {"changes": {"clusters": {"added": {"count": 1, "names": ["a"]}}}},
    }
    assert changed["old"] == {"selector": "node.id == n1", "priority": 0, "on_nack": ""}
    assert changed["new"] == {"selector": "", "priority": 3, "on_nack": ""}


async def test_the_actor_cannot_be_forged(door: Asking) -> None:
    """``?author=`` is the client's claim; the actor is the authenticated principal, and no parameter."""
    for number, claimed in enumerate(("ops", "the-boss", "ops (root)")):
        body = {"resources": [static_cluster("a", 80 + number)]}
        for forged in ({"author": claimed}, {"author": claimed, "actor": "ops"}):
            await door.ask("edge", "PUT", "/groups/edge/snapshot", json=body, params=forged, headers={"x-actor": "ops"})
    assert {item["actor"] for item in await door.entries()} == {"team-edge"}
    history = (await door.ask("all", "GET", "/groups/edge/revisions")).json()["items"]
    assert [(item["actor"], item["author"]) for item in history] == [
        ("team-edge", "ops (root)"),
        ("team-edge", "the-boss"),
        ("team-edge", "ops"),
    ]
    events = [event for event in door.plane.fleet.events._rare.events if event.kind == "push"]
    assert {event.details["actor"] for event in events} == {"team-edge"}


async def test_refused_writes_are_listed_and_counted(door: Asking) -> None:
    await door.ask("edge", "PUT", "/groups/edge/snapshot", json={"resources": [A]})
    for _ in range(5):
        await door.ask("edge", "PUT", "/groups/core/snapshot", json={"resources": [A]}, params={"author": "root"})
    await door.ask("wrong", "PUT", "/groups/core/snapshot", json={"resources": [A]})
    stale = {"if-match": "r7"}
    await door.ask("edge", "PUT", "/groups/edge/snapshot", json={"resources": [B]}, headers=stale)
    secret = {"@type": A["@type"], "name": ["hunter2"]}
    await door.ask("edge", "PUT", "/groups/edge/snapshot", json={"resources": [secret]})
    found = await door.entries(refused="true")
    assert [(item["actor"], item["author"], item["count"], item["group"], item["subject"]) for item in found] == [
        ("team-edge", "root", 5, "core", "PUT /groups/{group}/snapshot"),
        ("", "", 1, "core", "PUT /groups/{group}/snapshot"),
        ("team-edge", "", 1, "edge", "PUT /groups/{group}/snapshot"),
        ("team-edge", "", 1, "edge", "PUT /groups/{group}/snapshot"),
    ]
    assert [item["reason"].split()[0] for item in found] == ["403", "401", "412", "422"]
    assert "lacks the scope write:group/core" in found[0]["reason"]
    assert "hunter2" not in str(found)
    assert all(item["peer"] == PEER and item["refused"] for item in found)


async def test_a_refused_group_with_characters_that_are_no_text_hides_no_refusal(door: Asking) -> None:
    """No database need hold them, and PostgreSQL holds no NUL."""
    for group in ("a%00b", "a%ED%A0%80b", "core"):
        await door.ask("edge", "PUT", f"/groups/{group}/snapshot", json={"resources": [A]})
    found = await door.entries(refused="true")
    assert [item["group"] for item in found] == ["a\\x00b", "a\ufffd\ufffd\ufffdb", "core"]


async def test_reads_are_not_listed(door: Asking) -> None:
    await door.ask("edge", "GET", "/groups/none")
    await door.ask("edge", "POST", "/validate", json={"resources": [1]})
    await door.ask("edge", "PUT", "/groups/edge/snapshot", json={"resources": [1]}, params={"dry_run": "true"})
    await door.ask("edge", "PUT", "/groups/edge/snapshot", json={"resources": [A]}, params={"dry_run": "true"})
    assert await door.entries() == []
    for text in ("false", "0", "off", "nonsense"):  # no value hides an attempt
        await door.ask("edge", "PUT", "/groups/core/snapshot", json={"resources": [A]}, params={"dry_run": text})
    assert sum(item["count"] for item in await door.entries()) == 4


async def test_refused_writes_push_no_real_one_out(door: Asking) -> None:
    """One source that varies everything fills only a few entries; real entries and those of other sources stay."""
    await door.ask("edge", "PUT", "/groups/edge/snapshot", json={"resources": [A]})
    await door.ask("edge", "PUT", "/groups/core/snapshot", json={"resources": [A]})
    for number in range(300):
        await door.ask(f"wrong-{number}", "DELETE", f"/groups/g{number}/resources/clusters/c{number}")
    found = await door.entries()
    assert [item["action"] for item in found[:2]] == ["push", "refused"]
    assert (found[0]["actor"], found[1]["group"]) == ("team-edge", "core")
    assert len(found) < 30
    assert sum(item["count"] for item in found if not item["actor"]) == 300
    told = door.plane.publisher.audit.refusals
    assert told[APART] + told[TOGETHER] == 301
    assert 275 < told[TOGETHER] < 300


TRIES = 700  # more than the sources that are listed separately


async def test_many_sources_are_bounded_together(door: Asking) -> None:
    await door.ask("edge", "PUT", "/groups/edge/snapshot", json={"resources": [A]})
    transport = door.client._transport
    assert isinstance(transport, httpx.ASGITransport)
    for number in range(TRIES):
        transport.client = (f"10.0.{number // 250}.{number % 250}", 1)
        await door.ask("wrong", "DELETE", f"/groups/g{number}")
    found = await door.entries(limit=1000)
    assert found[0]["action"] == "push"
    assert len(found) < 600 < LIMITS[AuditLane.REFUSED]
    assert sum(item["count"] for item in found[1:]) == TRIES


async def test_a_reader_continues_at_its_cursor(door: Asking) -> None:
    for number in range(3):
        body = {"resources": [static_cluster("a", 80 + number)]}
        await door.ask("edge", "PUT", "/groups/edge/snapshot", json=body)
    page = (await door.ask("all", "GET", "/audit", params={"limit": 2})).json()
    assert [item["revision"] for item in page["items"]] == [1, 2]
    page = (await door.ask("all", "GET", "/audit", params={"page_token": page["next_page_token"]})).json()
    assert [item["revision"] for item in page["items"]] == [3]
    assert "next_page_token" not in page
    later = (await door.ask("all", "GET", "/audit", params={"cursor": page["cursor"]})).json()
    assert (later["items"], later["lagged"]) == ([], False)
    assert (await door.ask("all", "GET", "/audit", params={"cursor": "nonsense"})).status_code == 400


async def test_filters(door: Asking) -> None:
    await door.ask("edge", "PUT", "/groups/edge/snapshot", json={"resources": [A]})
    await door.ask("all", "PUT", "/groups/core/snapshot", json={"resources": [A]})
    assert [item["group"] for item in await door.entries(group="core")] == ["core"]
    assert [item["group"] for item in await door.entries(actor="team-edge")] == ["edge"]
    assert await door.entries(action="rollback") == []
    assert await door.entries(since="2099-01-01T00:00:00Z") == []


async def test_a_dry_run_of_undo_shows_the_revision_it_would_restore(door: Asking) -> None:
    for resource in (A, B):
        await door.ask(
            "edge", "PUT", "/groups/edge/snapshot", json={"resources": [resource]}, params={"author": "root"}
        )
    plan = (await door.ask("edge", "GET", "/groups/edge/undo")).json()
    assert (plan["revision"], plan["to"], plan["takes_back"]["actor"]) == (2, 1, "team-edge")
    back = {"to": plan["to"], "keep_endpoints": True}
    for status in (200, 412):  # if two undo at once, one succeeds
        answer = await door.ask("edge", "POST", "/groups/edge/rollback", json=back, headers={"if-match": plan["etag"]})
        assert answer.status_code == status
    history = (await door.ask("edge", "GET", "/groups/edge/revisions")).json()["items"]
    assert [(item["kind"], item["content_of"], item["undone_by"]) for item in history] == [
        ("rollback", 1, 0),
        ("push", 0, 3),
        ("push", 0, 0),
    ]
    only = (await door.ask("edge", "GET", "/groups/edge/revisions", params={"endpoints": "false"})).json()["items"]
    assert len(only) == 3
