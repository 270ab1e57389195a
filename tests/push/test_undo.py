"""The revision that ``undo`` goes back to, also if it is done twice, or by two people."""

from __future__ import annotations

from collections.abc import Mapping
from time import time
from typing import Any

import pytest

from tests.support.connected import Client
from tests.support.plane import Plane
from tests.support.resources import cluster_load_assignment, eds_cluster, static_cluster
from xds.access.caller import Caller
from xds.codec.resources import ResourceDecoder
from xds.model.errors import ConflictError, NotFoundError
from xds.model.node import Node
from xds.model.resource_type import CLUSTER, ENDPOINT
from xds.push.request import PushOptions
from xds.push.undo import UndoPlan
from xds.rollouts.rollout import RolloutAction, RolloutState
from xds.store.base import Meta
from xds.store.retention import Retention

GROUP = "g"
Json = dict[str, Any]


def cluster(name: str, port: int) -> Json:
    return static_cluster(name, port)


async def push(plane: Plane, *resources: Json, message: str = "") -> int:
    pushed = ResourceDecoder().values({"resources": list(resources)})
    options = PushOptions(meta=Meta("root", message, actor="team"))
    return (await plane.publisher.push(GROUP, pushed.resources, options=options)).revision


async def move(plane: Plane, name: str, port: int) -> int:
    (resource,) = ResourceDecoder().values({"resources": [cluster_load_assignment(name, port)]}).resources
    return (await plane.publisher.put(GROUP, resource)).revision


async def undo(plane: Plane, endpoints: bool = False) -> int:
    """As the command does it: plan, then roll back with the etag of the plan."""
    return await follow(plane, await plane.publisher.undo.plan(GROUP), endpoints)


async def follow(plane: Plane, plan: UndoPlan, endpoints: bool = False) -> int:
    assert plan.to is not None
    options = PushOptions(etag=plan.etag)
    result = await plane.publisher.rollback(GROUP, plan.to.revision, options, keeps_endpoints=not endpoints)
    return result.revision


def names(plane: Plane) -> set[str]:
    return {resource.name for resource in plane.publisher.groups.content(GROUP).resources()}


def body(plane: Plane, type_url: str, name: str) -> bytes | None:
    found = plane.publisher.groups.content(GROUP).get((type_url, name))
    return found.body if found is not None else None


async def marks(plane: Plane) -> Mapping[int, tuple[str, int, int]]:
    """Kind, the revision it went back to, and the revision that undid it, by revision."""
    lines = await plane.publisher.history.lines(GROUP)
    return {line.revision: (line.kind, line.content_of, line.undone_by) for line in lines}


async def test_undo_twice_goes_further_back_and_never_to_an_undone_revision(plane: Plane) -> None:
    for name in ("first", "second", "bad"):
        await push(plane, cluster(name, 80))
    assert await undo(plane) == 4
    assert names(plane) == {"second"}
    assert await undo(plane) == 5
    assert names(plane) == {"first"}
    assert await marks(plane) == {
        1: ("push", 0, 0),
        2: ("push", 0, 5),
        3: ("push", 0, 5),
        4: ("rollback", 2, 5),
        5: ("rollback", 1, 0),
    }
    with pytest.raises(NotFoundError, match="no revision before 5"):
        await undo(plane)


async def test_one_of_two_concurrent_undos_succeeds(plane: Plane) -> None:
    for name in ("first", "second", "bad"):
        await push(plane, cluster(name, 80))
    plans = [await plane.publisher.undo.plan(GROUP) for _ in range(2)]
    assert await follow(plane, plans[0]) == 4
    with pytest.raises(ConflictError):
        await follow(plane, plans[1])
    assert names(plane) == {"second"}
    assert (await marks(plane))[3] == ("push", 0, 4)


async def test_a_push_behind_an_undo_is_undone_to_before_it(plane: Plane) -> None:
    for name in ("first", "bad"):
        await push(plane, cluster(name, 80))
    await undo(plane)
    await push(plane, cluster("again", 80), message="another try")
    plan = await plane.publisher.undo.plan(GROUP)
    assert (plan.takes_back.revision, plan.takes_back.meta.actor, plan.to and plan.to.revision) == (4, "team", 3)
    await undo(plane)
    assert names(plane) == {"first"}


async def test_endpoints_pushed_since_stay(plane: Plane) -> None:
    await push(plane, eds_cluster("a"), cluster_load_assignment("a", 1))
    await push(plane, eds_cluster("a"), cluster_load_assignment("a", 1), cluster("bad", 80))
    for port in (2, 3, 4):
        await move(plane, "a", port)
    now = body(plane, ENDPOINT, "a")
    plan = await plane.publisher.undo.plan(GROUP)
    assert (plan.takes_back.revision, plan.to and plan.to.revision) == (2, 1)
    await follow(plane, plan)
    assert names(plane) == {"a"} and body(plane, CLUSTER, "bad") is None
    assert body(plane, ENDPOINT, "a") == now
    lines = await plane.publisher.history.lines(GROUP)
    assert [(line.endpoints_only, line.undone_by) for line in lines] == [
        (False, 0),  # the undo
        *[(True, 0)] * 3,  # what it kept
        (False, 6),
        (False, 0),
    ]


