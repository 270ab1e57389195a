"""A mesh: the time from a write of one config entry until all clients have ACKed the resources lowered from it.

    python -m bench.mesh [--services 100,1000] [--clients 200] [--upstreams 10] [--rounds 15] [--docs docs]

Each service has a router, a splitter and a resolver: requests go from the router to the splitter of the service or of
the next one, and from there to a subset, which fails over to another datacenter. Its three instances come from a file.
Each client is a group of its own, the worst case, with ten upstreams: one that all clients call, and nine of its own.
``xds serve`` runs with SQLite; the clients are Delta streams in the process of the benchmark, and take CPU as well.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import httpx

from bench.fanout import Server, free_port, wait_ready
from bench.mesh_clients import MeshClient, MeshClients
from bench.suite import machine
from xds.model.resource_type import ENDPOINT, ROUTE

Json = dict[str, Any]

INSTANCES = 3
ENTRIES_AT_ONCE, GROUPS_AT_ONCE = 300, 8
REQUEST_TIMEOUT_S, IDLE_S, IDLE_STEP_S = 120.0, 0.01, 0.3
QUIET_WITHIN_S = 60.0
ENTRIES = "/api/v1/config-entries"
RESULTS = "mesh.json"
TITLE = "Mesh"
INTRODUCTION = """\
Services with a router, a splitter and a resolver each, in chains of three hops, and three instances each. 200 clients
with ten upstreams each: one that all call, and nine of their own. Each client is a group of its own, so a change is
lowered, checked and stored for each. Written by `python -m bench.mesh --docs docs`. The server stores in SQLite; the
clients are Delta streams in one process on the same machine.

* **Change**: *splitter* gives a split other weights; *resolver* gives its clusters another timeout; *router* adds a
  route to a service that its clients do not call yet: they get its clusters, their endpoints, then the route;
  *entry-for-all* is the splitter of the service that all clients call; *instance* writes one file of instances,
  *instance-for-all* that of the service that all clients call.
* **Clients**: how many of them the change touches.
* **Answered**: from the request until its answer, when the change is stored and served.
* **Last client**: from the request (for an instance: from the write of its file) until the last of these clients has
  read the last resource of the change. *Slowest* is the slowest of all rounds.
