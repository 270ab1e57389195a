"""Which streams are woken by which change."""

from __future__ import annotations

import asyncio

import pytest

from tests.server.conftest import until
from tests.support.sansio import make_resource
from xds.filter.filter import compile_filter
from xds.model.node import Locality, Node
from xds.model.resource_type import CLUSTER
from xds.model.snapshot import build_snapshot
from xds.server.counters import Metrics
from xds.server.flow.limits import DEFAULT_FLOW
from xds.server.registry import StreamRegistry
from xds.snapshots.cache import SnapshotCache
from xds.snapshots.membership import Rule


class Stream:
    """A stream that follows what it is told."""

    def __init__(
        self, registry: StreamRegistry, cache: SnapshotCache, node_id: str, peer: str = "p", zone: str = ""
    ) -> None:
        self.node: Node | None = Node(node_id, locality=Locality("r", *zone.split("/")))
        self.peer = peer
        self.cache = cache
        self.group = self.resolved()
        self.woken = self.released = 0
        registry.add(self)
        registry.identify(self)

    def resolved(self) -> str:
        view = self.cache.resolve(self.node) if self.node is not None else None
        return view.group if view is not None else ""

    @property
    def home(self) -> str:
        return self.resolved()

    @property
    def client_key(self) -> tuple[str, str] | None:
        return (self.peer, self.node.id) if self.node is not None else None

    def notify(self) -> None:
        self.woken += 1

    def end_lingering(self) -> None:
        self.released += 1


def publish(cache: SnapshotCache, group: str) -> None:
    cache.set(build_snapshot(group, 1, [make_resource(CLUSTER, "c1", "a")], {CLUSTER: "1"}))


def fixture() -> tuple[SnapshotCache, StreamRegistry]:
    cache = SnapshotCache()
    publish(cache, "default")
    return cache, StreamRegistry(cache, Metrics())


async def test_a_push_wakes_the_streams_of_its_group() -> None:
    cache, registry = fixture()
    publish(cache, "edge")
    registry.wake(["edge"])
    edge, other = Stream(registry, cache, "edge"), Stream(registry, cache, "other")
    await until(lambda: edge.woken)
    publish(cache, "edge")
    registry.wake(["edge"])
    await until(lambda: edge.woken == 2)
    assert other.woken == 0


async def test_a_new_group_wakes_the_streams_that_belong_to_it() -> None:
    cache, registry = fixture()
    mine, other = Stream(registry, cache, "mine"), Stream(registry, cache, "other")
    publish(cache, "mine")
    registry.wake(["mine"])
    await until(lambda: mine.woken)
    assert other.woken == 0


async def test_a_dropped_group_wakes_its_streams() -> None:
    cache, registry = fixture()
    stream = Stream(registry, cache, "n")
    cache.drop("default")
    registry.wake(["default"])
    await until(lambda: stream.woken)
    stream.group = ""
    registry.regroup(stream)
    publish(cache, "default")
    registry.wake(["default"])
    await until(lambda: stream.woken == 2)


def test_lingering_is_ended_on_one_stream_of_each_client_of_a_node() -> None:
    cache, registry = fixture()
    one, two, other_peer = (Stream(registry, cache, "n", peer) for peer in ("p", "p", "q"))
    stranger = Stream(registry, cache, "m")
    registry.end_lingering({"n"})
    assert [stream.released for stream in (one, two, other_peer, stranger)] == [1, 0, 1, 0]


async def test_a_client_wakes_its_other_streams_only() -> None:
    cache, registry = fixture()
    one, two, stranger = (Stream(registry, cache, node, "p") for node in ("n", "n", "m"))
    registry.wake_client(("p", "n"), except_for=one)
    assert (one.woken, two.woken, stranger.woken) == (0, 1, 0)


async def test_a_stream_that_left_is_not_woken() -> None:
    cache, registry = fixture()
    gone, here = Stream(registry, cache, "gone"), Stream(registry, cache, "here")
    registry.remove(gone)
    registry.remove(gone)
    registry.wake(["default"])
    await until(lambda: here.woken)
    assert gone.woken == 0
    assert len(registry) == 1


async def test_others_run_while_a_large_fleet_is_woken() -> None:
    cache, registry = fixture()
    streams = [Stream(registry, cache, f"n{number}") for number in range(10 * DEFAULT_FLOW.wake_batch)]
    registry.wake(["default"])
    seen = set()
    while not streams[-1].woken:
        seen.add(sum(stream.woken for stream in streams))
        await asyncio.sleep(0)
    assert len(seen) >= 9


async def test_a_selector_moves_those_it_matches() -> None:
    cache, registry = fixture()
    publish(cache, "edge")
    registry.wake(["edge"])
    mine, other = Stream(registry, cache, "mine"), Stream(registry, cache, "other")
    cache.configure([Rule("edge", compile_filter("node.id == mine"))], {})
    registry.wake(["edge"])
    await until(lambda: mine.woken)
    assert (mine.home, other.woken) == ("edge", 0)


async def test_other_work_runs_while_a_large_fleet_is_authorised_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody moves, but to find that out takes long: here a millisecond for each stream."""
    cache, registry = fixture()
    streams = [Stream(registry, cache, f"n{number}") for number in range(100)]
    judged: list[str] = []

    def home(stream: Stream) -> str:
        judged.append(stream.group)
        return stream.group

    monkeypatch.setattr(Stream, "home", property(home))
    monkeypatch.setattr("xds.server.registry.monotonic", lambda: len(judged) / 1000)
    publish(cache, "another")
    registry.wake(["another"])
    seen = set()
    while len(judged) < len(streams):
        seen.add(len(judged))
        await asyncio.sleep(0)
    assert len(seen) >= len(streams) / 1000 / DEFAULT_FLOW.wake_slice_s / 2
    assert not any(stream.woken for stream in streams)


async def test_pushes_during_a_fan_out_join_in() -> None:
    cache, registry = fixture()
    streams = [Stream(registry, cache, f"n{number}") for number in range(3 * DEFAULT_FLOW.wake_batch)]
    registry.wake(["default"])
    await until(lambda: streams[0].woken)
    registry.wake(["default"])
    await until(lambda: all(stream.woken == 2 for stream in streams))


async def test_an_overlay_wakes_the_streams_of_its_locality() -> None:
    cache, registry = fixture()
    near, deep, far = (Stream(registry, cache, zone, zone=zone) for zone in ("za", "za/rack", "zb"))
    registry.wake(["default"], frozenset({Locality("r", "za")}))
    await until(lambda: near.woken and deep.woken)
    assert far.woken == 0


async def test_a_push_beside_an_overlay_wakes_all() -> None:
    cache, registry = fixture()
    near, far = (Stream(registry, cache, zone, zone=zone) for zone in ("za", "zb"))
    registry.wake(["default"], frozenset({Locality("r", "za")}))
    registry.wake(["default"])
    registry.wake(["default"], frozenset({Locality("r", "za")}))
    await until(lambda: near.woken and far.woken)


async def test_overlays_that_change_together_wake_all_their_localities() -> None:
    cache, registry = fixture()
    one, other, third = (Stream(registry, cache, zone, zone=zone) for zone in ("za", "zb", "zc"))
    registry.wake(["default"], frozenset({Locality("r", "za")}))
    registry.wake(["default"], frozenset({Locality("r", "zb")}))
    await until(lambda: one.woken and other.woken)
    assert third.woken == 0
