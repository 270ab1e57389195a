"""How many functions and files of the server one push, its ACK, a load report and a config entry enter.

    python -m tools.trips [--files TRIP]

A real embedded server with SQLite and one ADS stream. ``calls``, ``functions`` and ``files`` are those of `xds`;
``changes of room`` counts calls from one folder of `xds` into another. ``--files`` lists the files of a trip. What an
idle server does as well is left out.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

import grpc.aio
import httpx

import xds
from xds.model.resource_type import CLUSTER
from xds.proto import wire_pb2

ROOT = Path(xds.__file__).parent
ADS = "/envoy.service.discovery.v3.AggregatedDiscoveryService/StreamAggregatedResources"
LOAD = "/envoy.service.load_stats.v3.LoadReportingService/StreamLoadStats"
QUIET_S = 0.7  # what follows a step has been done by then: the server looks every 0.5 s who has a push
IDLE_S = 3.0
WARM_UP = 2  # rounds before the counted one: imports and first uses are no part of a trip

Step = Callable[[int], Awaitable[None]]


@dataclass
class Trip:
    """What was entered between `Counter.begin` and its end."""

    idle: frozenset[tuple[str, str]] = frozenset()
    calls: int = 0
    room_changes: int = 0
    functions: set[tuple[str, str]] = field(default_factory=set)
    rooms: dict[int, str] = field(default_factory=dict)  # the last room, by thread

    @property
    def files(self) -> list[str]:
        """The files that were entered."""
        return sorted({file for file, _ in self.functions})

    def enter(self, file: str, function: str) -> None:
        """A function of `xds` is called."""
        if (file, function) in self.idle:
            return
        self.calls += 1
        self.functions.add((file, function))
        room, thread = file.partition("/")[0], threading.get_ident()
        self.room_changes += self.rooms.get(thread, room) != room
        self.rooms[thread] = room


class Counter:
    """Counts calls in all threads while a trip is under way."""

    def __init__(self) -> None:
        self._trip: Trip | None = None
        self._prefix = f"{ROOT}/"

    def install(self) -> None:
        """For threads that begin later, and for this one."""
        threading.setprofile(self._note)
        sys.setprofile(self._note)

    def begin(self, idle: frozenset[tuple[str, str]] = frozenset()) -> Trip:
        """Count into a new trip, without the functions ``idle``."""
        self._trip = Trip(idle)
        return self._trip

    def end(self) -> None:
        """Count no more."""
        self._trip = None

    def _note(self, frame: FrameType, event: str, _: Any) -> None:
        trip, file = self._trip, frame.f_code.co_filename
        if trip is not None and event == "call" and file.startswith(self._prefix):
            trip.enter(file.removeprefix(self._prefix), frame.f_code.co_qualname)


class Proxy:
    """One ADS stream and one load report stream."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._stream: Any = channel.stream_stream(ADS)()
        self._load: Any = channel.stream_stream(LOAD)()
        self._node = wire_pb2.Node(id="trip", cluster="trips", user_agent_name="envoy")
        self.response = wire_pb2.DiscoveryResponse()

    async def start(self) -> None:
        """Request clusters, and begin to report load."""
        node = self._node.SerializeToString()
        await self._stream.write(wire_pb2.DiscoveryRequest(type_url=CLUSTER, node=node).SerializeToString())
        await self.read()
        await self.acknowledge()
        await self._load.write(wire_pb2.LoadStatsRequest(node=node).SerializeToString())
        await self._load.read()

    async def read(self) -> None:
        """The next response."""
        self.response = wire_pb2.DiscoveryResponse.FromString(await asyncio.wait_for(self._stream.read(), 10))

    async def acknowledge(self) -> None:
        """ACK the last response."""
        last = self.response
        request = wire_pb2.DiscoveryRequest(
            type_url=last.type_url, version_info=last.version_info, response_nonce=last.nonce
        )
        await self._stream.write(request.SerializeToString())
        await asyncio.sleep(QUIET_S)

    async def report(self) -> None:
        """Tell the load of one cluster."""
        stats = wire_pb2.ClusterStats(cluster_name="c0")
        stats.load_report_interval.FromMilliseconds(1000)
        stats.upstream_locality_stats.add(total_successful_requests=10)
        await self._load.write(wire_pb2.LoadStatsRequest(cluster_stats=[stats]).SerializeToString())
        await asyncio.sleep(QUIET_S)


