"""A push under a plan is served to a wave, and what later pushes do to its rollout."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import replace
from typing import Any

import pytest

from tests.mesh.test_lowered_groups import HTTP, RESOLVER, put_entries, put_upstreams, splitter
from tests.push.test_publisher import GROUP, clusters, resources
from tests.support.connected import Client
from tests.support.plane import Plane
from tests.support.resources import cluster_load_assignment, eds_cluster
from xds.access.caller import Caller
from xds.fleet.event_log import EventFilter, EventKind
from xds.mesh.core.entries.entry import read_entry
from xds.mesh.entry_records import PutEntry
from xds.model.errors import NotFoundError, ValidationError
from xds.model.node import Node
from xds.model.resource import Resource
from xds.model.resource_type import CLUSTER, ENDPOINT
from xds.model.snapshot import ResourceSet
from xds.push.groups import GroupSettings
from xds.push.progress import converged_at
from xds.push.request import DEFAULT_OPTIONS, ChangeError, PushOptions, replace_all
from xds.push.rollout_pushes import TakenBackError
from xds.push.rollout_step import Effect
from xds.rollouts.plan import read_plan
from xds.rollouts.rollout import Rollout, RolloutAction, RolloutState

OPERATOR = Caller("ops")
CAREFULLY = PushOptions(rollout={"waves": ["1", "50%"]}, allow_empty=True)
NODES = ("n1", "n2", "n3", "n4")


@pytest.fixture
def clients(plane: Plane) -> list[Client]:
    found = [Client(plane.fleet, Node(name, GROUP), GROUP) for name in NODES]
    for each in found:
        each.subscribe(CLUSTER)
    return found


def rollout(plane: Plane) -> Rollout:
    found = plane.publisher.rollouts.find(GROUP)
    assert found is not None
    return found


def served(plane: Plane, type_url: str = CLUSTER, nodes: Collection[str] = NODES) -> dict[str, list[str]]:
    """What each node is served: the names of a type."""
    names = {}
    for name in nodes:
        view = plane.cache.resolve(Node(name, GROUP))
        assert view is not None
        names[name] = list(view.snapshot.get(type_url).resources)
    return names


def have(plane: Plane, *names: str) -> set[str]:
    """The nodes that are served exactly these clusters."""
    return {node for node, found in served(plane).items() if found == list(names)}


async def begun(plane: Plane) -> str:
    """A rollout of b over a; returns the first node."""
    await plane.publisher.push(GROUP, clusters("a"))
    result = await plane.publisher.push(GROUP, clusters("b"), options=CAREFULLY)
    assert (result.rollout.effect, result.revision) == (Effect.STARTED, 2)
    (first,) = have(plane, "b")
    assert have(plane, "a") == set(NODES) - {first}
    return first


@pytest.mark.usefixtures("clients")
async def test_a_push_under_a_plan_is_served_to_the_first_wave(plane: Plane) -> None:
    await begun(plane)
    found = rollout(plane)
    assert (found.base, found.head, found.state, found.wave) == (1, 2, RolloutState.RUNNING, 0)
    assert plane.publisher.groups.content(GROUP).revision == 2


@pytest.mark.usefixtures("clients")
async def test_a_restart_serves_the_same_nodes(plane: Plane) -> None:
    first = await begun(plane)
    after = await plane.reloaded()
    assert rollout(after) == rollout(plane)
    assert have(after, "b") == {first}
    assert [each.version_info for each in base_sets(after)] == [each.version_info for each in base_sets(plane)]


def base_sets(plane: Plane) -> list[ResourceSet]:
    base = plane.publisher.rollouts.served_base(GROUP)
    assert base is not None
    return list(base.snapshot)


@pytest.mark.usefixtures("clients")
async def test_the_ranks_that_are_told_agree_with_the_lines(plane: Plane) -> None:
    """The bound of a share may be just above the rank of its last node."""
    await plane.publisher.push(GROUP, clusters("a"))
    await plane.publisher.push(GROUP, clusters("b"), options=PushOptions(rollout={"waves": ["10%"]}))
    assert len(have(plane, "b")) == 1
    for node, names in served(plane).items():
        told = (await plane.publisher.views.explain(node)).rollout
        found = re.fullmatch(r"served (\d).*: rank (0\.\d+), wave 1 of 2 has up to (0\.\d+)", told)
        assert found is not None, told
        assert (float(found[2]) <= float(found[3])) == (found[1] == "2") == (names == ["b"]), told


@pytest.mark.usefixtures("clients")
async def test_it_is_promoted_by_a_person(plane: Plane) -> None:
    await begun(plane)
    plane.woken.clear()
    await plane.publisher.rollouts.change(GROUP, RolloutAction.PROMOTE, OPERATOR, "looks good")
    assert have(plane, "b") == set(NODES)
    assert plane.woken == [GROUP]


@pytest.mark.usefixtures("clients")
async def test_a_person_changes_only_the_rollout_that_was_seen(plane: Plane) -> None:
    first = await begun(plane)
    await plane.publisher.push(GROUP, clusters("c"), options=CAREFULLY)
    rollouts = plane.publisher.rollouts
    for action in RolloutAction:
        with pytest.raises(NotFoundError, match="no rollout of revision 2 is going on; that of revision 3 is"):
            await rollouts.change(GROUP, action, OPERATOR, head=2)
    assert have(plane, "c") == {first}
    await rollouts.change(GROUP, RolloutAction.PROMOTE, OPERATOR, head=3)
    assert have(plane, "c") == set(NODES)


@pytest.mark.usefixtures("clients")
async def test_an_abort_is_an_undo_that_only_the_wave_sees(plane: Plane) -> None:
    first = await begun(plane)
    outside = next(node for node in NODES if node != first)
    before = plane.cache.resolve(Node(outside, GROUP))
    ended = await plane.publisher.rollouts.change(GROUP, RolloutAction.ABORT, OPERATOR, "too slow")
    assert (ended.state, ended.reason, ended.by) == (RolloutState.ROLLED_BACK, "aborted: too slow", "ops")
    assert have(plane, "a") == set(NODES)
    after = plane.cache.resolve(Node(outside, GROUP))
    assert before is not None and after is not None
    assert after.snapshot.get(CLUSTER).digest == before.snapshot.get(CLUSTER).digest
    lines = await plane.publisher.history.lines(GROUP)
    assert [(line.revision, line.kind, line.content_of, line.undone_by) for line in lines] == [
        (3, "rollback", 1, 0),
        (2, "push", 0, 3),
        (1, "push", 0, 0),
    ]


@pytest.mark.usefixtures("clients")
async def test_an_end_by_somebody_unknown_is_not_told_as_that_of_somebody_else(plane: Plane) -> None:
    rollouts = plane.publisher.rollouts
    await begun(plane)
    await rollouts.change(GROUP, RolloutAction.PAUSE, OPERATOR, "lunch")
    await rollouts.change(GROUP, RolloutAction.ABORT, Caller(), "too slow")
    assert (rollout(plane).state, rollout(plane).by, rollout(plane).message) == ("rolled_back", "", "too slow")
    await begun_again(plane, "c")
    await rollouts.change(GROUP, RolloutAction.PAUSE, OPERATOR, "lunch")
    await plane.publisher.push(GROUP, clusters("d"), options=PushOptions(all_at_once=True))
    assert (rollout(plane).state, rollout(plane).by, rollout(plane).message) == ("superseded", "", "")


@pytest.mark.usefixtures("clients")
async def test_what_was_taken_back_is_refused_until_it_is_asked_for(plane: Plane) -> None:
    await begun(plane)
    await plane.publisher.rollouts.change(GROUP, RolloutAction.ABORT, OPERATOR, "too slow")
    for options in (CAREFULLY, PushOptions(), PushOptions(all_at_once=True), PushOptions(dry_run=True)):
        with pytest.raises(TakenBackError, match=r"taken back 0s ago, from revision 2: aborted: too slow"):
            await plane.publisher.push(GROUP, clusters("b"), options=options)
    again = await plane.publisher.push(GROUP, clusters("b"), options=PushOptions(rollout={}, retry=True))
    assert again.rollout.effect is Effect.STARTED


@pytest.mark.usefixtures("clients")
async def test_what_was_taken_back_is_tried_again_by_its_plan_unless_it_is_for_all(plane: Plane) -> None:
    """A pipeline that was told of ``retry`` must not give all what one node has just refused."""
    first = await begun(plane)
    plan = rollout(plane).plan
    await plane.publisher.rollouts.change(GROUP, RolloutAction.ABORT, OPERATOR)
    again = await plane.publisher.push(GROUP, clusters("b"), options=PushOptions(retry=True))
    assert (again.rollout.effect, rollout(plane).plan, have(plane, "b")) == (Effect.STARTED, plan, {first})
    await plane.publisher.rollouts.change(GROUP, RolloutAction.ABORT, OPERATOR)
    await plane.publisher.push(GROUP, clusters("b"), options=PushOptions(retry=True, all_at_once=True))
    assert have(plane, "b") == set(NODES)


@pytest.mark.usefixtures("clients")
async def test_what_was_taken_back_may_be_pushed_after_other_content(plane: Plane) -> None:
    await begun(plane)
    await plane.publisher.rollouts.change(GROUP, RolloutAction.ABORT, OPERATOR)
    await plane.publisher.push(GROUP, clusters("c"))
    await plane.publisher.push(GROUP, clusters("b"))
    assert have(plane, "b") == set(NODES)


@pytest.mark.usefixtures("clients")
async def test_other_content_supersedes_with_the_same_base(plane: Plane) -> None:
    first = await begun(plane)
    result = await plane.publisher.push(GROUP, clusters("c"))
    assert result.rollout.effect is Effect.SUPERSEDED
    assert (rollout(plane).base, rollout(plane).head, rollout(plane).wave) == (1, 3, 0)
    assert have(plane, "c") == {first}
    assert have(plane, "a") == set(NODES) - {first}


@pytest.mark.usefixtures("clients")
async def test_a_push_amid_a_promotion_takes_no_node_back(plane: Plane) -> None:
    """Somebody has given the head to all: what is pushed before all have ACKed is rolled out over it."""
    await begun(plane)
    await plane.publisher.rollouts.change(GROUP, RolloutAction.PROMOTE, OPERATOR, "urgent")
    await plane.publisher.push(GROUP, clusters("c"), options=CAREFULLY)
    assert (rollout(plane).base, rollout(plane).head) == (2, 3)
    assert (len(have(plane, "c")), len(have(plane, "b"))) == (1, 3)
    assert told(plane) == [("started", 2), ("promoting", 2), ("promoted", 2), ("started", 3)]
    after = await plane.reloaded()
    assert (len(have(after, "c")), len(have(after, "b"))) == (1, 3)
    await plane.publisher.rollouts.change(GROUP, RolloutAction.ABORT, OPERATOR)
    assert have(plane, "b") == set(NODES)


def told(plane: Plane) -> list[tuple[str, int | None]]:
    """The events of rollouts, with the revision of the head."""
    kinds = EventFilter(frozenset({EventKind.ROLLOUT}))
    return [(each.action, each.revision) for each in plane.fleet.events.after(0, kinds, 100).events]


@pytest.mark.usefixtures("clients")
async def test_undo_of_a_rollout_goes_back_to_its_base(plane: Plane) -> None:
    await begun(plane)
    await plane.publisher.push(GROUP, clusters("c"))
    plan = await plane.publisher.undo.plan(GROUP)
    assert plan.to is not None and plan.to.revision == 1
    await plane.publisher.rollback(GROUP, plan.to.revision, keeps_endpoints=True)
    assert rollout(plane).state is RolloutState.ROLLED_BACK
    assert have(plane, "a") == set(NODES)


@pytest.mark.usefixtures("clients")
async def test_undo_amid_an_undo_that_is_rolled_out_takes_that_back(plane: Plane) -> None:
    """It is impatience, or two people who mean the same push: nobody wants all nodes at an older revision at once."""
    for pushed in (clusters("z"), clusters("a"), web(80, "b"), web(81, "b")):
        await plane.publisher.push(GROUP, pushed)
    await set_plan(plane, waves="1")
    undone = await plane.publisher.undo.plan(GROUP)
    assert undone.to is not None and undone.to.revision == 2
    back = await plane.publisher.rollback(GROUP, undone.to.revision, keeps_endpoints=True)
    assert (back.rollout.effect, back.revision, rollout(plane).base) == (Effect.STARTED, 5, 4)
    plan = await plane.publisher.undo.plan(GROUP)
    assert (plan.takes_back.revision, plan.last_undo) == (5, plan.takes_back)
    assert plan.to is not None and plan.to.revision == 4
    await plane.publisher.rollback(GROUP, plan.to.revision, keeps_endpoints=True)
    assert rollout(plane).state is RolloutState.ROLLED_BACK
    assert have(plane, "b") == set(NODES)


@pytest.mark.usefixtures("clients")
@pytest.mark.parametrize("is_rolled_out", [True, False])
async def test_undo_goes_back_to_nothing_that_only_waves_had(plane: Plane, is_rolled_out: bool) -> None:
    """What superseded it was promoted, or was for all at once."""
    await begun(plane)
    await plane.publisher.push(GROUP, clusters("c"), options=PushOptions(all_at_once=not is_rolled_out))
    if is_rolled_out:
        ended = rollout(plane).end(RolloutState.PROMOTED, "", 0.0)
        assert await plane.publisher.rollouts.step(rollout(plane), ended, "promoted")
    plan = await (await plane.reloaded()).publisher.undo.plan(GROUP)
    assert plan.takes_back.revision == 3 and plan.to is not None and plan.to.revision == 1
    assert [(each.line.revision, each.reason) for each in plan.candidates] == [
        (2, "its rollout did not reach all nodes"),
        (1, ""),
    ]


@pytest.mark.usefixtures("clients")
@pytest.mark.parametrize("has_plan", [False, True])
async def test_a_roll_back_to_a_named_revision_ends_it_for_all(plane: Plane, has_plan: bool) -> None:
    await plane.publisher.push(GROUP, clusters("z"))
    await plane.publisher.push(GROUP, clusters("a"))
    if has_plan:
        await set_plan(plane, waves="1")
    await plane.publisher.push(GROUP, clusters("b"), options=CAREFULLY)
    back = await plane.publisher.rollback(GROUP, 1)
    assert back.rollout.effect is Effect.ENDED
    ended = rollout(plane)
    assert (ended.state, ended.reason) == (RolloutState.SUPERSEDED, "rolled back to revision 1, for all nodes")
    assert have(plane, "z") == set(NODES)
    assert rollout(await plane.reloaded()) == ended


async def test_undo_of_a_rollout_goes_back_to_its_base_although_nodes_reject_that(
    plane: Plane, clients: list[Client]
) -> None:
    """All others have it: to go further back would be another change for them."""
    await plane.publisher.push(GROUP, clusters("z"))
    await plane.publisher.push(GROUP, clusters("a"))
    for name, client in zip(NODES, clients, strict=True):
        client.nack(sets_of(plane, name), "cannot bind")
    await plane.publisher.push(GROUP, clusters("b"), options=CAREFULLY)
    plan = await plane.publisher.undo.plan(GROUP)
    assert plan.to is not None and plan.to.revision == 2
    await plane.publisher.rollback(GROUP, plan.to.revision, keeps_endpoints=True)
    assert rollout(plane).state is RolloutState.ROLLED_BACK
    plan = await plane.publisher.undo.plan(GROUP)
    assert plan.to is not None and plan.to.revision == 1


@pytest.mark.usefixtures("clients")
@pytest.mark.parametrize("state", [RolloutState.RUNNING, RolloutState.PAUSED, RolloutState.HELD])
async def test_all_at_once_ends_it(plane: Plane, state: RolloutState) -> None:
    await begun(plane)
    assert await plane.publisher.rollouts.step(rollout(plane), replace(rollout(plane), state=state), "")
    result = await plane.publisher.push(GROUP, clusters("c"), options=PushOptions(all_at_once=True))
    assert result.rollout.effect is Effect.ENDED
    assert rollout(plane).state is RolloutState.SUPERSEDED
    assert have(plane, "c") == set(NODES)


async def test_each_rollout_is_told_to_begin_and_to_end_once(
    plane: Plane, clients: list[Client], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ended by another one, by a push to all, by a person; pushes after its end tell nothing of it."""
    await begun(plane)
    await plane.publisher.push(GROUP, clusters("c"), options=CAREFULLY)
    await plane.publisher.push(GROUP, clusters("d"), options=PushOptions(all_at_once=True))
    await plane.publisher.push(GROUP, clusters("e"), options=CAREFULLY)
    await plane.publisher.rollouts.change(GROUP, RolloutAction.ABORT, OPERATOR)
    await plane.publisher.push(GROUP, clusters("f"))
    await begun_again(plane, "g")
    await plane.publisher.rollouts.change(GROUP, RolloutAction.ABORT, OPERATOR)
    monkeypatch.setattr("xds.push.rollout_facts.KNOWS_AFTER_S", 0.0)
    monkeypatch.setattr(plane.fleet, "is_followed", lambda group: False)
    for client in clients:
        client.leave()
    at_once = await plane.publisher.push(GROUP, clusters("h"), options=CAREFULLY)
    assert at_once.rollout.effect is Effect.ALL_AT_ONCE
    assert told(plane) == [
        ("started", 2),
        ("superseded", 2),
        ("started", 3),
        ("superseded", 3),
        ("started", 5),
        ("rolled_back", 5),
        ("started", 8),
        ("rolled_back", 8),
    ]
    assert plane.publisher.journal.rollouts == {"promoted": 0, "rolled_back": 2, "superseded": 2}


