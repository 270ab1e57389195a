"""Rollouts go on, wait, and take themselves back by what their nodes do."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from time import time
from typing import Any

import pytest

from tests.mesh.test_lowered_groups import put_upstreams
from tests.push.test_publisher import GROUP, clusters, resources
from tests.push.test_rollouts import NODES, OPERATOR, have, rollout, served
from tests.support import resources as r
from tests.support.connected import Client
from tests.support.plane import Plane
from xds.fleet.event_log import EventFilter, EventKind
from xds.lrs.figures import Totals
from xds.model.errors import ValidationError, Violation
from xds.model.node import Node
from xds.model.resource_type import CLUSTER, LISTENER
from xds.model.snapshot import ResourceSet
from xds.push import rollout_facts
from xds.push.request import PushOptions
from xds.push.rollout_runner import RolloutRunner
from xds.rollouts.decide import Facts, RequestCount
from xds.rollouts.rollout import UNWATCHED, RolloutAction, RolloutState
from xds.rollouts.server_facts import ServerFacts, merged, read_facts
from xds.store.base import Commit, Meta, UnavailableError

PLAN = {"waves": ["1", "50%"], "hold_s": 0.0}
DEADLINE_S = 10.0


class Proxies:
    """Four nodes. ``answer`` lets those ACK that are served something else than they have."""

    def __init__(self, plane: Plane) -> None:
        self.plane = plane
        self.clients = {name: Client(plane.fleet, Node(name, GROUP), GROUP) for name in NODES}
        self.has: dict[str, list[str]] = {}
        for client in self.clients.values():
            client.subscribe(CLUSTER)

    def answer(self, refused: str = "") -> None:
        for name, names in served(self.plane, nodes=self.clients).items():
            if self.has.get(name) != names:
                view = self.plane.cache.resolve(Node(name, GROUP))
                assert view is not None
                held = view.snapshot.get(CLUSTER)
                if refused in names:
                    self.clients[name].nack(held, "cannot bind", time())
                else:
                    self.clients[name].ack(held)
                    self.has[name] = names

    def leave(self, name: str) -> None:
        self.clients.pop(name).leave()


@pytest.fixture
async def runner(plane: Plane) -> AsyncIterator[RolloutRunner]:
    publisher = plane.publisher
    running = RolloutRunner(publisher.rollouts, plane.fleet, publisher.rollout_facts.gather)
    yield running
    await running.close()


async def pushed(plane: Plane, **plan: object) -> Proxies:
    """Four nodes that have a, and a rollout of b."""
    await plane.publisher.push(GROUP, clusters("a"))
    proxies = Proxies(plane)
    proxies.answer()
    options = PushOptions(meta=Meta(message="another timeout"), rollout={**PLAN, **plan})
    await plane.publisher.push(GROUP, clusters("b"), options=options)
    return proxies


async def until(condition: Callable[[], bool], each: Callable[[], None] = lambda: None) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while not condition():
            each()
            await asyncio.sleep(0.01)


async def test_it_goes_on_by_itself_while_nodes_ack(plane: Plane, runner: RolloutRunner) -> None:
    proxies = await pushed(plane)
    most = 0
    runner.start()

    def note() -> None:
        nonlocal most
        wave = rollout(plane).wave
        limit = (1, 2, 4)[wave]
        assert len(have(plane, "b")) <= limit
        most = max(most, wave)
        proxies.answer()

    await until(lambda: not rollout(plane).is_open, note)
    assert rollout(plane).state is RolloutState.PROMOTED
    assert have(plane, "b") == set(NODES)
    assert most == 2
    assert (runner.failures, plane.publisher.groups.content(GROUP).revision) == (0, 2)
    events = plane.fleet.events.after(0, EventFilter(frozenset({EventKind.ROLLOUT})), 10).events
    assert [each.action for each in events] == [
        "started",
        "wave",
        "wave",
        "promoted",
    ]


async def test_it_waits_while_nodes_do_not_answer(plane: Plane, runner: RolloutRunner) -> None:
    await pushed(plane)
    for _ in range(3):
        await runner.look()
    assert (rollout(plane).state, rollout(plane).wave) == (RolloutState.RUNNING, 0)
    facts = (await plane.publisher.rollout_facts.gather(GROUP)).facts
    assert list(facts.waiting.values()) == ["has not answered yet"]


async def test_a_nack_takes_it_back_within_a_second(plane: Plane, runner: RolloutRunner) -> None:
    proxies = await pushed(plane)
    (first,) = have(plane, "b")
    runner.start()
    await asyncio.sleep(0.2)
    began_s = asyncio.get_running_loop().time()
    proxies.answer(refused="b")
    await until(lambda: not rollout(plane).is_open)
    assert asyncio.get_running_loop().time() - began_s < 1.0
    assert rollout(plane).reason == f"{first} rejected it: clusters/b: cannot bind"
    assert have(plane, "a") == set(NODES)
    newest, *_ = await plane.publisher.history.lines(GROUP)
    assert (newest.revision, newest.kind, newest.meta.actor) == (3, "rollback", "server")
    assert newest.meta.message == rollout(plane).reason
    assert (rollout(plane).by, rollout(plane).message) == ("server", "")
    refused = (await plane.publisher.history.lines(GROUP))[1]
    assert (refused.nodes, refused.refused, refused.undone_by) == (1, 1, 3)


async def test_it_is_held_where_the_plan_says_so(plane: Plane, runner: RolloutRunner) -> None:
    proxies = await pushed(plane, on_failure="hold")
    (first,) = have(plane, "b")
    proxies.answer(refused="b")
    await runner.look()
    assert (rollout(plane).state, rollout(plane).reason) == (
        RolloutState.HELD,
        f"{first} rejected it: clusters/b: cannot bind",
    )
    assert have(plane, "b") == {first}


async def test_a_nack_that_names_nothing_counts_beside_what_did_not_change(plane: Plane, runner: RolloutRunner) -> None:
    """Its response had the whole set, also what the base has as well."""
    await plane.publisher.push(GROUP, clusters("a"))
    proxies = Proxies(plane)
    proxies.answer()
    await plane.publisher.push(GROUP, clusters("a", "b"), options=PushOptions(rollout={**PLAN, "on_failure": "hold"}))
    (first,) = (name for name, names in served(plane, nodes=proxies.clients).items() if "b" in names)
    proxies.answer(refused="b")
    await runner.look()
    assert rollout(plane).state is RolloutState.HELD
    assert rollout(plane).reason == f"{first} rejected it: clusters: cannot bind"


async def retried(plane: Plane, runner: RolloutRunner) -> tuple[Proxies, str]:
    """A rollout was taken back by a NACK, and is tried again before its node has ACKed the base."""
    proxies = await pushed(plane)
    (first,) = have(plane, "b")
    proxies.answer(refused="b")
    await runner.look()
    assert rollout(plane).state is RolloutState.ROLLED_BACK
    await plane.publisher.push(GROUP, clusters("b"), options=PushOptions(rollout=PLAN, retry=True))
    assert have(plane, "b") == {first}
    return proxies, first


async def test_a_retry_is_not_taken_back_by_the_nack_of_the_attempt_before(plane: Plane, runner: RolloutRunner) -> None:
    proxies, first = await retried(plane, runner)
    await runner.look()
    assert rollout(plane).is_open
    proxies.answer(refused="b")
    await runner.look()
    assert (rollout(plane).state, rollout(plane).reason) == (
        RolloutState.ROLLED_BACK,
        f"{first} rejected it: clusters/b: cannot bind",
    )


async def test_a_retry_that_its_node_ACKs_goes_on(plane: Plane, runner: RolloutRunner) -> None:
    proxies, _ = await retried(plane, runner)
    await runner.look()
    proxies.answer()
    for _ in range(2):
        await runner.look()
    assert (rollout(plane).state, rollout(plane).wave) == (RolloutState.RUNNING, 1)


async def test_a_nack_that_nothing_new_was_sent_after_counts_for_the_retry(
    plane: Plane, runner: RolloutRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of a client that was away in between: what it rejected is not sent to it again."""
    _, first = await retried(plane, runner)
    monkeypatch.setattr(rollout_facts, "SENT_AGAIN_S", 0.0)
    await runner.look()
    assert rollout(plane).reason == f"{first} rejected it: clusters/b: cannot bind"


