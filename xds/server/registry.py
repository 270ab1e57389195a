"""The registry of open discovery streams, and the fan-out of a push to them."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterator, Mapping
from time import monotonic
from typing import Protocol

from xds.model.node import Locality, Node
from xds.server.counters import Metrics
from xds.server.flow.limits import DEFAULT_FLOW, FlowLimits
from xds.server.flow.work_queue import WorkQueue
from xds.snapshots.cache import SnapshotCache
from xds.snapshots.overlay import source_of

_NO_LOCALITIES: frozenset[Locality] = frozenset()

ClientKey = tuple[str, str]
Sources = frozenset[Locality] | None  # localities of the nodes to wake; None: all


class RegisteredStream(Protocol):
    """A stream, as the registry uses it. ``group`` and ``home`` differ after a change of selectors."""

    @property
    def node(self) -> Node | None:
        """The node; None before the first request."""

    @property
    def group(self) -> str:
        """The group that the stream follows; empty for none."""

    @property
    def home(self) -> str:
        """The group that the node belongs to by the current selectors; empty for none."""

    @property
    def client_key(self) -> ClientKey | None:
        """The client, which all its streams share; None before the node is known."""

    def notify(self) -> None:
        """Check whether there are changes to offer."""

    def end_lingering(self) -> None:
        """End the lingering of removed resources for the client, on the order of an operator."""


class StreamRegistry:
    """Streams by group and by client. ``wake`` and ``wake_client`` return at once; woken streams use the work queue."""

    def __init__(self, cache: SnapshotCache, metrics: Metrics, flow: FlowLimits = DEFAULT_FLOW) -> None:
        self.work_queue = WorkQueue(flow)
        self._flow = flow
        self._cache = cache
        self._metrics = metrics
        self._streams: dict[RegisteredStream, str | None] = {}  # with the group they are indexed under
        self._by_group: dict[str, dict[RegisteredStream, None]] = {}
        # Nearly every client has one stream, which is a tuple here: a dict of one takes four times the memory.
        self._by_client: dict[ClientKey, tuple[RegisteredStream] | dict[RegisteredStream, None]] = {}
        self._epoch = cache.epoch
        self._pushed: dict[str, Sources] = {}  # group -> which of its streams to wake
        self._fan_out: asyncio.Task[None] | None = None

    def __len__(self) -> int:
        return len(self._streams)

    def __iter__(self) -> Iterator[RegisteredStream]:
        return iter(list(self._streams))

    def add(self, stream: RegisteredStream) -> None:
        """Add a stream that was opened."""
        self._streams[stream] = None

    def identify(self, stream: RegisteredStream) -> None:
        """Index a stream whose node is known now."""
        self.regroup(stream)
        if stream.client_key is not None:
            self._add_to_client(stream.client_key, stream)

    def regroup(self, stream: RegisteredStream) -> None:
        """Index a stream that follows another group now."""
        self._leave_group(stream)
        self._by_group.setdefault(stream.group, {})[stream] = None
        self._streams[stream] = stream.group

    def remove(self, stream: RegisteredStream) -> None:
        """Remove a stream that was closed."""
        self._leave_group(stream)
        self._streams.pop(stream, None)
        if stream.client_key is not None:
            self._remove_from_client(stream.client_key, stream)

    def _leave_group(self, stream: RegisteredStream) -> None:
        group = self._streams.get(stream)
        members = self._by_group.get(group) if group is not None else None
        if group is not None and members is not None:
            members.pop(stream, None)
            if not members:
                del self._by_group[group]

    def _add_to_client(self, client_key: ClientKey, stream: RegisteredStream) -> None:
        streams = self._by_client.get(client_key)
        if streams is None:
            self._by_client[client_key] = (stream,)
        elif isinstance(streams, dict):
            streams[stream] = None
        elif stream not in streams:
            self._by_client[client_key] = dict.fromkeys((*streams, stream))

    def _remove_from_client(self, client_key: ClientKey, stream: RegisteredStream) -> None:
        streams = self._by_client.get(client_key, ())
        if isinstance(streams, dict):
            streams.pop(stream, None)
        if not streams or streams == (stream,):
            self._by_client.pop(client_key, None)

    def wake_client(self, client_key: ClientKey, except_for: RegisteredStream | None = None) -> None:
        """Wake the streams of a client after its transition advanced on the stream ``except_for``."""
        for stream in self._by_client.get(client_key, ()):
            if stream is not except_for:
                stream.notify()

    def wake_one(self, client_key: ClientKey) -> None:
        """Wake one stream of the client, so that it reports the client's state again."""
        for stream in self._by_client.get(client_key, ()):
            stream.notify()
            return

    def end_lingering(self, node_ids: Collection[str]) -> None:
        """End the lingering of removed resources for these nodes, on one stream of each client."""
        for (_, node_id), streams in list(self._by_client.items()):
            if node_id in node_ids:
                next(iter(streams)).end_lingering()

    def wake(self, groups: Collection[str], sources: Sources = None) -> None:
        """Wake the streams of groups with a new or deleted snapshot, in all localities or in ``sources``.

        Pushes during a fan-out are collected for the next one.
        """
        for group in groups:
            known = self._pushed.get(group, _NO_LOCALITIES)
            self._pushed[group] = known | sources if known is not None and sources is not None else None
        if self._pushed and (self._fan_out is None or self._fan_out.done()):
            self._fan_out = asyncio.get_running_loop().create_task(self._wake_all())

    async def _wake_all(self) -> None:
        while self._pushed:
            pushed, self._pushed = self._pushed, {}
            started = resumed = monotonic()
            woken = 0
            for stream in self._to_wake(pushed):
                if stream is not None:
                    stream.notify()
                    woken += 1
                if woken == self._flow.wake_batch or monotonic() - resumed > self._flow.wake_slice_s:
                    await asyncio.sleep(0)
                    woken, resumed = 0, monotonic()
            await asyncio.sleep(0)
            await self.work_queue.barrier()  # behind the streams just woken
            took_s = monotonic() - started
            self._metrics.fan_out_seconds.observe(took_s)
            await self._pause(took_s)

    async def _pause(self, took_s: float) -> None:
        """Coalesce frequent pushes: wait twice as long as the last fan-out took, at most 0.2 s.

        Then wait until the work queue is empty, at most 0.3 s, so that HTTP requests and new streams are served.
        """
        flow = self._flow
        await asyncio.sleep(min(flow.wake_pause_ratio * took_s, flow.wake_pause_s))
        end = monotonic() + flow.busy_pause_s
        while self.work_queue.is_busy and monotonic() < end:  # noqa: ASYNC110 -- an event would cost every work item
            await asyncio.sleep(flow.busy_poll_s)

    def _to_wake(self, pushed: Mapping[str, Sources]) -> Iterator[RegisteredStream | None]:
        """The streams to wake: those of the pushed groups and, after a change of selectors, those whose node has moved.

        None stands for a stream that is not woken, so that the caller can check the time.
        """
        selectors_changed, self._epoch = self._epoch != self._cache.epoch, self._cache.epoch
        if not selectors_changed:
            for group, sources in pushed.items():
                for stream in list(self._by_group.get(group, ())):
                    yield stream if sources is None or _is_affected(stream, sources) else None
            return
        # ``stream.home`` matches selectors, which may be costly: the caller does it in slices. Streams keep the result.
        for stream in list(self._streams):
            follows = stream.group in pushed and _is_affected(stream, pushed[stream.group])
            yield stream if follows or stream.home != stream.group else None


def _is_affected(stream: RegisteredStream, sources: Sources) -> bool:
    if sources is None or stream.node is None:
        return True
    return source_of(sources, stream.node.locality) is not None
