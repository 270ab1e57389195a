"""How much is measured: in a few minutes, or all of it."""

from __future__ import annotations

from dataclasses import dataclass

ROUNDS = 5


@dataclass(frozen=True, slots=True)
class Scale:
    """The sizes of the workloads. ``sizes`` and ``idle``: clusters and streams; ``named``: names and streams."""

    name: str
    rounds: int
    sizes: tuple[tuple[int, int], ...]
    assignments: int
    named: tuple[tuple[int, int], ...]
    rate_streams: tuple[int, ...]
    rate_s: float
    storm_streams: int
    storm_later_s: float
    idle: tuple[tuple[int, int], ...]
    growth: tuple[tuple[int, tuple[int, ...]], ...]
    admin: tuple[int, ...]
    envoys: int
    envoy_clusters: tuple[int, ...]
    tls_streams: int
    node_streams: int


QUICK = Scale(
    name="quick",
    rounds=ROUNDS,
    sizes=((10, 1_000), (1_000, 1_000), (10_000, 200)),
    assignments=10_000,
    named=((100, 1_000), (10_000, 40)),
    rate_streams=(100,),
    rate_s=10.0,
    storm_streams=1_000,
    storm_later_s=15.0,
    idle=((10, 1_000), (1_000, 500), (10_000, 200)),
    growth=((10, (100, 1_000, 5_000, 10_000)),),
    admin=(10, 1_000, 10_000),
    envoys=20,
    envoy_clusters=(10,),
    tls_streams=500,
    node_streams=300,
)

ALL = Scale(
    name="all",
    rounds=ROUNDS,
    sizes=QUICK.sizes,
    assignments=QUICK.assignments,
    named=((100, 1_000), (10_000, 200)),
    rate_streams=(100, 1_000),
    rate_s=30.0,
    storm_streams=5_000,
    storm_later_s=60.0,
    idle=((10, 1_000), (1_000, 1_000), (10_000, 1_000)),
    growth=((10, (100, 1_000, 5_000, 10_000)), (1_000, (100, 1_000, 5_000, 10_000))),
    admin=(10, 1_000, 10_000, 50_000),
    envoys=20,
    envoy_clusters=(10, 1_000),
    tls_streams=1_000,
    node_streams=300,
)
