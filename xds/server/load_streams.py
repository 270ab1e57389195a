"""The open load report streams of a server, and what they share."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from time import time
from typing import Protocol

from xds.fleet.event_log import EventKind
from xds.fleet.fleet import Fleet
from xds.lrs.aggregates import LoadAggregates
from xds.lrs.figures import IngestResult
from xds.lrs.report_stream import LoadSettings, ReportInterval
from xds.lrs.stream_states import ReportingState, ReportStream
from xds.model.node import Node
from xds.model.resource_type import CLUSTER, V2_URLS
from xds.server.logs import get_logger
from xds.server.stream import StreamDependencies
from xds.snapshots.cache import SnapshotCache

_CLUSTERS = (CLUSTER, V2_URLS[CLUSTER])
_log = get_logger("xds.server.lrs")


@dataclass(slots=True)
class LoadReportCounts:
    """Counters of reports and of requests for reports since the start. The first five are those of `IngestResult`.

    ``responses``: requests for reports that were sent. ``restarts``: streams that were ended so that the client reads a
    new request. ``reading_s``: CPU seconds for decoding and counting reports.
    """

    clusters: int = 0
    localities: int = 0
    refused: int = 0
    left_out: int = 0
    ignored: int = 0
    reports: int = 0
    bytes: int = 0
    responses: int = 0
    restarts: int = 0
    reading_s: float = 0.0

    def add(self, result: IngestResult, size: int, is_report: bool = True) -> None:
        """Add the result of ``size`` bytes: of a report, or of a later piece of a report (``is_report`` False)."""
        self.reports += is_report
        self.bytes += size
        self.clusters += result.clusters
        self.localities += result.localities
        self.refused += result.refused
        self.left_out += result.left_out
        self.ignored += result.ignored


class RegisteredLoadStream(Protocol):
    """A load report stream, as `LoadStreams` uses it."""

    @property
    def node(self) -> Node | None:
        """The node; None before the first report."""

    @property
    def needs_names(self) -> bool:
        """True for a client that must be sent the names of the clusters to report."""

    def notify(self) -> None:
        """Send the request for reports again if its clusters or its interval have changed."""

    def state(self) -> ReportStream:
        """The stream as the admin API shows it."""


def _interval_of(settings: LoadSettings) -> ReportInterval:
    return ReportInterval(settings.interval_s, settings.longest_interval_s)


class LoadStreams:
    """The load report streams of one server."""

    def __init__(
        self, cache: SnapshotCache, aggregates: LoadAggregates, fleet: Fleet, deps: StreamDependencies
    ) -> None:
        flow = deps.options.flow
        self.aggregates = aggregates
        self.counts = LoadReportCounts()
        self.deps = deps
        self.large = asyncio.Semaphore(flow.large_reports)
        self.settings = deps.options.load  # of the current requests for reports
        self.interval = _interval_of(deps.options.load)
        self._flow = flow
        self._turn_lock = asyncio.Lock()
        self._cache = cache
        self._fleet = fleet
        self._events = fleet.events
        self._streams: dict[RegisteredLoadStream, None] = {}
        self._by_node: dict[str, dict[RegisteredLoadStream, None]] = {}
        self._to_notify: dict[RegisteredLoadStream, None] = {}
        self._notifying: asyncio.Task[None] | None = None

    def __len__(self) -> int:
        return len(self._streams)

    # Streams

    def add(self, stream: RegisteredLoadStream) -> None:
        """Add a stream that was opened."""
        self._streams[stream] = None

    def identify(self, stream: RegisteredLoadStream, node: Node, group: str, now: float) -> None:
        """Index a stream whose node is known now."""
        self._by_node.setdefault(node.id, {})[stream] = None
        self._fleet.reporter_opened(node, group, now)

    def move(self, node_id: str, group: str) -> None:
        """Note the group that a node has moved to."""
        self._fleet.reporter_moved(node_id, group)

    def remove(self, stream: RegisteredLoadStream, code: str, lasted_s: float) -> None:
        """Remove a closed stream; ``code`` is the name of its final gRPC status."""
        self._streams.pop(stream, None)
        self._to_notify.pop(stream, None)
        members = self._by_node.get(stream.node.id, {}) if stream.node is not None else {}
        if stream.node is not None and stream in members:
            del members[stream]
            self._fleet.reporter_closed(stream.node.id, time())
            if not members:
                del self._by_node[stream.node.id]
        self.deps.metrics.closed[code] += 1
        self.deps.metrics.stream_seconds.observe(lasted_s)

    def of_node(self, node_id: str) -> list[ReportStream]:
        """The open streams of a node."""
        return [stream.state() for stream in self._by_node.get(node_id, ())]

    def record(self, action: str, node_id: str, group: str, details: Mapping[str, str | int], now: float) -> None:
        """Record an event: a stream was opened or closed."""
        self._events.record(EventKind.STREAM, action, now, group=group, node=node_id, details=details)

    @asynccontextmanager
    async def turn(self, takes_s: float) -> AsyncIterator[None]:
        """Wait for a turn in the work queue, for work of about ``takes_s``. One report stream has a turn at a time."""
        async with self._turn_lock:
            await self.deps.work_queue.barrier(takes_s)
            yield

    # Requests for reports

    def configure(self, settings: LoadSettings) -> None:
        """Apply new settings: each client is sent them, or is made to reconnect if it reads only one response."""
        self.settings = settings
        self.interval = _interval_of(settings)
        self.aggregates.interval_s = settings.interval_s
        self._notify(self._streams)

    def reporting(self) -> ReportingState:
        """The reporting interval, and the CPU share of reports."""
        return ReportingState(self.interval.interval_s, self.interval.set_s, self.interval.share)

    def note_reading(self, cpu_s: float, now: float) -> None:
        """Note the CPU time of a message. If all reports take too much, clients are asked to report less often."""
        self.counts.reading_s += cpu_s
        change = self.interval.add(cpu_s, now)
        if change is None:
            return
        self.settings = self.settings._replace(interval_s=change.interval_s)
        self.aggregates.interval_s = change.interval_s
        action = "interval_lengthened" if change.interval_s > change.before_s else "interval_shortened"
        details = {
            "before_s": f"{change.before_s:g}", "interval_s": f"{change.interval_s:g}", "core": f"{change.share:.2f}"
        }  # fmt: skip
        _log.warning(f"lrs.{action}", **details)
        self._events.record(EventKind.STREAM, action, time(), details=details)
        self._notify(self._streams)

    def wake(self) -> None:
        """Snapshots have changed: notify the clients that must be sent the names of the clusters to report."""
        self._notify(stream for stream in self._streams if stream.needs_names)

    def group_of(self, node: Node) -> str:
        """The group that a node belongs to; empty while none matches."""
        match = self._cache.match(node)
        return match.group if match is not None else ""

    def clusters_of(self, node: Node) -> Iterable[str]:
        """The clusters of a node's snapshot."""
        view = self._cache.resolve(node)
        sets = view.snapshot.sets if view is not None else {}
        return {name for url in _CLUSTERS if url in sets for name in sets[url].resources}

    def _notify(self, streams: Iterable[RegisteredLoadStream]) -> None:
        self._to_notify.update(dict.fromkeys(streams))
        if self._to_notify and (self._notifying is None or self._notifying.done()):
            self._notifying = asyncio.get_running_loop().create_task(self._notify_all())

    async def _notify_all(self) -> None:
        """Notify streams in batches; each batch waits until the work of the one before has run."""
        batch = self._flow.report_notify_batch
        while self._to_notify:
            await asyncio.sleep(self._flow.report_notify_s)
            streams, self._to_notify = list(self._to_notify), {}
            for begin in range(0, len(streams), batch):
                for stream in streams[begin : begin + batch]:
                    stream.notify()
                await self.deps.work_queue.barrier()
