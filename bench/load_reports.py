"""Load reports: what those of a fleet cost a server, and how much memory they keep.

    python -m bench.load_reports [--nodes 1000] [--clusters 1000] [--localities 3] [--rps 1000] [--rounds 2]

Every node reports every cluster with every locality at each interval of 10 s, one node after the other over the whole
of it; nodes are in as many localities as endpoints are. ``--rps`` is what one node sends a second to all clusters: the
second most popular one gets half of what the first gets, the third a third, and so on. Several numbers, separated by
commas, measure each.

CPU is that from bytes to windows, the collector included. No two reports are the same; they are made before and kept in
a file, as making one would empty the caches of what the one before has left there. Memory is the resident set beyond
that of a start, what was needed to read included.
"""

from __future__ import annotations

import argparse
import gc
import os
import pickle
import random
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from math import sqrt
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO

from xds.lrs.aggregates import LoadAggregates
from xds.lrs.load_stats import LoadStatsRequest
from xds.model.node import Locality, Node
from xds.proto import wire_pb2
from xds.server.tuning import tune_gc

REGION = "eu-west-1"
INTERVAL_S = 10.0
ERRORS = 0.01  # of requests
LATENCY_S = 0.05
JITTER_NANOS = 3_000_000  # by which intervals are longer than what was asked for
GOAL_CORE = 0.5
GOAL_MB = 1_000
START_S = 1_800_000_000.0


@dataclass(frozen=True, slots=True)
class Fleet:
    nodes: int
    clusters: int
    localities: int
    node_rps: float

    @property
    def rows(self) -> int:
        return self.nodes * self.clusters * self.localities


@dataclass(frozen=True, slots=True)
class Result:
    """CPU seconds and bytes of memory."""

    rows: int
    cpu_s: float
    longest_s: float
    memory: int
    windows: int

    @property
    def us_per_row(self) -> float:
        return self.cpu_s / self.rows * 1e6


def locality_of(zone: int) -> Locality:
    return Locality(REGION, f"{REGION}{chr(ord('a') + zone)}")


def make_report(fleet: Fleet, popularity: list[float], rng: random.Random) -> bytes:
    """What one node tells of one interval."""
    message = wire_pb2.LoadStatsRequest()
    for cluster in range(fleet.clusters):
        stats = message.cluster_stats.add(cluster_name=f"service-{cluster:05}.prod")
        stats.load_report_interval.seconds = int(INTERVAL_S)
        stats.load_report_interval.nanos = JITTER_NANOS + rng.randrange(20) * 1_000
        mean = fleet.node_rps * INTERVAL_S * popularity[cluster] / fleet.localities
        for zone in range(fleet.localities):
            issued = max(0, int(rng.gauss(mean, sqrt(mean)) + rng.random()))
            errors = sum(rng.random() < ERRORS for _ in range(issued)) if issued < 20 else int(issued * ERRORS)
            under_way = int(issued / INTERVAL_S * LATENCY_S + rng.random() * 1.1)
            row = stats.upstream_locality_stats.add(
                total_issued_requests=issued,
                total_successful_requests=max(0, issued - errors - rng.randrange(2) * under_way),
                total_error_requests=errors,
                total_requests_in_progress=under_way,
            )
            where = locality_of(zone)
            row.locality.region, row.locality.zone = where.region, where.zone
    return message.SerializeToString()


def reports_of(fleet: Fleet, rounds: int) -> Iterator[tuple[int, float, bytes]]:
    """Stream, when it arrives, and the report."""
    rng = random.Random(7)
    weights = [1 / (rank + 1) for rank in range(fleet.clusters)]
    rng.shuffle(weights)
    popularity = [weight / sum(weights) for weight in weights]
    for turn in range(1, rounds + 1):
        for node in range(fleet.nodes):
            now = START_S + (turn + node / fleet.nodes) * INTERVAL_S
            yield node, now, make_report(fleet, popularity, rng)


def kept_reports(fleet: Fleet, rounds: int, file: IO[bytes]) -> Iterator[tuple[int, float, bytes]]:
    """Those of `reports_of`, all made before the first is read."""
    for report in reports_of(fleet, rounds):
        pickle.dump(report, file)
    file.seek(0)
    for _ in range(fleet.nodes * rounds):
        yield pickle.load(file)


def measure(fleet: Fleet, rounds: int) -> Result:
    spent_s: list[float] = []
    with TemporaryFile() as file:
        reports = kept_reports(fleet, rounds, file)
        first = next(reports)
        before = resident()
        book = LoadAggregates(INTERVAL_S)
        for node in range(fleet.nodes):
            where = locality_of(node % fleet.localities)
            book.open_stream(node, Node(f"node-{node}", locality=where), START_S + node / fleet.nodes * INTERVAL_S)
        for stream, now, data in chain([first], reports):
            began_at = time.process_time()
            book.add(stream, LoadStatsRequest(data), now)
            spent_s.append(time.process_time() - began_at)
    steady = spent_s[-fleet.nodes :]  # the first round makes what the others find
    gc.collect()
    return Result(fleet.rows, sum(steady), max(steady), resident() - before, book.size().windows)


def resident() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def report(fleet: Fleet, result: Result) -> None:
    core = result.cpu_s / INTERVAL_S
    memory_mb = result.memory / 1e6
    print(
        f"{fleet.nodes} nodes x {fleet.clusters} clusters x {fleet.localities} localities,"
        f" {fleet.node_rps:,.0f} requests/s each: {result.us_per_row:.2f} us per locality,"
        f" {core:.2f} of a core at {INTERVAL_S:.0f} s (goal {GOAL_CORE}),"
        f" longest report {result.longest_s * 1e3:.1f} ms;"
        f" {memory_mb:.0f} MB (goal {GOAL_MB}), {result.windows} windows",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=1_000)
    parser.add_argument("--clusters", type=int, default=1_000)
    parser.add_argument("--localities", type=int, default=3)
    parser.add_argument("--rps", default="1000", help="requests a second of one node; separated by commas")
    parser.add_argument("--rounds", type=int, default=2)
    arguments = parser.parse_args()
    tune_gc()
    for node_rps in arguments.rps.split(","):
        fleet = Fleet(arguments.nodes, arguments.clusters, arguments.localities, float(node_rps))
        report(fleet, measure(fleet, arguments.rounds))


if __name__ == "__main__":
    main()