@pytest.mark.usefixtures("clients")
async def test_the_same_content_changes_nothing_unless_it_is_for_all(plane: Plane) -> None:
    first = await begun(plane)
    assert not (await plane.publisher.push(GROUP, clusters("b"))).changed
    assert have(plane, "b") == {first}
    assert not (await plane.publisher.push(GROUP, clusters("b"), options=PushOptions(all_at_once=True))).changed
    assert rollout(plane).state is RolloutState.PROMOTED
    assert have(plane, "b") == set(NODES)


@pytest.mark.usefixtures("clients")
async def test_the_content_of_the_base_ends_it(plane: Plane) -> None:
    await begun(plane)
    result = await plane.publisher.push(GROUP, clusters("a"))
    assert (result.rollout.effect, rollout(plane).state) == (Effect.ENDED, RolloutState.SUPERSEDED)
    assert have(plane, "a") == set(NODES)
    assert (await plane.publisher.push(GROUP, clusters("b"))).changed


def web(port: int, cluster: str = "web") -> list[Resource]:
    return resources(eds_cluster(cluster), cluster_load_assignment(cluster, port))


@pytest.mark.usefixtures("clients")
async def test_endpoints_reach_both_lines_and_survive_an_abort(plane: Plane) -> None:
    await plane.publisher.push(GROUP, web(80))
    await plane.publisher.push(GROUP, [*web(80), *clusters("b")], options=CAREFULLY)
    (moved,) = [one for one in web(81) if one.type_url == ENDPOINT]
    result = await plane.publisher.put(GROUP, moved)
    assert result.rollout.effect is Effect.CONTINUES
    assert assignments(plane) == dict.fromkeys(NODES, moved.version)
    assert len(have(plane, "web")) == 3
    await plane.publisher.rollouts.change(GROUP, RolloutAction.ABORT, OPERATOR)
    assert assignments(plane) == dict.fromkeys(NODES, moved.version)
    assert have(plane, "web") == set(NODES)


