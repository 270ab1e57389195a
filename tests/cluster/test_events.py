"""The events of all servers as one stream."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from time import time
from typing import Any

import pytest

from tests.cluster.conftest import Site
from xds.admin.merged_events import read, written
from xds.fleet.event_log import EventKind
from xds.store.member_register import Member

EVENTS = "/api/v1/events"
NDJSON = {"accept": "application/x-ndjson"}


def record(site: Site, server: str, number: int, at: float | None = None) -> None:
    """An event at one server; its revision tells it from others."""
    log = site[server].plane.fleet.events
    log.record(EventKind.PUSH, "committed", at if at is not None else time(), group="edge", revision=number)


async def listed(site: Site, server: str, **query: Any) -> list[dict[str, Any]]:
    """The events that there are."""
    answer = await site[server].client.get(EVENTS, headers=NDJSON, params={"follow": "false", **query}, timeout=20)
    assert answer.status_code == 200, answer.text
    return [json.loads(line) for line in answer.text.split("\n") if line]


@asynccontextmanager
async def reading(site: Site, server: str, **query: Any) -> AsyncIterator[tuple[asyncio.Queue[dict[str, Any]], str]]:
    """The events as they arrive, and the position at which they begin."""
    found: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
    begun: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def run() -> None:
        async with site[server].client.stream("GET", EVENTS, headers=NDJSON, params=query, timeout=60) as answer:
            begun.set_result(answer.headers["last-event-id"])
            async for line in answer.aiter_lines():
                if line:
                    found.put_nowait(json.loads(line))

    task = asyncio.create_task(run())
    try:
        yield found, await asyncio.wait_for(begun, 10)
    finally:
        task.cancel()
        await asyncio.wait((task,))


async def revisions(found: asyncio.Queue[dict[str, Any]], count: int) -> list[int]:
    return [(await asyncio.wait_for(found.get(), 10))["revision"] for _ in range(count)]


def numbers(events: list[dict[str, Any]]) -> list[int]:
    return [event["revision"] for event in events]


def test_a_position_is_text_and_back() -> None:
    places = {"10.0.0.1:18080": 5, "é,:%": 0}
    assert read(written(places)) == places and written(places).isascii()
    for text in ("", "~", "~a", "~a:", "~a:x", "~:1", "a:1", "~a:1,", "~a:99999999999999999", "~a:-1"):
        assert read(text) is None, text


async def test_the_history_of_all_servers_is_in_order(site: Site) -> None:
    for number in range(500):
        record(site, "ab"[number % 3 == 0], number, 1_000.0 + number)
    for server in ("a", "b"):
        events = await listed(site, server, last_event_id="0")
        assert numbers(events) == list(range(500))
        assert [event["server"] for event in events[:4]] == ["b", "a", "a", "b"]
        assert len({event["id"] for event in events}) == 500


async def test_a_text_with_other_separators_of_lines_is_one_event(site: Site) -> None:
    """Clients choose their node ids."""
    node = "a\x85b\u2028c\u2029d"
    site["b"].plane.fleet.events.record(EventKind.NODE, "connected", 1_000.0, group="edge", node=node)
    record(site, "b", 2, 2_000.0)
    first, second = await listed(site, "a", last_event_id="0")
    assert (first["node"], second["revision"]) == (node, 2)


async def test_a_reader_returns_to_any_server_and_misses_nothing(site: Site) -> None:
    for number in range(40):
        record(site, "ab"[number % 2], number, 1_000.0 + number)
    events = await listed(site, "a", last_event_id="0")
    for at in (0, 1, 17, 38):
        for server in ("a", "b"):
            assert numbers(await listed(site, server, last_event_id=events[at]["id"])) == list(range(at + 1, 40))
    assert await listed(site, "b", last_event_id=events[-1]["id"]) == []


async def test_new_events_of_all_servers_arrive(site: Site) -> None:
    record(site, "b", 1)
    async with reading(site, "a") as (found, start):
        await asyncio.sleep(0.3)
        record(site, "b", 2)
        record(site, "a", 3)
        assert sorted(await revisions(found, 2)) == [2, 3]
        for number in range(10, 60):
            record(site, "ab"[number % 2], number)
        events = [await asyncio.wait_for(found.get(), 10) for _ in range(50)]
        assert sorted(numbers(events)) == list(range(10, 60))
    assert sorted(numbers(await listed(site, "b", last_event_id=start))) == [2, 3, *range(10, 60)]
    assert await listed(site, "b", last_event_id=events[-1]["id"]) == []


async def test_acks_of_other_servers_are_recorded_while_somebody_reads(site: Site) -> None:
    async with reading(site, "a", kinds="ack"):
        for _ in range(100):
            if site["b"].plane.fleet.events.acks_wanted:
                break
            await asyncio.sleep(0.05)
        assert site["b"].plane.fleet.events.acks_wanted
    for _ in range(100):
        if not site["b"].plane.fleet.events.acks_wanted:
            return
        await asyncio.sleep(0.05)
    raise AssertionError("they are recorded for nobody")


async def test_a_silent_server_is_named_and_joins_when_it_answers(site: Site, silent: str) -> None:
    site.rows.append(Member("c", silent))
    record(site, "b", 1)
    events = await listed(site, "a", last_event_id="0")
    assert (events[0]["kind"], events[0]["servers"]) == ("partial", ["c"])
    assert numbers(events[1:]) == [1]
    async with reading(site, "a") as (found, _):
        assert (await asyncio.wait_for(found.get(), 20))["servers"] == ["c"]
        record(site, "b", 2)
        assert await revisions(found, 1) == [2]
        site.rows.pop()
        assert (await asyncio.wait_for(found.get(), 20))["message"] == "all servers answer again"


async def test_a_server_that_comes_later_is_heard(site: Site) -> None:
    async with reading(site, "a") as (found, _):
        await site.add("c")
        record(site, "c", 7)
        assert await revisions(found, 1) == [7]


async def test_an_id_of_one_server_is_known_to_several(site: Site) -> None:
    """A reader from before there were others has missed what they have."""
    row = site.rows.pop()
    for number in range(3):
        record(site, "a", number, 1_000.0 + number)
    alone = await listed(site, "a", last_event_id="0")
    assert all(event["id"].isdecimal() and "server" not in event for event in alone)
    site.rows.append(row)
    record(site, "b", 9, 2_000.0)
    assert numbers(await listed(site, "a", last_event_id=alone[1]["id"])) == [2, 9]
    several = await listed(site, "a", last_event_id="0")
    site.rows.pop()
    assert numbers(await listed(site, "a", last_event_id=several[1]["id"])) == [2]


@pytest.mark.parametrize("id", ["~a", "x", "~a:1,b"])
async def test_what_is_no_id_is_refused(site: Site, id: str) -> None:
    answer = await site["a"].client.get(EVENTS, params={"last_event_id": id, "follow": "false"})
    assert answer.status_code == 400


async def test_filters_hold_at_all_servers(site: Site) -> None:
    for server in ("a", "b"):
        log = site[server].plane.fleet.events
        log.record(EventKind.NODE, "connected", time() - 100, group="edge", node=server)
        log.record(EventKind.NODE, "connected", time(), group="core", node=server)
    found = await listed(site, "a", last_event_id="0", kinds="node", group="core", since="60s")
    assert sorted(event["node"] for event in found) == ["a", "b"]
    assert {event["group"] for event in found} == {"core"}
    assert len(await listed(site, "a", since="1h", kinds="node")) == 4


async def test_events_that_a_server_dropped_are_told(site: Site) -> None:
    for _ in range(5_010):
        record(site, "b", 1, 1_000.0)
    async with reading(site, "a", last_event_id="~a:0,b:1") as (found, _):
        lagged = await asyncio.wait_for(found.get(), 20)
        assert lagged["kind"] == "lagged" and lagged["server"] == "b"


async def test_the_server_of_a_reader_ends_it(site: Site) -> None:
    answer = asyncio.create_task(site["a"].client.get(EVENTS, headers=NDJSON, timeout=30))
    await asyncio.sleep(1)
    site["a"].plane.fleet.events.close()
    assert (await asyncio.wait_for(answer, 20)).status_code == 200
