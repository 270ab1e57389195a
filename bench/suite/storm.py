"""The workload of a fleet that comes back at once: (d)."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field

from bench.load.fleet import Fleet, FleetSpec, Variant
from bench.suite.goals import OURS, SNAPSHOT
from bench.suite.latency import convergence_s
from bench.suite.measure import Change
from bench.suite.process import rss_kb
from bench.suite.pushes import NODE_BYTES, VARIANTS
from bench.suite.stage import CLUSTERS, Side, Stage, connect

SIZE = 100
ESTABLISHED = 100
PUSH_EVERY_S = 1.0
STEADY_S = 5.0
SAMPLE_EVERY_S = 0.1
STORM_TIMEOUT_S = 120.0
CHANGE = Change(SIZE, changed="one")


async def storm(stage: Stage) -> None:
    """All streams of a fleet are cut at once and come back at once, each with Envoy's node of 61 KB and what it holds.

    100 clusters; a hundred streams of another fleet stay, and a cluster changes every second throughout. The steady
    state is the memory after some of these pushes with everybody connected, before the cut.
    """
    for variant in VARIANTS:
        figures = {}
        for kind in (OURS, SNAPSHOT):
            async with stage.sides((kind,), Change(SIZE)) as sides:
                figures[kind] = await _storm(sides[0], variant, stage)
        streams, later_s = stage.scale.storm_streams, stage.scale.storm_later_s
        stage.keep(f"d/{variant}", figures, variant=variant, clusters=SIZE, streams=streams, later_s=later_s)


@dataclass(slots=True)
class Watch:
    """Pushes every second and memory all the time, until ended."""

    side: Side
    accepted: list[tuple[str, float]] = field(default_factory=list)
    memory: list[tuple[float, float]] = field(default_factory=list)
    tasks: list[asyncio.Task[None]] = field(default_factory=list)

    def start(self) -> None:
        self.tasks = [asyncio.create_task(self._push()), asyncio.create_task(self._sample())]

    async def stop(self) -> None:
        for task in self.tasks:
            task.cancel()
        for ended in await asyncio.gather(*self.tasks, return_exceptions=True):
            if isinstance(ended, Exception):
                raise ended

    async def _push(self) -> None:
        next_at = time.monotonic()
        while True:
            pushed = await self.side.push(CHANGE)
            self.accepted.append((pushed.version, pushed.accepted_at))
            next_at += PUSH_EVERY_S
            await asyncio.sleep(max(0.0, next_at - time.monotonic()))

    async def _sample(self) -> None:
        while True:
            self.memory.append((time.monotonic(), self.side.server.rss_kb()))
            await asyncio.sleep(SAMPLE_EVERY_S)


async def _storm(side: Side, variant: Variant, stage: Stage) -> dict[str, list[float]]:
    """One server."""
    spec = FleetSpec(target="", streams=ESTABLISHED, variant=variant, subscriptions=CLUSTERS)
    established = await connect(side, spec)
    crowd_spec = FleetSpec(
        target="", streams=stage.scale.storm_streams, variant=variant, subscriptions=CLUSTERS, node_bytes=NODE_BYTES
    )
    crowd = await connect(side, crowd_spec)
    established.mark(record=True)
    watch = Watch(side)
    watch.start()
    try:
        await asyncio.sleep(STEADY_S)
        steady_kb = rss_kb(side.server.pid)
        side.server.reset_peak()
        refused = _refused(crowd)
        before_s, cut_at = side.server.cpu_s(), time.monotonic()
        await crowd.cut()
        await crowd.reconnect(known=True, timeout_s=STORM_TIMEOUT_S)
        spent_s = side.server.cpu_s() - before_s
        await asyncio.sleep(max(0.0, cut_at + stage.scale.storm_later_s - time.monotonic()))
    finally:
        await watch.stop()
    waits_s = sorted(crowd.stats()["waits"])
    return {
        "rejected": [float(_refused(crowd) - refused)],
        "longest_wait_s": waits_s[-1:],
        "longest_gap_s": [max(_gaps(established, watch))],
        "steady_mb": [steady_kb / 1024],
        "peak_ratio": [side.server.peak_rss_kb() / steady_kb],
        "later_ratio": [rss_kb(side.server.pid) / steady_kb],
        "connect_us": [spent_s / stage.scale.storm_streams * 1e6],
        "waits_s": waits_s,
        "memory_at_s": [at - cut_at for at, _ in watch.memory],
        "memory_mb": [kb / 1024 for _, kb in watch.memory],
    }


def _refused(crowd: Fleet) -> int:
    """Streams and connections that the server refused or lost so far; each was tried again."""
    return sum(crowd.stats()["errors"].values())


def _gaps(established: Fleet, watch: Watch) -> list[float]:
    """How long each push took to reach the last of the established streams; infinitely long counts as the time-out."""
    acks = established.stream_acks()
    # The last push may have been on its way when all ended.
    reached = convergence_s(watch.accepted, acks, ESTABLISHED)[:-1]
    return [STORM_TIMEOUT_S if one is None else one for one in reached]