async def test_endpoints_alone_go_to_all_although_a_plan_was_named_and_the_answer_says_so(plane: Plane) -> None:
    await plane.publisher.push(GROUP, web(80))
    result = await plane.publisher.push(GROUP, web(81), options=CAREFULLY)
    assert (result.rollout.effect, result.rollout.detail) == (Effect.ALL_AT_ONCE, "only endpoints change")
    assert len(set(assignments(plane).values())) == 1
    unchanged = await plane.publisher.push(GROUP, web(81), options=CAREFULLY)
    assert unchanged.rollout.effect is Effect.NONE


@pytest.mark.usefixtures("clients")
async def test_endpoints_that_are_pushed_with_configuration_go_to_all_and_the_answer_says_so(plane: Plane) -> None:
    await plane.publisher.push(GROUP, web(80))
    result = await plane.publisher.push(GROUP, [*web(81), *clusters("b")], options=CAREFULLY)
    assert "endpoints of web go to all nodes at once" in result.rollout.detail
    (moved,) = [one for one in web(81) if one.type_url == ENDPOINT]
    assert assignments(plane) == dict.fromkeys(NODES, moved.version)
    other = await plane.publisher.push(GROUP, [*web(81), *web(82, "other"), *clusters("c")])
    assert (other.rollout.effect, "at once" in other.rollout.detail) == (Effect.SUPERSEDED, False), (
        "only the head has it"
    )