async def test_what_a_node_rejects_anyway_is_no_refusal_of_the_push(plane: Plane, runner: RolloutRunner) -> None:
    """A cluster that it refuses is in the base too."""
    await plane.publisher.push(GROUP, clusters("a"))
    proxies = Proxies(plane)
    proxies.answer(refused="a")
    await plane.publisher.push(GROUP, clusters("a", "b"), options=PushOptions(rollout=PLAN))
    facts = (await plane.publisher.rollout_facts.gather(GROUP)).facts
    assert (facts.nacked, facts.acked) == ({}, set())


@pytest.mark.parametrize(
    "wants", [(LISTENER,), (CLUSTER, "d"), (CLUSTER, "xdstp://x/y/z/*")], ids=["type", "name", "collection"]
)
async def test_a_node_that_cannot_see_the_change_proves_nothing(
    plane: Plane, runner: RolloutRunner, wants: tuple[str, ...]
) -> None:
    """The push changes one cluster; the canary takes another one, or another type."""
    await plane.publisher.push(GROUP, clusters("a", "d"))
    canary = Client(plane.fleet, Node("n1", GROUP), GROUP)
    canary.subscribe(*wants)
    pushed_at = PushOptions(rollout={"waves": [], "nodes": ["n1"], "hold_s": 0.0})
    await plane.publisher.push(GROUP, clusters("b", "d"), options=pushed_at)

    async def facts() -> Facts:
        return (await plane.publisher.rollout_facts.gather(GROUP)).facts

    def head() -> ResourceSet:
        view = plane.cache.resolve(Node("n1", GROUP))
        assert view is not None
        return view.snapshot.get(CLUSTER)

    if wants[0] == CLUSTER:  # what it has of the type is the newest, and has nothing of the push
        canary.ack(head())
    found = await facts()
    assert (found.acked, found.behind, found.unaffected) == (set(), set(), {"n1"})
    await runner.look()
    assert rollout(plane).is_open
    assert rollout(plane).progress.unknown == "the nodes of the wave subscribe to nothing that it changes"
    canary.subscribe(CLUSTER, "b")
    assert (await facts()).behind == ({"n1"} if wants[0] == LISTENER else set())
    canary.ack(head())
    found = await facts()
    assert (found.acked, found.behind, found.unaffected) == ({"n1"}, set(), set())
    await runner.look()
    await runner.look()
    assert rollout(plane).state is RolloutState.PROMOTED


