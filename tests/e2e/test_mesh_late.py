"""A chain leads to a service that nobody has read yet: real Envoys lose no request until its instances are known."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest
import yaml

from bench.consul.agent_process import ConsulAgent
from tests.e2e.mesh_site import GROUPS, HTTP, Json, Mesh
from tests.e2e.test_consul_source import GO_TIMEOUT_S, settings
from tests.support.background import Background
from tests.support.fake_consul import FakeConsul
from tests.support.http import plain_client
from tests.support.load import HttpLoad
from tests.support.process import LOOPBACK, free_port
from tests.support.server import ServerProcess
from tests.support.upstream import Upstream

RPS = 150
PER_CONNECTION = 2  # connections that are older than a change of a listener keep its old routes
LATE_S = 0.5  # an instance after the entry
SLOW_S = 3.0  # an answer of the source
KNOWN, UNKNOWN = ("old", "old-1"), ("new", "new-1")  # services, each with an instance
ROUTER: Json = {
    "Kind": "service-router",
    "Name": KNOWN[0],
    "Routes": [
        {"Match": {"HTTP": {"PathPrefix": "/"}}, "Destination": {"Service": UNKNOWN[0]}},
    ],
}
REDIRECT: Json = {"Kind": "service-resolver", "Name": KNOWN[0], "Redirect": {"Service": UNKNOWN[0]}}

Register = Callable[[str, Upstream], None]
StartUpstream = Callable[[str], Upstream]


@pytest.fixture
def fake(background: Background, running: ExitStack) -> FakeConsul:
    """A Consul that answers late."""
    consul = FakeConsul()
    background.run(consul.start())
    running.callback(lambda: background.run(consul.stop()))
    return consul


def loaded_mesh(directory: Path, background: Background, running: ExitStack, address: str) -> Mesh:
    """Envoys of both variants that call the known service, under load. ``address``: of a Consul with the instances."""
    file = directory / "xds.yaml"
    file.write_text(yaml.safe_dump({"sources": {"consul": settings(address)}}))
    mesh = Mesh(running.enter_context(ServerProcess(directory, ["--config", str(file)])))
    mesh.write(HTTP)
    for group, variant in GROUPS.items():
        mesh.call(group, free_port(), KNOWN[0])
        mesh.envoy(group, variant, directory, running)
        load = HttpLoad(background, mesh.ports[group], rps=RPS, per_connection=PER_CONNECTION)
        mesh.loads[group] = running.enter_context(load)
    return mesh


def change(mesh: Mesh, entry: Json, register: Callable[[], object] | None) -> None:
    """Write an entry that leads to the unknown service. ``register`` its instance a moment later, unless it has one."""
    mesh.wait_answers(KNOWN[1])
    before = failed(mesh)
    mesh.write(entry)
    if register is not None:
        time.sleep(LATE_S)
        register()
    mesh.wait_answers(UNKNOWN[1])
    mesh.wait_synced()
    assert failed(mesh) == before, mesh.lost()


def failed(mesh: Mesh) -> int:
    """The number of lost requests so far. Some are lost before the first instance is known."""
    return sum(load.report.failed for load in mesh.loads.values())


@pytest.mark.parametrize("entry", [ROUTER, REDIRECT], ids=["router", "redirect"])
@pytest.mark.parametrize("is_late", [False, True], ids=["slow source", "late instance"])
def test_entry_leads_to_a_service_that_the_source_has_not_read(
    tmp_path: Path,
    background: Background,
    running: ExitStack,
    fake: FakeConsul,
    upstream: StartUpstream,
    entry: Json,
    is_late: bool,
) -> None:
    def register(service: str, instance: Upstream) -> None:
        background.run(fake.register(service, instance.name, LOOPBACK, instance.port))

    instances = {service: upstream(name) for service, name in (KNOWN, UNKNOWN)}
    register(KNOWN[0], instances[KNOWN[0]])
    if not is_late:
        register(UNKNOWN[0], instances[UNKNOWN[0]])
    mesh = loaded_mesh(tmp_path, background, running, fake.address)
    fake.delay_s = LATE_S if is_late else SLOW_S
    change(mesh, entry, (lambda: register(UNKNOWN[0], instances[UNKNOWN[0]])) if is_late else None)


@pytest.mark.soak
@pytest.mark.timeout(GO_TIMEOUT_S)
@pytest.mark.xdist_group("consul")
@pytest.mark.parametrize("entry", [ROUTER, REDIRECT], ids=["router", "redirect"])
@pytest.mark.parametrize("is_late", [False, True], ids=["registered", "late instance"])
def test_entry_leads_to_a_service_of_a_real_consul(
    tmp_path: Path,
    background: Background,
    running: ExitStack,
    upstream: StartUpstream,
    entry: Json,
    is_late: bool,
) -> None:
    agent = ConsulAgent(tmp_path)
    agent.start()
    running.callback(agent.stop)
    client = plain_client(base_url=f"http://{agent.address}/v1/agent/service", timeout=30)

    def register(service: str, instance: Upstream) -> None:
        body = {"ID": instance.name, "Name": service, "Address": LOOPBACK, "Port": instance.port}
        client.put("/register", json=body).raise_for_status()

    instances = {service: upstream(name) for service, name in (KNOWN, UNKNOWN)}
    register(KNOWN[0], instances[KNOWN[0]])
    if not is_late:
        register(UNKNOWN[0], instances[UNKNOWN[0]])
    mesh = loaded_mesh(tmp_path, background, running, f"http://{agent.address}")
    change(mesh, entry, (lambda: register(UNKNOWN[0], instances[UNKNOWN[0]])) if is_late else None)