* **CPU**: of the server, all threads, until it is idle again. The kernel counts it in steps of 10 ms. Medians.
"""
GOALS = (
    "Goals: the change of one entry has reached all clients within 1 s on two cores; CPU grows with the clients that "
    "it touches, not with the mesh."
)
COLUMNS = ("services", "change", "clients", "answered", "last client", "slowest", "CPU")


@dataclass(frozen=True, slots=True)
class Cell:
    """One kind of change. Milliseconds, medians but for the slowest."""

    services: int
    change: str
    clients: int
    answered_ms: float
    at_all_ms: float
    slowest_ms: float
    cpu_ms: float

    def row(self) -> tuple[str, ...]:
        """As the table has it."""
        answered = f"{self.answered_ms:,.0f} ms" if self.answered_ms else "-"
        figures = (self.at_all_ms, self.slowest_ms, self.cpu_ms)
        return (f"{self.services:,}", self.change, str(self.clients), answered, *(f"{one:,.0f} ms" for one in figures))


@dataclass(frozen=True, slots=True)
class Sample:
    """One change, in seconds."""

    clients: int
    answered_s: float
    at_all_s: float
    cpu_s: float


def name_of(service: int) -> str:
    """The name of a service."""
    return f"service-{service:05d}"


def router(service: int, services: int, other: int | None = None) -> Json:
    """Leads to the next service, and with ``other`` to one more."""
    routes = [_route("/next", (service + 1) % services)]
    if other is not None:
        routes.append(_route("/other", other))
    return {"Kind": "service-router", "Name": name_of(service), "Routes": routes}


def _route(prefix: str, service: int) -> Json:
    return {"Match": {"HTTP": {"PathPrefix": prefix}}, "Destination": {"Service": name_of(service)}}


def splitter(service: int, v1: int = 90) -> Json:
    """Two subsets."""
    splits = [{"Weight": v1, "ServiceSubset": "v1"}, {"Weight": 100 - v1, "ServiceSubset": "v2"}]
    return {"Kind": "service-splitter", "Name": name_of(service), "Splits": splits}


def resolver(service: int, timeout_ms: int = 5_000) -> Json:
    """Two subsets, each with a failover."""
    return {
        "Kind": "service-resolver",
        "Name": name_of(service),
        "ConnectTimeout": f"{timeout_ms}ms",
        "Subsets": {each: {"Filter": f"Service.Meta.version == {each}"} for each in ("v1", "v2")},
        "Failover": {"*": {"Datacenters": ["dc2"]}},
    }


def entries_of(services: int) -> Iterator[Json]:
    """All entries of a mesh."""
    yield {"Kind": "proxy-defaults", "Name": "global", "Config": {"protocol": "http"}}
    for service in range(services):
        yield from (resolver(service), splitter(service), router(service, services))


def instances_of(service: int, weight: int = 1) -> list[Json]:
    """One of each version here, one in the other datacenter."""
    base = 1 + service * INSTANCES
    return [
        {
            "address": f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}",
            "port": 8080,
            "meta": {"version": f"v{1 + index % 2}"},
            "weight": weight,
            **({"datacenter": "dc2"} if index == 2 else {}),
        }
        for index, number in enumerate(range(base, base + INSTANCES))
    ]


def write_instances(folder: Path, service: int, weight: int = 1) -> None:
    """One file for each service."""
    text = json.dumps({"services": {name_of(service): instances_of(service, weight)}})
    path = folder / f"{name_of(service)}.json"
    made = path.with_suffix(".new")
    made.write_text(text)
    made.rename(path)


class Site:
    """The server, the clients, and what each of them calls. The last service is called by nobody at first."""

    def __init__(self, server: Server, admin: httpx.AsyncClient, targets: Path, sizes: tuple[int, int, int]) -> None:
        self.server = server
        self.admin = admin
        self.services, clients, upstreams = sizes
        self.targets = targets
        self.clients = [MeshClient(f"client-{n:03d}", self._upstreams(n, upstreams)) for n in range(clients)]

    def _upstreams(self, client: int, upstreams: int) -> list[str]:
        """Service 0, and others in turn; not the last one."""
        first = client * (upstreams - 1)
        return [name_of(0), *(name_of(1 + (first + n) % (self.services - 2)) for n in range(upstreams - 1))]

    def callers(self, *services: int) -> list[MeshClient]:
        """The clients that call one of these."""
        names = {name_of(one % self.services) for one in services}
        return [client for client in self.clients if not names.isdisjoint(client.upstreams)]

    async def fill(self) -> None:
        """All entries, then the upstreams of all clients."""
        entries = list(entries_of(self.services))
        for start in range(0, len(entries), ENTRIES_AT_ONCE):
            await self.write(*entries[start : start + ENTRIES_AT_ONCE])
        for start in range(0, len(self.clients), GROUPS_AT_ONCE):
            await asyncio.gather(*map(self._call, self.clients[start : start + GROUPS_AT_ONCE]))

    async def write(self, *entries: Json) -> None:
        """Write entries in one transaction."""
        answer = await self.admin.post(ENTRIES, json=list(entries))
        if not answer.is_success:
            raise SystemExit(f"{answer.status_code} {answer.text[:1000]}")

    async def _call(self, client: MeshClient) -> None:
        upstreams = [{"service": name, "bind_port": 9000 + n} for n, name in enumerate(client.upstreams)]
        path = f"/api/v1/groups/{client.name}/upstreams"
        answer = await self.admin.put(path, json={"upstreams": upstreams})
        if not answer.is_success:
            raise SystemExit(f"{answer.status_code} {answer.text[:1000]}")

    async def quiet(self) -> float:
        """Wait until the server is idle. Returns the CPU that it has taken, in seconds."""
        deadline = time.perf_counter() + QUIET_WITHIN_S
        before = self.server.cpu_s()
        while time.perf_counter() < deadline:
            await asyncio.sleep(IDLE_STEP_S)
            now = self.server.cpu_s()
            if now - before <= IDLE_S:
                return now
            before = now
        return before


Change = Callable[[Site, int], tuple[Json, Sequence[MeshClient], str]]


def other_weights(site: Site, round_number: int) -> tuple[Json, Sequence[MeshClient], str]:
    """A splitter that some clients use."""
    service = 7 + 13 * round_number % (site.services - 10)
    return splitter(service, 10 + round_number), site.callers(service, service - 1), ROUTE


def other_timeout(site: Site, round_number: int) -> tuple[Json, Sequence[MeshClient], str]:
    """A resolver that some clients use: clusters, and their endpoints again."""
    service = 5 + 13 * round_number % (site.services - 10)
    return resolver(service, 3_000 + round_number), site.callers(service, service - 1), ENDPOINT


def other_route(site: Site, round_number: int) -> tuple[Json, Sequence[MeshClient], str]:
    """A router gets a route to a service that its clients do not call."""
    service = 3 + 13 * round_number % (site.services - 10)
    return router(service, site.services, site.services - 1), site.callers(service), ROUTE


def for_all(site: Site, round_number: int) -> tuple[Json, Sequence[MeshClient], str]:
    """The splitter of the service that all clients call."""
    return splitter(0, 20 + round_number), site.clients, ROUTE


CHANGES: dict[str, Change] = {
    "splitter": other_weights,
    "resolver": other_timeout,
    "router": other_route,
    "entry-for-all": for_all,
}


def instance(site: Site, round_number: int) -> int:
    """A service that some clients use."""
    return 9 + 13 * round_number % (site.services - 10)


def instance_for_all(site: Site, round_number: int) -> int:
    """The service that all clients call."""
    return 0


INSTANCES_OF: dict[str, Callable[[Site, int], int]] = {"instance": instance, "instance-for-all": instance_for_all}


async def sample_entry(site: Site, clients: MeshClients, change: Change, round_number: int) -> Sample:
    """Write one entry."""
    entry, touched, last_type = change(site, round_number)
    cpu_s = await site.quiet()
    asked = time.perf_counter()
    await site.write(entry)
    answered_s = time.perf_counter() - asked
    at_all = await clients.wait_arrived(touched, last_type, asked)
    return Sample(len(touched), answered_s, at_all - asked, await site.quiet() - cpu_s)


async def sample_instance(site: Site, clients: MeshClients, service: int, round_number: int) -> Sample:
    """Change the instances of a service, which has no answer."""
    cpu_s = await site.quiet()
    asked = time.perf_counter()
    write_instances(site.targets, service, 2 + round_number)
    touched = site.callers(service, service - 1)
    at_all = await clients.wait_arrived(touched, ENDPOINT, asked)
    return Sample(len(touched), 0.0, at_all - asked, await site.quiet() - cpu_s)


def cell_of(services: int, change: str, samples: Sequence[Sample]) -> Cell:
    """Medians of the rounds."""

    def median_ms(values: Iterator[float]) -> float:
        return statistics.median(values) * 1e3

    return Cell(
        services,
        change,
        round(statistics.median(one.clients for one in samples)),
        median_ms(one.answered_s for one in samples),
        median_ms(one.at_all_s for one in samples),
        max(one.at_all_s for one in samples) * 1e3,
        median_ms(one.cpu_s for one in samples),
    )


@asynccontextmanager
async def opened(folder: Path, sizes: tuple[int, int, int]) -> AsyncIterator[Site]:
    """A server with the mesh, without clients."""
    targets = folder / "targets"
    targets.mkdir()
    for service in range(sizes[0]):
        write_instances(targets, service)
    settings = {"sources": {"targets": {"kind": "files", "paths": [str(targets)]}}, "logs": {"level": "warning"}}
    (folder / "xds.yaml").write_text(json.dumps(settings))
    ports = [f"127.0.0.1:{free_port()}" for _ in range(2)]
    argv = ["xds.cli.main", "serve", "--grpc", ports[0], "--http", ports[1], "--data", str(folder / "data")]
    log = (folder / "xds.log").open("w")
    whole = [sys.executable, "-m", *argv, "--config", str(folder / "xds.yaml")]
    process = subprocess.Popen(whole, stdout=log, stderr=log)
    try:
        server = Server(process.pid, ports[0], f"http://{ports[1]}")
        wait_ready(server, process)
        async with httpx.AsyncClient(base_url=server.http, timeout=REQUEST_TIMEOUT_S, trust_env=False) as admin:
            site = Site(server, admin, targets, sizes)
            await site.fill()
            yield site
    finally:
        process.terminate()
        process.wait()
        log.close()


async def measure(services: int, clients_n: int, upstreams: int, rounds: int) -> list[Cell]:
    """All kinds of changes in one mesh."""
    with tempfile.TemporaryDirectory() as folder:
        async with (
            opened(Path(folder), (services, clients_n, upstreams)) as site,
            MeshClients(site.server.grpc, site.clients) as clients,
        ):
            for type_url in (ENDPOINT, ROUTE):
                await clients.wait_arrived(site.clients, type_url, 0.0)
            return [await measure_change(site, clients, change, rounds) for change in (*CHANGES, *INSTANCES_OF)]


async def measure_change(site: Site, clients: MeshClients, change: str, rounds: int) -> Cell:
    """One kind of change, again and again."""
    samples = [
        await sample_instance(site, clients, INSTANCES_OF[change](site, number), number)
        if change in INSTANCES_OF
        else await sample_entry(site, clients, CHANGES[change], number)
        for number in range(rounds)
    ]
    cell = cell_of(site.services, change, samples)
    print_row(cell.row())
    return cell


def print_row(row: Sequence[str]) -> None:
    """Columns of one width."""
    print("".join(cell.replace(" ", "").rjust(17) for cell in row), flush=True)


def section(folder: Path) -> Iterator[str]:
    """The section of the page of performance; nothing where nothing was measured."""
    path = folder / RESULTS
    if path.exists():
        held = json.loads(path.read_text())
        rows = [COLUMNS, tuple("---" for _ in COLUMNS), *(Cell(**one).row() for one in held["cells"])]
        yield f"## {TITLE}\n"
        yield INTRODUCTION
        yield "\n".join(f"| {' | '.join(row)} |" for row in rows) + "\n"
        busy = f"load average {held['load_average']} on {held['cores']} cores"
        yield f"{GOALS} Measured at `{held['commit']}`, {busy}.\n"


def keep(cells: Sequence[Cell], docs: Path) -> None:
    """Write the figures, and the page anew."""
    from bench.envoys.__main__ import write_page

    held = {
        "commit": machine.commit(),
        "cores": machine.describe()["cores"],
        "load_average": round(machine.load(), 1),
        "cells": [asdict(one) for one in cells],
    }
    (docs / "performance" / RESULTS).write_text(json.dumps(held, indent=1) + "\n")
    write_page(docs)


async def run(sizes: Sequence[int], clients: int, upstreams: int, rounds: int) -> list[Cell]:
    """All sizes on one loop: grpc.aio polls for one loop a process."""
    return [cell for services in sizes for cell in await measure(services, clients, upstreams, rounds)]


def main() -> None:
    """Measure every size and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--services", default="100,1000")
    parser.add_argument("--clients", type=int, default=200)
    parser.add_argument("--upstreams", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--docs", type=Path)
    given = parser.parse_args()
    print(f"{given.clients} clients with {given.upstreams} upstreams each, {given.rounds} rounds")
    print_row(COLUMNS)
    sizes = [int(size) for size in given.services.split(",")]
    cells = asyncio.run(run(sizes, given.clients, given.upstreams, given.rounds))
    if given.docs:
        keep(cells, given.docs)


if __name__ == "__main__":
    main()