async def test_a_counted_wave_takes_a_node_that_sees_the_change(plane: Plane, runner: RolloutRunner) -> None:
    await plane.publisher.push(GROUP, clusters("a"))
    clients = {name: Client(plane.fleet, Node(name, GROUP), GROUP) for name in NODES}
    for client in clients.values():
        client.subscribe(LISTENER)
    await plane.publisher.push(GROUP, clusters("b"), options=PushOptions(rollout=PLAN))
    (first,) = have(plane, "b")
    await runner.look()
    assert have(plane, "b") == {first}
    sees = next(name for name in reversed(NODES) if name != first)
    clients[sees].subscribe(CLUSTER)
    await runner.look()
    assert have(plane, "b") == {first, sees}
    await runner.look()
    assert (have(plane, "b"), rollout(plane).wave) == ({first, sees}, 0)
    facts = (await plane.publisher.rollout_facts.gather(GROUP)).facts
    assert (facts.behind, facts.unaffected) == ({sees}, set(NODES) - {sees})


async def test_a_push_that_removes_a_type_concerns_who_had_it(plane: Plane) -> None:
    await plane.publisher.push(GROUP, clusters("a"))
    proxies = Proxies(plane)
    proxies.answer()
    listener = resources(r.listener("web", r.rds("web")), r.route_config("web", r.route("a")))
    await plane.publisher.push(GROUP, [*clusters("a"), *listener])
    for each in proxies.clients.values():
        each.subscribe(LISTENER)
    await plane.publisher.push(GROUP, clusters("a"), options=PushOptions(rollout=PLAN))
    facts = (await plane.publisher.rollout_facts.gather(GROUP)).facts
    assert len(facts.behind) == 1 and not facts.unaffected


