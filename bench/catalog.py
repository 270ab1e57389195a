"""The catalog of services: the cost of a change of one instance, by the number of services.

    python -m bench.catalog [--services 100,1000,10000] [--instances 10] [--streams 1000] [--rounds 30] [--rate 1000]
        [--seconds 5]

Each service has ``--instances`` instances, and an assignment of one group follows it. ``--streams`` Delta streams
subscribe to all assignments. There are no sockets; the store is SQLite.

* ``change_us``: CPU of one change, from the source's ``put`` of a service with one instance in other health until its
  assignment is served and the streams are woken;
* ``stream_us``: CPU of a stream that offers the change and reads the ACK;
* ``sent``: resources that a stream is sent for one change;
* ``store_us``: CPU of all threads to store one change;
* ``start_ms``: CPU of all threads at a start, from the stored sets to served assignments;
* ``service_kib``: memory of a service with its instances and its assignment;
* ``busy``: the share of one core that ``--rate`` changes a second take, to the services in turn, without streams;
* ``late_ms``: the longest time from such a change until its assignment is served; changes are collected for 50 ms.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import logging
import statistics
import tempfile
import time
import tracemalloc
from collections.abc import Collection
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import structlog

from bench.catalog_source import INSTANCES, changed, instances
from bench.engine import Fleet
from xds.fleet.event_log import EventLog
from xds.live.by_hand import HandAssignments
from xds.live.owners import LiveEndpoints
from xds.proto import wire_pb2
from xds.protocol.dialect import Variant
from xds.protocol.events import Send
from xds.services.bindings import Bindings
from xds.services.catalog import ServiceCatalog
from xds.services.core.binding import Binding
from xds.services.core.holding import HoldRule
from xds.services.core.index import CatalogLimits
from xds.store.base import Store
from xds.store.engines import open_store
from xds.tasks.writes import WriteLocks

GROUP = "default"
LIMITS = CatalogLimits(1_000_000, 10_000, 10_000_000)


@dataclass(frozen=True, slots=True)
class Row:
    """The figures for one number of services."""

    services: int
    change_us: float
    stream_us: float
    sent: int
    store_us: float
    start_ms: float
    service_kib: float
    busy: float
    late_ms: float


class Site:
    """A catalog with services and bindings over a fleet of streams."""

    def __init__(self, services: int, streams: int, store: Store, instances_n: int) -> None:
        self.services = services
        self.instances_n = instances_n
        self.fleet = Fleet(Variant.DELTA, streams, services, "named")
        self.catalog = ServiceCatalog(HoldRule(), LIMITS, store=store)
        live, locks = LiveEndpoints(self.fleet.cache, lambda groups: None), WriteLocks()
        by_hand = HandAssignments(store, self.fleet.cache, live, locks, lambda group: True, EventLog())
        self.bindings = Bindings(store, self.catalog, live, locks, by_hand, lambda group: True)
        self._turn = count()

    async def fill(self) -> None:
        """Show all services, and bind them."""
        sink = self.catalog.sink("bench", "bench")
        sink.replace({f"service-{n}": instances(n, self.instances_n) for n in range(self.services)})
        await self.catalog.tick()
        for n in range(self.services):
            await self.bindings.put((GROUP, f"cluster-{n}"), Binding(f"service-{n}"))

    def change(self) -> int:
        """Show the next service with an instance in other health, and of another weight. Returns its number."""
        turn = next(self._turn)
        number = turn % self.services
        shown = changed(number, turn // self.services, self.instances_n)
        self.catalog.sink("bench", "bench").put(f"service-{number}", shown)
        return number


async def measure(services: int, streams: int, rounds: int, rate: int, seconds: float, instances_n: int) -> Row:
    """All figures for one number of services."""
    with tempfile.TemporaryDirectory() as folder:
        store = open_store("sqlite", Path(folder), None)
        await store.open()
        site = Site(services, streams, store, instances_n)
        await site.fill()
        fan_out(site)
        change_us, stream_us, sent = await changes(site, streams, rounds)
        store_us = await storing(site, rounds)
        busy, late_ms = await flood(site, rate, seconds)
        start_ms, kib = await starting(services, store, instances_n)
        await store.close()
    return Row(services, change_us, stream_us, sent, store_us, start_ms, kib, busy, late_ms)


async def changes(site: Site, streams: int, rounds: int) -> tuple[float, float, int]:
    """CPU of a change and of each stream, and the resources that a stream is sent."""
    changed, offered, sent = [], [], 0
    gc.collect()
    for _ in range(rounds):
        start = time.thread_time()
        site.change()
        await site.catalog.tick()
        changed.append(time.thread_time() - start)
        spent, sent = fan_out(site)
        offered.append(spent / max(streams, 1))
    return statistics.median(changed) * 1e6, statistics.median(offered) * 1e6, sent


def fan_out(site: Site) -> tuple[float, int]:
    """Let every stream offer what changed and read the ACK. Returns the CPU, and the resources that each was sent."""
    fleet = site.fleet
    start = time.thread_time()
    answers = [(index, fleet.offer(index, stream)) for index, stream in fleet.streams.items()]
    spent = time.thread_time() - start
    sent = {resources_of(event) for _, events in answers for event in events if isinstance(event, Send)}
    assert len(sent) <= 1, sent
    return spent + fleet.settle(answers), next(iter(sent), 0)


def resources_of(send: Send) -> int:
    """The number of resources in a response."""
    return len(wire_pb2.DeltaDiscoveryResponse.FromString(bytes(send.body)).resources)


async def storing(site: Site, rounds: int) -> float:
    """CPU of all threads for each stored change."""
    await site.catalog.save()
    for _ in range(rounds):
        site.change()
    await site.catalog.tick()
    start = time.process_time()
    await site.catalog.save()
    return (time.process_time() - start) / min(rounds, site.services) * 1e6


async def flood(site: Site, rate: int, seconds: float) -> tuple[float, float]:
    """The part of a core that this many changes a second take, and the longest time until one is served."""
    waiting: dict[str, float] = {}
    late = 0.0

    async def served(changed: Collection[str]) -> None:
        nonlocal late
        now = time.perf_counter()
        late = max([late, *(now - waiting.pop(name) for name in changed if name in waiting)])

    site.catalog.listen(served)
    site.catalog.start()
    start, cpu, done = time.perf_counter(), time.process_time(), 0
    while (passed := time.perf_counter() - start) < seconds:
        while done < passed * rate:
            number = site.change()
            waiting.setdefault(f"service-{number}", time.perf_counter())
            done += 1
        await asyncio.sleep(0.005)
    busy = (time.process_time() - cpu) / (time.perf_counter() - start)
    await site.catalog.close()
    return busy, late * 1e3


async def starting(services: int, store: Store, instances_n: int) -> tuple[float, float]:
    """CPU of all threads and memory per service, from the store to served assignments."""
    docs = await store.docs("binding")
    assert len(docs) == services
    site = Site(services, 0, store, instances_n)
    gc.collect()
    begun = time.process_time()
    await site.bindings.load()
    await site.catalog.load()
    cpu_ms = (time.process_time() - begun) * 1e3
    assert site.bindings.followed.live_n == services
    del site
    gc.collect()
    site = Site(services, 0, store, instances_n)
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    await site.bindings.load()
    await site.catalog.load()
    gc.collect()
    kib = (tracemalloc.get_traced_memory()[0] - before) / services / 1024
    tracemalloc.stop()
    return cpu_ms, kib


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--services", default="100,1000,10000")
    parser.add_argument("--instances", type=int, default=INSTANCES)
    parser.add_argument("--streams", type=int, default=1_000)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--rate", type=int, default=1_000)
    parser.add_argument("--seconds", type=float, default=5.0)
    asked = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    told = f"{asked.instances} instances a service, {asked.streams} Delta streams, {asked.rate} changes/s"
    print(f"{told}, median of {asked.rounds} rounds")
    print(
        f"{'services':>8} {'change_us':>10} {'stream_us':>10} {'sent':>5} {'store_us':>9} {'start_ms':>9}"
        f" {'service_kib':>11} {'busy':>6} {'late_ms':>8}"
    )
    for services in map(int, asked.services.split(",")):
        row = asyncio.run(measure(services, asked.streams, asked.rounds, asked.rate, asked.seconds, asked.instances))
        print(
            f"{row.services:>8} {row.change_us:10.1f} {row.stream_us:10.1f} {row.sent:5} {row.store_us:9.1f}"
            f" {row.start_ms:9.1f} {row.service_kib:11.1f} {row.busy:6.2f} {row.late_ms:8.1f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
