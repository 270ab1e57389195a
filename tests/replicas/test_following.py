"""Servers on one PostgreSQL: what is written at one is served by all."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.push.test_two_publishers import ACTIONS, ServerOnStore, Servers, check_level, restore
from tests.support.process import wait_until
from tests.support.resources import static_cluster
from tests.support.server import ServerProcess
from xds.codec.resources import decode_resource
from xds.model.errors import XdsError
from xds.store.base import StoreError
from xds.store.postgres.engine import PostgresStore

GROUP = "edge"

pytestmark = pytest.mark.soak


@pytest.fixture
async def publishers(url: str) -> AsyncIterator[Servers]:
    stores = PostgresStore(url), PostgresStore(url)
    for store in stores:
        await store.open()
    both = ServerOnStore(stores[0]), ServerOnStore(stores[1])
    for each in both:
        await each.start()
    yield both
    for each in both:
        await each.close()
    for store in stores:
        await store.close()


@pytest.mark.parametrize("seed", range(10))
async def test_both_have_what_the_database_has_after_each_item(publishers: Servers, seed: int) -> None:
    chance = random.Random(seed)
    for number in range(40):
        action = chance.choice(ACTIONS)
        try:
            await action(chance.choice(publishers), chance)
        except StoreError:
            raise
        except XdsError:  # the group or document does not exist, or has another owner
            pass
        await check_level(publishers, f"seed {seed}, item {number}: {action.__name__}")
    assert [each.following.failures for each in publishers] == [0, 0]


@pytest.mark.parametrize("seed", range(10))
async def test_both_write_at_once_without_pause(publishers: Servers, seed: int) -> None:
    async def write(at: ServerOnStore, chance: random.Random) -> None:
        for _ in range(25):
            try:
                await chance.choice([each for each in ACTIONS if each is not restore])(at, chance)
            except StoreError:
                raise
            except XdsError:
                pass

    writers = (write(each, random.Random(seed * 10 + number)) for number, each in enumerate((*publishers, *publishers)))
    await asyncio.gather(*writers)
    await check_level(publishers, f"seed {seed}")


@pytest.fixture
def processes(url: str, tmp_path: Path) -> Iterator[tuple[ServerProcess, ServerProcess]]:
    folders = [tmp_path / name for name in "ab"]
    for folder in folders:
        folder.mkdir()
    with (
        ServerProcess(folders[0], ["--store", url]) as first,
        ServerProcess(folders[1], ["--store", url]) as second,
    ):
        yield first, second


def snapshot(server: ServerProcess) -> dict[str, Any]:
    item: dict[str, Any] = server.get(f"/groups/{GROUP}/snapshot")
    return {key: item[key] for key in ("revision", "etag", "versions")}


def put(server: ServerProcess, name: str, seconds: int, **headers: str) -> int:
    body = static_cluster(name, 80, connect_timeout=f"{seconds}s")
    path = f"/api/v1/groups/{GROUP}/resources/clusters/{name}"
    return server.request("PUT", path, json=body, headers=headers).status_code


def test_two_writers_at_two_servers_see_no_conflict(processes: tuple[ServerProcess, ServerProcess]) -> None:
    first, second = processes
    first.push(GROUP, [static_cluster("start", 80)])
    wait_until(lambda: second.request("GET", f"/api/v1/groups/{GROUP}").status_code == 200, "the group at the other")

    def write(server: ServerProcess, name: str) -> list[int]:
        return [put(server, name, number + 1) for number in range(60)]

    with ThreadPoolExecutor(2) as threads:
        statuses = [*threads.map(write, processes, "ab")]
    assert statuses == [[200] * 60] * 2
    wait_until(lambda: snapshot(first) == snapshot(second), "both at one revision")
    assert snapshot(first)["revision"] == 121


def test_of_two_with_if_match_one_succeeds(processes: tuple[ServerProcess, ServerProcess]) -> None:
    first, second = processes
    first.push(GROUP, [static_cluster("start", 80)])
    for turn in range(10):
        wait_until(lambda: "edge" in second.request("GET", "/api/v1/groups").text, "the group at the other")
        wait_until(lambda: snapshot(first) == snapshot(second), "both at one revision")
        etag = snapshot(first)["etag"]

        def write(server: ServerProcess, number: int, turn: int = turn, etag: str = etag) -> int:
            return put(server, "web", 2 * turn + number + 1, **{"if-match": f'"{etag}"'})

        with ThreadPoolExecutor(2) as threads:
            assert sorted(threads.map(write, processes, (0, 1))) == [200, 412], turn


def test_a_killed_server_comes_back_equal(processes: tuple[ServerProcess, ServerProcess]) -> None:
    first, second = processes
    first.push(GROUP, [static_cluster("start", 80)])
    wait_until(lambda: second.request("GET", f"/api/v1/groups/{GROUP}").status_code == 200, "the group at the other")
    acknowledged = 0
    for number in range(40):
        if number == 20:
            first.kill()
        server = second if number >= 20 or number % 2 else first
        acknowledged += put(server, "web", number + 1) == 200
    assert acknowledged == 40
    first.start()
    assert snapshot(first) == snapshot(second)
    assert snapshot(first)["revision"] == 41


async def test_a_slow_push_is_not_outrun_for_ever(publishers: Servers, monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes a turn at the third attempt. The planning of a large push takes longer than the writes of others."""
    slow, quick = publishers
    attempts = 0
    plan = slow.publisher._plan_all

    async def plan_slowly(*arguments: Any) -> Any:
        nonlocal attempts
        attempts += 1
        planned = await plan(*arguments)
        await asyncio.sleep(0.3)
        return planned

    monkeypatch.setattr(slow.publisher, "_plan_all", plan_slowly)
    done = asyncio.Event()

    async def write() -> int:
        number = 0
        while not done.is_set():
            number += 1
            await quick.publisher.put(GROUP, decode_resource(static_cluster("quick", 80, connect_timeout=f"{number}s")))
        return number

    writing = asyncio.create_task(write())
    for number in range(3):
        async with asyncio.timeout(10):
            await slow.publisher.put(GROUP, decode_resource(static_cluster(f"slow{number}", 80)))
    done.set()
    assert await writing > 20
    assert attempts >= 6
    await check_level(publishers, "after the slow pushes")