async def test_failing_requests_take_it_back(plane: Plane, runner: RolloutRunner) -> None:
    totals: dict[str, Totals] = {name: Totals(1000, 500) for name in NODES}  # from before
    facts = plane.publisher.rollout_facts
    facts.requests_of = lambda node, clusters: totals[node] if "a" in clusters else None
    facts.recent_requests = lambda group, clusters, now, window_s: Totals(200, 100) if "a" in clusters else Totals()
    proxies = await pushed(plane, hold_s=60.0)
    assert rollout(plane).plan.max_errors == 0.02
    assert rollout(plane).usual_errors == pytest.approx(1 / 3)
    (first,) = have(plane, "b")
    proxies.answer()
    await runner.look()
    totals.update({name: Totals(1200, 502) for name in NODES})
    totals[first] = Totals(1100, 550)
    await runner.look()
    assert rollout(plane).state is RolloutState.ROLLED_BACK
    assert rollout(plane).reason == "33.3% of 150 requests failed, 2.0% above the usual 1.0% are allowed"


@pytest.mark.parametrize(("max_errors", "held_s"), [(None, 20.0), (0.5, 20.0), (1, 0.0)])
async def test_a_wave_whose_requests_are_judged_is_held_for_two_reports(
    plane: Plane, max_errors: float | None, held_s: float
) -> None:
    """What the first report of a wave says may all have been before it."""
    plane.publisher.rollout_facts.recent_requests = lambda *_: Totals(200, 0)
    plane.publisher.rollout_pushes.reports_s = lambda: 10.0
    await pushed(plane, hold_s=0.0, timeout_s=15.0, max_errors=max_errors)
    plan = rollout(plane).plan
    assert (plan.hold_s, plan.timeout_s) == (held_s, max(held_s, 15.0))


async def test_load_from_before_the_wave_counts_for_no_node(plane: Plane) -> None:
    """One that begins to report during the wave has a history too, and clusters that go take theirs with them."""
    totals: dict[str, Totals | None] = {name: Totals(1000, 500) for name in NODES}
    facts = plane.publisher.rollout_facts
    facts.requests_of = lambda node, clusters: totals[node]
    await pushed(plane)
    (first,) = have(plane, "b")
    totals[first] = None
    await facts.gather(GROUP)
    for seen, expected in (
        (Totals(1000, 500), RequestCount(0, 0)),
        (Totals(1060, 540), RequestCount(40, 100)),
        (Totals(400, 300), RequestCount(0, 0)),
        (Totals(2000, 310), RequestCount(10, 1610)),
    ):
        totals[first] = seen
        assert (await facts.gather(GROUP)).facts.requests == expected


async def test_clusters_that_appear_amid_a_wave_bring_no_history(plane: Plane) -> None:
    """Config entries add them for all nodes, which may have had them before: that says nothing of the push."""
    facts = plane.publisher.rollout_facts
    added = set[str]()
    facts.requests_of = lambda node, names: Totals(1000, 500 * any(name in names for name in added))
    await pushed(plane)
    await facts.gather(GROUP)
    await put_upstreams(plane, "web", group=GROUP)
    added |= plane.cache.served(GROUP)[0].get(CLUSTER).resources.keys() - {"a", "b"}
    assert added
    found = (await facts.gather(GROUP)).facts
    assert (found.requests, found.others) == (RequestCount(0, 0), RequestCount(0, 0))


async def test_a_look_that_began_before_a_rollout_leaves_its_load_alone(plane: Plane) -> None:
    """Pushes and other servers look as well, and a look pauses between batches of nodes."""
    totals: dict[str, Totals] = {name: Totals(1000, 500) for name in NODES}
    facts = plane.publisher.rollout_facts
    facts.requests_of = lambda node, clusters: totals[node]
    await plane.publisher.push(GROUP, clusters("a"))
    proxies = Proxies(plane)
    proxies.answer()
    early = asyncio.create_task(facts.gather(GROUP))
    await asyncio.sleep(0)  # to its first pause
    await plane.publisher.push(GROUP, clusters("b"), options=PushOptions(rollout=PLAN))
    (first,) = have(plane, "b")
    await facts.gather(GROUP)
    await early
    totals[first] = Totals(1060, 540)
    assert (await facts.gather(GROUP)).facts.requests == RequestCount(40, 100)


async def test_a_canary_that_moves_to_another_group_is_not_away(plane: Plane, runner: RolloutRunner) -> None:
    """An operator has changed the selector of that group. Another node is tried in its place."""
    proxies = await pushed(plane, hold_s=60.0)
    (first,) = have(plane, "b")
    proxies.answer()
    await runner.look()
    client = proxies.clients.pop(first)
    client.move("elsewhere")
    facts = (await plane.publisher.rollout_facts.gather(GROUP)).facts
    assert (facts.inside, facts.left) == (set(), {first})
    await runner.look()
    (other,) = have(plane, "b") - {first}
    client.leave()
    facts = (await plane.publisher.rollout_facts.gather(GROUP)).facts
    assert (facts.inside, facts.left) == ({other}, set())
    assert rollout(plane).connected_n == 1


