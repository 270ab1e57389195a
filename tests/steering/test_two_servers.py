"""Traffic assignment with two servers on one store: one decides, both serve it, and who decides moves no traffic."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import NamedTuple

import pytest

from tests.steering.assigned import GROUP, KEY, A, B, Reports, Steered, cluster, endpoints, policy
from tests.support.plane import Plane
from xds.steering.policies import DECIDED_KIND

DEADLINE_S = 20.0


class Pair(NamedTuple):
    """Two servers, the first of which holds the lease."""

    first: Steered
    second: Steered


async def nothing() -> None:
    """There is nothing else to load."""


@pytest.fixture
async def pair(plane: Plane) -> AsyncIterator[Pair]:
    await plane.publisher.push(GROUP, [cluster(), endpoints()])
    other = Plane(plane.store)
    reports = Reports(rps={A: 150.0, B: 10.0})
    made = Pair(Steered(plane, reports, save_every_s=0.0), Steered(other, reports, save_every_s=0.0))
    made.second.holds_lease = False
    for each in made:
        await each.plane.publisher.load()
        await each.assignments.load()
        each.plane.publisher.following.start(nothing)
    yield made
    await other.mesh.close()
    await other.publisher.close()


async def until(condition: Callable[[], bool], step: Steered) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while not condition():
            await asyncio.sleep(0.01)
            await step.step(0.0)


async def test_the_holder_decides_and_the_other_serves_the_same(pair: Pair) -> None:
    await pair.second.assignments.put(KEY, policy())  # where the policy is put does not matter
    assert not (await pair.second.plane.store.docs(DECIDED_KIND))
    await until(lambda: bool(pair.first.assignments.active()), pair.first)
    await pair.first.step()
    assert "zb" in pair.first.shares(A)
    await until(lambda: pair.second.served(A) == pair.first.served(A), pair.second)
    version = [each.plane.cache.get(GROUP).sets for each in pair]  # type: ignore[union-attr]
    assert version[0].keys() == version[1].keys()
    pair.first.reports.rps = {A: 300.0, B: 10.0}
    await pair.first.step()
    await until(lambda: pair.second.served(A) == pair.first.served(A), pair.second)
    assert pair.second.events() == ["configured"], "what is decided is told by who decides"
    await pair.second.step(60.0)
    assert pair.second.served(A) == pair.first.served(A), "without reports only the holder falls back"


async def test_the_next_holder_moves_no_traffic_and_waits_for_reports(pair: Pair) -> None:
    await pair.first.assignments.put(KEY, policy())
    await pair.first.step()
    before = pair.first.served(A)
    await until(lambda: pair.second.served(A) == before, pair.second)
    pair.first.holds_lease = False
    pair.second.holds_lease = True
    pair.second.reports.rps = {}  # all clients are on their way to other servers
    await pair.second.step(0.0)
    await pair.second.step(0.5)
    assert pair.second.assignments.get(KEY).outcome is None, "it waits for an interval"
    pair.second.reports.rps = {A: 150.0, B: 10.0}
    for _ in range(5):
        await pair.second.step()
        assert pair.second.served(A) == before
    assert pair.second.assignments.get(KEY).outcome is not None


async def test_who_held_the_lease_writes_no_more_and_serves_what_the_next_one_decides(pair: Pair) -> None:
    await pair.first.assignments.put(KEY, policy())
    await pair.first.step()
    await until(lambda: pair.second.served(A) == pair.first.served(A), pair.second)
    pair.first.holds_lease = False
    pair.second.holds_lease = True
    (stored,) = await pair.first.plane.store.docs(DECIDED_KIND)
    pair.first.reports.rps = {A: 900.0, B: 900.0}
    await pair.first.step(30.0)
    await pair.first.assignments.close()
    assert await pair.first.plane.store.docs(DECIDED_KIND) == [stored]
    before = pair.second.served(A)
    for _ in range(5):
        await pair.second.step()
    assert pair.second.served(A) != before
    await until(lambda: pair.first.served(A) == pair.second.served(A), pair.first)


async def test_what_an_old_holder_decides_late_is_not_stored(pair: Pair) -> None:
    """It believes that it holds the lease, as a server that was stopped between the look at it and the write."""
    await pair.first.assignments.put(KEY, policy())
    await pair.first.step()
    await until(lambda: pair.second.served(A) == pair.first.served(A), pair.second)
    await pair.first.plane.publisher.following.close()  # it hears of nothing
    pair.second.holds_lease = True
    pair.second.reports = pair.first.reports
    pair.second.reports.rps = {A: 300.0, B: 10.0}
    for _ in range(3):
        await pair.second.step()
    (stored,) = await pair.first.plane.store.docs(DECIDED_KIND)
    pair.first.reports.rps = {A: 900.0, B: 900.0}
    for _ in range(3):
        await pair.first.step()
    assert await pair.first.plane.store.docs(DECIDED_KIND) == [stored]
    assert pair.first.assignments.stale_n > 0


async def test_a_policy_that_is_deleted_elsewhere_ends_here(pair: Pair) -> None:
    await pair.first.assignments.put(KEY, policy())
    await pair.first.step()
    await until(lambda: pair.second.served(A) == pair.first.served(A), pair.second)
    pushed = Steered(Plane(pair.first.plane.store))
    await pushed.plane.publisher.load()
    await pair.second.assignments.delete(KEY)
    await until(lambda: pair.first.served(A) == pushed.served(A), pair.first)
    assert pair.second.served(A) == pushed.served(A)
    assert not await pair.first.plane.store.docs(DECIDED_KIND)
