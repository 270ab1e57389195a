"""Careful rollouts of pushes to ten real Envoys under load, with their default drain."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from datetime import datetime
from pathlib import Path

import pytest

from tests.e2e.rollout_site import BASE, GROUP, HEAD, RolloutSite, open_site
from tests.support import resources as r
from tests.support.background import Background
from tests.support.bootstrap import EnvoyBootstrap, Variant
from tests.support.envoy import EnvoyProcess, wait_body
from tests.support.process import LOOPBACK, free_port, wait_until

ENVOYS = 10
RETRIES = 5
REJECTED = "listener_manager.lds.update_rejected"
ROLLED_BACK_S = 20.0  # ten times what it takes at most


@pytest.fixture(scope="module", params=[Variant.ADS_SOTW, pytest.param(Variant.ADS_DELTA, marks=pytest.mark.soak)])
def fleet(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[RolloutSite]:
    """The Envoys, which the tests share."""
    with Background() as background, ExitStack() as running:
        yield open_site(tmp_path_factory.mktemp("fleet"), running, background, request.param, ENVOYS)


@pytest.fixture
def site(fleet: RolloutSite) -> Iterator[RolloutSite]:
    """The Envoys under load, all at the base."""
    fleet.start()
    yield fleet
    for load in fleet.loads.values():
        load.stop()
    fleet.loads = {}


def seconds_between(earlier: str, later: str) -> float:
    """The seconds between two times of the API."""
    return (datetime.fromisoformat(later) - datetime.fromisoformat(earlier)).total_seconds()


def test_ten_envoys_are_promoted_by_themselves(site: RolloutSite) -> None:
    site.roll_out(site.content(HEAD), waves="1,10%,50%", hold_s=1)
    sizes = {1: 1, 2: 2, 3: 5, 4: ENVOYS}
    seen: set[int] = set()

    def is_promoted() -> bool:
        found = site.check_wave()
        assert len(site.inside(found)) == sizes[found["wave"]]
        seen.add(found["wave"])
        return bool(found["state"] == "promoted")

    wait_until(is_promoted, "promoted", detail=site.rollout)
    wait_until(lambda: site.answering() == set(site.envoys), "all answer from the head")
    assert seen == {1, 2, 3, 4}
    assert site.rollout()["reason"] == "all 10 nodes have ACKed"
    site.end()


def test_a_push_that_the_canary_refuses_is_taken_back(site: RolloutSite, taken_port: int) -> None:
    canary, *others = site.ranked
    bad = [*site.content(HEAD), r.listener("taken", r.rds("web", site.variant.config_source), taken_port)]
    before = site.settled_updates(others)
    revision = site.roll_out(bad, waves="1,10%,50%", hold_s=30)
    ended = site.wait_state("rolled_back", ROLLED_BACK_S)
    reason = ended["reason"]
    assert seconds_between(ended["began"], ended["ended"]) < 2.0  # it takes less than a tenth of that
    assert reason.startswith(f"{canary} rejected it: ") and "Address already in use" in reason
    head, refused, *_ = site.server.get(f"/groups/{GROUP}/revisions")["items"]
    assert (head["revision"], head["actor"], head["message"]) == (revision + 1, "server", reason)
    assert (refused["revision"], refused["undone_by"]) == (revision, revision + 1)
    site.server.wait_synced(GROUP, canary)
    assert site.server.nacks(node=canary, state="open") == []
    # What was taken back is refused, as often as somebody asks, and nobody sees anything of it.
    canary_updates = site.updates([canary])
    for _ in range(5):
        again = site.push(bad, {})
        assert again.status_code == 409 and reason in again.json()["detail"], again.text
    assert site.updates([canary]) == canary_updates
    # Asked for, it is tried again, also before the canary has answered the roll-back.
    rejected = site.envoys[canary].stat(REJECTED)
    for number in range(1, RETRIES + 1):
        retried = site.push(bad, {"hold_s": 30}, retry=True)
        assert retried.status_code == 200, retried.text
        assert site.wait_state("rolled_back", ROLLED_BACK_S)["head"] == retried.json()["revision"]
        wait_until(lambda n=number: site.envoys[canary].stat(REJECTED) >= rejected + n, "the canary has tried it")  # type: ignore[misc]
    assert site.updates(others) == before
    site.end()


def test_what_proxies_reject_already_holds_no_good_push(site: RolloutSite, taken_port: int) -> None:
    ports = {"taken": taken_port, "other": free_port()}
    taken, other = (r.listener(name, r.rds("web", site.variant.config_source), port) for name, port in ports.items())
    site.push([*site.content(BASE), taken], rollout="all_at_once").raise_for_status()
    wait_until(lambda: len(site.server.nacks(state="open")) == ENVOYS, "all reject a listener")
    site.roll_out([*site.content(HEAD), taken, other], waves="1", hold_s=1, timeout_s=20)
    assert site.wait_state("promoted")["reason"] == "all 10 nodes have ACKed"
    wait_until(lambda: site.answering() == set(site.envoys), "all answer from the head")
    site.end()


def test_a_bad_push_a_roll_back_and_again(site: RolloutSite, taken_port: int, tmp_path: Path) -> None:
    """As operators act: to all, taken back by hand, again with care, taken back by itself, at last the mended push."""
    canary, *others = site.ranked

    def apply(called: str, *ports: int, upstream: str = BASE, options: Sequence[str] = ()) -> int:
        """Apply what an upstream answers, with listeners at these ports; the exit code."""
        listeners = [r.listener("taken", r.rds("web", site.variant.config_source), port) for port in ports]
        file = tmp_path / f"{called}.json"
        file.write_text(json.dumps({"resources": [*site.content(upstream), *listeners]}))
        return site.command("apply", "-g", GROUP, "-f", file, *options).code

    rejected = {name: envoy.stat(REJECTED) for name, envoy in site.envoys.items()}
    assert apply("bad", taken_port, options=("--all-at-once", "--wait")) == 1
    wait_until(lambda: all(site.envoys[name].stat(REJECTED) > rejected[name] for name in rejected), "all rejected it")
    assert site.command("rollout", "undo", GROUP, "--wait").code == 0
    before = site.settled_updates(others)
    careful = ("--canary", "1,50%", "--hold", "1s", "--max-errors", "off", "--wait")
    for number in range(2):
        assert apply("bad", taken_port, options=(*careful, *(("--retry",) if number else ()))) == 1
        ended = site.rollout()
        assert (ended["state"], ended["by"]) == ("rolled_back", "server")
        assert ended["reason"].startswith(f"{canary} rejected it: ")
        assert apply("bad", taken_port, options=careful) == 5  # taken back already
    # Who was called meanwhile, and undoes what the server has taken back already, changes nothing.
    revision = site.rollout()["revision"]
    assert site.command("rollout", "undo", GROUP).code == 5
    assert site.rollout()["revision"] == revision
    assert site.updates(others) == before
    assert apply("good", free_port(), upstream=HEAD, options=careful) == 0
    wait_until(lambda: site.answering() == set(site.envoys), "all answer from the head")
    # A rollout was promoted since: the bad push is judged anew.
    assert apply("bad", taken_port, options=careful) == 1
    assert site.rollout()["reason"].startswith(f"{canary} rejected it: ")
    for name, port in site.ports.items():
        wait_body(port, HEAD)
        site.server.wait_synced(GROUP, name)
    site.end()


def test_a_cluster_that_never_warms_is_taken_back_after_the_timeout(site: RolloutSite) -> None:
    canary, *others = site.ranked
    cluster = r.eds_cluster("cold", site.variant.config_source)
    listener, route = (
        r.listener("cold", r.rds("cold", site.variant.config_source)),
        r.route_config("cold", r.route("cold")),
    )
    before = site.settled_updates(others)
    site.roll_out([*site.content(BASE), cluster, listener, route], waves="1", hold_s=1, timeout_s=4)
    reason = site.wait_state("rolled_back")["reason"]
    assert reason.startswith(f"1 of 1 nodes have not ACKed after 4 s; {canary}: ")
    assert "cold" in reason
    assert site.updates(others) == before
    site.end()


def test_a_failure_holds_where_the_plan_says_so(site: RolloutSite, taken_port: int) -> None:
    canary, *others = site.ranked
    bad = [*site.content(HEAD), r.listener("taken", r.rds("web", site.variant.config_source), taken_port)]
    before = site.settled_updates(others)
    site.roll_out(bad, waves="1", hold_s=1, on_failure="hold")
    held = site.wait_state("held")
    assert held["reason"].startswith(f"{canary} rejected it: ")
    site.check_wave()
    wait_until(lambda: site.answering() == {canary}, "the canary has what it did not refuse")
    assert site.updates(others) == before
    site.end()


@pytest.mark.parametrize(("waves", "hold_s"), [("100%", 60), ("50%", 5)])
def test_an_abort_while_the_last_wave_runs(site: RolloutSite, waves: str, hold_s: float) -> None:
    site.roll_out(site.content(HEAD), waves=waves, hold_s=hold_s)
    wait_until(lambda: site.answering() == set(site.envoys), "all answer from the head")
    assert site.rollout()["state"] == "running"
    site.act("abort", "looks bad")
    for name, port in site.ports.items():
        wait_body(port, BASE)
        site.server.wait_synced(GROUP, name)
    ended = site.rollout()
    assert (ended["state"], ended["reason"]) == ("rolled_back", "aborted: looks bad")
    site.end()


def test_failing_requests_take_an_acked_push_back(site: RolloutSite) -> None:
    canary, *others = site.ranked
    before = site.settled_updates(others)
    wait_until(lambda: site.server.get("/load")["items"], "load is reported")
    site.loads[canary].rps = 100.0
    site.roll_out(site.content(HEAD, free_port()), waves="1,50%", hold_s=30, max_errors=0.05)
    reason = site.wait_state("rolled_back")["reason"]
    assert "requests failed, 5.0% above the usual 0.0% are allowed" in reason
    assert site.updates(others) == before
    wait_body(site.ports[canary], BASE)
    site.end(but=[canary])


def test_paused_it_waits_and_resumed_it_goes_on(site: RolloutSite) -> None:
    site.roll_out(site.content(HEAD), waves="2", hold_s=1)
    site.act("pause", "lunch")
    wait_until(lambda: len(site.answering()) == 2, "the wave has the head")
    site.loads[site.ranked[0]].wait_total(30)  # two seconds
    assert site.check_wave()["state"] == "paused" and len(site.answering()) == 2
    site.act("resume")
    site.wait_state("promoted")
    wait_until(lambda: site.answering() == set(site.envoys), "all answer from the head")
    site.end()


def test_newcomers_and_restarted_envoys_get_their_line(site: RolloutSite, tmp_path: Path) -> None:
    canary, other, *_ = site.ranked
    site.roll_out(site.content(HEAD), waves="1", hold_s=60)
    wait_until(lambda: site.answering() == {canary}, "the canary has the head")
    for name, body in ((canary, HEAD), (other, BASE)):
        site.loads.pop(name).stop()
        wait_body(site.envoys[name].restart().wait_live().wait_listener("web"), body)
    bootstrap = EnvoyBootstrap(site.server.grpc_port, site.variant, node_id="newcomer", node_cluster=GROUP)
    with EnvoyProcess(tmp_path, bootstrap, "newcomer") as newcomer:
        wait_body(newcomer.wait_live().wait_listener("web"), BASE)
        assert newcomer.cluster_names() == {BASE}
    assert site.answering() == set()
    site.act("abort")
    wait_body(site.envoys[canary].wait_listener("web"), BASE)
    site.end()


def test_endpoints_go_to_both_lines_and_a_roll_back_keeps_them(site: RolloutSite) -> None:
    canary, *_ = site.ranked
    extra = r.static_cluster("extra", 1)
    site.roll_out([*site.content(BASE), extra], waves="1", hold_s=60)
    wait_until(lambda: "extra" in site.envoys[canary].cluster_names(), "the canary has the head")
    pushed = site.push([*site.content(BASE, site.head.port), extra])
    assert pushed.status_code == 200, pushed.text
    wait_until(lambda: site.answering() == set(site.envoys), "all have the new endpoints")
    assert {name for name, envoy in site.envoys.items() if "extra" in envoy.cluster_names()} == {canary}
    assert site.rollout()["state"] == "running"
    site.act("abort")
    wait_until(lambda: "extra" not in site.envoys[canary].cluster_names(), "the canary has the base")
    for name, port in site.ports.items():
        site.server.wait_synced(GROUP, name)
        wait_body(port, HEAD)
    site.end()


def test_endpoints_set_by_hand_and_drained_go_to_both_lines(site: RolloutSite) -> None:
    canary, *_ = site.ranked
    path, old, new = f"/api/v1/groups/{GROUP}/endpoints/{BASE}", site.base.port, site.head.port
    site.roll_out([*site.content(BASE), r.static_cluster("extra", 1)], waves="1", hold_s=60)
    assert site.server.request("PUT", path, json=r.load_assignment(BASE, old, new)).is_success
    wait_ports(site, {old, new})
    removed = {"remove": [f"{LOOPBACK}:{old}"]}
    assert site.server.request("PATCH", path, json=removed, params={"drain_s": "1"}).is_success
    wait_ports(site, {new})
    assert {name for name, envoy in site.envoys.items() if "extra" in envoy.cluster_names()} == {canary}
    site.act("abort")
    wait_until(lambda: "extra" not in site.envoys[canary].cluster_names(), "the canary has the base")
    wait_ports(site, {new})
    assert site.server.request("DELETE", path, params={"drain_s": "1"}).is_success
    wait_ports(site, {old})
    site.end()


def wait_ports(site: RolloutSite, ports: set[int]) -> None:
    """Wait until every Envoy has these endpoints of the base."""
    envoys = list(site.envoys.values())
    wait_until(lambda: all(each.endpoint_ports(BASE) == ports for each in envoys), f"all have {ports}")


@pytest.mark.soak
@pytest.mark.parametrize("has_acked", [False, True])
def test_a_canary_that_is_killed_takes_the_push_back(site: RolloutSite, has_acked: bool) -> None:
    canary, *others = site.ranked
    before = site.settled_updates(others)
    site.roll_out(site.content(HEAD), waves="1", hold_s=60)
    if has_acked:
        wait_until(lambda: site.answering() == {canary}, "the canary has the head")
    site.envoys[canary].kill()
    site.loads.pop(canary).stop()
    reason = site.wait_state("rolled_back", 120)["reason"]
    assert reason == f"1 of 1 nodes of the wave ({canary}) are away for 30 s"
    assert site.updates(others) == before
    site.end()
