"""The workload of a fleet that reconnects all at once: (d)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

from bench.load.fleet import Fleet, FleetSpec, Variant
from bench.peers.peer import Kind
from bench.suite.goals import OURS, SNAPSHOT
from bench.suite.latency import convergence_s
from bench.suite.measure import Change
from bench.suite.process import rss_kb
from bench.suite.pushes import NODE_BYTES, VARIANTS
from bench.suite.results import merge
from bench.suite.stage import CLUSTERS, Side, Stage, connect

SIZE = 100
ESTABLISHED = 100
PUSH_EVERY_S = 1.0
STEADY_S = 5.0
SAMPLE_EVERY_S = 0.1
STORM_TIMEOUT_S = 120.0
CHANGE = Change(SIZE, changed="one")
# The goals are about ours alone: the peer is there to compare with.
PEER_ROUNDS = 1


async def storm(stage: Stage) -> None:
    """All streams of a fleet are cut and reconnect at once, each with Envoy's node of 61 KB and its held versions.

    100 clusters. A hundred streams of another fleet stay connected, and a cluster changes every second throughout. The
    steady state is the memory after some of these pushes with all clients connected, before the cut. One
    rejected client in one round misses the goal.
    """
    rounds: dict[Kind, int] = {OURS: stage.scale.storm_rounds, SNAPSHOT: PEER_ROUNDS}
    for variant in VARIANTS:
        runs = await stage.take_turns(rounds, partial(run_storm, stage, variant))
        figures = {kind: gather(found) for kind, found in runs.items()}
        streams, later_s = stage.scale.storm_streams, stage.scale.storm_later_s
        stage.keep(f"d/{variant}", figures, variant=variant, clusters=SIZE, streams=streams, later_s=later_s)


@dataclass(frozen=True, slots=True)
class Run:
    """A round of one server: its figures, and their course over time."""

    figures: dict[str, float]
    distributions: dict[str, list[float]]


async def run_storm(stage: Stage, variant: Variant, kind: Kind) -> Run:
    """A round of one server, from its start to its end."""
    async with stage.sides((kind,), Change(SIZE)) as sides:
        return await _storm(sides[0], variant, stage)


def gather(runs: Sequence[Run]) -> dict[str, list[float]]:
    """One value a round of each figure; the distributions are those of the round with the median longest wait."""
    ordered = sorted(runs, key=lambda run: run.figures["longest_wait_s"])
    return {**merge(run.figures for run in runs), **ordered[(len(runs) - 1) // 2].distributions}


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


async def _storm(side: Side, variant: Variant, stage: Stage) -> Run:
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
    figures = {
        "rejected": float(_refused(crowd) - refused),
        "longest_wait_s": waits_s[-1],
        "longest_gap_s": max(_gaps(established, watch)),
        "steady_mb": steady_kb / 1024,
        "peak_ratio": side.server.peak_rss_kb() / steady_kb,
        "later_ratio": rss_kb(side.server.pid) / steady_kb,
        "connect_us": spent_s / stage.scale.storm_streams * 1e6,
    }
    distributions = {
        "waits_s": waits_s,
        "memory_at_s": [at - cut_at for at, _ in watch.memory],
        "memory_mb": [kb / 1024 for _, kb in watch.memory],
    }
    return Run(figures, distributions)


def _refused(crowd: Fleet) -> int:
    """Streams and connections that the server refused or lost so far; each was tried again."""
    return sum(crowd.stats()["errors"].values())


def _gaps(established: Fleet, watch: Watch) -> list[float]:
    """How long each push took to reach the last of the established streams; infinitely long counts as the time-out."""
    acks = established.stream_acks()
    # The last push may have been on its way when all ended.
    reached = convergence_s(watch.accepted, acks, ESTABLISHED)[:-1]
    return [STORM_TIMEOUT_S if one is None else one for one in reached]
