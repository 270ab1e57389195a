"""Careful rollouts with three servers on one database: the holder of the lease decides, and all serve by it."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest

from tests.e2e import swap_kinds as kinds
from tests.replicas.site import Replica, ReplicaSite, ReplicaSites
from tests.support.background import Background
from tests.support.bootstrap import Variant
from tests.support.envoy import get, wait_body
from tests.support.process import wait_until
from tests.support.server import GROUP, Json
from xds.model.node import Node
from xds.push.rollouts import KIND
from xds.rollouts.rollout import Rollout, RolloutState, decode

pytestmark = pytest.mark.soak

ENVOYS = (Variant.ADS_SOTW, Variant.ADS_DELTA) * 3
HOLD_S = 3.0
PLAN = {"waves": ["1", "50%"], "hold_s": HOLD_S, "timeout_s": 90.0}
ENDED_S = 120.0
TIMES, LATEST_S = 5, 20.0  # ten times what it takes at most
COPIED_S, AWAY_S = 3.0, 15.0
ATTEMPTS = ("cluster_manager.cds.update_attempt", "listener_manager.lds.update_attempt")
FOREIGN = "203.0.113.1"  # an address that no machine here has


def stored(site: ReplicaSite) -> Rollout:
    """The document in the database."""
    ((body,),) = site.database.execute(f"SELECT body FROM xds.doc WHERE kind = '{KIND}'")
    assert isinstance(body, bytes)
    return decode(GROUP, body)


def push(replica: Replica, resources: list[Json], **members: object) -> httpx.Response:
    body = {"resources": resources, "rollout": PLAN, **members}
    return replica.server.request("PUT", f"/api/v1/groups/{GROUP}/snapshot", json=body)


def attempts(site: ReplicaSite) -> dict[str, list[int]]:
    """How many responses of clusters and listeners each Envoy has had."""
    return {envoy.name: [envoy.stat(name) for name in ATTEMPTS] for envoy in site.envoys}


def holder(site: ReplicaSite) -> Replica:
    def found() -> Replica | None:
        for replica in site.replicas:
            if "\nxds_server_lease_held 1.0\n" in replica.server.request("GET", "/metrics").text:
                return replica
        return None

    held = wait_until(found, "a server holds the lease")
    assert held is not None
    return held


def test_what_the_canary_rejects_reaches_no_other_proxy(
    tmp_path: Path, background: Background, running: ExitStack
) -> None:
    site = ReplicaSites(tmp_path, background, running).open(kinds.routes_move, ENVOYS, random.Random())
    site.wait_view()
    before, revision = attempts(site), site.replicas[0].server.get(f"/groups/{GROUP}")["revision"]
    address = {"socket_address": {"address": FOREIGN, "port_value": 1}}
    rejected = [*site.kind(site.scene, 1), {**site.scene.listener(site.scene.rds("r"), "bad"), "address": address}]
    assert push(site.replicas[0], rejected).status_code == 200

    def taken_back() -> bool:
        return stored(site).state is RolloutState.ROLLED_BACK

    def canaries() -> set[str]:
        return {name for name, each in attempts(site).items() if each != before[name]}

    wait_until(taken_back, "it is taken back", ENDED_S)
    (canary,) = canaries()
    ended = stored(site)
    assert canary in ended.reason and FOREIGN in ended.reason, ended.reason
    for replica in site.replicas:
        wait_until(lambda at=replica: not at.server.get("/nacks", state="open")["items"], "no NACK is open")  # type: ignore[misc]
        again = push(replica, rejected)
        assert again.status_code == 409 and FOREIGN in again.json()["detail"], again.text
    assert push(site.replicas[1], rejected, retry=True).status_code == 200
    wait_until(lambda: taken_back() and stored(site).head > ended.head, "it is taken back again", ENDED_S)
    assert canaries() == {canary}
    for replica in site.replicas:
        wait_until(lambda at=replica: is_quiet(at, revision + 4), "all proxies have what they are to have")  # type: ignore[misc]
    for envoy in site.envoys:
        wait_body(site.port(envoy), site.scene.upstream(0).name)
    site.end()


def test_a_refusal_at_a_server_without_the_lease_is_taken_back_at_once(
    tmp_path: Path, background: Background, running: ExitStack
) -> None:
    """From the push to the roll-back in the database, and to the ACK of the base, which the canary gets by then."""
    site = ReplicaSites(tmp_path, background, running).open(kinds.routes_move, ENVOYS, random.Random())
    nodes, leads = site.wait_view(), holder(site)
    canary = next(node["id"] for node in nodes if node["server"] != leads.name)
    at = next(each for each in site.replicas if each is not leads)
    address = {"socket_address": {"address": FOREIGN, "port_value": 1}}
    rejected = [*site.kind(site.scene, 1), {**site.scene.listener(site.scene.rds("r"), "bad"), "address": address}]
    took_s: list[tuple[float, float]] = []
    for _ in range(TIMES):
        plan = {**PLAN, "waves": [], "nodes": [canary], "max_errors": 1}
        answer = push(at, rejected, rollout=plan, retry=True)
        assert answer.status_code == 200, answer.text
        head = answer.json()["revision"]
        wait_until(lambda head=head: stored(site).head == head and not stored(site).is_open, "taken back", ENDED_S)  # type: ignore[misc]
        ended = stored(site)
        assert ended.reason.startswith(f"{canary} rejected it: ") and ended.ended_s is not None
        wait_until(lambda head=head: is_quiet(at, head + 1), "the canary has the base")  # type: ignore[misc]
        took_s.append((ended.ended_s - ended.began_s, time.time() - ended.began_s))
    print("rolled back, and seen at the canary, after s:", [f"{a:.2f} {b:.2f}" for a, b in took_s])
    assert all(decided_s < LATEST_S for decided_s, _ in took_s), took_s
    site.end()


def test_a_refusal_is_taken_back_without_the_server_that_was_to_decide(
    tmp_path: Path, background: Background, running: ExitStack
) -> None:
    """The holder of the lease stands still while the canary refuses the push, and is killed: another server decides."""
    site = ReplicaSites(tmp_path, background, running).open(kinds.routes_move, ENVOYS, random.Random())
    nodes, leads = site.wait_view(), holder(site)
    canary = next(node["id"] for node in nodes if node["server"] != leads.name)
    all_replicas = site.replicas
    site.replicas = [each for each in all_replicas if each is not leads]
    at = next(each for each in site.replicas if each.name == node_server(nodes, canary))
    address = {"socket_address": {"address": FOREIGN, "port_value": 1}}
    rejected = [*site.kind(site.scene, 1), {**site.scene.listener(site.scene.rds("r"), "bad"), "address": address}]
    leads.stop_running()
    answer = push(at, rejected, rollout={**PLAN, "waves": [], "nodes": [canary], "max_errors": 1})
    assert answer.status_code == 200, answer.text
    head = answer.json()["revision"]
    refusing = next(each for each in site.envoys if each.name == canary)
    wait_until(lambda: refusing.stat("listener_manager.lds.update_rejected"), "it is refused")
    assert stored(site).is_open
    leads.server.kill()

    def taken_back() -> bool:
        rollout = stored(site)
        assert having(site, 1) <= {canary}
        return rollout.head == head and rollout.state is RolloutState.ROLLED_BACK

    wait_until(taken_back, "it is taken back", ENDED_S, detail=lambda: stored(site))
    ended = stored(site)
    assert ended.reason.startswith(f"{canary} rejected it: ") and FOREIGN in ended.reason, ended.reason
    assert holder(site) is not leads
    leads.server.start()
    site.replicas = all_replicas
    for replica in site.replicas:
        wait_until(lambda at=replica: is_quiet(at, head + 1), "all proxies have what they are to have")  # type: ignore[misc]
        again = push(replica, rejected)
        assert again.status_code == 409 and FOREIGN in again.json()["detail"], again.text
    for envoy in site.envoys:
        wait_body(site.port(envoy), site.scene.upstream(0).name)
    assert stored(site) == ended
    site.end()


def node_server(nodes: list[Json], node: str) -> str:
    """The name of the server that a node is connected to."""
    return next(str(each["server"]) for each in nodes if each["id"] == node)


def is_quiet(replica: Replica, revision: int) -> bool:
    found = replica.server.get(f"/groups/{GROUP}/rollout")
    return (found["revision"], found["synced"], found["pending"]) == (revision, len(ENVOYS), 0)


def kill(replica: Replica) -> Callable[[], object]:
    replica.server.kill()
    return replica.server.start


def stop(replica: Replica) -> Callable[[], object]:
    replica.stop_running()
    return replica.go_on


@pytest.mark.parametrize("end", [kill, stop])
def test_a_rollout_goes_on_without_the_server_that_decides(
    end: Callable[[Replica], Callable[[], object]], tmp_path: Path, background: Background, running: ExitStack
) -> None:
    """At no moment more proxies have the head than belong to the wave."""
    site = ReplicaSites(tmp_path, background, running).open(kinds.routes_move, ENVOYS, random.Random())
    site.wait_view()
    all_replicas = site.replicas
    site.turn = 1
    assert push(site.replicas[1], site.kind(site.scene, 1)).status_code == 200
    waves: set[int] = set()

    def promoted() -> bool:
        """Whether all have it; those that have it now are of the wave, unless that has just changed."""
        rollout = stored(site)
        have = having(site, 1)
        if rollout.is_open and stored(site) == rollout:
            assert have <= {envoy.name for envoy in site.envoys if rollout.in_wave(Node(envoy.name, GROUP))}
            waves.add(rollout.wave)
        return rollout.state is RolloutState.PROMOTED

    wait_until(lambda: not promoted() and bool(waves), "the first wave is watched")
    ended = holder(site)
    go_on = end(ended)
    try:
        site.replicas = [each for each in all_replicas if each is not ended]
        wait_until(promoted, "all have it", ENDED_S, detail=lambda: stored(site))
        assert holder(site) is not ended
    finally:
        go_on()
    assert waves >= {0, 1}
    site.replicas = all_replicas
    before = stored(site)
    wait_until(  # it shows the progress of the others before
        lambda: ended.server.get(f"/groups/{GROUP}")["revision"] == before.head, f"{ended.name} has caught up"
    )
    wait_until(lambda: is_quiet(ended, before.head), "all proxies have it")
    site.wait_newest()
    site.wait_view()
    assert stored(site) == before
    site.end()


def test_a_rollout_waits_while_the_database_is_away(tmp_path: Path, background: Background, running: ExitStack) -> None:
    """A server that starts meanwhile serves each proxy its own line, from the copy."""
    site = ReplicaSites(tmp_path, background, running).open(kinds.routes_move, ENVOYS, random.Random())
    site.wait_view()
    site.turn = 1
    plan = {**PLAN, "hold_s": COPIED_S + AWAY_S}  # longer than this test needs before the database is back
    assert push(site.replicas[1], site.kind(site.scene, 1), rollout=plan).status_code == 200
    (canary,) = wait_until(lambda: having(site, 1), "one proxy has it")
    site.settle(COPIED_S)
    assert stored(site).wave == 0
    site.database.kill()
    for replica in site.replicas[:2]:
        replica.server.kill()
        replica.server.start()
    end_s = time.monotonic() + AWAY_S
    while time.monotonic() < end_s:
        assert having(site, 1) <= {canary}
        site.settle(0.5)
    wait_until(lambda: having(site, 1) == {canary}, "the canary has it still")
    site.database.start()
    wait_until(lambda: stored(site).state is RolloutState.PROMOTED, "all have it", ENDED_S)
    site.wait_newest()
    site.end()


def having(site: ReplicaSite, turn: int) -> set[str]:
    """The Envoys that serve a turn."""
    body = site.scene.upstream(turn).name
    return {envoy.name for envoy in site.envoys if get(site.port(envoy)).text == body}
