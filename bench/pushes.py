"""Pushes to a large group: one push of everything, then single resources at a steady rate, with streams connected.

    python -m bench.pushes [--resources 10000] [--streams 200] [--rate 50] [--seconds 60] [--variant delta]

Runs ``xds serve`` (SQLite) in a process of its own, with a probe on its event loop. Half of the resources are clusters,
half are their assignments, and N ADS streams subscribe to all. Three steps: a push of everything, a push that changes
all assignments, and pushes of one assignment each at the rate. Columns, in milliseconds except ``over_20ms``:

* ``answer``, ``slowest``: the median and the slowest answer of the admin API;
* ``in_sync``: from the last answer until every stream has ACKed the last revision;
* ``late``: the longest that the event loop was late, by the clock;
* ``late_cpu``: the longest that it was late while the process itself was running; on a busy machine other processes
  hold the core in between;
* ``late_loop``: the longest that it was late while the thread of the loop was running; gRPC has threads of its own;
* ``over_20ms``: how often ``late_cpu`` was above 20 ms;
* ``cpu``: CPU of the server per push, with all streams.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import httpx

from bench.fanout import ADS, METHODS, Server, free_port, wait_ready
from xds.model.resource_type import CLUSTER, ENDPOINT
from xds.proto import wire_pb2

GROUP = "/api/v1/groups/default"
PROBE_EVERY_S = 0.001
IN_STEP_TIMEOUT_S = 120.0


@dataclass(slots=True)
class Lateness:
    """The longest the loop was late since it was last read, in milliseconds."""

    late_ms: float = 0.0
    own_ms: float = 0.0
    thread_ms: float = 0.0
    over_20_ms: int = 0


@dataclass(slots=True)
class Probe:
    """Asks to be called every millisecond, and looks how late that happens."""

    report: Path
    found: Lateness = field(default_factory=Lateness)

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGUSR1, self._write)
        while True:
            wall_s, busy_s, thread_s = time.perf_counter(), time.process_time(), time.thread_time()
            await asyncio.sleep(PROBE_EVERY_S)
            late_ms = (time.perf_counter() - wall_s - PROBE_EVERY_S) * 1e3
            own_ms = min(late_ms, (time.process_time() - busy_s) * 1e3)
            thread_ms = min(late_ms, (time.thread_time() - thread_s) * 1e3)
            self.found.late_ms = max(self.found.late_ms, late_ms)
            self.found.thread_ms = max(self.found.thread_ms, thread_ms)
            self.found.own_ms = max(self.found.own_ms, own_ms)
            self.found.over_20_ms += own_ms > 20

    def _write(self) -> None:
        partial = self.report.with_suffix(".partial")
        partial.write_text(json.dumps(asdict(self.found)))
        partial.rename(self.report)
        self.found = Lateness()


def serve(grpc_port: int, http_port: int, folder: Path) -> None:
    """The real server of ``xds serve``, with the probe on its loop."""
    from xds.app import process, server
    from xds.app.settings import load_settings

    class ProbedServer(server.Server):
        async def start(self) -> None:
            await super().start()
            self.probe = asyncio.create_task(Probe(folder / "late.json").run())

    flags = {
        "server": {"grpc": {"port": grpc_port}, "http": {"port": http_port}},
        "store": {"kind": "sqlite", "data": folder / "data"},
        "logs": {"level": "warning"},
    }
    process.serve(load_settings(None, flags), ProbedServer)


@contextmanager
def running_server(folder: Path) -> Iterator[Server]:
    """``serve`` in a process of its own, ended afterwards."""
    ports = [str(free_port()), str(free_port())]
    process = subprocess.Popen([sys.executable, "-m", "bench.pushes", "--serve", *ports, str(folder)])
    try:
        server = Server(process.pid, f"127.0.0.1:{ports[0]}", f"http://127.0.0.1:{ports[1]}")
        wait_ready(server, process)
        yield server
    finally:
        process.terminate()
        process.wait()


async def lateness(server: Server, folder: Path) -> Lateness:
    """What the probe saw since the last time."""
    report = folder / "late.json"
    report.unlink(missing_ok=True)
    subprocess.run(["kill", "-USR1", str(server.pid)], check=True)
    while not report.exists():
        await asyncio.sleep(0.01)
    return Lateness(**json.loads(report.read_text()))


def cluster(index: int) -> dict[str, Any]:
    eds = {"eds_config": {"ads": {}, "resource_api_version": "V3"}}
    return {
        "@type": CLUSTER,
        "name": f"cluster-{index}",
        "type": "EDS",
        "connect_timeout": "1s",
        "eds_cluster_config": eds,
    }


def assignment(index: int, edition: int) -> dict[str, Any]:
    """Three endpoints; the edition shows in their weight."""
    endpoints = [
        {
            "endpoint": {"address": {"socket_address": {"address": f"10.0.{index % 250}.{host}", "port_value": 80}}},
            "load_balancing_weight": edition + 1,
        }
        for host in range(1, 4)
    ]
    name = f"cluster-{index}"
    return {"@type": ENDPOINT, "cluster_name": name, "endpoints": [{"lb_endpoints": endpoints}]}


def snapshot(resources: int, edition: int) -> bytes:
    count = resources // 2
    clusters = [cluster(index) for index in range(count)]
    return json.dumps({"resources": [*clusters, *(assignment(index, edition) for index in range(count))]}).encode()


class Followers:
    """N streams that ask for all clusters and all assignments, and ACK whatever comes."""

    def __init__(self, target: str, variant: str, streams: int, names: list[str]) -> None:
        self._target = target
        self._method = ADS + METHODS[variant]
        self._sotw = variant == "sotw"
        self._names = names
        self._tasks = [asyncio.create_task(self._follow(index)) for index in range(streams)]

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _follow(self, index: int) -> None:
        options = (("grpc.use_local_subchannel_pool", 1), ("grpc.max_receive_message_length", 64 << 20))
        async with grpc.aio.insecure_channel(self._target, options=options) as channel:
            call = channel.stream_stream(self._method)()
            node = wire_pb2.Node(id=f"node-{index}").SerializeToString()
            await call.write(self._request(CLUSTER, node=node))
            await call.write(self._request(ENDPOINT, subscribe=True))
            while (data := await call.read()) is not grpc.aio.EOF:
                response = wire_pb2.DiscoveryResponse() if self._sotw else wire_pb2.DeltaDiscoveryResponse()
                response.ParseFromString(data)
                await call.write(self._request(response.type_url, nonce=response.nonce))

    def _request(self, type_url: str, node: bytes = b"", nonce: str = "", subscribe: bool = False) -> bytes:
        """SotW states its names with every request, Delta once."""
        if self._sotw:
            asked = wire_pb2.DiscoveryRequest(type_url=type_url, node=node, response_nonce=nonce)
            asked.resource_names.extend(self._names if type_url == ENDPOINT else ())
            return bytes(asked.SerializeToString())
        delta = wire_pb2.DeltaDiscoveryRequest(type_url=type_url, node=node, response_nonce=nonce)
        delta.resource_names_subscribe.extend(self._names if subscribe else ())
        return bytes(delta.SerializeToString())


async def connected(admin: httpx.AsyncClient, streams: int) -> None:
    """Wait until every stream is there."""
    while (await admin.get(GROUP)).json()["nodes"] < streams:
        await asyncio.sleep(0.05)


async def in_step(admin: httpx.AsyncClient, revision: int, streams: int) -> None:
    """Wait until every stream has ACKed the revision."""
    deadline = time.monotonic() + IN_STEP_TIMEOUT_S
    while time.monotonic() < deadline:
        answer = (await admin.get(f"{GROUP}/revisions/{revision}/progress", params={"wait": 10})).json()
        if answer["synced"] >= streams and not answer["pending"]:
            return
        await asyncio.sleep(0.05)
    raise SystemExit(f"not in step after {IN_STEP_TIMEOUT_S:g} s: {answer}")


@dataclass(frozen=True, slots=True)
class Taken:
    """Seconds: each answer's, ascending, and from the last one until every stream was in step."""

    answers_s: list[float]
    in_step_s: float


