"""Backups over HTTP: scopes, invalid archives, and the record of a restore."""

from __future__ import annotations

from collections.abc import AsyncIterator
from hashlib import sha256
from typing import Any

import httpx
import pytest

from tests.admin.conftest import Api
from tests.support.resources import static_cluster
from xds.access.tokens import EVERYTHING, Grant, Tokens
from xds.admin.dependencies import ApiOptions
from xds.fleet.event_log import EventFilter, EventKind
from xds.store.base import UnavailableError

Json = dict[str, Any]

GRANTS = {"ops": EVERYTHING.scopes, "night": frozenset({"backup"}), "reader": frozenset({"read", "secrets:read"})}
PEER = "10.1.2.3:4567"


class Door(Api):
    """Sends requests with tokens, from an address."""

    async def ask(self, token: str, method: str, path: str, **arguments: Any) -> httpx.Response:
        headers = {"authorization": f"Bearer {token}"}
        return await self.client.request(method, f"/api/v1{path}", headers=headers, **arguments)

    async def push(self, group: str, port: int) -> None:
        body = {"resources": [static_cluster("a", port)]}
        pushed = await self.ask("ops", "PUT", f"/groups/{group}/snapshot", json=body, params={"message": "by hand"})
        assert pushed.status_code == 200, pushed.text

    async def audited(self) -> list[Json]:
        items: list[Json] = (await self.ask("ops", "GET", "/audit")).json()["items"]
        return items


@pytest.fixture
async def door(api: Api) -> AsyncIterator[Door]:
    grants = {sha256(name.encode()).hexdigest(): Grant(name, scopes) for name, scopes in GRANTS.items()}
    made = Door(api.plane, ApiOptions(tokens=Tokens(grants.items())))
    assert isinstance(made.client._transport, httpx.ASGITransport)
    made.client._transport.client = ("10.1.2.3", 4567)
    yield made


async def test_a_restore_is_one_audit_entry_and_one_event(door: Door) -> None:
    await door.push("edge", 1)
    await door.push("edge", 2)
    archive = (await door.ask("ops", "GET", "/backup")).content
    await door.push("edge", 3)
    await door.push("extra", 1)
    before = (await door.ask("ops", "GET", "/groups/edge/revisions")).json()["items"][1:]
    refused = await door.ask("ops", "POST", "/restore", content=archive)
    assert refused.status_code == 412 and "not empty" in refused.json()["detail"]
    tried = await door.ask("ops", "POST", "/restore", content=archive, params={"replace": True, "dry_run": True})
    assert (tried.status_code, tried.json()["restored"]) == (200, False)
    done = await door.ask("ops", "POST", "/restore", content=archive, params={"replace": True, "author": "ann"})
    assert done.status_code == 200, done.text

    lines = (await door.ask("ops", "GET", "/groups/edge/revisions")).json()["items"]
    assert lines == before, "who, why and when are restored as well"
    assert {(line["actor"], line["message"]) for line in lines} == {("ops", "by hand")}
    told = await door.audited()
    restored = [item for item in told if item["action"] == "backup.restored"]
    assert [(item["actor"], item["author"], item["peer"]) for item in restored] == [("ops", "ann", PEER)]
    assert restored[0]["old"] == {"groups": {"edge": 3, "extra": 1}}
    assert (restored[0]["new"]["groups"], restored[0]["new"]["revisions"]) == (1, 2)
    assert [item["action"] for item in told].count("push") == 4, "what was taken away is told still"
    assert [item["reason"][:3] for item in told if item["action"] == "refused"] == ["412"]
    (event,) = door.plane.fleet.events.after(0, EventFilter(frozenset({EventKind.STORE})), 100).events
    assert (event.action, event.details["actor"], event.details["author"]) == ("restored", "ops", "ann")
    assert event.details["groups"] == 1


async def test_an_archive_without_history_has_no_audit_list(door: Door) -> None:
    await door.push("edge", 1)
    whole = (await door.ask("ops", "GET", "/backup")).content
    brief = (await door.ask("ops", "GET", "/backup", params={"history": False})).content
    assert b"audit/00001.jsonl" in whole and b"by hand" in whole
    assert b"audit/" not in brief


async def test_a_store_that_does_not_answer_is_told_before_any_byte(
    door: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def query(job: object) -> object:
        raise UnavailableError("nobody answers")

    monkeypatch.setattr(door.plane.store, "_read", query)
    refused = await door.ask("ops", "GET", "/backup")
    assert (refused.status_code, refused.json()["detail"]) == (503, "nobody answers")


async def test_backups_have_a_scope_of_their_own(door: Door) -> None:
    await door.push("edge", 1)
    archive = (await door.ask("night", "GET", "/backup")).content
    refused = await door.ask("reader", "GET", "/backup")
    assert (refused.status_code, refused.json()["missing_scope"]) == (403, "backup")
    assert (await door.ask("night", "GET", "/groups")).status_code == 403
    for token in ("night", "reader"):
        told = await door.ask(token, "POST", "/restore", content=archive, params={"replace": True})
        assert told.status_code == 403
    assert (await door.ask("ops", "POST", "/restore", content=archive, params={"replace": True})).status_code == 200


def damaged(data: bytes, kind: str) -> bytes:
    match kind:
        case "half":
            return data[: len(data) // 2]
        case "without an end":
            return data[: data.index(b"manifest.json") - 1]
        case "text":
            return b"resources: []\n" * 100
        case "empty":
            return b""
    place = {"flipped blob": data.index(b'"data":"') + 20, "flipped line": data.index(b"by hand"), "flipped name": 3}
    at = place[kind]
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


@pytest.mark.parametrize(
    "kind", ["half", "without an end", "text", "empty", "flipped blob", "flipped line", "flipped name"]
)
async def test_a_damaged_archive_changes_nothing(door: Door, kind: str) -> None:
    await door.push("edge", 1)
    archive = (await door.ask("ops", "GET", "/backup")).content
    await door.push("edge", 2)
    before = (await door.ask("ops", "GET", "/groups/edge/snapshot")).json()
    bad = await door.ask("ops", "POST", "/restore", content=damaged(archive, kind), params={"replace": True})
    assert bad.status_code == 422 and bad.json()["errors"], bad.text
    assert (await door.ask("ops", "GET", "/groups/edge/snapshot")).json() == before
    assert "backup.restored" not in {item["action"] for item in await door.audited()}
    good = await door.ask("ops", "POST", "/restore", content=archive, params={"replace": True})
    assert good.status_code == 200
