"""The control loop: from measured load to the resources that nodes are served."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from tests.lrs.reports import encode, row, stats
from tests.steering.assigned import GROUP, KEY, A, B, Reports, Steered, cluster, connect, endpoints, policy
from tests.support.plane import Plane
from tests.support.resources import zoned_load_assignment
from xds.access.caller import Caller
from xds.codec import schema
from xds.codec.resources import decode_resource
from xds.envoy.translation import V2
from xds.live.by_hand import WriteOptions
from xds.live.draining import endpoint_states
from xds.live.endpoint_patch import read_patch
from xds.lrs.aggregates import LoadAggregates
from xds.lrs.figures import Flow
from xds.lrs.load_stats import LoadStatsRequest
from xds.model.errors import NotFoundError
from xds.model.load_report import Metric
from xds.model.node import Locality, Node
from xds.model.resource_type import CLUSTER, ENDPOINT, V2_URLS
from xds.protocol.events import Identified, Subscribed
from xds.push.request import PushOptions
from xds.push.rollout_step import Effect
from xds.rollouts.rollout import RolloutAction
from xds.steering.assignments import SAVE_EVERY_S
from xds.steering.core.assignment import Standing
from xds.steering.policies import DECIDED_KIND, KIND
from xds.store.base import UnavailableError
from xds.store.document_keys import document_id

PUSHED = {"za": (0, 1), "zb": (0, 1)}


@pytest.fixture
async def steered(plane: Plane) -> Steered:
    await plane.publisher.push(GROUP, [cluster(), endpoints()])
    return Steered(plane)


def standing(steered: Steered, source: Locality) -> Standing:
    assignment = steered.assignments.get(KEY).assignment
    assert assignment is not None
    return assignment.sources[source].standing


async def test_without_a_policy_there_is_no_overlay(steered: Steered) -> None:
    steered.reports.rps = {A: 500.0}
    await steered.step()
    assert steered.served(A) == PUSHED
    assert steered.woken == []


async def test_traffic_stays_in_its_zone_while_there_is_room(steered: Steered) -> None:
    steered.reports.rps = {A: 50.0, B: 10.0}
    await steered.assignments.put(KEY, policy())
    await steered.step()
    assert steered.shares(A) == {"za": 1.0}
    assert steered.shares(B) == {"zb": 1.0}
    assert steered.served(A)["zb"] == (1, 10_000), "it takes over when all of the other fail"


async def test_demand_above_capacity_moves_to_the_other_zone_and_returns(steered: Steered) -> None:
    steered.reports.rps = {A: 50.0, B: 10.0}
    await steered.assignments.put(KEY, policy())
    await steered.step()
    steered.reports.rps = {A: 150.0, B: 10.0}
    for _ in range(3):
        await steered.step()
    assert steered.shares(A)["za"] == pytest.approx(100 / 150, abs=0.05)
    assert steered.shares(B) == {"zb": 1.0}
    steered.reports.rps = {A: 40.0, B: 10.0}
    for _ in range(15):
        await steered.step()
    assert steered.shares(A) == {"za": 1.0}


async def test_only_the_sources_that_are_served_something_else_are_woken(steered: Steered) -> None:
    steered.reports.rps = {A: 50.0, B: 10.0}
    await steered.assignments.put(KEY, policy())
    assert steered.woken == [frozenset({A, B})]
    steered.reports.rps = {A: 150.0, B: 10.0}
    await steered.step()
    assert steered.woken[1:] == [frozenset({A})]
    for _ in range(5):
        await steered.step()
    woken_n = len(steered.woken)
    await steered.step()
    assert len(steered.woken) == woken_n, "nothing changed"


async def test_a_zone_without_healthy_endpoints_is_left_with_the_push_that_says_so(steered: Steered) -> None:
    """A push that changes endpoints does not wait for the next interval."""
    steered.reports.rps = {A: 50.0}
    await steered.assignments.put(KEY, policy(interval_s=60, stale_after_s=60, fallback_after_s=60))
    assert steered.shares(A) == {"za": 1.0}
    await steered.plane.publisher.put(GROUP, endpoints({"za": (), "zb": (3, 4)}))
    await steered.step(0.5)
    assert steered.shares(A) == {"zb": 1.0}


async def test_a_push_is_overlaid_at_once(steered: Steered) -> None:
    steered.reports.rps = {A: 50.0}
    await steered.assignments.put(KEY, policy())
    before = steered.served(A)
    await steered.plane.publisher.put(GROUP, endpoints({"za": (1, 2, 5), "zb": (3,), "zc": (4,)}))
    assert steered.served(A) == {**before, "zc": (2, 1)}, "a zone that is new stays behind until the next decision"
    content = steered.plane.publisher.groups.content(GROUP)
    assert content.get((ENDPOINT, "web")) == endpoints({"za": (1, 2, 5), "zb": (3,), "zc": (4,)})


async def test_decisions_during_a_rollout_reach_both_lines_and_its_abort_changes_none(steered: Steered) -> None:
    publisher = steered.plane.publisher
    steered.reports.rps = {A: 50.0}
    await steered.assignments.put(KEY, policy())
    plan = {"waves": [], "nodes": ["in"]}
    resources = [cluster(), cluster("extra"), endpoints()]
    pushed = await publisher.push(GROUP, resources, options=PushOptions(rollout=plan))
    assert pushed.rollout.effect is Effect.STARTED
    before = steered.served(A)
    steered.reports.rps = {A: 150.0}
    for _ in range(3):
        await steered.step()
    assert steered.served(A, node="in") == steered.served(A, node="out") != before
    decided = steered.served(A, node="in")
    for node, has_extra in (("in", True), ("out", False)):
        view = steered.plane.cache.resolve(Node(node, GROUP, A))
        assert view is not None and ("extra" in view.snapshot.get(CLUSTER).resources) is has_extra
    await publisher.rollouts.change(GROUP, RolloutAction.ABORT, Caller("ops"))
    assert steered.served(A, node="in") == steered.served(A, node="out") == decided


async def test_reports_that_cease_hold_and_then_fall_back_to_the_push(steered: Steered) -> None:
    steered.reports.rps = {A: 150.0}
    await steered.assignments.put(KEY, policy())
    steered.reports.reported = steered.now
    await steered.step()
    held = steered.served(A)
    await steered.step(5)
    assert steered.served(A) == held
    assert standing(steered, A) is Standing.HELD
    await steered.step(10)
    assert steered.served(A) == PUSHED
    assert [action for action in steered.events() if action != "changed"] == ["configured", "held", "fallback"]
    assert steered.assignments.counts["held"] == steered.assignments.counts["fallback"] == 1


async def test_events_have_changes_and_reasons(steered: Steered) -> None:
    from xds.fleet.event_log import EventFilter, EventKind

    steered.reports.rps = {A: 50.0}
    await steered.assignments.put(KEY, policy())
    steered.reports.rps = {A: 200.0}
    await steered.step()
    page = steered.plane.fleet.events.after(0, EventFilter(frozenset({EventKind.ASSIGNMENT})), 10)
    changed = page.events[-1]
    assert changed.action == "changed"
    assert changed.group == GROUP
    assert changed.details["cluster"] == "web"
    assert changed.details["source"] == "r/za"
    assert "spill" in str(changed.details["reasons"])
    assert "r/zb" in changed.message


async def test_a_policy_that_goes_takes_its_overlay_along(steered: Steered) -> None:
    steered.reports.rps = {A: 50.0}
    await steered.assignments.put(KEY, policy())
    await steered.assignments.delete(KEY)
    assert steered.served(A) == PUSHED
    assert steered.woken[-1] == frozenset({A})
    assert await steered.plane.store.docs(KIND) == await steered.plane.store.docs(DECIDED_KIND) == []
    with pytest.raises(NotFoundError):
        steered.assignments.get(KEY)


async def test_policies_of_two_groups_with_the_same_endpoints_warn_of_each_other(steered: Steered) -> None:
    await steered.plane.publisher.push("other", [cluster(), endpoints({"za": (2,), "zb": (9,)})])
    await steered.assignments.put(KEY, policy())
    assert [one.code for one in steered.assignments.warnings(KEY, policy())] == []
    await steered.assignments.put(("other", "web"), policy())
    for key, share in ((KEY, "1 of its 4"), (("other", "web"), "1 of its 2")):
        (found,) = steered.assignments.warnings(key, policy())
        assert found.code == "shared_capacity" and share in found.detail
    await steered.assignments.delete(KEY)
    assert steered.assignments.warnings(("other", "web"), policy()) == []


async def test_a_group_that_goes_takes_its_policies_along(steered: Steered) -> None:
    steered.reports.rps = {A: 50.0}
    await steered.assignments.put(KEY, policy())
    await steered.step(SAVE_EVERY_S)
    await steered.plane.publisher.delete_group(GROUP)
    await steered.step()
    assert await steered.plane.store.docs(KIND) == await steered.plane.store.docs(DECIDED_KIND) == []
    await steered.plane.publisher.push(GROUP, [cluster(), endpoints()])
    assert steered.served(A) == PUSHED


async def test_a_policy_waits_for_its_cluster(plane: Plane) -> None:
    steered = Steered(plane, Reports(rps={A: 50.0}))
    await plane.publisher.push(GROUP, [cluster("other"), endpoints(name="other")])
    await steered.assignments.put(KEY, policy())
    assert "no such cluster" in steered.assignments.get(KEY).waits_for
    await plane.publisher.push(GROUP, [cluster(), endpoints()])
    await steered.step(0.5)
    assert steered.assignments.get(KEY).waits_for == ""
    assert steered.shares(A) == {"za": 1.0}


async def test_a_cluster_whose_endpoints_have_another_name(plane: Plane) -> None:
    steered = Steered(plane, Reports(rps={A: 50.0}))
    source = {"eds_config": {"ads": {}, "resource_api_version": "V3"}, "service_name": "web-v2"}
    await plane.publisher.push(GROUP, [cluster(eds_cluster_config=source), endpoints(name="web-v2")])
    await steered.assignments.put(KEY, policy())
    assert steered.served(A, "web-v2")["za"] == (0, 10_000)


async def test_two_policies_of_a_group_share_one_overlay(steered: Steered) -> None:
    await steered.plane.publisher.push(GROUP, [cluster(), endpoints(), cluster("api"), endpoints(name="api")])
    steered.reports.rps = {A: 50.0}
    await steered.assignments.put(KEY, policy())
    await steered.assignments.put((GROUP, "api"), replace(policy(), cluster="api"))
    assert steered.served(A)["za"] == steered.served(A, "api")["za"] == (0, 10_000)
    await steered.assignments.delete(KEY)
    assert steered.served(A) == PUSHED
    assert steered.served(A, "api")["za"] == (0, 10_000)


async def test_nodes_that_report_nothing_keep_the_pushed_weights(steered: Steered) -> None:
    connect(steered.plane.fleet, B)
    steered.reports.rps = {A: 50.0}
    await steered.assignments.put(KEY, policy())
    assert steered.served(B) == PUSHED
    assert standing(steered, B) is Standing.PUSHED


async def test_a_proxy_that_reopens_its_load_stream_is_not_counted_twice(plane: Plane) -> None:
    """Two proxies send 40 requests a second each, of 100 that fit. Traffic left the zone as one of them reconnected."""
    await plane.publisher.push(GROUP, [cluster(), endpoints()])
    load = LoadAggregates(10.0)
    steered = Steered(plane, load=load)
    nodes = [Node(name, GROUP, A) for name in ("one", "two")]
    for number, node in enumerate(nodes, 1):
        plane.fleet.stream_opened(number, "peer", "ADS", "delta", steered.now)
        subscribed = Subscribed(CLUSTER, True, frozenset(), ())
        plane.fleet.apply_events(number, [Identified(node, GROUP), subscribed], steered.now)
        load.open_stream(number, node, steered.now, GROUP)
    report = LoadStatsRequest(encode(stats("web", row(A, successes=400, issued=400))))
    await steered.assignments.put(KEY, policy(interval_s=10, stale_after_s=30, fallback_after_s=300))
    for _ in range(6):
        steered.now += 9.0
        for number in (1, 2):
            load.add(number, report, steered.now)
        await steered.step()
    assert steered.shares(A) == {"za": 1.0}
    steered.now += 9.0
    for number in (1, 2):
        load.add(number, report, steered.now)
    load.close_stream(2, steered.now)
    await steered.step()
    active = steered.assignments.get(KEY)
    assert active.outcome is not None
    own = active.outcome.observed.demand[A]
    assert own.rps == pytest.approx(80.0)
    assert own.silent == 0
    assert steered.shares(A) == {"za": 1.0}


async def test_a_clock_that_goes_back_stops_no_decision(steered: Steered) -> None:
    steered.reports.rps = {A: 50.0}
    await steered.assignments.put(KEY, policy())
    await steered.step(10)
    await steered.step(-3_600)
    steered.reports.rps = {A: 200.0}
    for _ in range(6):
        await steered.step()
    assert steered.shares(A)["za"] == pytest.approx(0.5, abs=0.05)
    (stored,) = await steered.plane.store.docs(DECIDED_KIND)
    # The move is stored at the first step after the jump, or one pause between two writes later.
    assert 0 <= steered.now - json.loads(stored.body)["memory"]["observed_at"] <= SAVE_EVERY_S


async def test_a_restart_moves_no_traffic(steered: Steered) -> None:
    """The stored decision is served from the first response on, with its version_info, and held until reports come."""
    steered.reports.rps = {A: 150.0, B: 10.0}
    await steered.assignments.put(KEY, policy())
    await steered.step()
    before = steered.served(A)
    assert before["zb"][0] == 0
    version = _version(steered.plane, A)
    await steered.assignments.close()

    again = steered.plane.restarted()
    back = Steered(again, Reports(rps={}))
    await again.publisher.load()
    await back.assignments.load()
    assert back.served(A) == before
    assert _version(again, A) == version
    await back.step(5)
    assert back.served(A) == before, "nobody has come back yet"
    assert standing(back, A) is Standing.HELD
    back.reports.rps = {A: 150.0, B: 10.0}
    await back.step()
    assert back.shares(A)["za"] == pytest.approx(100 / 150, abs=0.05)


async def test_a_restart_keeps_the_latest_decisions(steered: Steered) -> None:
    steered.reports.rps = {A: 50.0}
    await steered.assignments.put(KEY, policy())
    steered.reports.rps = {A: 150.0}
    await steered.step()
    before = list(steered.assignments.get(KEY).history.latest())
    assert [change.after.get(B, 0.0) > 0 for change in before] == [True, False]
    await steered.assignments.close()
    again = steered.plane.restarted()
    back = Steered(again)
    await again.publisher.load()
    await back.assignments.load()
    assert list(back.assignments.get(KEY).history.latest()) == before


async def test_an_unreadable_stored_history_leaves_the_assignment(steered: Steered) -> None:
    steered.reports.rps = {A: 50.0}
    await steered.assignments.put(KEY, policy())
    await steered.assignments.close()
    (doc,) = await steered.plane.store.docs(DECIDED_KIND)
    body = json.dumps({**json.loads(doc.body), "history": [1]}).encode()
    await steered.plane.store.put_doc(DECIDED_KIND, doc.id, body)
    back = Steered(steered.plane)
    await back.assignments.load()
    assert back.shares(A) == {"za": 1.0}
    assert list(back.assignments.get(KEY).history.latest()) == []


async def test_decisions_are_stored_periodically(steered: Steered) -> None:
    steered.reports.rps = {A: 50.0}
    await steered.assignments.put(KEY, policy())
    await steered.step()
    (doc,) = await steered.plane.store.docs(DECIDED_KIND)
    assert doc.id == document_id(KEY)
    assert json.loads(doc.body)["sources"][0]["source"]["zone"] == "za"
    await steered.step(SAVE_EVERY_S)
    assert await steered.plane.store.docs(DECIDED_KIND) == [doc], "nothing changed"


async def test_a_store_that_is_down_stops_no_decision(steered: Steered, monkeypatch: pytest.MonkeyPatch) -> None:
    steered.reports.rps = {A: 50.0}
    await steered.assignments.put(KEY, policy())

    async def down(*_: object, **__: object) -> int:
        raise UnavailableError("the store is down")

    with monkeypatch.context() as patch:
        patch.setattr(steered.plane.store, "put_doc", down)
        steered.reports.rps = {A: 150.0}
        await steered.step()
        assert "zb" in steered.shares(A)
    await steered.step(SAVE_EVERY_S)
    assert len(await steered.plane.store.docs(DECIDED_KIND)) == 1


async def test_an_unreadable_stored_assignment_is_decided_again(steered: Steered) -> None:
    await steered.assignments.put(KEY, policy())
    await steered.plane.store.put_doc(DECIDED_KIND, document_id(KEY), b'{"sources": 3}')
    back = Steered(steered.plane, Reports(rps={A: 50.0}))
    await back.assignments.load()
    assert back.served(A) == PUSHED
    await back.step()
    assert back.shares(A) == {"za": 1.0}


async def test_a_preview_changes_nothing(steered: Steered) -> None:
    steered.reports.rps = {A: 50.0}
    found = await steered.assignments.preview(KEY, policy())
    assert found.outcome is not None
    assert found.outcome.decision.assignment.sources[A].shares() == {A: 1.0}
    assert steered.served(A) == PUSHED
    assert steered.events() == []
    with pytest.raises(NotFoundError):
        steered.assignments.get(KEY)


async def test_a_decision_that_fails_ends_nothing(steered: Steered, monkeypatch: pytest.MonkeyPatch) -> None:
    import asyncio

    from xds.steering import assignments

    monkeypatch.setattr(assignments, "TICK_S", 0.001)
    steered.reports.rps = {A: 50.0}
    await steered.assignments.put(KEY, policy())
    monkeypatch.setattr(steered.reports, "demand", None)
    steered.assignments.start()
    async with asyncio.timeout(20):
        while steered.assignments.failures < 2:
            steered.assignments.get(KEY).due_at = 0.0
            await asyncio.sleep(0.001)
    monkeypatch.undo()
    await steered.assignments.close()
    assert steered.shares(A) == {"za": 1.0}


async def test_capacity_is_learnt_from_utilisation_that_backends_report(steered: Steered) -> None:
    """Both zones serve 50 requests/s; one reports 90 % utilisation, the other 10 %."""
    utilisation = {"name": "application_utilization", "target": 0.5}
    learnt = {"metric": utilisation, "rates": [{"per_endpoint_rps": 50}]}
    steered.reports.rps = {A: 100.0}
    busy, idle = ({"application_utilization": Metric(50, 50 * level)} for level in (0.9, 0.1))
    steered.reports.flows = (Flow(A, A, 50.0, 0.0, 0, busy), Flow(A, B, 50.0, 0.0, 0, idle))
    await steered.assignments.put(KEY, policy(capacity=learnt))
    for _ in range(5):
        await steered.step()
    assert steered.shares(A)["zb"] > 0.5


def _version(plane: Plane, locality: Locality) -> str:
    view = plane.cache.resolve(Node("n", GROUP, locality))
    assert view is not None
    return view.snapshot.get(ENDPOINT).version_info


# Clients of the v2 transport


async def test_clients_of_v2_are_overlaid_in_their_own_type(steered: Steered) -> None:
    steered.reports.rps = {A: 50.0}
    await steered.assignments.put(KEY, policy())
    cache, url = steered.plane.cache, V2_URLS[ENDPOINT]
    plain, laid = (cache.view(GROUP, V2, locality) for locality in (None, A))
    assert plain is not None and laid is not None
    before, after = plain.snapshot.get(url), laid.snapshot.get(url)
    assert after.resources["web"].type_url == url
    assert after.version_info == f"1+{after.digest.hex()[:8]}"
    assert after.origin_id == before.origin_id, "a push under it has arrived when it has"
    assert set(after.overlaid) == {"web"}
    message: Any = schema.require(url).FromString(after.resources["web"].body)
    weights = [(each.priority, each.load_balancing_weight.value) for each in message.endpoints]
    assert weights == [(0, 10_000), (1, 10_000)]
    assert laid.snapshot.get(V2_URLS[CLUSTER]) is plain.snapshot.get(V2_URLS[CLUSTER])


async def test_endpoints_that_are_pushed_in_the_v2_type_are_served_as_pushed(steered: Steered) -> None:
    own = decode_resource({**zoned_load_assignment("web", {"za": [9]}), "@type": V2_URLS[ENDPOINT]})
    await steered.plane.publisher.push(GROUP, [cluster(), endpoints(), own])
    steered.reports.rps = {A: 50.0}
    await steered.assignments.put(KEY, policy())
    view = steered.plane.cache.view(GROUP, V2, A)
    assert view is not None
    assert view.snapshot.get(V2_URLS[ENDPOINT]).resources["web"] == own
    assert steered.shares(A) == {"za": 1.0}, "v3 clients are overlaid"


# Live endpoints


async def test_weights_are_decided_for_live_endpoints_and_draining_ones_have_no_capacity(steered: Steered) -> None:
    """A zone whose endpoints drain by hand keeps no traffic: the policy looks at what is served, not at the push."""
    steered.reports.rps = {A: 50.0}
    await steered.assignments.put(KEY, policy())
    assert set(steered.shares(A)) == {"za"}
    plane = steered.plane
    near = [state.address for state in endpoint_states(endpoints()) if state.locality == A]
    patch = read_patch({"remove": near})
    drained = WriteOptions(drain_s=60.0)
    await plane.by_hand.edit((GROUP, "web"), lambda *now: patch.apply("web", *now), drained)
    for _ in range(20):
        await steered.step()
    assert "za" not in steered.shares(A) and steered.shares(A)
    served = plane.cache.view(GROUP, "", A)
    assert served is not None
    health = {state.address: state.health for state in endpoint_states(served.snapshot.get(ENDPOINT).resources["web"])}
    assert all(health[address] == "DRAINING" for address in near)
