"""The set-up of every workload: its servers, its streams, and its cells."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from bench.load.fleet import Fleet, FleetSpec, Subscription
from bench.peers.peer import Kind, Peer, Tls
from bench.suite import machine, measure
from bench.suite.goals import OURS, SNAPSHOT
from bench.suite.measure import ACK_TIMEOUT_S, Change
from bench.suite.results import Cell, Figures, Results
from bench.suite.scale import Scale
from xds.model.resource_type import CLUSTER, ENDPOINT

Side = measure.Side[Peer, Fleet]
CLUSTERS = (Subscription(CLUSTER, None),)
FoundT = TypeVar("FoundT")


def named(indexes: Iterable[int], type_url: str = ENDPOINT) -> tuple[Subscription, ...]:
    """Assignments, or another type, by name."""
    return (Subscription(type_url, tuple(f"cluster-{index}" for index in indexes)),)


@dataclass(slots=True)
class Stage:
    """One run of the suite. ``path`` is written after every cell; servers of the kinds ``without`` do not take part."""

    scale: Scale
    results: Results
    path: Path
    without: frozenset[Kind] = frozenset()

    @property
    def rounds(self) -> int:
        """Of a cell, but in (d) and (e)."""
        return self.scale.rounds

    def keep(self, key: str, figures: Figures, **conditions: Any) -> None:
        """Put a cell into the results, and tell of it."""
        cell = Cell(
            key=key,
            conditions=conditions,
            figures=figures,
            scale=self.scale.name,
            measured_at=machine.now(),
            commit=machine.commit(),
            load=machine.load(),
        )
        self.results.put(cell)
        self.results.save(self.path)
        print(told(cell), flush=True)

    def taking_part(self, kinds: Iterable[Kind]) -> list[Kind]:
        """Those of the kinds that take part in this run."""
        return [kind for kind in kinds if kind not in self.without]

    async def take_turns(
        self, rounds: Mapping[Kind, int], run: Callable[[Kind], Awaitable[FoundT]]
    ) -> dict[str, list[FoundT]]:
        """As the function of that name, with the kinds that take part."""
        return await take_turns({kind: rounds[kind] for kind in self.taking_part(rounds)}, run)

    @asynccontextmanager
    async def sides(
        self, kinds: Sequence[Kind], first: Change, by_name: bool = False, tls: Tls | None = None
    ) -> AsyncIterator[list[Side]]:
        """A server of each kind with the first content, nobody connected; ended afterwards, with what was connected.

        ``by_name``: clients will name some of the resources, not all, which the snapshot cache refuses in its ADS mode.
        """
        async with AsyncExitStack() as running:
            sides = []
            for kind in self.taking_part(kinds):
                flags = ["--ads=false"] if by_name and kind == SNAPSHOT else []
                starting = Peer.start(kind, tls=tls, binary=kind == OURS, flags=flags)
                side: Side = measure.Side(kind, await running.enter_async_context(starting))
                running.push_async_callback(disconnect, side)
                await side.server.push(first.clusters, first.assignments, "all", 0, first.listeners)
                sides.append(side)
            yield sides


async def take_turns(rounds: Mapping[Kind, int], run: Callable[[Kind], Awaitable[FoundT]]) -> dict[str, list[FoundT]]:
    """What each run found: round by round one of each kind, of those that have rounds left."""
    found: dict[str, list[FoundT]] = {kind: [] for kind in rounds}
    for number in range(max(rounds.values())):
        for kind in rounds:
            if number < rounds[kind]:
                found[kind].append(await run(kind))
    return found


async def connect(side: Side, spec: FleetSpec) -> Fleet:
    """Connect streams; returns when all of them have ACKed their first answer."""
    fleet = Fleet(replace(spec, target=side.server.target, first_node=side.streams))
    side.fleets.append((fleet, spec.streams * len(spec.subscriptions)))
    side.streams += spec.streams
    await fleet.start(ACK_TIMEOUT_S)
    return fleet


async def connect_all(sides: Iterable[Side], *specs: FleetSpec) -> None:
    """Connect the same fleets to all sides."""
    for side in sides:
        for spec in specs:
            await connect(side, spec)


async def reconnect(sides: Sequence[Side], *specs: FleetSpec) -> None:
    """End all streams of the sides, and connect these fleets instead."""
    for side in sides:
        await disconnect(side)
    await connect_all(sides, *specs)


async def disconnect(side: Side) -> None:
    """End all streams of a side."""
    await asyncio.gather(*(fleet.stop() for fleet, _ in side.fleets))
    side.fleets.clear()
    side.streams = 0


def told(cell: Cell) -> str:
    """A line for whoever watches: medians by peer."""
    shown = ("cpu_us", "wall_ms", "call_ms", "stream_kb", "answer_ms", "p50", "p99", "longest_wait_s")
    parts = []
    for peer, figures in cell.figures.items():
        medians = [f"{name} {cell.median(peer, name):.4g}" for name in shown if figures.get(name)]
        parts.append(f"{peer} {', '.join(medians)}")
    return f"{time.strftime('%H:%M:%S')} {cell.key:28} {' | '.join(parts)}"