def assignments(plane: Plane) -> dict[str, str]:
    found = {}
    for node in NODES:
        view = plane.cache.resolve(Node(node, GROUP))
        assert view is not None
        found[node] = view.snapshot.get(ENDPOINT).resources["web"].version
    return found


async def test_a_group_that_nobody_follows_gets_it_at_once(plane: Plane, monkeypatch: pytest.MonkeyPatch) -> None:
    first = await plane.publisher.push(GROUP, clusters("a"), options=CAREFULLY)
    assert (first.rollout.effect, first.rollout.detail) == (Effect.ALL_AT_ONCE, "it is the first push to the group")
    unknown = await plane.publisher.push(GROUP, clusters("b"), options=CAREFULLY)
    assert unknown.rollout.effect is Effect.STARTED, "the server has just started"
    await plane.publisher.push(GROUP, clusters("c"), options=PushOptions(all_at_once=True))
    monkeypatch.setattr("xds.push.rollout_facts.KNOWS_AFTER_S", 0.0)
    known = await plane.publisher.push(GROUP, clusters("d"), options=CAREFULLY)
    assert (known.rollout.effect, rollout(plane).is_open) == (Effect.ALL_AT_ONCE, False)


async def test_a_rollout_that_nobody_follows_ends_with_the_next_push(
    plane: Plane, clients: list[Client], monkeypatch: pytest.MonkeyPatch
) -> None:
    await begun(plane)
    monkeypatch.setattr("xds.push.rollout_facts.KNOWS_AFTER_S", 0.0)
    monkeypatch.setattr(plane.fleet, "is_followed", lambda group: False)
    for client in clients:
        client.leave()
    result = await plane.publisher.push(GROUP, clusters("c"), options=CAREFULLY)
    assert result.rollout.effect is Effect.ENDED
    assert have(plane, "c") == set(NODES)


