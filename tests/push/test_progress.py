"""Waiting for a push counts the nodes connected at commit, and no others."""

from __future__ import annotations

import pytest

from tests.push.test_publisher import GROUP, clusters
from tests.support.connected import Client
from tests.support.plane import Plane
from xds.fleet.state import Convergence
from xds.model.node import Node
from xds.model.resource_type import CLUSTER, LISTENER
from xds.model.snapshot import ResourceSet
from xds.push.progress import PushVerdict, verdict_of


@pytest.mark.parametrize(
    ("synced", "pending", "nacked", "percent", "expected"),
    [
        (0, 0, 0, 100.0, PushVerdict.DONE),
        (3, 0, 0, 100.0, PushVerdict.DONE),
        (2, 1, 0, 100.0, PushVerdict.PENDING),
        (2, 0, 1, 100.0, PushVerdict.REFUSED),
        (1, 1, 1, 100.0, PushVerdict.REFUSED),
        (9, 0, 1, 90.0, PushVerdict.DONE),
        (8, 1, 1, 90.0, PushVerdict.PENDING),
        (8, 0, 2, 90.0, PushVerdict.REFUSED),
    ],
)
def test_verdict(synced: int, pending: int, nacked: int, percent: float, expected: PushVerdict) -> None:
    assert verdict_of(Convergence(synced, pending, nacked), percent) is expected


def held(plane: Plane, type_url: str = CLUSTER) -> ResourceSet:
    snapshot = plane.cache.get(GROUP)
    assert snapshot is not None
    return snapshot.get(type_url)


async def progress(plane: Plane, revision: int) -> tuple[int, int, int]:
    found = await plane.publisher.groups.pushes.progress(GROUP, revision)
    assert found is not None
    return found.synced, found.pending, found.nacked


async def test_nodes_are_followed_to_the_push(plane: Plane) -> None:
    await plane.publisher.push(GROUP, clusters("a"))
    takes, refuses = (Client(plane.fleet, Node(name, GROUP), GROUP) for name in ("n1", "n2"))
    for client in (takes, refuses):
        client.subscribe(CLUSTER)
        client.ack(held(plane))
    await plane.publisher.push(GROUP, clusters("b"))
    assert await progress(plane, 2) == (0, 2, 0)
    takes.ack(held(plane))
    assert await progress(plane, 2) == (1, 1, 0)
    refuses.nack(held(plane), "no")
    assert await progress(plane, 2) == (1, 0, 1)
    refuses.leave()
    assert await progress(plane, 2) == (1, 0, 0)


async def test_latecomers_and_the_uninterested_do_not_count(plane: Plane) -> None:
    await plane.publisher.push(GROUP, clusters("a"))
    Client(plane.fleet, Node("n1", GROUP), GROUP).subscribe(LISTENER)
    await plane.publisher.push(GROUP, clusters("b"))
    Client(plane.fleet, Node("late", GROUP), GROUP).subscribe(CLUSTER)
    assert await progress(plane, 2) == (0, 0, 0)


async def test_later_push_stands_for_an_earlier_one(plane: Plane) -> None:
    client = Client(plane.fleet, Node("n1", GROUP), GROUP)
    client.subscribe(CLUSTER)
    await plane.publisher.push(GROUP, clusters("a"))
    await plane.publisher.push(GROUP, clusters("b"))
    client.ack(held(plane))
    assert await progress(plane, 1) == await progress(plane, 2) == (1, 0, 0)


async def test_nodes_about_to_move_to_a_new_group_count(plane: Plane) -> None:
    client = Client(plane.fleet, Node("n1", GROUP), "default")
    client.subscribe(CLUSTER)
    await plane.publisher.push(GROUP, clusters("a"))
    assert await progress(plane, 1) == (0, 1, 0)


async def test_unknown_push_has_no_progress(plane: Plane) -> None:
    assert await plane.publisher.groups.pushes.progress(GROUP, 1) is None
