"""All open load report streams of a server, and what they share."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import count
from typing import Protocol

from xds.control.load_view import ReportStream
from xds.fleet.events import EventKind, EventLog
from xds.load.book import LoadBook
from xds.load.figures import Taken
from xds.model.node import Node
from xds.model.resource_type import CLUSTER, V2_URLS
from xds.protocol.cache import SnapshotCache
from xds.protocol.load_stream import LoadSettings
from xds.server.metrics import Metrics
from xds.server.node_door import NodeDoor
from xds.server.options import ServerOptions
from xds.server.pacing import Pacer
from xds.server.turns import Turns

TELL_AFTER_S = 0.2  # clusters that change meanwhile are told together
LARGE_AT_ONCE = 8  # messages that are large, being taken up
TELL_BATCH = 500  # streams, before the loop runs
_CLUSTERS = (CLUSTER, V2_URLS[CLUSTER])


@dataclass(slots=True)
class LoadCounts:
    """What came and what was asked, since the start. The first five as in `Taken`."""

    clusters: int = 0
    localities: int = 0
    refused: int = 0
    left_out: int = 0
    ignored: int = 0
    reports: int = 0
    bytes: int = 0
    asked: int = 0
    restarts: int = 0

    def add(self, taken: Taken, size: int) -> None:
        """A report of ``size`` bytes came to this."""
        self.reports += 1
        self.bytes += size
        self.clusters += taken.clusters
        self.localities += taken.localities
        self.refused += taken.refused
        self.left_out += taken.left_out
        self.ignored += taken.ignored


class Reporting(Protocol):
    """A stream as it is seen from here."""

    @property
    def node(self) -> Node | None: ...
    @property
    def is_told_names(self) -> bool: ...
    def notify(self) -> None: ...
    def state(self) -> ReportStream: ...


class LoadStreams:
    """The streams of one server. ``ids`` numbers those of all its services."""

    def __init__(
        self,
        cache: SnapshotCache,
        book: LoadBook,
        events: EventLog,
        metrics: Metrics,
        options: ServerOptions,
        turns: Turns,
        pacer: Pacer,
        ids: count[int],
        door: NodeDoor,
    ) -> None:
        self.book = book
        self.counts = LoadCounts()
        self.ids = ids
        self.door = door
        self.large = asyncio.Semaphore(LARGE_AT_ONCE)
        self.metrics = metrics
        self.options = options
        self.pacer = pacer
        self.settings = options.load
        self.turns = turns
        self._line = asyncio.Lock()
        self._cache = cache
        self._events = events
        self._streams: dict[Reporting, None] = {}
        self._by_node: dict[str, dict[Reporting, None]] = {}
        self._to_tell: dict[Reporting, None] = {}
        self._telling: asyncio.Task[None] | None = None

    def __len__(self) -> int:
        return len(self._streams)

    # Who is there

    def enter(self, stream: Reporting) -> None:
        self._streams[stream] = None

    def identify(self, stream: Reporting, node_id: str) -> None:
        """The stream's node is known from now on."""
        self._by_node.setdefault(node_id, {})[stream] = None

    def leave(self, stream: Reporting, code: str, lasted_s: float) -> None:
        """The stream is gone; ``code`` is the name of its final gRPC status."""
        self._streams.pop(stream, None)
        self._to_tell.pop(stream, None)
        if stream.node is not None and (members := self._by_node.get(stream.node.id)) is not None:
            members.pop(stream, None)
            if not members:
                del self._by_node[stream.node.id]
        self.metrics.closed[code] += 1
        self.metrics.stream_seconds.observe(lasted_s)

    def of(self, node_id: str) -> list[ReportStream]:
        """The open streams of a node."""
        return [stream.state() for stream in self._by_node.get(node_id, ())]

    def tell(self, action: str, node_id: str, group: str, details: Mapping[str, str | int], now: float) -> None:
        """People who follow events: a stream came or went."""
        self._events.record(EventKind.STREAM, action, now, group=group, node=node_id, details=details)

    @asynccontextmanager
    async def turn(self, takes_s: float) -> AsyncIterator[None]:
        """A turn for a piece of a report, which takes so long. All report streams have one place in the queue."""
        async with self._line:
            await self.turns.come(takes_s)
            yield

    # What is asked of them

    def configure(self, settings: LoadSettings) -> None:
        """Other settings: every client is told, or made to come back where it reads one response only."""
        self.settings = settings
        self._offer_to(self._streams)

    def wake(self) -> None:
        """Snapshots have changed: clients that must be told which clusters to report are told anew."""
        self._offer_to(stream for stream in self._streams if stream.is_told_names)

    def group_of(self, node: Node) -> str:
        """The group a node belongs to; empty while none matches."""
        match = self._cache.match(node)
        return match.group if match is not None else ""

    def clusters_of(self, node: Node) -> Iterable[str]:
        """The clusters of a node's snapshot."""
        view = self._cache.resolve(node)
        sets = view.snapshot.sets if view is not None else {}
        return {name for url in _CLUSTERS if url in sets for name in sets[url].resources}

    def _offer_to(self, streams: Iterable[Reporting]) -> None:
        self._to_tell.update(dict.fromkeys(streams))
        if self._to_tell and (self._telling is None or self._telling.done()):
            self._telling = asyncio.get_running_loop().create_task(self._offer())

    async def _offer(self) -> None:
        """In turns with all other streams, and no faster than they get on."""
        while self._to_tell:
            await asyncio.sleep(TELL_AFTER_S)
            streams, self._to_tell = list(self._to_tell), {}
            for begin in range(0, len(streams), TELL_BATCH):
                for stream in streams[begin : begin + TELL_BATCH]:
                    stream.notify()
                await self.turns.come()