@pytest.mark.usefixtures("clients")
async def test_a_deleted_group_forgets_it(plane: Plane) -> None:
    await begun(plane)
    await plane.publisher.delete_group(GROUP, PushOptions(allow_empty=True))
    assert plane.publisher.rollouts.find(GROUP) is None
    assert not await plane.store.docs("rollout")
    with pytest.raises(NotFoundError):
        await plane.publisher.rollouts.change(GROUP, RolloutAction.PROMOTE, OPERATOR)


@pytest.mark.usefixtures("clients")
async def test_a_plan_is_for_one_group(plane: Plane) -> None:
    await plane.publisher.push("shop", clusters("a"))
    requests = [await replace_all(group, clusters("b")) for group in (GROUP, "shop")]
    with pytest.raises(ValidationError, match="a rollout is of one group"):
        await plane.publisher.transaction(requests, CAREFULLY)


@pytest.mark.usefixtures("clients")
async def test_a_dry_run_says_what_would_happen(plane: Plane) -> None:
    await plane.publisher.push(GROUP, clusters("a"))
    options = PushOptions(rollout={"waves": "1"}, dry_run=True)
    result = await plane.publisher.push(GROUP, clusters("b"), options=options)
    assert result.rollout.effect is Effect.STARTED
    assert plane.publisher.rollouts.find(GROUP) is None