@pytest.mark.parametrize("moves", [True, False])
async def test_a_canary_that_rejected_it_and_is_gone_is_replaced_when_it_is_resumed(
    plane: Plane, runner: RolloutRunner, moves: bool
) -> None:
    """An operator has removed the broken proxy, or given it to another group."""
    proxies = await pushed(plane, on_failure="hold")
    (first,) = have(plane, "b")
    proxies.answer(refused="b")
    await runner.look()
    assert rollout(plane).state is RolloutState.HELD
    if moves:
        proxies.clients.pop(first).move("elsewhere")
    else:
        proxies.leave(first)
    await runner.look()
    await plane.publisher.rollouts.change(GROUP, RolloutAction.RESUME, OPERATOR)
    await runner.look()
    assert (rollout(plane).state, rollout(plane).connected_n) == (RolloutState.RUNNING, 1)
    (other,) = have(plane, "b") - {first}
    proxies.answer(refused="b")
    await runner.look()
    assert rollout(plane).reason == f"{other} rejected it: clusters/b: cannot bind"


async def test_proxies_of_a_share_that_moved_are_not_missed_after_a_restart(
    plane: Plane, runner: RolloutRunner
) -> None:
    proxies = await pushed(plane, waves=["50%"], hold_s=60.0)
    first, _ = sorted(have(plane, "b"))
    proxies.answer()
    await runner.look()
    await plane.publisher.rollouts.change(GROUP, RolloutAction.PAUSE, OPERATOR)
    await runner.look()
    proxies.clients[first].move("elsewhere")
    await runner.look()
    found = rollout(await plane.reloaded())
    assert (found.state, found.connected_n) == (RolloutState.PAUSED, 1)


async def test_load_of_nodes_that_only_report_here_counts(plane: Plane) -> None:
    """Of several servers, a proxy may report its load to another one than it gets its configuration from."""
    totals: dict[str, Totals] = {name: Totals(1000, 500) for name in NODES}
    plane.publisher.rollout_facts.requests_of = lambda node, clusters: totals[node]
    proxies = await pushed(plane)
    (first,) = have(plane, "b")
    for name in NODES:
        plane.fleet.reporter_opened(Node(name, GROUP), GROUP, 1.0)
        proxies.leave(name)
    await plane.publisher.rollout_facts.gather(GROUP)
    totals[first] = Totals(1060, 540)
    facts = (await plane.publisher.rollout_facts.gather(GROUP)).facts
    assert (facts.requests, facts.others) == (RequestCount(40, 100), RequestCount(0, 0))
    assert (facts.connected, facts.inside, facts.acked) == ({}, set(), set())


