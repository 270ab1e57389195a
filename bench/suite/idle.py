"""The workload of streams that do nothing: (e)."""

from __future__ import annotations

import asyncio

from bench.load.fleet import FleetSpec
from bench.suite.goals import OURS, SNAPSHOT
from bench.suite.measure import Change, push_once
from bench.suite.process import rss_kb
from bench.suite.pushes import clients
from bench.suite.stage import Side, Stage, connect

WARM_STREAMS = 100  # before the push, and as many behind it
SETTLE_S = 4.0
PUSHES = 3


async def idle(stage: Stage) -> None:
    """Memory of a stream that is in step, as the server's resident memory grows with them; the kernel's is not in it.

    Counted from 200 streams on, half of them connected behind a push, so that neither what is made once for all (the
    first answer from this snapshot, a megabyte of 10,000 clusters) nor what the push had left over is mistaken for
    theirs: after the first answer, and after three pushes that changed one cluster. Idle CPU of them all.
    """
    for size, streams in stage.scale.idle:
        for variant in stage.scale.variants:
            figures = {}
            for kind in (OURS, SNAPSHOT):
                async with stage.sides((kind,), Change(size)) as sides:
                    figures[kind] = await _idle(sides[0], clients(streams, variant), size)
            stage.keep(f"e/{variant}/{size}", figures, variant=variant, clusters=size, streams=streams)


async def _idle(side: Side, spec: FleetSpec, size: int) -> dict[str, list[float]]:
    pid = side.server.pid
    await connect(side, clients(WARM_STREAMS, spec.variant))
    await push_once(side, Change(size, changed="one"))
    await connect(side, clients(WARM_STREAMS, spec.variant))
    await asyncio.sleep(SETTLE_S)
    before_kb = rss_kb(pid)
    await connect(side, spec)
    await asyncio.sleep(SETTLE_S)
    in_step_kb = rss_kb(pid)
    for _ in range(PUSHES):
        await push_once(side, Change(size, changed="one"))
    before_s = side.server.cpu_s()
    await asyncio.sleep(SETTLE_S)
    return {
        "stream_kb": [(in_step_kb - before_kb) / spec.streams],
        "pushed_kb": [(rss_kb(pid) - before_kb) / spec.streams],
        "total_mb": [in_step_kb / 1024],
        "idle_cpu_percent": [(side.server.cpu_s() - before_s) / SETTLE_S * 100],
    }
