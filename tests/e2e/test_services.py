"""Services as endpoints of real Envoys under load: instances come, go, change and are lost, and no request is lost.

The source is a target file. Instances that go keep answering while they drain, as a service does that ends well.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.support import resources as r
from tests.support.background import Background
from tests.support.bootstrap import EnvoyBootstrap, Variant
from tests.support.envoy import EnvoyProcess
from tests.support.load import HttpLoad
from tests.support.process import LOOPBACK, wait_until
from tests.support.server import GROUP, NODE, ServerProcess
from tests.support.upstream import Upstream

DRAIN_S = 1.0
UPSTREAMS = 5
STEPS, SOAK_STEPS = 8, 200
CHANGED = ("DRAINING", "DRAINING", "HEALTHY", "HEALTHY")
NODES = {Variant.ADS_DELTA: NODE, Variant.ADS_SOTW: "envoy-2"}

Entry = dict[str, Any]


def entry(port: int, **fields: Any) -> Entry:
    """An instance in a target file."""
    return {"address": LOOPBACK, "port": port, **fields}


@dataclass
class Site:
    """A server with a target file, Envoys in both variants, and load on each."""

    server: ServerProcess
    file: Path
    ports: list[int]
    envoys: list[EnvoyProcess]
    loads: list[HttpLoad]

    def show(self, entries: list[Entry]) -> None:
        """Write the target file as a deployment does: another file, renamed."""
        other = self.file.with_suffix(".new")
        other.write_text(json.dumps({"services": {"web": entries}}))
        other.rename(self.file)

    def bind(self, **fields: Any) -> None:
        answer = self.server.request("PUT", f"/api/v1/groups/{GROUP}/bindings/web", json={"service": "web", **fields})
        assert answer.status_code == 200, answer.text

    def wait_endpoints(self, wanted: dict[int, tuple[str, int]]) -> None:
        """Wait until every Envoy has exactly these endpoints: port to health and weight."""
        for envoy in self.envoys:
            wait_endpoints(envoy, wanted)

    def settle(self, requests: int = 60) -> None:
        """Let some requests be answered on each Envoy."""
        for load in self.loads:
            load.wait_total(requests)

    def lost(self) -> list[str]:
        return [sample for load in self.loads for sample in load.report.samples]


def wait_endpoints(envoy: EnvoyProcess, wanted: dict[int, tuple[str, int]]) -> None:
    wait_until(lambda: endpoints(envoy) == wanted, f"{wanted}", detail=lambda: endpoints(envoy))


def endpoints(envoy: EnvoyProcess) -> dict[int, tuple[str, int]]:
    """The endpoints of the cluster in an Envoy: port to health as the server said it, and weight."""
    found = {}
    for host in envoy.clusters().get("web", {}).get("host_statuses", []):
        health = host.get("health_status", {}).get("eds_health_status", "HEALTHY")
        found[host["address"]["socket_address"]["port_value"]] = health, host.get("weight", 1)
    return found


@pytest.fixture
def site(
    tmp_path: Path,
    running: ExitStack,
    background: Background,
    upstream: Callable[[str], Upstream],
    request: pytest.FixtureRequest,
) -> Iterator[Site]:
    """``request.param``: the share of a service whose loss is held, and how long endpoints drain."""
    hold_share, drain_s = getattr(request, "param", (0.5, DRAIN_S))
    file = tmp_path / "targets.json"
    config = tmp_path / "config.yaml"
    config.write_text(
        json.dumps(
            {
                "order": {"endpoint_drain_s": drain_s},
                "services": {"hold_share": hold_share},
                "sources": {"targets": {"kind": "files", "paths": [str(file)]}},
            }
        )
    )
    ports = [upstream(f"web-{number}").port for number in range(UPSTREAMS)]
    file.write_text(json.dumps({"services": {"web": [entry(port) for port in ports[:2]]}}))
    server = running.enter_context(ServerProcess(tmp_path, ["--config", str(config)]))
    made = Site(server, file, ports, [], [])
    server.push(GROUP, [r.eds_cluster("web"), r.listener("web", r.rds("web")), r.route_config("web", r.route("web"))])
    made.bind()
    path = f"/groups/{GROUP}/bindings/web"
    wait_until(lambda: server.get(path)["state"] == "live", "the file is read")  # it is read when it rests
    for variant, node in NODES.items():
        bootstrap = EnvoyBootstrap(server.grpc_port, variant, node_id=node)
        envoy = running.enter_context(EnvoyProcess(tmp_path, bootstrap, node))
        made.envoys.append(envoy)
        made.loads.append(running.enter_context(HttpLoad(background, envoy.wait_listener("web"), rps=100)))
    yield made


def run_randomly(site: Site, steps: int, seed: int) -> None:
    """Instances come, go, and change health and weight; after each step the Envoys have what the file says."""
    chance = random.Random(seed)
    revision = site.server.get(f"/groups/{GROUP}")["revision"]
    for step in range(steps):
        healthy = chance.sample(site.ports, chance.randint(1, UPSTREAMS))
        others = [port for port in site.ports if port not in healthy and chance.random() < 0.3]
        entries, wanted = [], {}
        for port in healthy:
            weight = chance.randint(1, 5)
            entries.append(entry(port, weight=weight))
            wanted[port] = "HEALTHY", weight
        for port in others:
            entries.append(entry(port, health="critical"))
            wanted[port] = "UNHEALTHY", 1
        site.show(entries)
        site.wait_endpoints(wanted)
        site.settle(20)
        assert site.lost() == [], f"step {step} with seed {seed}"
    assert site.server.get(f"/groups/{GROUP}")["revision"] == revision, "no change of an instance makes a revision"


@pytest.mark.parametrize("site", [(1.0, DRAIN_S)], indirect=True)
def test_envoys_follow_the_source_after_each_step_and_no_request_is_lost(site: Site) -> None:
    run_randomly(site, STEPS, seed=18)


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("site", [(1.0, DRAIN_S)], indirect=True)
def test_a_long_random_run_loses_no_request(site: Site) -> None:
    run_randomly(site, SOAK_STEPS, seed=random.randrange(1 << 30))


def test_a_loss_is_held_over_kills_pushes_and_undo_until_it_is_over(site: Site) -> None:
    first = dict.fromkeys(site.ports[:2], ("HEALTHY", 1))
    site.wait_endpoints(first)
    site.show([])
    wait_until(lambda: held(site) == ["web"], "the loss is held", detail=lambda: held(site))
    site.settle()
    site.server.kill()
    site.settle()
    site.server.start()
    wait_until(lambda: held(site) == ["web"], "the loss is still held", detail=lambda: held(site))
    site.server.push(
        GROUP,
        [
            r.eds_cluster("web"),
            r.listener("web", r.rds("web")),
            r.route_config("web", r.route("web", "/", timeout="9s")),
        ],
    )
    undone = site.server.request("POST", f"/api/v1/groups/{GROUP}/rollback", json={"to": 1})
    assert undone.is_success, undone.text
    site.settle()
    site.wait_endpoints(first)
    site.show([entry(port) for port in site.ports[1:4]])
    site.wait_endpoints(dict.fromkeys(site.ports[1:4], ("HEALTHY", 1)))
    assert held(site) == []
    site.settle()
    assert site.lost() == []


def test_the_last_good_set_is_served_after_a_stop_without_the_source(
    site: Site, tmp_path: Path, running: ExitStack
) -> None:
    wanted = dict.fromkeys(site.ports[:2], ("HEALTHY", 1))
    site.wait_endpoints(wanted)
    assert site.server.stop() == 0
    site.file.unlink()
    site.server.start()
    late = EnvoyBootstrap(site.server.grpc_port, Variant.ADS_DELTA, node_id="envoy-3")
    site.envoys.append(running.enter_context(EnvoyProcess(tmp_path, late, "envoy-3")))
    site.wait_endpoints(wanted)
    item = site.server.get("/services/web")
    assert {each["health"] for each in item["instances"]} == {"passing"}
    assert site.server.get("/sources/targets")["state"] == "failing"
    site.settle()
    assert site.lost() == []


@pytest.mark.parametrize("site", [(1.0, 2.5)], indirect=True)
def test_endpoints_that_a_binding_removes_drain_in_envoys(site: Site) -> None:
    """Its port, its filter, and its end: what goes is shown to each Envoy as draining first. No request is lost."""
    one, two, three, four, pushed = site.ports
    site.show([entry(one, ports={"admin": three}, meta={"v": "1"}), entry(two, ports={"admin": four}, meta={"v": "2"})])
    site.wait_endpoints({one: ("HEALTHY", 1), two: ("HEALTHY", 1)})
    site.bind(port="admin")
    site.wait_endpoints({port: (health, 1) for port, health in zip((one, two, three, four), CHANGED, strict=True)})
    site.wait_endpoints({three: ("HEALTHY", 1), four: ("HEALTHY", 1)})
    site.settle()
    site.bind(port="admin", filter="Service.Meta.v == 2")
    site.wait_endpoints({three: ("DRAINING", 1), four: ("HEALTHY", 1)})
    site.wait_endpoints({four: ("HEALTHY", 1)})
    site.settle()
    site.server.push(
        GROUP,
        [
            r.eds_cluster("web"),
            r.cluster_load_assignment("web", pushed),
            r.listener("web", r.rds("web")),
            r.route_config("web", r.route("web")),
        ],
    )
    site.wait_endpoints({four: ("HEALTHY", 1)})
    answer = site.server.request("DELETE", f"/api/v1/groups/{GROUP}/bindings/web")
    assert answer.status_code == 200, answer.text
    site.wait_endpoints({four: ("DRAINING", 1), pushed: ("HEALTHY", 1)})
    site.wait_endpoints({pushed: ("HEALTHY", 1)})
    site.settle()
    site.bind()
    site.wait_endpoints({one: ("HEALTHY", 1), two: ("HEALTHY", 1), pushed: ("DRAINING", 1)})
    site.wait_endpoints({one: ("HEALTHY", 1), two: ("HEALTHY", 1)})
    site.settle()
    assert site.lost() == []


@pytest.mark.parametrize("site", [(1.0, DRAIN_S)], indirect=True)
def test_envoys_take_weights_as_the_instances_have_them(site: Site) -> None:
    """Envoy once took no weight above 128; the proportion is what an operator means."""
    heavy, light = site.ports[:2]
    site.show([entry(heavy, weight=65_535), entry(light, weight=1)])
    site.wait_endpoints({heavy: ("HEALTHY", 65_535), light: ("HEALTHY", 1)})
    site.settle()
    assert site.lost() == []


def held(site: Site) -> list[str]:
    """The services of which a loss is held."""
    names: list[str] = site.server.get("/sources/targets")["held"]
    return names