async def test_endpoints_go_back_where_that_is_asked_for(plane: Plane) -> None:
    await push(plane, eds_cluster("a"), cluster_load_assignment("a", 1))
    before = body(plane, ENDPOINT, "a")
    await push(plane, eds_cluster("a"), cluster_load_assignment("a", 1), cluster("bad", 80))
    await move(plane, "a", 2)
    await undo(plane, endpoints=True)
    assert body(plane, ENDPOINT, "a") == before
    assert (await marks(plane))[3] == ("push", 0, 4)


async def test_the_state_before_a_change_has_the_endpoints_of_before(plane: Plane) -> None:
    """Undo restores what was served when the change was made, not an older push of configuration."""
    await push(plane, eds_cluster("a"), cluster_load_assignment("a", 1))
    await move(plane, "a", 2)
    before = body(plane, ENDPOINT, "a")
    await push(plane, eds_cluster("a"), cluster_load_assignment("a", 3), cluster("bad", 80))
    plan = await plane.publisher.undo.plan(GROUP)
    assert plan.to is not None and plan.to.revision == 2
    await follow(plane, plan, endpoints=True)
    assert body(plane, ENDPOINT, "a") == before


async def test_clusters_that_come_and_go_bring_and_take_their_endpoints(plane: Plane) -> None:
    for other in ("b", "new"):
        clusters = [eds_cluster("a"), eds_cluster(other)]
        await push(plane, *clusters, cluster_load_assignment("a", 1), cluster_load_assignment(other, 1))
    await move(plane, "a", 9)
    await undo(plane)
    content = plane.publisher.groups.content(GROUP)
    assert {key[1] for key in content.blob_ids if key[0] == ENDPOINT} == {"a", "b"}


async def test_an_assignment_that_came_later_stays_with_a_cluster_in_both(plane: Plane) -> None:
    late = eds_cluster("late", service_name="late-service")
    await push(plane, late)
    await push(plane, late, cluster("bad", 80))
    await move(plane, "late-service", 7)
    now = body(plane, ENDPOINT, "late-service")
    await undo(plane)
    assert now is not None and body(plane, ENDPOINT, "late-service") == now
    assert names(plane) == {"late", "late-service"}


async def test_undo_works_where_endpoints_used_up_their_history(plane: Plane) -> None:
    await push(plane, eds_cluster("a"), cluster_load_assignment("a", 1))
    await move(plane, "a", 2)
    await push(plane, eds_cluster("a"), cluster_load_assignment("a", 2), cluster("bad", 80))
    for port in range(100, 160):
        await move(plane, "a", port)
    now = body(plane, ENDPOINT, "a")
    await plane.store.collect(Retention(revisions=2, age_s=-1.0, revisions_limit=2, endpoint_revisions=3), 1e12)
    await undo(plane)
    assert names(plane) == {"a"}
    assert body(plane, ENDPOINT, "a") == now


async def test_only_endpoints_changed(plane: Plane) -> None:
    await push(plane, eds_cluster("a"), cluster_load_assignment("a", 1))
    await move(plane, "a", 2)
    with pytest.raises(NotFoundError, match="only endpoints changed since revision 1"):
        await plane.publisher.undo.plan(GROUP)


async def test_a_deleted_group_differs_from_one_that_never_existed(plane: Plane) -> None:
    await push(plane, cluster("a", 80))
    await push(plane, cluster("b", 80))
    await plane.publisher.delete_group(GROUP)
    with pytest.raises(NotFoundError, match="deleted in revision 3; name a revision to go back to, such as 2"):
        await plane.publisher.undo.plan(GROUP)
    with pytest.raises(NotFoundError, match="no such group: 'other'"):
        await plane.publisher.undo.plan("other")
    await plane.publisher.rollback(GROUP, 2, keeps_endpoints=True)
    assert names(plane) == {"b"}


async def test_undo_skips_revisions_that_nodes_rejected(plane: Plane) -> None:
    await push(plane, cluster("good", 80))
    clients = [Client(plane.fleet, Node(f"n{n}"), GROUP) for n in range(4)]
    for client in clients:
        client.subscribe(CLUSTER)
    await push(plane, cluster("refused", 80))
    refused = plane.publisher.groups.content(GROUP).snapshot.get(CLUSTER)
    clients[0].nack(refused, "no")
    for client in clients[1:]:
        client.ack(refused)
    await push(plane, cluster("worse", 80))
    plan = await plane.publisher.undo.plan(GROUP)
    assert plan.to is not None and plan.to.revision == 1
    assert [(each.line.revision, each.reason) for each in plan.candidates] == [(2, "rejected by 1 of 4 nodes"), (1, "")]
    # This is known after a restart, too.
    again = await plane.reloaded()
    plan = await again.publisher.undo.plan(GROUP)
    assert plan.to is not None and plan.to.revision == 1
    await again.publisher.close()


