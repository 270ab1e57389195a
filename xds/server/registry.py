"""All open discovery streams, and who wakes whom."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterator, Mapping
from time import monotonic
from typing import Protocol, TypeVar

from xds.model.node import Locality, Node
from xds.protocol.cache import SnapshotCache
from xds.protocol.overlay import source_of
from xds.server.metrics import Metrics
from xds.server.turns import Turns

SLICE_S = 0.005  # at most, before the loop runs
WAKE_BATCH = 100  # streams woken before the loop runs: their work (some 60 us each) is what others wait for

# A push that follows another waits some times as long as telling that one took (ACKs take as much again, and others
# want their share), and while answers to it crowd the loop.
PAUSE_SHARE = 2
PAUSE_S = 0.2
PAUSE_LIMIT_S = 0.3  # a storm crowds the loop for seconds, and streams that stay are to hear of pushes meanwhile
CROWDED_POLL_S = 0.01

_NOWHERE: frozenset[Locality] = frozenset()

ClientKey = tuple[str, str]
Key = TypeVar("Key", str, ClientKey)
Sources = frozenset[Locality] | None  # where the nodes are; None: wherever they are


class Wakeable(Protocol):
    """A stream as the registry sees it: ``group`` is what it follows, ``home`` where its node belongs now."""

    @property
    def node(self) -> Node | None: ...
    @property
    def group(self) -> str: ...
    @property
    def home(self) -> str: ...
    @property
    def client_key(self) -> ClientKey | None: ...
    def notify(self) -> None: ...
    def let_go(self) -> None: ...


class StreamRegistry:
    """Streams by group and by client. ``wake`` and ``wake_client`` never block and never run the streams' work."""

    def __init__(self, cache: SnapshotCache, metrics: Metrics) -> None:
        self.turns = Turns()
        self._cache = cache
        self._metrics = metrics
        self._streams: dict[Wakeable, str | None] = {}  # with the group they are found under
        self._by_group: dict[str, dict[Wakeable, None]] = {}
        self._by_client: dict[ClientKey, dict[Wakeable, None]] = {}
        self._epoch = cache.epoch
        self._pushed: dict[str, Sources] = {}  # group to those of its streams that are to be woken
        self._fan_out: asyncio.Task[None] | None = None

    def __len__(self) -> int:
        return len(self._streams)

    def __iter__(self) -> Iterator[Wakeable]:
        return iter(list(self._streams))

    def add(self, stream: Wakeable) -> None:
        self._streams[stream] = None

    def identify(self, stream: Wakeable) -> None:
        """The stream's node is known from now on."""
        self.regroup(stream)
        if stream.client_key is not None:
            _enter(self._by_client, stream.client_key, stream)

    def regroup(self, stream: Wakeable) -> None:
        """The stream follows another group now."""
        self._leave_group(stream)
        _enter(self._by_group, stream.group, stream)
        self._streams[stream] = stream.group

    def remove(self, stream: Wakeable) -> None:
        """The stream is gone."""
        self._leave_group(stream)
        self._streams.pop(stream, None)
        if stream.client_key is not None:
            _leave(self._by_client, stream.client_key, stream)

    def _leave_group(self, stream: Wakeable) -> None:
        group = self._streams.get(stream)
        if group is not None:
            _leave(self._by_group, group, stream)

    def wake_client(self, client_key: ClientKey, besides: Wakeable | None = None) -> None:
        """The client's transition moved on: its other streams may have something to offer."""
        for stream in self._by_client.get(client_key, ()):
            if stream is not besides:
                stream.notify()

    def wake_one(self, client_key: ClientKey) -> None:
        """Some stream of the client is to tell what is so of it."""
        for stream in self._by_client.get(client_key, ()):
            stream.notify()
            return

    def let_go(self, node_ids: Collection[str]) -> None:
        """One stream of each client of these nodes is to let go of what lingers: its client's streams share that."""
        for (_, node_id), streams in list(self._by_client.items()):
            if node_id in node_ids:
                next(iter(streams)).let_go()

    def wake(self, groups: Collection[str], sources: Sources = None) -> None:
        """New snapshots are in the cache (or groups are gone), for the streams of all localities or of some.

        Pushes that come meanwhile join in.
        """
        for group in groups:
            others = self._pushed.get(group, _NOWHERE)
            self._pushed[group] = others | sources if others is not None and sources is not None else None
        if self._pushed and (self._fan_out is None or self._fan_out.done()):
            self._fan_out = asyncio.get_running_loop().create_task(self._wake_all())

    async def _wake_all(self) -> None:
        while self._pushed:
            pushed, self._pushed = self._pushed, {}
            started = resumed = monotonic()
            woken = 0
            for stream in self._concerned(pushed):
                if stream is not None:
                    stream.notify()
                    woken += 1
                if woken == WAKE_BATCH or monotonic() - resumed > SLICE_S:
                    await asyncio.sleep(0)
                    woken, resumed = 0, monotonic()
            await asyncio.sleep(0)
            await self.turns.come()  # behind those just woken
            took_s = monotonic() - started
            self._metrics.fan_out_seconds.observe(took_s)
            await self._pause(took_s)

    async def _pause(self, took_s: float) -> None:
        """Pushes that rain are told together: their streams may not take all of the loop's time from the doors."""
        await asyncio.sleep(min(PAUSE_SHARE * took_s, PAUSE_S))
        end = monotonic() + PAUSE_LIMIT_S
        while self.turns.crowded and monotonic() < end:  # noqa: ASYNC110 -- an event for this would cost every turn
            await asyncio.sleep(CROWDED_POLL_S)

    def _concerned(self, pushed: Mapping[str, Sources]) -> Iterator[Wakeable | None]:
        """The streams of the pushed groups and, when nodes may belong elsewhere, those that do; None for the others."""
        moved, self._epoch = self._epoch != self._cache.epoch, self._cache.epoch
        if not moved:
            for group, sources in pushed.items():
                for stream in list(self._by_group.get(group, ())):
                    yield stream if _is_concerned(stream, sources) else None
            return
        # Where a node belongs is found here, in slices, and remembered by its stream: a match may be costly.
        for stream in list(self._streams):
            follows = stream.group in pushed and _is_concerned(stream, pushed[stream.group])
            yield stream if follows or stream.home != stream.group else None


def _is_concerned(stream: Wakeable, sources: Sources) -> bool:
    if sources is None or stream.node is None:
        return True
    return source_of(sources, stream.node.locality) is not None


def _enter(index: dict[Key, dict[Wakeable, None]], key: Key, stream: Wakeable) -> None:
    index.setdefault(key, {})[stream] = None


def _leave(index: dict[Key, dict[Wakeable, None]], key: Key, stream: Wakeable) -> None:
    members = index.get(key)
    if members is not None:
        members.pop(stream, None)
        if not members:
            del index[key]
