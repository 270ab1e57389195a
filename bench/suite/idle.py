"""The workload of idle streams: (e)."""

from __future__ import annotations

import asyncio
from functools import partial

from bench.load.fleet import FleetSpec
from bench.peers.peer import Kind
from bench.suite.goals import OURS, SNAPSHOT
from bench.suite.measure import Change, push_once
from bench.suite.process import rest
from bench.suite.pushes import clients
from bench.suite.results import merge
from bench.suite.stage import Side, Stage, connect

WARM_STREAMS = 100  # before the push, and as many behind it
IDLE_S = 2.0


async def idle(stage: Stage) -> None:
    """Memory of a stream in sync: growth of the server's resident memory per stream, without the kernel's memory.

    Counted from 200 streams on, half of them connected after a push, so that data shared by all streams (the first
    response of a snapshot, a megabyte for 10,000 clusters) and leftovers of the push are not attributed to streams.
    Measured after the first response, and after a push that changed one cluster. Memory is read once memory and CPU
    are at rest, or after eight seconds. Idle CPU is that of all streams in the following two seconds.
    """
    rounds: dict[Kind, int] = {OURS: stage.scale.idle_rounds, SNAPSHOT: stage.scale.idle_rounds}
    for size, streams in stage.scale.idle:
        for variant in stage.scale.variants:
            runs = await stage.take_turns(rounds, partial(run_idle, stage, clients(streams, variant), size))
            figures = {kind: merge(found) for kind, found in runs.items()}
            stage.keep(f"e/{variant}/{size}", figures, variant=variant, clusters=size, streams=streams)


async def run_idle(stage: Stage, spec: FleetSpec, size: int, kind: Kind) -> dict[str, float]:
    """A round of one server, from its start to its end."""
    async with stage.sides((kind,), Change(size)) as sides:
        return await _idle(sides[0], spec, size)


async def _idle(side: Side, spec: FleetSpec, size: int) -> dict[str, float]:
    pid = side.server.pid
    await connect(side, clients(WARM_STREAMS, spec.variant))
    await push_once(side, Change(size, changed="one"))
    await connect(side, clients(WARM_STREAMS, spec.variant))
    before_kb = await rest(pid)
    await connect(side, spec)
    in_step_kb = await rest(pid)
    await push_once(side, Change(size, changed="one"))
    pushed_kb = await rest(pid)
    before_s = side.server.cpu_s()
    await asyncio.sleep(IDLE_S)
    return {
        "stream_kb": (in_step_kb - before_kb) / spec.streams,
        "pushed_kb": (pushed_kb - before_kb) / spec.streams,
        "total_mb": in_step_kb / 1024,
        "idle_cpu_percent": (side.server.cpu_s() - before_s) / IDLE_S * 100,
    }
