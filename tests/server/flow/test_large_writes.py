"""Large bodies of a real server: clients that do not read are disconnected when others need their room."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from tests.server.conftest import RawStream, Start, until
from xds.server.flow.limits import DEFAULT_FLOW

BOUND_BYTES = 4 << 20
CLUSTERS, TEXT = 200, "x" * 10_000  # together 2 MB, far more than what a connection buffers
SILENT = 6  # together three times the bound


async def test_a_client_that_reads_is_answered_while_others_do_not_read(start: Start) -> None:
    flow = replace(DEFAULT_FLOW, slow_write_s=0.5, slow_write_timeout_s=2.0, rebalance_every_s=0.05)
    server = await start(in_flight_bytes=BOUND_BYTES, flow=flow)
    server.push({"small": "a"})

    async def connect(node_id: str) -> RawStream:
        stream = RawStream(await server.channel(**{"http2.bdp_probe": 0}))
        await stream.request(node_id=node_id)
        await stream.ack(await stream.receive())
        return stream

    silent = [await connect(f"silent-{number}") for number in range(SILENT)]
    reader = await connect("reader")
    limiter = server.server._write_limiter
    used: list[int] = []

    async def watch() -> None:
        while True:
            used.append(limiter.lanes.used_bytes)
            await asyncio.sleep(0.005)

    watching = asyncio.create_task(watch())
    server.push({f"c{number}": TEXT for number in range(CLUSTERS)})
    response = await reader.receive()
    while len(response.resources) < CLUSTERS:
        await reader.ack(response)
        response = await reader.receive()
    await until(lambda: limiter.lanes.waiting_n == 0)
    watching.cancel()
    assert 0 < max(used) <= BOUND_BYTES
    assert limiter.lanes.waits > 0 and limiter.lanes.terminated > 0
    ended = [stream for stream in silent if stream.call.done()]
    assert ended, "clients that do not read are disconnected"
