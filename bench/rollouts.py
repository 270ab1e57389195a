"""Careful rollouts to many proxies: what each step costs the event loop, and the proxies outside of the wave.

    python -m bench.rollouts [--proxies 10000] [--clusters 100]

The streams are those of the engine, without sockets; publisher, cache, fleet and decider are those of a server. A row
is one step: a push to all, the push that begins a rollout, each wave, the promotion, a look at a wave that waits, the
push that supersedes a rollout, and the roll-back after a NACK.

* ``loop ms``: the most CPU that the event loop took in the step before it served something else, without the work of
  the streams;
* ``woken us``: CPU of one stream outside of the wave that is woken by the step;
* ``sent``: responses to streams outside of the wave before and after the step (0 is right), and to all others.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Collection
from contextlib import suppress
from typing import Any

import structlog

from xds.codec.resources import decode_document
from xds.fleet.fleet import Fleet
from xds.model.resource import Resource
from xds.model.resource_type import CLUSTER
from xds.proto import wire_pb2
from xds.protocol.clients import ClientTable
from xds.protocol.decode import RequestDecoder
from xds.protocol.delta import DELTA
from xds.protocol.events import Event, Send
from xds.protocol.stream import DiscoveryStream
from xds.push.publisher import Publisher
from xds.push.request import PushOptions
from xds.push.rollout_runner import RolloutRunner
from xds.rollouts.rollout import RolloutState
from xds.snapshots.cache import SnapshotCache
from xds.snapshots.order import OrderRules
from xds.store.sqlite.memory import MemoryStore

GROUP = "edge"
PLAN = {"waves": "1,10%,50%", "hold_s": 0}
BEAT_S = 0.001
DECODE = DELTA.decoder(RequestDecoder())


class Proxies:
    """Streams that subscribe to all clusters. ``refused`` is the name of a cluster that they NACK."""

    def __init__(self, cache: SnapshotCache, fleet: Fleet, proxies_n: int) -> None:
        self.refused = ""
        self._cache = cache
        self._fleet = fleet
        clients = ClientTable(cache, OrderRules())
        self.streams: dict[int, DiscoveryStream] = {}
        for index in range(proxies_n):
            peer = f"10.0.{index >> 8}.{index & 255}:4000"
            fleet.stream_opened(index, peer, "ADS", "delta", time.time())
            self.streams[index] = DiscoveryStream(cache=cache, clients=clients, dialect=DELTA, peer=peer)

    def connect(self) -> None:
        """All ask for all clusters, and ACK them."""
        for index in self.streams:
            node = wire_pb2.Node(id=f"{GROUP}-{index}", cluster=GROUP, user_agent_name="envoy").SerializeToString()
            first = wire_pb2.DeltaDiscoveryRequest(node=node, type_url=CLUSTER, resource_names_subscribe=["*"])
            self._answer(index, self._receive(index, first))

    def wake(self, indexes: Collection[int]) -> tuple[int, float]:
        """Wake these streams: how many responses are sent, and the CPU that it takes, without that of answers."""
        began = time.thread_time()
        offered = [(index, self._offer(index)) for index in indexes]
        spent = time.thread_time() - began
        return sum(self._answer(index, events) for index, events in offered), spent

    def outside(self) -> set[int]:
        """The streams of proxies that are served the base; none while there is no rollout."""
        lines = {index: self._cache.resolve(stream.node) for index, stream in self.streams.items() if stream.node}
        head = self._cache.get(GROUP)
        return {index for index, view in lines.items() if view is not None and view.snapshot is not head}

    def _offer(self, index: int) -> list[Event]:
        stream = self.streams[index]
        events = stream.offer(stream.resolve(), time.monotonic())
        self._fleet.apply_events(index, events, time.time())
        return events

    def _receive(self, index: int, request: wire_pb2.DeltaDiscoveryRequest) -> list[Event]:
        events = self.streams[index].receive(DECODE(request.SerializeToString()), time.monotonic())
        self._fleet.apply_events(index, events, time.time())
        return events

    def _answer(self, index: int, events: list[Event]) -> int:
        """ACK or NACK what was sent, and what comes then. Returns the number of responses."""
        sent = [event for event in events if isinstance(event, Send)]
        for event in sent:
            answer = wire_pb2.DeltaDiscoveryRequest(type_url=CLUSTER, response_nonce=event.nonce)
            if self.refused and self.refused in event.response.names:
                answer.error_detail.code, answer.error_detail.message = 13, "cannot bind"
            self._answer(index, self._receive(index, answer))
        return len(sent)


def clusters(count: int, name: str) -> list[Resource]:
    """Static clusters, one of them with this name."""
    documents: list[dict[str, Any]] = [
        {
            "@type": CLUSTER,
            "name": each,
            "type": "STATIC",
            "connect_timeout": "1s",
            "load_assignment": {"cluster_name": each},
        }
        for each in (name, *(f"cluster-{index}" for index in range(1, count)))
    ]
    return decode_document(json.dumps({"resources": documents})).resources


async def longest_stop_ms(work: Awaitable[object]) -> float:
    """Do the work; the most CPU that the loop took before it served something else."""
    longest_s = 0.0

    async def beat() -> None:
        nonlocal longest_s
        while True:
            began = time.thread_time()
            await asyncio.sleep(BEAT_S)
            longest_s = max(longest_s, time.thread_time() - began)

    beating = asyncio.create_task(beat())
    await asyncio.sleep(0)
    await work
    await asyncio.sleep(BEAT_S)
    beating.cancel()
    with suppress(asyncio.CancelledError):
        await beating
    return longest_s * 1e3


class Bench:
    """One server in this process, and its proxies."""

    def __init__(self, proxies_n: int, clusters_n: int) -> None:
        self.clusters_n = clusters_n
        self.store = MemoryStore()
        self.cache = SnapshotCache()
        self.fleet = Fleet()
        self.publisher = Publisher(self.store, self.cache, self.fleet, lambda groups: None)
        rollouts = self.publisher.rollouts
        self.runner = RolloutRunner(rollouts, self.fleet, self.publisher.rollout_facts.gather)
        self.proxies = Proxies(self.cache, self.fleet, proxies_n)

    def push(self, name: str, **options: Any) -> Awaitable[object]:
        """Push clusters, one of them with this name."""
        return self.publisher.push(GROUP, clusters(self.clusters_n, name), options=PushOptions(**options))

    async def step(self, called: str, work: Awaitable[object]) -> str:
        """One step, and what it costs, as a row."""
        before = self.proxies.outside() or set(self.proxies.streams)
        stop_ms = await longest_stop_ms(work)
        rollout = self.publisher.rollouts.find(GROUP)
        is_back = rollout is not None and rollout.state is RolloutState.ROLLED_BACK
        untouched = before if is_back else before & self.proxies.outside()
        sent_outside, spent = self.proxies.wake(sorted(untouched))
        sent_inside, _ = self.proxies.wake(sorted(self.proxies.streams.keys() - untouched))
        woken_us = spent / len(untouched) * 1e6 if untouched else 0.0
        return f"{called:12} {stop_ms:8.1f} {woken_us:9.1f} {sent_outside:13} {sent_inside:11}"

    async def run(self) -> None:
        """A rollout that is promoted, and one that another supersedes, which is taken back."""
        await self.store.open()
        await self.push("a")
        self.proxies.connect()
        print(f"{len(self.proxies.streams)} proxies, {self.clusters_n} clusters")
        print(f"{'step':12} {'loop ms':>8} {'woken us':>9} {'sent outside':>13} {'sent others':>11}")
        print(await self.step("push", self.push("b")))
        print(await self.step("begin", self.push("c", rollout=PLAN)), flush=True)
        async for row in self._steps():
            print(row, flush=True)
        held = {**PLAN, "hold_s": 60}
        print(await self.step("begin", self.push("d", rollout=held)))
        print(await self.step("look", self.runner.look()))
        self.proxies.refused = "bad"
        print(await self.step("supersede", self.push("bad", rollout=held)))
        async for row in self._steps():
            print(row, flush=True)
        await self.publisher.close()
        await self.store.close()

    async def _steps(self) -> AsyncIterator[str]:
        for _ in range(8):
            rollout = self.publisher.rollouts.find(GROUP)
            if rollout is None or not rollout.is_open:
                return
            row = await self.step("", self.runner.look())
            after = self.publisher.rollouts.find(GROUP)
            assert after is not None
            yield (f"wave-{after.wave + 1}" if after.is_open else after.state.value).ljust(12) + row[12:]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--proxies", type=int, default=10_000)
    parser.add_argument("--clusters", type=int, default=100)
    arguments = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    asyncio.run(Bench(arguments.proxies, arguments.clusters).run())


if __name__ == "__main__":
    main()
