"""Load reports as Envoy sends them: CPU and memory of a server for the reports of a fleet, without sockets.

    python -m bench.load_reports [--nodes 1000] [--clusters 1000] [--localities 3] [--active 1] [--rps 1000]
        [--ordered] [--idle-rows] [--node-bytes 61000] [--rounds 2]

Every node reports every cluster once per interval of 10 s; the nodes are spread evenly over the interval, and over the
localities of the endpoints. A report names the clusters in an order that differs by node and interval, leaves out
localities without traffic (each has traffic with the probability ``active / localities``), measures the interval of
each cluster in microseconds, and repeats the node, most of which is the list of extensions. With ``--ordered`` the
clusters are always in one order; with ``--idle-rows`` each locality has a row.

``--rps`` is what one node sends per second to all clusters: the second most popular cluster gets half of what the first
gets, the third a third, and so on. Several numbers, separated by commas, are measured one after the other.

CPU is that from bytes to windows, the garbage collector included. No two reports are equal. They are made in advance
and kept in a file, because making a report would evict the caches that reading the previous one has filled. Memory is
the resident set above that of a start, including what reading needed.
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
from xds.server.process import tune_gc
from xds.wire.fields import bytes_field, varint_field

REGION = "eu-west-1"
INTERVAL_S = 10.0
ERRORS = 0.01  # of requests
LATENCY_S = 0.05
LATE_US = 3_000  # by which intervals are longer than what was asked for
NODE_BYTES = 61_000
ALL_CLUSTERS = "envoy.lrs.supports_send_all_clusters"
GOAL_CORE = 0.5
GOAL_MB = 1_000
START_S = 1_800_000_000.0


@dataclass(frozen=True, slots=True)
class Fleet:
    """``active``: the localities of a cluster, on average, that a node sent requests to in an interval."""

    nodes: int
    clusters: int
    localities: int
    node_rps: float
    active: float = 1.0
    is_ordered: bool = False
    has_idle_rows: bool = False
    node_bytes: int = NODE_BYTES

    @property
    def reported(self) -> int:
        """Clusters' reports in an interval."""
        return self.nodes * self.clusters

    def __str__(self) -> str:
        order = "ordered" if self.is_ordered else "shuffled"
        return (
            f"{self.nodes:,} nodes x {self.clusters:,} clusters x {self.localities} localities"
            f" ({self.active:g} with traffic), {self.node_rps:,.0f} requests/s each, {order}"
        )


@dataclass(frozen=True, slots=True)
class Result:
    """CPU seconds and bytes of memory."""

    reported: int
    cpu_s: float
    longest_s: float
    memory: int
    windows: int

    @property
    def us_per_cluster(self) -> float:
        return self.cpu_s / self.reported * 1e6


def locality_of(zone: int) -> Locality:
    return Locality(REGION, f"{REGION}{chr(ord('a') + zone)}")


class ReportMaker:
    """Makes the reports of a fleet, without the nodes."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._rng = random.Random(7)
        weights = [1 / (rank + 1) for rank in range(fleet.clusters)]
        self._rng.shuffle(weights)
        requests = fleet.node_rps * INTERVAL_S / sum(weights) / fleet.active
        self._means = [weight * requests for weight in weights]  # of a locality with traffic
        self._heads = [bytes_field(1, f"service-{cluster:05}.prod".encode()) for cluster in range(fleet.clusters)]
        self._places = [bytes_field(1, encoded_locality(zone)) for zone in range(fleet.localities)]
        self._order = list(range(fleet.clusters))

    def report(self) -> bytes:
        """What one node tells of one interval."""
        rng = self._rng
        if not self._fleet.is_ordered:
            rng.shuffle(self._order)
        measured_us = rng.randrange(LATE_US)
        parts: list[bytes] = []
        for number, cluster in enumerate(self._order):
            # The interval of each cluster is measured when Envoy comes to it.
            interval = varint_field(1, int(INTERVAL_S)) + varint_field(2, (measured_us + number) * 1_000)
            parts.append(
                bytes_field(2, b"".join((self._heads[cluster], *self._rows(cluster), bytes_field(4, interval))))
            )
        return b"".join(parts)

    def _rows(self, cluster: int) -> Iterator[bytes]:
        fleet, mean = self._fleet, self._means[cluster]
        for place in self._places:
            if self._rng.random() * fleet.localities < fleet.active:
                yield bytes_field(2, place + self._counters(mean))
            elif fleet.has_idle_rows:
                yield bytes_field(2, place)

    def _counters(self, mean: float) -> bytes:
        rng = self._rng
        issued = max(1, int(rng.gauss(mean, sqrt(mean)) + rng.random()))
        errors = sum(rng.random() < ERRORS for _ in range(issued)) if issued < 20 else int(issued * ERRORS)
        under_way = int(issued / INTERVAL_S * LATENCY_S + rng.random() * 1.1)
        successes = max(0, issued - errors - rng.randrange(2) * under_way)
        return b"".join(
            varint_field(number, count) for number, count in ((2, successes), (3, under_way), (4, errors), (8, issued))
        )


def encoded_locality(zone: int) -> bytes:
    where = locality_of(zone)
    return wire_pb2.Locality(region=where.region, zone=where.zone).SerializeToString()


def extensions(fleet: Fleet) -> bytes:
    """The larger part of Envoy's node: the extensions that it was built with."""
    found = b""
    while len(found) < fleet.node_bytes - 100:
        name = f"envoy.filters.http.extension_{len(found)}".encode()
        found += bytes_field(9, bytes_field(1, name) + bytes_field(2, b"envoy.filters.http"))
    return found