@dataclass(slots=True)
class Bench:
    server: Server
    admin: httpx.AsyncClient
    folder: Path
    arguments: argparse.Namespace

    async def push_all(self, edition: int) -> Taken:
        """Push everything."""
        body = snapshot(self.arguments.resources, edition)
        started = time.perf_counter()
        answer = await self.admin.put(f"{GROUP}/snapshot", content=body, headers={"Content-Type": "application/json"})
        answer.raise_for_status()
        answered = time.perf_counter()
        await in_step(self.admin, answer.json()["revision"], self.arguments.streams)
        return Taken([answered - started], time.perf_counter() - answered)

    async def push_singles(self) -> Taken:
        """Push at the rate, however long the answers take."""
        pushes = int(self.arguments.rate * self.arguments.seconds)
        started, tasks = time.perf_counter(), []
        for number in range(pushes):
            await asyncio.sleep(max(0.0, started + number / self.arguments.rate - time.perf_counter()))
            tasks.append(asyncio.create_task(self._push_single(number)))
        answers = await asyncio.gather(*tasks)
        ended = time.perf_counter()
        await in_step(self.admin, max(revision for _, revision in answers), self.arguments.streams)
        return Taken(sorted(seconds for seconds, _ in answers), time.perf_counter() - ended)

    async def _push_single(self, number: int) -> tuple[float, int]:
        index = number % (self.arguments.resources // 2)
        path = f"{GROUP}/resources/endpoints/cluster-{index}"
        started = time.perf_counter()
        answer = await self.admin.put(path, json=assignment(index, number + 10))
        answer.raise_for_status()
        return time.perf_counter() - started, int(answer.json()["revision"])

    async def report(self, step: str, push: Callable[[], Awaitable[Taken]]) -> None:
        await lateness(self.server, self.folder)
        cpu_s = self.server.cpu_s()
        taken = await push()
        cpu_ms = (self.server.cpu_s() - cpu_s) / len(taken.answers_s) * 1e3
        found = await lateness(self.server, self.folder)
        median_ms, slowest_ms = taken.answers_s[len(taken.answers_s) // 2] * 1e3, taken.answers_s[-1] * 1e3
        figures = (median_ms, slowest_ms, taken.in_step_s * 1e3, *asdict(found).values())
        print(f"{step:20}" + "".join(f"{figure:10.0f}" for figure in figures) + f"{cpu_ms:10.1f}", flush=True)


async def measure(arguments: argparse.Namespace, folder: Path) -> None:
    print(f"{arguments.resources} resources, {arguments.streams} {arguments.variant} streams")
    columns = ("answer", "slowest", "in_sync", "late", "late_cpu", "late_loop", "over_20ms", "cpu")
    print(f"{'step':20}" + "".join(f"{column:>10}" for column in columns))
    with running_server(folder) as server:
        async with httpx.AsyncClient(base_url=server.http, timeout=IN_STEP_TIMEOUT_S) as admin:
            bench = Bench(server, admin, folder, arguments)
            names = [f"cluster-{index}" for index in range(arguments.resources // 2)]
            (await admin.put(f"{GROUP}/snapshot", json={"resources": [cluster(0)]})).raise_for_status()
            followers = Followers(server.grpc, arguments.variant, arguments.streams, names)
            await connected(admin, arguments.streams)
            await bench.report("all-new", lambda: bench.push_all(0))
            await bench.report("assignments-changed", lambda: bench.push_all(1))
            await bench.report("single", bench.push_singles)
            await followers.stop()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--resources", type=int, default=10_000)
    parser.add_argument("--streams", type=int, default=200)
    parser.add_argument("--rate", type=float, default=50.0)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--variant", choices=METHODS, default="delta")
    parser.add_argument("--serve", nargs=3, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.serve:
        grpc_port, http_port, folder = arguments.serve
        serve(int(grpc_port), int(http_port), Path(folder))
        return
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(measure(arguments, Path(folder)))


if __name__ == "__main__":
    main()
