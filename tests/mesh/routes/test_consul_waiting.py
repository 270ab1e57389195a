"""Blocking queries over real connections: clients that go away, and many that wait at once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from time import process_time

import uvicorn

from tests.admin.conftest import Api
from tests.support.process import LOOPBACK, free_port
from xds.app.admin import create_app
from xds.mesh.core.entries.entry import read_entry
from xds.mesh.entry_records import PutEntry

PATIENCE_S = 20.0
WAITING = 300
WOKEN_CPU_S = 3.0  # ten times the goal: a millisecond for each that waits


def resolver(name: str, timeout: str) -> PutEntry:
    return PutEntry(read_entry({"Kind": "service-resolver", "Name": name, "ConnectTimeout": timeout}).entries[0])


@asynccontextmanager
async def served(api: Api) -> AsyncIterator[int]:
    """The application on a port of its own."""
    port = free_port()
    # Without a configuration of logs: that of uvicorn is of the whole process.
    config = uvicorn.Config(create_app(api.services), LOOPBACK, port, log_config=None, timeout_graceful_shutdown=1)
    server = uvicorn.Server(config)
    running = asyncio.create_task(server.serve())
    async with asyncio.timeout(PATIENCE_S):
        while not server.started:
            await asyncio.sleep(0.01)
    yield port
    server.should_exit = True
    await running


async def asked(port: int, path: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection(LOOPBACK, port)
    writer.write(f"GET {path} HTTP/1.1\r\nHost: {LOOPBACK}:{port}\r\nConnection: close\r\n\r\n".encode())
    return reader, writer


async def until_waiting(api: Api, count: int) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while len(api.plane.mesh.entries.waiting) != count:
            await asyncio.sleep(0.01)


async def test_a_client_that_closes_its_connection_waits_no_longer(api: Api) -> None:
    await api.plane.mesh.entries.apply([resolver("web", "3s")])
    async with served(api) as port:
        for path in ("/v1/discovery-chain/web", "/v1/config/service-resolver/web", "/v1/config/service-resolver"):
            _, writer = await asked(port, f"{path}?index=2&wait=10m")
            await until_waiting(api, 1)
            writer.close()
            await until_waiting(api, 0)


async def test_one_write_wakes_all_waiting_queries(api: Api) -> None:
    entries = api.plane.mesh.entries
    await entries.apply([resolver("web", "3s")])
    async with served(api) as port:
        waiting = [await asked(port, "/v1/discovery-chain/web?index=2&wait=10m") for _ in range(WAITING)]
        await until_waiting(api, WAITING)
        await entries.apply([resolver("other", "3s")])
        await asyncio.sleep(0.05)
        assert len(entries.waiting) == WAITING
        began = process_time()
        await entries.apply([resolver("web", "4s")])
        answers = await asyncio.wait_for(asyncio.gather(*(reader.read() for reader, _ in waiting)), PATIENCE_S)
        assert process_time() - began < WOKEN_CPU_S
        assert all(b'"ConnectTimeout":"4s"' in answer for answer in answers)
        for _, writer in waiting:
            with closing(writer):
                pass


async def test_the_drain_of_the_server_ends_the_waiting(api: Api) -> None:
    entries = api.plane.mesh.entries
    await entries.apply([resolver("web", "3s")])
    async with served(api) as port:
        reader, writer = await asked(port, "/v1/discovery-chain/web?index=2&wait=10m")
        await until_waiting(api, 1)
        entries.waiting.end()
        answer = await asyncio.wait_for(reader.read(), PATIENCE_S)
        assert answer.startswith(b"HTTP/1.1 200 ")
        writer.close()