@asynccontextmanager
async def world() -> AsyncIterator[tuple[httpx.AsyncClient, Proxy]]:
    """A server with one group, which has an upstream, and a proxy of it."""
    with tempfile.TemporaryDirectory() as data:
        async with (
            xds.Server(grpc="127.0.0.1:0", http="127.0.0.1:0", data=data) as server,
            httpx.AsyncClient(base_url=f"{server.http_url}/api/v1") as http,
            grpc.aio.insecure_channel(str(server.grpc_address)) as channel,
        ):
            await push(http, 0)
            await put(http, "groups/trips/upstreams", {"upstreams": [{"service": "web", "bind_port": 9191}]})
            proxy = Proxy(channel)
            await proxy.start()
            yield http, proxy


async def put(http: httpx.AsyncClient, path: str, body: object) -> None:
    """A write, which must succeed."""
    answer = await http.put(path, json=body)
    assert answer.is_success, answer.text


async def push(http: httpx.AsyncClient, number: int) -> None:
    """Two clusters that differ from those of another number."""
    resources = [
        {
            "@type": CLUSTER,
            "name": f"c{each}",
            "type": "STATIC",
            "connect_timeout": f"{number + 1}s",
            "load_assignment": {"cluster_name": f"c{each}"},
        }
        for each in range(2)
    ]
    await put(http, "groups/trips/snapshot", {"resources": resources})


def steps(http: httpx.AsyncClient, proxy: Proxy) -> dict[str, Step]:
    """The trips, in their order in one round. Each gets the number of the round."""

    async def push_and_read(number: int) -> None:
        await asyncio.gather(push(http, number + 1), proxy.read())
        await asyncio.sleep(QUIET_S)

    async def acknowledge(_: int) -> None:
        await proxy.acknowledge()

    async def report(_: int) -> None:
        await proxy.report()

    async def write_entry_and_read(number: int) -> None:
        entry = {"ConnectTimeout": f"{number + 1}s"}
        await asyncio.gather(put(http, "config-entries/service-resolver/web", entry), proxy.read())
        await asyncio.sleep(QUIET_S)

    return {
        "push of 2 clusters": push_and_read,
        "its ACK": acknowledge,
        "load report, one cluster": report,
        "config entry with one upstream": write_entry_and_read,
    }


async def measure() -> dict[str, Trip]:
    """One trip of each kind, after some that are not counted."""
    counter, trips = Counter(), dict[str, Trip]()
    counter.install()
    async with world() as (http, proxy):
        quiet = counter.begin()
        await asyncio.sleep(IDLE_S)
        counter.end()
        idle = frozenset(quiet.functions)
        for number in range(WARM_UP + 1):
            for name, step in steps(http, proxy).items():
                trips[name] = counter.begin(idle)
                await step(number)
                counter.end()
            await proxy.acknowledge()
    sys.setprofile(None)
    return trips


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", metavar="TRIP", default="")
    arguments = parser.parse_args()
    trips = asyncio.run(measure())
    if arguments.files:
        print("\n".join(trips[arguments.files].files))
        return
    print(f"{'trip':32} {'calls':>7} {'functions':>10} {'files':>6} {'changes of room':>16}")
    for name, trip in trips.items():
        print(f"{name:32} {trip.calls:7} {len(trip.functions):10} {len(trip.files):6} {trip.room_changes:16}")


if __name__ == "__main__":
    main()
