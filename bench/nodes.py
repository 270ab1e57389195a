"""Lists of a large fleet: how long each answer takes, and for how long it holds up everything else on the server.

    python -m bench.nodes [--nodes 10000] [--rounds 5]

A server with its HTTP port, and the state of a fleet of nodes with four types each, of which 2 % NACK. A row is one
request:

* ``ms``: the time until the whole answer has arrived;
* ``held ms``: the longest time in which the event loop served nothing else;
* ``kB``: the size of the answer, without compression;
* ``found``: the number of items of the page.

Times are those of the best round: other work on the machine only adds to them. Lists are to answer in 150 ms, and to
hold up nothing for more than 20 ms.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from typing import Any
from urllib.parse import urlencode

from bench.rollouts import clusters
from xds.app.server import Hosting, Server
from xds.embed.server import embedded_settings
from xds.fleet.fleet import Fleet
from xds.model.node import Locality, Node
from xds.model.resource_type import CLUSTER, ENDPOINT, LISTENER, ROUTE
from xds.model.snapshot import ResourceSet, Snapshot
from xds.protocol.events import Acked, Event, Identified, Nacked, Send, Subscribed
from xds.protocol.requests import ErrorDetail
from xds.push.request import PushOptions
from xds.server.logs import configure_logging
from xds.snapshots.responses import Response

GROUP = "edge"
CLUSTERS_N = 20
NACKED_EVERY = 50
BEAT_S = 0.001
LISTS: dict[str, dict[str, Any]] = {
    "page": {"order": "trouble", "counts": True, "limit": 100},
    "nacked": {"state": "nacked", "order": "trouble", "counts": True, "limit": 100},
    "pending": {"state": "pending", "counts": True, "limit": 100},
    "text": {"text": "edge-9999", "order": "trouble", "counts": True, "limit": 100},
    "nack-text": {"text": "cannot bind", "order": "trouble", "counts": True, "limit": 100},
    "group": {"group": GROUP, "order": "trouble", "counts": True, "limit": 100},
    "line": {"line": "head", "counts": True, "limit": 100},
    "selector": {"selector": 'node.locality.zone == "1a"', "counts": True, "limit": 100},
    "long-page": {"limit": 500},
}
PATHS = {
    "rollout": f"/groups/{GROUP}/rollout",
    "nacks": "/nacks?by=message",
    "check": "/check",
    "timeline": f"/nodes/{GROUP}-0/timeline",
}


@dataclass(frozen=True, slots=True)
class Measured:
    """What one request took."""

    ms: float
    held_ms: float
    answer: bytes

    @property
    def document(self) -> dict[str, Any]:
        """The answer."""
        document: dict[str, Any] = json.loads(self.answer)
        return document


def fill(fleet: Fleet, snapshot: Snapshot, nodes_n: int) -> None:
    """Connect nodes that have ACKed all; every fiftieth has rejected its clusters."""
    sets = [snapshot.get(type_url) for type_url in (CLUSTER, ENDPOINT, LISTENER, ROUTE)]
    numbers = count(1)
    for index in range(nodes_n):
        where, version = Locality("eu", f"1{'abc'[index % 3]}"), f"envoy 1.{36 + index % 2}.0"
        node = Node(f"{GROUP}-{index}", GROUP, where, {"number": index}, version)
        stream = 1_000_000 + index
        fleet.stream_opened(stream, f"10.0.{index >> 8}.{index & 255}:4000", "ADS", "sotw", time.time())
        events: list[Event] = [Identified(node, GROUP)]
        for held in sets:
            is_refused = held.type.type_url == CLUSTER and index % NACKED_EVERY == 0
            events += _exchange(held, next(numbers), f"cannot bind to port {index % 7}" if is_refused else "")
        fleet.apply_events(stream, events, time.time())


def _exchange(held: ResourceSet, number: int, error: str) -> Iterable[Event]:
    response = Response(b"", str(number), number, held, tuple(held.resources), (), held.digest)
    type_url = held.type.type_url
    yield Subscribed(type_url, True, frozenset())
    yield Send(type_url, response.nonce, response.body, response)
    if error:
        yield Nacked(type_url, response.nonce, response, ErrorDetail(13, error))
    else:
        yield Acked(type_url, response.nonce, response)


class ListReader:
    """Reads lists of a server in this process, over its HTTP port."""

    def __init__(self, port: int) -> None:
        self._port = port

    async def measure(self, path: str) -> Measured:
        """Send one request; what it took."""
        held_s, is_over = 0.0, False

        async def beat() -> None:
            nonlocal held_s
            while not is_over:
                began = time.perf_counter()
                await asyncio.sleep(BEAT_S)
                held_s = max(held_s, time.perf_counter() - began - BEAT_S)

        beating = asyncio.create_task(beat())
        await asyncio.sleep(0)
        began = time.perf_counter()
        answer = await self._get(path)
        took_s = time.perf_counter() - began
        is_over = True
        with suppress(asyncio.CancelledError):
            await beating
        return Measured(took_s * 1e3, held_s * 1e3, answer)

    async def _get(self, path: str) -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        request = f"GET /api/v1{path} HTTP/1.1\r\nHost: 127.0.0.1:{self._port}\r\nConnection: close\r\n\r\n"
        writer.write(request.encode())
        head, _, body = (await reader.read(-1)).partition(b"\r\n\r\n")
        writer.close()
        if b" 200 " not in head.splitlines()[0]:
            raise SystemExit(f"{path}: {head.decode()} {body.decode()}")
        return body


class FilledServer:
    """A server with a fleet: ``async with FilledServer(10_000) as reader``."""

    def __init__(self, nodes_n: int) -> None:
        self._nodes_n = nodes_n
        settings = embedded_settings("127.0.0.1:0", "127.0.0.1:0", None, {})
        self.server = Server(settings, Hosting(tunes_process=True, opens_http=True))

    async def __aenter__(self) -> ListReader:
        await self.server.start()
        await self.server.publisher.push(GROUP, clusters(CLUSTERS_N, "a"), options=PushOptions())
        content = self.server.publisher.groups.content(GROUP)
        fill(self.server.fleet, content.snapshot, self._nodes_n)
        return ListReader(self.server.addresses()[1][1])

    async def __aexit__(self, *error: object) -> None:
        await self.server.close()


async def run(nodes_n: int, rounds: int) -> None:
    """Print a row for each request."""
    lists = {name: f"/nodes?{urlencode({**query})}" for name, query in LISTS.items()}
    async with FilledServer(nodes_n) as reader:
        print(f"{nodes_n} nodes, the best of {rounds} rounds")
        print(f"{'list':12} {'ms':>8} {'held ms':>8} {'kB':>8} {'found':>6}")
        for name, path in {**lists, **PATHS}.items():
            rows = [await reader.measure(path) for _ in range(rounds)]
            ms, held = min(row.ms for row in rows), min(row.held_ms for row in rows)
            found = len(rows[0].document.get("items", ()))
            print(f"{name:12} {ms:8.1f} {held:8.1f} {len(rows[0].answer) / 1e3:8.1f} {found:6}", flush=True)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    configure_logging("warning")
    asyncio.run(run(arguments.nodes, arguments.rounds))


if __name__ == "__main__":
    main()