async def test_a_roll_back_that_is_refused_holds(
    plane: Plane, runner: RolloutRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    proxies = await pushed(plane)
    proxies.answer(refused="b")

    async def refuse(*_: object) -> None:
        raise ValidationError([Violation("owned_name", "a has another owner")])

    monkeypatch.setattr(plane.publisher.rollouts, "roll_back", refuse)
    for _ in range(2):
        await runner.look()
    assert rollout(plane).state is RolloutState.HELD
    assert rollout(plane).reason.endswith("it cannot be taken back: a has another owner")


async def test_a_refused_roll_back_is_tried_again_when_the_group_has_changed(
    plane: Plane, runner: RolloutRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not at each look: each attempt is a refused push, in the log and among the events."""
    proxies = await pushed(plane)
    proxies.answer(refused="b")
    attempts, is_refused, roll_back = 0, True, plane.publisher.rollouts.roll_back

    async def count(*given: Any) -> None:
        nonlocal attempts
        attempts += 1
        if is_refused:
            raise ValidationError([Violation("owned_name", "a has another owner")])
        await roll_back(*given)

    monkeypatch.setattr(plane.publisher.rollouts, "roll_back", count)
    for _ in range(3):
        await runner.look()
    assert (attempts, rollout(plane).state) == (1, RolloutState.HELD)
    await plane.publisher.rollouts.change(GROUP, RolloutAction.RESUME, OPERATOR)
    for _ in range(2):
        await runner.look()
    assert (attempts, rollout(plane).state) == (2, RolloutState.HELD)
    is_refused = False
    (assignment,) = resources(r.cluster_load_assignment("a", 1))
    await plane.publisher.put(GROUP, assignment)
    await runner.look()
    assert (attempts, rollout(plane).state) == (3, RolloutState.ROLLED_BACK)


async def test_only_the_holder_of_the_lease_acts(plane: Plane) -> None:
    publisher, holds = plane.publisher, False
    runner = RolloutRunner(publisher.rollouts, plane.fleet, publisher.rollout_facts.gather, lambda: holds)
    proxies = await pushed(plane)
    runner.start()
    proxies.answer()
    await asyncio.sleep(0.3)
    assert rollout(plane).wave == 0
    holds = True
    await until(lambda: rollout(plane).wave > 0)
    await runner.close()


async def test_a_server_that_gets_the_lease_again_watches_the_wave_anew(plane: Plane) -> None:
    publisher, holds = plane.publisher, True
    runner = RolloutRunner(publisher.rollouts, plane.fleet, publisher.rollout_facts.gather, lambda: holds)
    proxies = await pushed(plane, hold_s=60.0)
    proxies.answer()
    runner.start()
    await until(lambda: rollout(plane).progress.held_s > 0.1)
    holds = False
    await until(lambda: rollout(plane).progress == UNWATCHED)
    await runner.close()


async def test_a_step_that_was_not_stored_is_decided_again(
    plane: Plane, runner: RolloutRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    proxies = await pushed(plane)
    proxies.answer(refused="b")
    commit_all, calls = plane.store.commit_all, 0

    async def fail_once(*arguments: object, **options: object) -> list[Commit]:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise UnavailableError("the disk is away")
        return await commit_all(*arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(plane.store, "commit_all", fail_once)
    await runner.look()
    assert rollout(plane).is_open
    await runner.look()
    assert rollout(plane).state is RolloutState.ROLLED_BACK
    assert runner.failures == 0


async def test_a_killed_server_repeats_the_decision(plane: Plane, runner: RolloutRunner) -> None:
    """It had decided to take the push back, and is killed before the commit."""
    proxies = await pushed(plane)
    (first,) = have(plane, "b")
    proxies.answer(refused="b")
    after = await plane.reloaded()
    assert have(after, "b") == {first}
    again = Proxies(after)
    again.has = {name: ["a"] for name in NODES}
    again.answer(refused="b")
    other = RolloutRunner(after.publisher.rollouts, after.fleet, after.publisher.rollout_facts.gather)
    await other.look()
    assert rollout(after).state is RolloutState.ROLLED_BACK
    assert rollout(after).reason == f"{first} rejected it: clusters/b: cannot bind"


def test_facts_of_several_servers_are_joined() -> None:
    here = ServerFacts(
        Facts({"a": "x", "b": "x"}, {"a", "b"}, {"a", "b"}, {}, {}, RequestCount(1, 10), left={"d", "e"}),
        "2: wave 0",
        True,
    )
    there = ServerFacts(
        Facts(
            {"b": "x", "c": "y", "d": "y", "a": "x"},
            {"b", "c", "d", "a"},
            {"c"},
            {"c": "no"},
            {"b": "waits"},
            RequestCount(2, 20),
            RequestCount(0, 5),
            unaffected={"d", "a"},
        ),
        "2: wave 0",
    )
    assert read_facts(there.document()) == there
    assert read_facts({"connected": {}}) is None
    both = merged(here, [there])
    assert both.is_followed
    assert both.facts == Facts(
        {"a": "x", "b": "x", "c": "y", "d": "y"},
        {"a", "b", "c", "d"},
        {"a", "c"},
        {"c": "no"},
        {"b": "waits"},
        RequestCount(3, 30),
        RequestCount(0, 5),
        unaffected={"d"},
        left={"e"},
    )
    alone = replace(here, is_followed=False)
    assert not merged(alone, [there]).is_followed
    assert merged(alone, [there], ["c"]).is_followed, "a silent server may have nodes of the group"
    behind = merged(here, [replace(there, serves="1")])
    assert (behind.facts.inside, behind.facts.is_complete) == ({"a", "b"}, False)