def node_field(fleet: Fleet, node: int, tail: bytes) -> bytes:
    """The node as a report has it; ``tail`` is that of `extensions`."""
    where = encoded_locality(node % fleet.localities)
    message = wire_pb2.Node(id=f"node-{node}", user_agent_name="envoy", client_features=[ALL_CLUSTERS])
    return bytes_field(1, message.SerializeToString() + bytes_field(4, where) + (tail if fleet.node_bytes else b""))


def reports_of(fleet: Fleet, rounds: int) -> Iterator[tuple[int, float, bytes]]:
    """Stream, when it arrives, and the report without its node."""
    maker = ReportMaker(fleet)
    for turn in range(1, rounds + 1):
        for node in range(fleet.nodes):
            yield node, START_S + (turn + node / fleet.nodes) * INTERVAL_S, maker.report()


def kept_reports(fleet: Fleet, rounds: int, file: IO[bytes]) -> Iterator[tuple[int, float, bytes]]:
    """Those of `reports_of`, all made before the first is read."""
    for report in reports_of(fleet, rounds):
        pickle.dump(report, file)
    file.seek(0)
    for _ in range(fleet.nodes * rounds):
        yield pickle.load(file)


def measure(fleet: Fleet, rounds: int) -> Result:
    spent_s: list[float] = []
    tail = extensions(fleet)
    with TemporaryFile() as file:
        reports = kept_reports(fleet, rounds, file)
        first = next(reports)
        before = resident()
        book = LoadAggregates(INTERVAL_S)
        for node in range(fleet.nodes):
            where = locality_of(node % fleet.localities)
            book.open_stream(node, Node(f"node-{node}", locality=where), START_S + node / fleet.nodes * INTERVAL_S)
        for stream, now, data in chain([first], reports):
            message = node_field(fleet, stream, tail) + data
            began_at = time.process_time()
            book.add(stream, LoadStatsRequest(message), now)
            spent_s.append(time.process_time() - began_at)
    steady = spent_s[-fleet.nodes :]  # the first round makes what the others find
    gc.collect()
    return Result(fleet.reported, sum(steady), max(steady), resident() - before, book.size().windows)


def resident() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def report(fleet: Fleet, result: Result) -> None:
    core = result.cpu_s / INTERVAL_S
    memory_mb = result.memory / 1e6
    print(
        f"{fleet}: {result.us_per_cluster:.2f} us per cluster,"
        f" {core:.2f} of a core at {INTERVAL_S:.0f} s (goal {GOAL_CORE}),"
        f" longest report {result.longest_s * 1e3:.1f} ms;"
        f" {memory_mb:.0f} MB (goal {GOAL_MB}), {result.windows} windows",
        flush=True,
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=1_000)
    parser.add_argument("--clusters", type=int, default=1_000)
    parser.add_argument("--localities", type=int, default=3)
    parser.add_argument("--active", type=float, default=1.0, help="localities of a cluster with traffic, on average")
    parser.add_argument("--rps", default="1000", help="requests a second of one node; separated by commas")
    parser.add_argument("--ordered", action="store_true", help="always name the clusters in one order")
    parser.add_argument("--idle-rows", action="store_true", help="report localities without traffic too")
    parser.add_argument("--node-bytes", type=int, default=NODE_BYTES, help="size of the node; 0 for a short one")
    parser.add_argument("--rounds", type=int, default=2)
    return parser


def _fleets(chosen: argparse.Namespace) -> list[Fleet]:
    """A fleet for each number of requests."""
    return [
        Fleet(
            chosen.nodes,
            chosen.clusters,
            chosen.localities,
            float(node_rps),
            chosen.active,
            chosen.ordered,
            chosen.idle_rows,
            chosen.node_bytes,
        )
        for node_rps in chosen.rps.split(",")
    ]


def main() -> None:
    arguments = _parser().parse_args()
    tune_gc()
    for fleet in _fleets(arguments):
        report(fleet, measure(fleet, arguments.rounds))


if __name__ == "__main__":
    main()
