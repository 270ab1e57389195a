"""Linkerd proxies: many ``Get`` streams on one connection, and services with many endpoints.

    python -m bench.destination [--streams 1000] [--endpoints 10,10000] [--rounds 5]

``xds serve`` in a process of its own reads a service from a file; a grpcio client opens all streams on one connection.
With more than 1,000 endpoints only a tenth of the streams is opened, because the client would be the bottleneck. Each
row is one number of endpoints:

* ``first_s``: from the first call until every stream has its first message;
* ``first_kib``: the size of a first message;
* ``change_s``: from the change of one endpoint in the file until every stream has its message; a changed file is read
  after 0.2 s without another change;
* ``change_bytes``: the size of that message;
* ``change_cpu_ms``: CPU of the server for the change, for all streams together;
* ``stream_kib``: resident memory of the server per stream.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import tempfile
import time
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import yaml

from bench.suite.process import cpu_s, rss_kb
from tests.support.process import LOOPBACK
from tests.support.server import ServerProcess
from xds.linkerd.proto import destination_pb2

METHOD = "/io.linkerd.proxy.destination.Destination/Get"
MANY = 1_000
DEADLINE_S = 120.0


@dataclass(frozen=True, slots=True)
class Row:
    """The figures for one size of a service."""

    endpoints: int
    streams: int
    first_s: float
    first_kib: float
    change_s: float
    change_bytes: int
    change_cpu_ms: float
    stream_kib: float


class Target:
    """The file with the instances of the service; the first instance has a weight that changes."""

    def __init__(self, path: Path, endpoints: int) -> None:
        self._path = path
        self._rest = [f"  - 10.{n >> 16 & 255}.{n >> 8 & 255}.{n & 255}:8080\n" for n in range(1, endpoints)]
        self._weight = 0

    def change(self) -> int:
        """Write the file with another weight, in one step; returns the weight."""
        self._weight += 1
        first = f"  - {{address: 10.255.0.1, port: 8080, weight: {self._weight}}}\n"
        partial = self._path.with_suffix(".partial")
        partial.write_text("services:\n  web:\n" + first + "".join(self._rest))
        partial.rename(self._path)
        return self._weight


async def measure(endpoints: int, streams: int, rounds: int) -> Row:
    """All figures for one size."""
    with tempfile.TemporaryDirectory() as folder:
        directory = Path(folder)
        target = Target(directory / "web.yaml", endpoints)
        target.change()
        config = directory / "xds.yaml"
        source = {"kind": "files", "paths": [str(directory / "web.yaml")]}
        config.write_text(yaml.safe_dump({"sources": {"targets": source}}))
        with ServerProcess(directory, ["--config", str(config), "--store", "memory"], forked=False) as server:
            return await _measured(server, target, endpoints, streams, rounds)


async def _measured(server: ServerProcess, target: Target, endpoints: int, streams: int, rounds: int) -> Row:
    pid = server.process.pid
    options = [("grpc.max_receive_message_length", -1)]
    async with grpc.aio.insecure_channel(f"{LOOPBACK}:{server.grpc_port}", options) as channel:
        request = destination_pb2.GetDestination(path="web.default.svc.cluster.local:80").SerializeToString()
        await channel.unary_stream(METHOD)(request).read()  # the service was read
        before_kb, start = rss_kb(pid), time.perf_counter()
        calls = [channel.unary_stream(METHOD)(request) for _ in range(streams)]
        first = await _all(call.read() for call in calls)
        first_s, after_kb = time.perf_counter() - start, rss_kb(pid)
        took, cpus, size = [], [], 0
        for _ in range(rounds):
            cpu, start = cpu_s(pid), time.perf_counter()
            weight = target.change()
            told = await _all(call.read() for call in calls)
            took.append(time.perf_counter() - start)
            cpus.append(cpu_s(pid) - cpu)
            size = _checked(told, weight)
    return Row(
        endpoints,
        streams,
        first_s,
        len(first[0]) / 1024,
        statistics.median(took),
        size,
        statistics.median(cpus) * 1e3,
        (after_kb - before_kb) / streams,
    )


async def _all(reads: Any) -> list[bytes]:
    """The next message of every stream."""
    found: Awaitable[list[bytes]] = asyncio.gather(*reads)
    return await asyncio.wait_for(found, DEADLINE_S)


def _checked(told: Sequence[bytes], weight: int) -> int:
    """Every stream was told of the one endpoint; the size of the message."""
    assert len(set(told)) == 1, "one change is one message, the same for all"
    (one,) = destination_pb2.Update.FromString(told[0]).add.addrs
    assert one.weight == 10_000 * weight
    return len(told[0])


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--streams", type=int, default=1_000)
    parser.add_argument("--endpoints", default="10,10000")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    print(f"{options.rounds} changes of one endpoint; medians")
    print("endpoints streams first_s first_kib change_s change_bytes change_cpu_ms stream_kib")
    for endpoints in map(int, options.endpoints.split(",")):
        streams = options.streams if endpoints <= MANY else max(options.streams // 10, 1)
        row = asyncio.run(measure(endpoints, streams, options.rounds))
        print(
            f"{row.endpoints:>9} {row.streams:>7} {row.first_s:>7.2f} {row.first_kib:>9.1f} {row.change_s:>8.2f}"
            f" {row.change_bytes:>12} {row.change_cpu_ms:>13.0f} {row.stream_kib:>10.1f}"
        )


if __name__ == "__main__":
    main()
