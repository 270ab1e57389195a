"""Careful rollouts by the client library: begun by each kind of push, listed, decided about."""

from __future__ import annotations

from typing import Any

import pytest

from tests.client.test_pushes import CLUSTER_TYPE, a_cluster
from tests.support.grpc_stream import SOTW, GrpcStream, sotw, sotw_ack
from xds.calls import groups
from xds.client import AbsentError, AdminApiError, InvalidInputError, WriteConflictError

PLAN = {"waves": ["1"], "hold_s": 3600, "timeout_s": 3600}


def test_a_rollout_is_begun_and_decided(client: Any, group: str, grpc_port: int) -> None:
    first = client.apply(group, [a_cluster("a")], rollout=PLAN)
    assert (first.rollout.effect, first.rollout.detail) == ("all_at_once", "it is the first push to the group")
    with GrpcStream(grpc_port, SOTW) as stream:
        stream.send(sotw(CLUSTER_TYPE, node_id=f"{group}-1", cluster=group))
        stream.send(sotw_ack(stream.receive()))
        begun = client.apply(group, [a_cluster("a", "2s")], rollout=PLAN, message="slower")
        assert (begun.rollout.effect, begun.rollout.state, begun.rollout.head) == ("started", "running", 2)
        assert (begun.rollout.plan.waves, begun.rollout.plan.hold_s, begun.rollout.why) == (("1",), 3600.0, "slower")
        assert [each.head for each in client.rollouts() if each.group == group] == [2]
        assert {each.revision: each.line for each in client.history(group)} == {2: "head", 1: "base"}
        paused = client.change_rollout(group, "pause", message="lunch")
        assert (paused.state, paused.why) == ("paused", "lunch")
        again = client.put(group, "clusters", "a", a_cluster("a", "3s"), rollout=PLAN)
        assert (again.rollout.effect, again.rollout.base, again.rollout.head) == ("superseded", 1, 3)
        assert client.rollout(group).state == "running"
        assert client.change_rollout(group, "abort").state == "rolled_back"
        with pytest.raises(WriteConflictError, match="taken back"):
            client.put(group, "clusters", "a", a_cluster("a", "3s"))
        assert client.put(group, "clusters", "a", a_cluster("a", "3s"), rollout=PLAN, retry=True).changed
        urgent = client.apply(group, [a_cluster("a", "4s")], rollout="all_at_once")
        assert (urgent.rollout.effect, urgent.rollout.state) == ("ended", "superseded")
        named = client.apply(group, [a_cluster("a", "5s")], rollout={**PLAN, "selector": 'node.id == "nobody"'})
        assert "no connected node is among those of the plan" in named.rollout.detail
        deleted = client.delete(group, "clusters", "a", rollout={}, allow_empty=True)
        assert (deleted.rollout.effect, deleted.rollout.plan.waves) == ("superseded", ("1", "10%", "50%"))
        assert client.undo(group).rollout.state == "rolled_back"
    with pytest.raises(AbsentError):
        client.change_rollout(group, "resume")
    with pytest.raises(InvalidInputError):
        client.change_rollout(group, "stop")


def test_a_group_is_given_a_plan(client: Any, group: str) -> None:
    client.configure_group(group, rollout="1,50%")
    assert client.group(group).rollout.waves == ("1", "50%")
    client.configure_group(group)
    assert client.group(group).rollout is None


def test_a_server_that_knows_no_rollouts_is_sent_no_plan_that_it_would_ignore() -> None:
    call = groups.put("edge", "clusters", "a", a_cluster("a"), rollout=PLAN)
    assert (call.method, call.path) == ("GET", "/api/v1/version")
    older = {"version": "0.0.9", "python": "3.11.7", "envoy_data_plane": "1"}
    with pytest.raises(AdminApiError, match="no careful rollouts"):
        call.read(older)
    push: Any = call.read({**older, "rollouts": True})
    assert (push.method, push.path, set(push.query)) == (
        "PUT",
        "/api/v1/groups/edge/resources/clusters/a",
        {"rollout"},
    )
    assert groups.put("edge", "clusters", "a", a_cluster("a")).method == "PUT"
    assert groups.apply("edge", [], rollout=PLAN).body == {"resources": [], "rollout": PLAN}
