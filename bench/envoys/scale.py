"""How much is measured."""

from __future__ import annotations

from dataclasses import dataclass

from bench.envoys.fleet import VARIANTS
from bench.envoys.kinds import KINDS


@dataclass(frozen=True, slots=True)
class Scale:
    """``fillers`` are clusters that never change; ``rps`` is the load of each side, over all its Envoys.

    ``pause_s`` lies between a side's push and the next of the other side. The load goes on for ``trailing_s`` behind
    the last push of a kind that removes a cluster: longer than our server keeps what was removed (15 s and up to five
    more), and than Envoy takes to close most old connections of a listener. ``idle_s`` is for what the
    servers take without pushes.
    """

    fleets: tuple[int, ...] = (5, 20, 50)
    variants: tuple[str, ...] = tuple(VARIANTS)
    kinds: tuple[str, ...] = tuple(KINDS)
    rounds: int = 10
    fillers: int = 100
    connections: int = 2
    rps: float = 200.0
    pause_s: float = 1.0
    trailing_s: float = 22.0
    idle_s: float = 10.0
