"""The cost of the load generator itself: its CPU per message and ACK, beside that of the server.

    python -m bench.load [--streams 1000] [--clusters 10] [--rounds 5] [--node-bytes 0]

Runs against ``xds serve --store memory``, every cluster changed in each round. A generator that took more CPU
than the server would be the bottleneck.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import time
from typing import Any

import httpx

from bench.fanout import Server, running_server
from bench.load.fleet import Fleet, FleetSpec, Subscription, Variant
from xds.model.resource_type import CLUSTER

VARIANTS: tuple[Variant, ...] = ("sotw", "delta")
TIMEOUT_S = 120.0


def snapshot(clusters: int, edition: int) -> dict[str, Any]:
    """Clusters that all change with the edition."""
    return {
        "resources": [
            {"@type": CLUSTER, "name": f"cluster-{index}", "type": "STATIC", "connect_timeout": f"{edition + 1}s"}
            for index in range(clusters)
        ]
    }


async def measure(server: Server, spec: FleetSpec, clusters: int, rounds: int) -> tuple[float, float, float]:
    """Medians: CPU of the generator and of the server in microseconds per message and ACK, wall time in ms."""
    own, theirs, walls = [], [], []
    async with httpx.AsyncClient(base_url=server.http, timeout=TIMEOUT_S) as admin:
        path = "/api/v1/groups/default/snapshot"
        (await admin.put(path, json=snapshot(clusters, 0))).raise_for_status()
        async with Fleet(spec) as fleet:
            for edition in range(1, rounds + 1):
                fleet.mark()
                before_s, server_before_s = fleet.cpu_s(), cpu_s(server)
                (await admin.put(path, json=snapshot(clusters, edition))).raise_for_status()
                accepted_at = time.monotonic()
                ack = await fleet.acked(spec.streams, TIMEOUT_S)
                own.append((fleet.cpu_s() - before_s) / spec.streams * 1e6)
                theirs.append((cpu_s(server) - server_before_s) / spec.streams * 1e6)
                walls.append((ack.last_at - accepted_at) * 1e3)
    return statistics.median(own), statistics.median(theirs), statistics.median(walls)


def cpu_s(server: Server) -> float:
    """User and system time of the server, by the process's own clock: exact, where the kernel's ticks are not."""
    return time.clock_gettime((~server.pid << 3) | 2)


async def measure_all(streams: int, clusters: int, rounds: int, node_bytes: int) -> None:
    print(f"{streams} streams, all of {clusters} clusters changed, median of {rounds}")
    print(f"{'variant':8} {'generator us':>12} {'server us':>9} {'wall ms':>8}")
    with running_server() as server:
        for variant in VARIANTS:
            spec = FleetSpec(
                server.grpc, streams, variant, (Subscription(CLUSTER),), node_bytes, node_every_request=node_bytes > 0
            )
            generator_us, server_us, wall_ms = await measure(server, spec, clusters, rounds)
            print(f"{variant:8} {generator_us:12.1f} {server_us:9.1f} {wall_ms:8.1f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--streams", type=int, default=1000)
    parser.add_argument("--clusters", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--node-bytes", type=int, default=0)
    arguments = parser.parse_args()
    asyncio.run(measure_all(arguments.streams, arguments.clusters, arguments.rounds, arguments.node_bytes))


if __name__ == "__main__":
    main()