async def test_few_refusals_are_no_reason(plane: Plane) -> None:
    plane.publisher.undo._share = 0.25
    await push(plane, cluster("good", 80))
    clients = [Client(plane.fleet, Node(f"n{n}"), GROUP) for n in range(4)]
    for client in clients:
        client.subscribe(CLUSTER)
    await push(plane, cluster("mostly", 80))
    clients[0].nack(plane.publisher.groups.content(GROUP).snapshot.get(CLUSTER), "no")
    await push(plane, cluster("worse", 80))
    plan = await plane.publisher.undo.plan(GROUP)
    assert plan.to is not None and plan.to.revision == 2


async def test_what_the_first_node_of_a_rollout_alone_rejects_is_gone_back_to(plane: Plane) -> None:
    """It was one of one node, and is one of twelve since the rollout was promoted."""
    clients = {name: Client(plane.fleet, Node(name), GROUP) for name in (f"n{n}" for n in range(12))}
    for client in clients.values():
        client.subscribe(CLUSTER)
    await push(plane, cluster("good", 80))
    resources = ResourceDecoder().values({"resources": [cluster("mostly", 80)]}).resources
    plan = {"waves": [], "nodes": ["n0"], "on_failure": "hold"}
    await plane.publisher.push(GROUP, resources, options=PushOptions(rollout=plan))
    held = plane.publisher.groups.content(GROUP).snapshot.get(CLUSTER)
    clients["n0"].nack(held, "no")
    await plane.publisher.undo.note_refusals([GROUP])
    (newest, *_) = await plane.publisher.history.lines(GROUP)
    assert (newest.nodes, newest.refused) == (1, 1)
    await plane.publisher.rollouts.change(GROUP, RolloutAction.PROMOTE, Caller("ops"))
    for name in clients.keys() - {"n0"}:
        clients[name].ack(held)
    worse = ResourceDecoder().values({"resources": [cluster("worse", 80)]}).resources
    await plane.publisher.push(GROUP, worse, options=PushOptions(all_at_once=True))
    found = await plane.publisher.undo.plan(GROUP)
    assert found.to is not None and (found.to.revision, found.to.nodes, found.to.refused) == (2, 12, 1)


@pytest.mark.parametrize("end", ["promoted", "aborted"])
async def test_what_was_superseded_is_not_gone_back_to_after_a_later_rollout(plane: Plane, end: str) -> None:
    """The fourth push has a rollout of its own, and the second one had reached the first node alone."""
    for name in ("n0", "n1"):
        Client(plane.fleet, Node(name), GROUP).subscribe(CLUSTER)
    await push(plane, cluster("good", 80))
    rollouts, careful = plane.publisher.rollouts, PushOptions(rollout={"waves": ["1"]})
    for name in ("superseded", "better", "newest"):
        resources = ResourceDecoder().values({"resources": [cluster(name, 80)]}).resources
        await plane.publisher.push(GROUP, resources, options=careful)
        running = rollouts.find(GROUP)
        assert running is not None
        if name == "newest" and end == "aborted":
            await rollouts.change(GROUP, RolloutAction.ABORT, Caller("ops"))
        elif name != "superseded":
            await rollouts.step(running, running.end(RolloutState.PROMOTED, "all have ACKed", time()), "promoted")
    again = await plane.reloaded()
    if end == "promoted":
        await undo(again)
    assert names(again) == {"better"}
    await undo(again)
    assert names(again) == {"good"}
    await again.publisher.close()


async def test_undo_is_refused_when_all_earlier_revisions_were_undone(plane: Plane) -> None:
    for name in ("first", "second"):
        await push(plane, cluster(name, 80))
    await plane.store.record_outcome(GROUP, 1, 2, 2)
    plan = await plane.publisher.undo.plan(GROUP)
    assert plan.to is None
    assert [(each.line.revision, each.reason) for each in plan.candidates] == [(1, "rejected by 2 of 2 nodes")]


async def test_undo_does_not_go_behind_a_deletion(plane: Plane) -> None:
    for name in ("first", "second"):
        await push(plane, cluster(name, 80))
    await plane.publisher.delete_group(GROUP)
    await push(plane, cluster("third", 80))
    with pytest.raises(NotFoundError, match="no revision before 4"):
        await plane.publisher.undo.plan(GROUP)


async def test_a_deleted_group_is_restored(plane: Plane) -> None:
    for name in ("first", "second"):
        await push(plane, cluster(name, 80))
    await plane.publisher.delete_group(GROUP)
    await plane.publisher.rollback(GROUP, 2)
    assert (await marks(plane))[4] == ("restore", 2, 0)
    assert await undo(plane) == 5
    assert names(plane) == {"first"}


async def test_a_repeat_of_an_undo_is_answered_as_before(plane: Plane) -> None:
    await push(plane, eds_cluster("a"), cluster_load_assignment("a", 1))
    await push(plane, eds_cluster("a"), cluster_load_assignment("a", 1), cluster("bad", 80))
    options = PushOptions(push_id="u")
    first = await plane.publisher.rollback(GROUP, 1, options, keeps_endpoints=True)
    await move(plane, "a", 5)
    again = await plane.publisher.rollback(GROUP, 1, options, keeps_endpoints=True)
    assert again.revision == first.revision == 3
