"""A real Envoy gets endpoints from Consul, under load, while instances change and Consul fails, lies and is killed."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from bench.consul.agent_process import ConsulAgent
from tests.e2e.test_sources import REQUESTS_BETWEEN, Weights, none_lost, walk
from tests.support.background import Background
from tests.support.envoy import EnvoyProcess
from tests.support.fake_consul import FakeConsul
from tests.support.http import plain_client
from tests.support.process import LOOPBACK, wait_until
from tests.support.service_site import SERVICE, ServiceSite, hosts, wait_serving

GO_TIMEOUT_S = 3_000  # the first run builds Consul, on whatever machine
STEPS, STEPS_SOAK = 6, 100

Apply = Callable[[Weights], None]


def settings(address: str) -> dict[str, Any]:
    return {"kind": "consul", "address": address, "every_s": 0.05, "wait_s": 2, "retry_s": 0.2, "longest_retry_s": 0.5}


def test_endpoints_follow_a_consul_that_fails_between_changes(
    tmp_path: Path, background: Background, running: ExitStack
) -> None:
    chance = random.Random(18)
    consul = FakeConsul()
    background.run(consul.start())
    running.callback(lambda: background.run(consul.stop()))
    registered: Weights = {}

    def apply(weights: Weights) -> None:
        how = chance.choice(["leaderless", "gone", "filtered", "garbage", "none"]) if registered else "none"
        trouble(how)
        for port in weights.keys() | registered.keys():
            if port not in weights:
                background.run(consul.deregister(SERVICE, f"i{port}"))
            elif registered.get(port) != weights[port]:
                own = {"Passing": weights[port], "Warning": 1}
                background.run(consul.register(SERVICE, f"i{port}", LOOPBACK, port, weights=own))
        registered.clear()
        registered.update(weights)

    def trouble(how: str) -> None:
        if how == "gone":
            background.run(consul.stop())
            time.sleep(0.3)
            background.run(consul.start())
            return
        consul.status = 500 if how == "leaderless" else 200
        consul.filtered = how == "filtered"
        consul.body = {"filtered": b"[]", "garbage": b"<html>"}.get(how)
        background.run(consul.touch(SERVICE))
        time.sleep(0.3)
        consul.status, consul.filtered, consul.body = 200, False, None

    site = ServiceSite(tmp_path, background, running, {"consul": settings(consul.address)})
    _, load = walk(site, STEPS, chance, apply)
    none_lost(load)


class Registered:
    """Instances in the catalog of a real agent."""

    def __init__(self, agent: ConsulAgent) -> None:
        self._client = plain_client(base_url=f"http://{agent.address}/v1/catalog", timeout=30)
        self.weights: Weights = {}

    def write(self, weights: Weights) -> None:
        """Make the catalog hold these instances."""
        for port in weights.keys() | self.weights.keys():
            if port not in weights:
                self._put("deregister", {"Node": "rack", "ServiceID": f"i{port}"})
            elif self.weights.get(port) != weights[port]:
                own = {"ID": f"i{port}", "Service": SERVICE, "Address": LOOPBACK, "Port": port}
                own["Weights"] = {"Passing": weights[port], "Warning": 1}
                self._put("register", {"Node": "rack", "Address": LOOPBACK, "Service": own})
        self.weights = dict(weights)

    def _put(self, verb: str, body: dict[str, Any]) -> None:
        self._client.put(verb, json=body).raise_for_status()


@pytest.fixture(params=[False, True], ids=["in memory", "with state"])
def agent(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ConsulAgent]:
    started = ConsulAgent(tmp_path, keeps_state=request.param)
    started.start()
    yield started
    started.stop()


@pytest.mark.soak
@pytest.mark.timeout(GO_TIMEOUT_S)
@pytest.mark.xdist_group("consul")
def test_endpoints_follow_a_real_consul_that_is_killed(
    tmp_path: Path, background: Background, running: ExitStack, agent: ConsulAgent, request: pytest.FixtureRequest
) -> None:
    """Without state it comes back empty: the loss is held until the instances are registered again."""
    chance = random.Random(18)
    registered = Registered(agent)
    keeps_state = request.node.callspec.params["agent"]

    def apply(weights: Weights) -> None:
        if registered.weights and chance.random() < 0.2:
            agent.kill()
            time.sleep(chance.random())
            agent.start()
            if not keeps_state:
                time.sleep(chance.random() * 2)
                again, registered.weights = registered.weights, {}
                registered.write(again)
        elif chance.random() < 0.1:
            agent.pause(on=True)
            time.sleep(3)
            agent.pause(on=False)
        registered.write(weights)

    # Steps follow each other quickly, and what they take out adds up: it must not be held. An agent with state loses
    # nothing, so that nothing has to be held; the other one loses everything at once.
    rule = {"hold_share": 1.0} if keeps_state else {"hold_window_s": 1.0}
    site = ServiceSite(tmp_path, background, running, {"consul": settings(f"http://{agent.address}")}, **rule)
    _, load = walk(site, STEPS_SOAK, chance, apply)
    none_lost(load)


@pytest.mark.soak
@pytest.mark.timeout(GO_TIMEOUT_S)
@pytest.mark.xdist_group("consul")
def test_checks_of_a_real_consul_take_instances_out_and_back(
    tmp_path: Path, background: Background, running: ExitStack, agent: ConsulAgent
) -> None:
    """A TTL check that turns critical, and maintenance: Envoy sends nothing there, and no request is lost."""
    client = plain_client(base_url=f"http://{agent.address}/v1/agent", timeout=30)
    site = ServiceSite(tmp_path, background, running, {"consul": settings(f"http://{agent.address}")})
    ports = [site.upstream().port for _ in range(3)]
    for port in ports:
        check = {"TTL": "1h", "Status": "passing"}
        body = {"ID": f"i{port}", "Name": SERVICE, "Address": LOOPBACK, "Port": port, "Check": check}
        client.put("/service/register", json=body).raise_for_status()
    envoy = site.envoy()
    wait_serving(envoy, dict.fromkeys(ports, 1))
    load = site.load(envoy)
    for port in ports:
        for off, on in (
            (f"/check/fail/service:i{port}", f"/check/pass/service:i{port}"),
            (f"/service/maintenance/i{port}?enable=true", f"/service/maintenance/i{port}?enable=false"),
        ):
            client.put(off).raise_for_status()
            _wait_status(envoy, port, "UNHEALTHY")
            before = load.report.bodies[str(port)]
            load.wait_total(REQUESTS_BETWEEN)
            assert load.report.bodies[str(port)] - before < REQUESTS_BETWEEN / 10
            client.put(on).raise_for_status()
            _wait_status(envoy, port, "HEALTHY")
    none_lost(load)


def _wait_status(envoy: EnvoyProcess, port: int, status: str) -> None:
    wait_until(lambda: _status(envoy, port) == status, f"port {port} is {status}")


def _status(envoy: EnvoyProcess, port: int) -> str:
    return str(hosts(envoy)[port]["health_status"]["eds_health_status"])