@pytest.mark.usefixtures("clients")
async def test_live_endpoints_reach_both_lines(plane: Plane) -> None:
    await plane.publisher.push(GROUP, web(80))
    await plane.publisher.push(GROUP, [*web(80), *clusters("b")], options=CAREFULLY)
    (live,) = [one for one in web(82) if one.type_url == ENDPOINT]
    plane.cache.observe(GROUP, {"web": live})
    assert assignments(plane) == dict.fromkeys(NODES, live.version)


@pytest.mark.usefixtures("clients")
async def test_names_that_only_the_base_has_are_found(plane: Plane) -> None:
    """A person may set the endpoints of a cluster that the newest revision removes."""
    await plane.publisher.push(GROUP, [*web(80), *clusters("a")])
    await plane.publisher.push(GROUP, clusters("a"), options=CAREFULLY)
    (pushed,) = [one for one in web(80) if one.type_url == ENDPOINT]
    live = plane.publisher.live
    assert plane.by_hand.is_used((GROUP, "web"))
    assert list(plane.by_hand.served(GROUP)) == ["web"]
    assert live.pushed(GROUP, "web") == live.served(GROUP, "web") == pushed
    await plane.publisher.rollouts.change(GROUP, RolloutAction.PROMOTE, OPERATOR)
    ended = rollout(plane).end(RolloutState.PROMOTED, "", 0.0)
    assert await plane.publisher.rollouts.step(rollout(plane), ended, "promoted")
    assert not plane.by_hand.is_used((GROUP, "web"))


async def test_the_convergence_of_a_rollout_is_that_of_each_line(plane: Plane, clients: list[Client]) -> None:
    await plane.publisher.push(GROUP, clusters("a"))
    for client in clients:
        client.ack(sets_of(plane, NODES[clients.index(client)]))
    assert await converged_at(plane.cache, plane.fleet, GROUP) == 3.0
    await plane.publisher.push(GROUP, clusters("b"), options=CAREFULLY)
    assert await converged_at(plane.cache, plane.fleet, GROUP) is None
    (first,) = have(plane, "b")
    clients[NODES.index(first)].ack(sets_of(plane, first))
    assert await converged_at(plane.cache, plane.fleet, GROUP) == 3.0


def sets_of(plane: Plane, node: str) -> ResourceSet:
    view = plane.cache.resolve(Node(node, GROUP))
    assert view is not None
    return view.snapshot.get(CLUSTER)


async def set_plan(plane: Plane, group: str = GROUP, **plan: object) -> None:
    await plane.publisher.configure(group, GroupSettings(rollout=read_plan(plan)))


