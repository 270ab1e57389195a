"""How much is measured: in a few minutes, or all of it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple, Self

from bench.load.spec import Variant
from bench.suite.measure import Changed

ROUNDS = 5


BOTH: tuple[Variant, ...] = ("sotw", "delta")


class Size(NamedTuple):
    """One size of (a): the changes that each variant is asked for, and whether the linear cache takes part."""

    clusters: int
    streams: int
    sotw: tuple[Changed, ...] = ("all", "one")
    delta: tuple[Changed, ...] = ("all", "one")
    with_linear: bool = True


@dataclass(frozen=True, slots=True)
class Scale:
    """The sizes of the workloads. ``idle`` are clusters and streams, ``named`` names and streams.

    ``rounds`` are those of a cell, but in (d) and (e), whose rounds each start the servers anew: ``storm_rounds`` of
    our server and ``idle_rounds``. ``variants`` are those of (e) and (f).
    """

    name: str
    rounds: int
    variants: tuple[Variant, ...]
    sizes: tuple[Size, ...]
    assignments: int
    named: tuple[tuple[int, int], ...]
    rate_streams: tuple[int, ...]
    rate_s: float
    storm_rounds: int
    storm_streams: int
    storm_later_s: float
    idle_rounds: int
    idle: tuple[tuple[int, int], ...]
    growth: tuple[tuple[int, tuple[int, ...]], ...]
    envoys: int
    envoy_clusters: tuple[int, ...]
    tls_streams: int
    node_streams: int
    types_streams: int

    def in_rounds(self, rounds: int) -> Self:
        """The same with so many rounds of everything."""
        return replace(self, rounds=rounds, storm_rounds=rounds, idle_rounds=rounds)


QUICK = Scale(
    name="quick",
    rounds=ROUNDS,
    variants=("delta",),
    # Only what a goal asks for: 10,000 clusters take go-control-plane seconds a push.
    sizes=(
        Size(10, 1_000, sotw=("all",), delta=("all",)),
        Size(1_000, 1_000, sotw=("all",)),
        Size(10_000, 200, sotw=(), delta=("one",), with_linear=False),
    ),
    assignments=10_000,
    named=((100, 1_000),),
    rate_streams=(100,),
    rate_s=5.0,
    storm_rounds=1,
    storm_streams=1_000,
    storm_later_s=10.0,
    idle_rounds=1,
    idle=((10, 1_000), (1_000, 500), (10_000, 500)),
    growth=((10, (1_000, 10_000)),),
    envoys=20,
    envoy_clusters=(10,),
    tls_streams=500,
    node_streams=1_000,
    types_streams=1_000,
)

ALL = Scale(
    name="all",
    rounds=ROUNDS,
    variants=BOTH,
    sizes=(Size(10, 1_000), Size(1_000, 1_000), Size(10_000, 200)),
    assignments=QUICK.assignments,
    named=((100, 1_000), (10_000, 200)),
    rate_streams=(100, 1_000),
    rate_s=30.0,
    storm_rounds=ROUNDS,
    storm_streams=5_000,
    storm_later_s=60.0,
    idle_rounds=ROUNDS,
    idle=((10, 1_000), (1_000, 1_000), (10_000, 1_000)),
    growth=((10, (100, 1_000, 5_000, 10_000)), (1_000, (100, 1_000, 5_000, 10_000))),
    envoys=20,
    envoy_clusters=(10, 1_000),
    tls_streams=1_000,
    node_streams=1_000,
    types_streams=1_000,
)
