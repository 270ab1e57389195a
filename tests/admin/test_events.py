"""Events over HTTP: both formats, resuming, filters, limits, the end."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from hashlib import sha256
from typing import Any

import pytest

from tests.admin.conftest import Api
from tests.support.connected import Client
from tests.support.resources import static_cluster
from xds.access.tokens import EVERYTHING, Grant, Tokens
from xds.admin.dependencies import ApiOptions
from xds.admin.routes import events as feed
from xds.admin.routes.events import follow, items_of, ndjson, parse_kinds, server_sent
from xds.fleet.event_log import EventFilter, EventKind, EventLog
from xds.model.node import Node

EVENTS = "/api/v1/events"
NDJSON = {"accept": "application/x-ndjson"}
A = static_cluster("a", 80)


async def read(api: Api, path: str = EVENTS, **arguments: Any) -> str:
    """Everything that a reader gets from a closed log."""
    api.plane.fleet.events.close()
    answer = await api.client.get(path, **arguments)
    assert answer.status_code == 200, answer.text
    return answer.text


def items(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines() if line]


async def test_a_push_is_an_event(api: Api) -> None:
    await api.put("edge", A, params={"author": "ann", "message": "first"})
    created, pushed = items(await read(api, f"{EVENTS}?last_event_id=0", headers=NDJSON))
    assert (created["kind"], created["action"], created["group"]) == ("group", "created", "edge")
    assert (pushed["kind"], pushed["revision"], pushed["message"]) == ("push", 1, "first")
    assert pushed["details"] == {"author": "ann", "added": 1, "changed": 0, "removed": 0}


async def test_rollback_and_deletion_are_events(api: Api) -> None:
    await api.put("edge", A)
    await api.put("edge", static_cluster("b", 80))
    await api.client.post("/api/v1/groups/edge/rollback", json={"to": 1})
    await api.client.delete("/api/v1/groups/edge")
    found = items(await read(api, f"{EVENTS}?last_event_id=0&kinds=rollback,group", headers=NDJSON))
    assert [(item["kind"], item["action"]) for item in found] == [
        ("group", "created"),
        ("rollback", "done"),
        ("group", "deleted"),
    ]
    assert found[1]["details"]["to"] == 1


async def test_server_sent_form(api: Api) -> None:
    await api.put("edge", A)
    text = await read(api, headers={"last-event-id": "1"})
    assert text.startswith("id: 1\n: keep-alive\nretry: ")
    [block] = [part for part in text.split("\n\n") if "data:" in part]
    fields = dict(line.split(": ", 1) for line in block.splitlines())
    assert (fields["id"], fields["event"]) == ("2", "push")
    assert json.loads(fields["data"])["group"] == "edge"


async def test_without_a_cursor_only_new_events_are_sent(api: Api) -> None:
    await api.put("edge", A)
    assert items(await read(api, headers=NDJSON)) == []


async def test_the_cursor_of_the_start_is_sent_before_any_event(api: Api) -> None:
    await api.put("edge", A)
    newest = str(api.plane.fleet.events.newest)
    api.plane.fleet.events.close()
    for form in ({}, NDJSON):
        answer = await api.client.get(EVENTS, headers=form)
        assert answer.headers["last-event-id"] == newest
        again = await api.client.get(EVENTS, headers={**form, "last-event-id": "1"})
        assert again.headers["last-event-id"] == "1"
    assert f"id: {newest}\n" in (await api.client.get(EVENTS)).text
    assert items((await api.client.get(EVENTS, headers=NDJSON)).text) == []


async def test_missed_events_are_sent_first(api: Api) -> None:
    await api.put("edge", A)
    [lagged, *rest] = items(await read(api, headers={**NDJSON, "last-event-id": "from elsewhere" * 9 + "9" * 30}))
    assert lagged["kind"] == "group"  # 0 starts with the oldest known event, so nothing is missing
    assert rest
    [lagged, *_] = items(await read(api, headers={**NDJSON, "last-event-id": "999999"}))
    assert lagged["kind"] == "lagged"


async def test_filters(api: Api) -> None:
    Client(api.plane.fleet, Node("n1"), "edge")
    Client(api.plane.fleet, Node("n2"), "core")
    found = items(await read(api, f"{EVENTS}?last_event_id=0&kinds=node&node=n2", headers=NDJSON))
    assert [(item["node"], item["group"]) for item in found] == [("n2", "core")]
    answer = await api.client.get(f"{EVENTS}?kinds=push,nosuch")
    assert (answer.status_code, "nosuch" in answer.json()["detail"]) == (400, True)


async def test_readers_are_bounded(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed, "READERS_LIMIT", 0)
    answer = await api.client.get(EVENTS)
    assert answer.status_code == 503
    assert answer.headers["retry-after"]


def test_kinds() -> None:
    assert parse_kinds("nack, ack") == {EventKind.NACK, EventKind.ACK}
    assert EventKind.ACK not in parse_kinds("")


async def test_a_filtered_reader_gets_keep_alives_amid_other_events() -> None:
    log = EventLog()
    pages: AsyncIterator[Any] = follow(log, 0, EventFilter(frozenset({EventKind.PUSH})), 0.2)
    noise = asyncio.create_task(_noise(log))
    assert await asyncio.wait_for(anext(pages), 20) is None
    noise.cancel()
    log.record(EventKind.PUSH, "committed", 1.0)
    page = await asyncio.wait_for(anext(pages), 20)
    assert [event.kind for event in page.events] == [EventKind.PUSH]
    log.close()
    with pytest.raises(StopAsyncIteration):
        await anext(pages)


async def _noise(log: EventLog) -> None:
    while True:
        log.record(EventKind.STREAM, "opened", 1.0)
        await asyncio.sleep(0.01)


async def test_a_reader_that_missed_events_is_sent_lagged() -> None:
    log = EventLog(rare_limit=2)
    pages = follow(log, 0, EventFilter(), 60)
    for number in range(5):
        log.record(EventKind.PUSH, "committed", 1.0, revision=number)
    page = await anext(pages)
    assert page is not None and page.lagged
    assert "event: lagged" in server_sent(items_of(page))
    assert items(ndjson(items_of(page)))[0] == {
        "kind": "lagged",
        "message": "events are missing before the next one",
        "next": "4",
    }


async def test_a_reader_whose_token_is_taken_back_hears_no_more(api: Api) -> None:
    tokens = Tokens([(sha256(b"t").hexdigest(), Grant("t", frozenset({"read"})))])
    guarded = Api(api.plane, ApiOptions(tokens=tokens))
    log = api.plane.fleet.events
    reading = asyncio.create_task(
        guarded.client.get(EVENTS, headers={**NDJSON, "authorization": "Bearer t"}, params={"last_event_id": "0"})
    )
    log.record(EventKind.GROUP, "created", 1.0, group="before")
    while not log._waiting:
        await asyncio.sleep(0.01)
    tokens.assign(Tokens([(sha256(b"other").hexdigest(), EVERYTHING)]))
    log.record(EventKind.GROUP, "created", 2.0, group="behind")
    answer = await asyncio.wait_for(reading, 10)
    assert [item["group"] for item in items(answer.text)] == ["before"]
