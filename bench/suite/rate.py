"""The workload of a steady stream of changes: (c)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

from bench.load.fleet import Fleet, FleetSpec, Variant
from bench.peers.peer import number_of
from bench.suite.goals import OURS, SNAPSHOT
from bench.suite.latency import convergence_s, quantile
from bench.suite.measure import Change
from bench.suite.process import quiet
from bench.suite.pushes import VARIANTS
from bench.suite.stage import Side, Stage, connect, disconnect, named

PER_S = 100.0
ASSIGNMENTS = 1_000
NAMES = 100
# go-control-plane is called in its own process, one call after the other.
IN_FLIGHT = {OURS: 16}
TAIL_TIMEOUT_S = 30.0
POLL_S = 0.05
CHANGE = Change(ASSIGNMENTS, ASSIGNMENTS, "one")


async def steady(stage: Stage) -> None:
    """A hundred pushes per second, each of one of 1,000 assignments, to clients that follow 100 of them by name.

    Latency is the time from the answer to a push until all streams have ACKed that version or a later one, because a
    server may skip superseded versions. One server runs at a time.
    """
    conditions = {"assignments": ASSIGNMENTS, "names": NAMES, "per_s": PER_S, "seconds": stage.scale.rate_s}
    async with stage.sides((OURS, SNAPSHOT), CHANGE, by_name=True) as sides:
        for streams in stage.scale.rate_streams:
            for variant in VARIANTS:
                figures = {side.kind: await _steady(side, variant, streams, stage.scale.rate_s) for side in sides}
                stage.keep(f"c/{variant}/{streams}", figures, variant=variant, streams=streams, **conditions)


async def _steady(side: Side, variant: Variant, streams: int, seconds: float) -> dict[str, list[float]]:
    spec = FleetSpec(target="", streams=streams, variant=variant, subscriptions=named(range(NAMES)))
    await disconnect(side)
    fleet = await connect(side, spec)
    await _push_at_rate(side, 1.0)
    fleet.mark(record=True)
    before_s, began = side.server.cpu_s(), time.monotonic()
    accepted = await _push_at_rate(side, seconds)
    took_s = time.monotonic() - began
    reached = await _all_acked(fleet, accepted, streams)
    spent_s = await quiet(side.server.cpu_s) - before_s
    late_ms = [one * 1e3 for one in reached if one is not None]
    return {
        "latency_ms": sorted(late_ms),
        "p50": [quantile(late_ms, 0.5)],
        "p99": [quantile(late_ms, 0.99)],
        "never_acked": [float(len(reached) - len(late_ms))],
        "pushes_per_s": [len(accepted) / took_s],
        "acks_per_push": [len(fleet.stream_acks()) / len(accepted) / streams],
        "cpu_cores": [spent_s / took_s],
    }


async def _push_at_rate(side: Side, seconds: float) -> list[tuple[str, float]]:
    """Versions and when they were accepted, in the order of the pushes.

    Late pushes follow as soon as they can; a server that cannot take so many gets fewer, not more time.
    """
    began, turns, pushing = time.monotonic(), asyncio.Semaphore(IN_FLIGHT.get(side.kind, 1)), []
    for number in range(int(seconds * PER_S)):
        await asyncio.sleep(max(0.0, began + number / PER_S - time.monotonic()))
        await turns.acquire()
        if time.monotonic() - began > seconds:
            break
        pushing.append(asyncio.create_task(_push(side, turns)))
    return sorted(await asyncio.gather(*pushing), key=lambda pushed: number_of(pushed[0]))


async def _push(side: Side, turns: asyncio.Semaphore) -> tuple[str, float]:
    try:
        pushed = await side.push(CHANGE)
        return pushed.version, pushed.accepted_at
    finally:
        turns.release()


async def _all_acked(fleet: Fleet, accepted: Sequence[tuple[str, float]], streams: int) -> list[float | None]:
    """Once everybody has the last version, or when that takes too long."""
    deadline = time.monotonic() + TAIL_TIMEOUT_S
    while True:
        acks = fleet.stream_acks()
        reached = convergence_s(accepted, acks, streams)
        if reached[-1] is not None or time.monotonic() > deadline:
            return reached
        await asyncio.sleep(POLL_S)