@pytest.mark.usefixtures("clients")
async def test_the_plan_of_a_group_applies_at_every_door(plane: Plane) -> None:
    await plane.publisher.push(GROUP, clusters("a", "b"))
    await set_plan(plane, waves="50%", hold_s=7)
    (one,) = clusters("c")
    put = await plane.publisher.put(GROUP, one)
    assert put.rollout.effect is Effect.STARTED
    assert len(have(plane, "a", "b", "c")) == 2
    deleted = await plane.publisher.delete(GROUP, (CLUSTER, "b"))
    assert deleted.rollout.effect is Effect.SUPERSEDED
    await plane.publisher.rollouts.change(GROUP, RolloutAction.ABORT, OPERATOR)
    back = await plane.publisher.rollback(GROUP, put.revision)
    assert (back.rollout.effect, len(have(plane, "a", "b", "c"))) == (Effect.STARTED, 2)
    pushed = await plane.publisher.push(GROUP, clusters("d"), options=PushOptions(rollout={"waves": "1"}))
    assert (pushed.rollout.effect, len(have(plane, "d"))) == (Effect.SUPERSEDED, 1)
    assert rollout(plane).plan.hold_s == 7, "what a push does not say, the group does"


@pytest.mark.usefixtures("clients")
async def test_in_a_transaction_each_group_has_its_own_plan(plane: Plane) -> None:
    Client(plane.fleet, Node("s1", "shop"), "shop").subscribe(CLUSTER)
    for group in (GROUP, "shop"):
        await plane.publisher.push(group, clusters("a"))
    await set_plan(plane, waves="1")
    requests = [await replace_all(group, clusters("b")) for group in (GROUP, "shop")]
    results = await plane.publisher.transaction(requests)
    assert [each.rollout.effect for each in results] == [Effect.STARTED, Effect.NONE]
    assert len(have(plane, "b")) == 1
    view = plane.cache.resolve(Node("s1", "shop"))
    assert view is not None and list(view.snapshot.get(CLUSTER).resources) == ["b"]


@pytest.mark.usefixtures("clients")
async def test_what_was_taken_back_is_refused_in_a_transaction_too(plane: Plane) -> None:
    await begun(plane)
    await plane.publisher.rollouts.change(GROUP, RolloutAction.ABORT, OPERATOR, "no")
    requests = [await replace_all(group, clusters("b")) for group in (GROUP, "shop")]
    with pytest.raises(ChangeError, match=r"^changes\[\d\], group '\w+': this content was taken back"):
        await plane.publisher.transaction(requests)
    assert plane.publisher.groups.find("shop") is None


@pytest.mark.usefixtures("clients")
async def test_what_was_taken_back_may_be_pushed_after_a_day(plane: Plane, monkeypatch: pytest.MonkeyPatch) -> None:
    await begun(plane)
    await plane.publisher.rollouts.change(GROUP, RolloutAction.ABORT, OPERATOR, "no")
    monkeypatch.setattr("xds.rollouts.rollout.MATTERS_S", 0.0)
    assert (await plane.publisher.push(GROUP, clusters("b"))).changed


@pytest.mark.usefixtures("clients")
async def test_the_content_is_recognised_whatever_its_endpoints(plane: Plane) -> None:
    await plane.publisher.push(GROUP, web(80))
    await plane.publisher.push(GROUP, [*web(80), *clusters("b")], options=CAREFULLY)
    await plane.publisher.rollouts.change(GROUP, RolloutAction.ABORT, OPERATOR, "no")
    with pytest.raises(TakenBackError):
        await plane.publisher.push(GROUP, [*web(81), *clusters("b")])
    (moved,) = [one for one in web(83) if one.type_url == ENDPOINT]
    await plane.publisher.put(GROUP, moved)
    with pytest.raises(TakenBackError):
        await plane.publisher.push(GROUP, [*web(83), *clusters("b")])


@pytest.mark.usefixtures("clients")
async def test_pause_and_resume_change_no_line(plane: Plane) -> None:
    first = await begun(plane)
    paused = await plane.publisher.rollouts.change(GROUP, RolloutAction.PAUSE, OPERATOR, "lunch")
    assert (paused.state, paused.by, paused.message) == (RolloutState.PAUSED, "ops", "lunch")
    resumed = await plane.publisher.rollouts.change(GROUP, RolloutAction.RESUME, OPERATOR)
    assert resumed.state is RolloutState.RUNNING
    assert have(plane, "b") == {first}
    page = await plane.publisher.audit.read("", 100)
    assert [each.note.action for each in page.entries][-2:] == ["rollout.paused", "rollout.resumed"]


@pytest.mark.usefixtures("clients")
async def test_a_repeated_request_is_answered_as_the_first(plane: Plane) -> None:
    await plane.publisher.push(GROUP, clusters("a"))
    once = replace(CAREFULLY, push_id="once")
    first = await plane.publisher.push(GROUP, clusters("b"), options=once)
    again = await plane.publisher.push(GROUP, clusters("b"), options=once)
    assert (again.revision, again.changed) == (first.revision, True)
    assert rollout(plane).head == first.revision
    assert (again.rollout.effect, again.rollout.detail, again.rollout.rollout) == (
        first.rollout.effect,
        first.rollout.detail,
        rollout(plane),
    )


