"""Fan-out over real gRPC: N streams, one change, until the last ACK.

    python -m bench.fanout [--streams 500] [--clusters 100] [--rounds 5]

Starts ``xds serve`` with the memory store, connects N ADS streams on separate connections from a second process, and
pushes through the admin API. Prints for each variant the wall time from the push's answer to the last ACK, and the CPU
of the server process per push and ACK, the admin call included. The clients are grpc.aio streams and take more CPU than
the server: compare the ratio between the variants, not the milliseconds.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import httpx

from xds.model.resource_type import CLUSTER
from xds.proto import wire_pb2

ADS = "/envoy.service.discovery.v3.AggregatedDiscoveryService/"
METHODS = {"sotw": "StreamAggregatedResources", "delta": "DeltaAggregatedResources"}
READY_TIMEOUT_S = 120.0  # a start takes seconds of CPU, which a busy machine shares
OUTPUT_SHOWN = 2000  # characters


@dataclass(frozen=True, slots=True)
class Server:
    pid: int
    grpc: str
    http: str

    def cpu_s(self) -> float:
        """User and system time of the process so far, in seconds."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def running_server() -> Iterator[Server]:
    """An ``xds serve`` of its own, ended afterwards."""
    addresses = [f"127.0.0.1:{free_port()}" for _ in range(2)]
    command = [sys.executable, "-m", "xds.cli.main", "serve", "--grpc", addresses[0], "--http", addresses[1]]
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen([*command, "--store", "memory"], stdout=output, stderr=subprocess.STDOUT)
        try:
            server = Server(process.pid, addresses[0], f"http://{addresses[1]}")
            try:
                wait_ready(server, process)
            except SystemExit as error:
                output.seek(0)
                raise SystemExit(f"{error}: {output.read().decode()[-OUTPUT_SHOWN:]}") from None
            yield server
        finally:
            process.terminate()
            process.wait()


def wait_ready(server: Server, process: subprocess.Popen[bytes] | None = None) -> None:
    """Wait until a server is ready; not if its process has ended."""
    deadline = time.monotonic() + READY_TIMEOUT_S
    while time.monotonic() < deadline:
        try:
            if httpx.get(f"{server.http}/readyz", trust_env=False).status_code == httpx.codes.OK:
                return
        except httpx.TransportError:
            pass
        if process is not None and process.poll() is not None:
            raise SystemExit(f"the server ended with exit code {process.returncode}")
        time.sleep(0.05)
    raise SystemExit(f"the server did not become ready within {READY_TIMEOUT_S:.0f} s")


def snapshot(clusters: int, round_number: int) -> dict[str, Any]:
    """Clusters of which the first changes with every round."""
    timeouts = [f"{round_number + 1}s", *(["1s"] * (clusters - 1))]
    return {
        "resources": [
            {"@type": CLUSTER, "name": f"cluster-{index}", "type": "STATIC", "connect_timeout": timeout}
            for index, timeout in enumerate(timeouts)
        ]
    }


class Subscribers:
    """N streams that ACK whatever comes and count their ACKs."""

    def __init__(self, target: str, variant: str, streams: int) -> None:
        self._target = target
        self._variant = variant
        self._streams = streams
        self._sotw = variant == "sotw"
        self._pending = streams
        self._all_acked = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Connect all; returns when every stream ACKed its first response."""
        self._tasks = [asyncio.create_task(self._run(index)) for index in range(self._streams)]
        await self.all_acked()

    async def all_acked(self) -> None:
        await self._all_acked.wait()
        self._all_acked.clear()
        self._pending = self._streams

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _run(self, index: int) -> None:
        options = (("grpc.use_local_subchannel_pool", 1), ("grpc.max_receive_message_length", 64 << 20))
        async with grpc.aio.insecure_channel(self._target, options=options) as channel:
            call = channel.stream_stream(ADS + METHODS[self._variant])()
            await call.write(self._request(node=wire_pb2.Node(id=f"node-{index}").SerializeToString()))
            while (data := await call.read()) is not grpc.aio.EOF:
                await call.write(self._request(nonce=self._nonce(data)))
                self._pending -= 1
                if not self._pending:
                    self._all_acked.set()

    def _request(self, node: bytes = b"", nonce: str = "") -> bytes:
        message = wire_pb2.DiscoveryRequest() if self._sotw else wire_pb2.DeltaDiscoveryRequest()
        message.type_url, message.node, message.response_nonce = CLUSTER, node, nonce
        return bytes(message.SerializeToString())

    def _nonce(self, data: bytes) -> str:
        message = wire_pb2.DiscoveryResponse() if self._sotw else wire_pb2.DeltaDiscoveryResponse()
        message.ParseFromString(data)
        return str(message.nonce)


async def measure(variant: str, streams: int, clusters: int, rounds: int) -> tuple[float, float]:
    """Medians over the rounds: wall milliseconds, and server CPU microseconds per push and ACK."""
    with running_server() as server:
        async with httpx.AsyncClient(base_url=server.http, timeout=60) as admin:
            path = "/api/v1/groups/default/snapshot"
            (await admin.put(path, json=snapshot(clusters, 0))).raise_for_status()
            subscribers = Subscribers(server.grpc, variant, streams)
            await subscribers.start()
            walls, cpus = [], []
            for round_number in range(1, rounds + 1):
                cpu_s = server.cpu_s()
                (await admin.put(path, json=snapshot(clusters, round_number))).raise_for_status()
                accepted = time.perf_counter()
                await subscribers.all_acked()
                walls.append((time.perf_counter() - accepted) * 1e3)
                cpus.append((server.cpu_s() - cpu_s) / streams * 1e6)
            await subscribers.stop()
    return statistics.median(walls), statistics.median(cpus)


async def measure_all(streams: int, clusters: int, rounds: int) -> None:
    """Both variants on one loop: grpc.aio polls for one loop a process."""
    print(f"{streams} streams, one of {clusters} clusters changed, median of {rounds}")
    print(f"{'variant':8} {'wall ms':>8} {'server CPU us/push+ACK':>23} {'ratio':>6}")
    base = 0.0
    for variant in METHODS:
        wall_ms, cpu_us = await measure(variant, streams, clusters, rounds)
        base = base or cpu_us
        # The kernel counts CPU in ticks of 10 ms: few streams may take none.
        ratio = f"{cpu_us / base:.2f}" if base else "-"
        print(f"{variant:8} {wall_ms:8.0f} {cpu_us:23.0f} {ratio:>6}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--streams", type=int, default=500)
    parser.add_argument("--clusters", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    asyncio.run(measure_all(arguments.streams, arguments.clusters, arguments.rounds))


if __name__ == "__main__":
    main()