@pytest.mark.usefixtures("clients")
async def test_a_repeated_push_during_a_rollout_is_answered_as_the_first(plane: Plane) -> None:
    """One that supersedes, one that continues, one that ends it with the same content, and one that began it before."""
    await begun(plane)

    async def twice(*names: str, key: str, **options: Any) -> Effect:
        given = PushOptions(push_id=key, **options)
        first, again = [await plane.publisher.push(GROUP, clusters(*names), options=given) for _ in range(2)]
        assert (again.revision, again.changed) == (first.revision, first.changed)
        assert (again.rollout.effect, again.rollout.detail) == (first.rollout.effect, first.rollout.detail)
        return again.rollout.effect

    assert await twice("c", key="supersedes") is Effect.SUPERSEDED
    assert await twice("c", key="same") is Effect.NONE
    assert await twice("c", key="ends", all_at_once=True) is Effect.ENDED
    await begun_again(plane, "d")
    assert await twice("e", key="for-all", all_at_once=True) is Effect.ENDED
    assert await twice("f", key="no plan") is Effect.NONE


async def begun_again(plane: Plane, name: str) -> None:
    """A further rollout."""
    result = await plane.publisher.push(GROUP, clusters(name), options=CAREFULLY)
    assert result.rollout.effect is Effect.STARTED


def derived(plane: Plane, node: str) -> dict[str, str]:
    """The derived resources that a node is served, with their versions."""
    view = plane.cache.resolve(Node(node, GROUP))
    assert view is not None
    return {f"{one.type_url} {one.name}": one.version for one in view.snapshot.resources() if one.is_lowered}


@pytest.mark.usefixtures("clients")
async def test_derived_resources_reach_both_lines_and_survive_an_abort(plane: Plane) -> None:
    await put_upstreams(plane, "web", group=GROUP)
    await plane.publisher.push(GROUP, clusters("a"))
    await plane.publisher.push(GROUP, clusters("b"), options=CAREFULLY)
    (first,) = [node for node in NODES if "b" in served(plane)[node]]
    before = derived(plane, first)
    await put_entries(plane, HTTP, RESOLVER, splitter(30))
    after = derived(plane, first)
    assert after != before
    assert [derived(plane, node) for node in NODES] == [after] * len(NODES)
    assert [node for node in NODES if "b" in served(plane)[node]] == [first]
    assert rollout(plane).is_open
    await plane.publisher.rollouts.change(GROUP, RolloutAction.ABORT, OPERATOR)
    assert [derived(plane, node) for node in NODES] == [after] * len(NODES)
    assert not [node for node in NODES if "b" in served(plane)[node]]


@pytest.mark.usefixtures("clients")
async def test_a_push_with_entries_is_rolled_out_and_the_entries_are_not(plane: Plane) -> None:
    """In one transaction: what the push changes is configuration, what follows from entries are facts."""
    await put_upstreams(plane, "web", group=GROUP)
    await plane.publisher.push(GROUP, clusters("a"))
    await set_plan(plane, waves="1")
    before = derived(plane, NODES[0])
    request = await replace_all(GROUP, clusters("b"))
    writes = [PutEntry(entry) for each in (HTTP, RESOLVER, splitter(30)) for entry in read_entry(each).entries]
    await plane.publisher.transaction([request], DEFAULT_OPTIONS, plane.mesh.entry_part(writes, DEFAULT_OPTIONS))
    assert len([node for node in NODES if "b" in served(plane)[node]]) == 1
    found = [derived(plane, node) for node in NODES]
    assert found == [found[0]] * len(NODES) and found[0] != before
    (newest, *_) = await plane.publisher.history.lines(GROUP)
    assert newest.kind == "push"


@pytest.mark.usefixtures("clients")
@pytest.mark.parametrize(
    ("named", "is_told"),
    [
        ({"nodes": ["n2"]}, False),
        ({"nodes": ["n9"]}, True),
        ({"selector": 'node.id == "n3"'}, False),
        ({"selector": 'node.id == "n9"'}, True),
        ({"waves": ["1"]}, False),
    ],
)
async def test_it_is_told_when_a_plan_names_nodes_of_which_none_is_connected(
    plane: Plane, named: dict[str, object], is_told: bool
) -> None:
    await plane.publisher.push(GROUP, clusters("a"))
    result = await plane.publisher.push(GROUP, clusters("b"), options=PushOptions(rollout=named))
    assert ("no connected node is among those of the plan" in result.rollout.detail) is is_told
