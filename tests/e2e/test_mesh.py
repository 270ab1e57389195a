"""Config entries that real Envoys run: entries change under load, and no request is lost.

The Envoys have their default drain flags. Each is a group of its own, since two proxies of one group would accept at
the same address.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from math import sqrt
from pathlib import Path
from typing import Any

import pytest

from tests.support.background import Background
from tests.support.bootstrap import EnvoyBootstrap, Variant
from tests.support.envoy import DRAIN_BY_DEFAULT, EnvoyProcess
from tests.support.load import HttpLoad
from tests.support.process import LOOPBACK, free_port, wait_until
from tests.support.server import ServerProcess
from tests.support.upstream import Upstream

Json = dict[str, Any]

GROUPS = {"delta": Variant.ADS_DELTA, "sotw": Variant.ADS_SOTW}
SETTLED = 60  # requests after each step
# Connections that are older than a change of a listener keep its old routes, as long as Envoy drains them.
PER_CONNECTION = 50
SPLIT_REQUESTS = 10_000
ENTRIES = "/api/v1/config-entries"
LISTENER_CHANGES = r"^listener_manager\.listener_(added|modified|removed)$"

HTTP: Json = {"Kind": "proxy-defaults", "Name": "global", "Config": {"protocol": "http"}}
SUBSETS: Json = {each: {"Filter": f"Service.Meta.version == {each}"} for each in ("v1", "v2")}
RESOLVER: Json = {"Kind": "service-resolver", "Name": "web", "DefaultSubset": "v1", "Subsets": SUBSETS}
REDIRECT: Json = {"Kind": "service-resolver", "Name": "web", "Redirect": {"Service": "api"}}
ROUTER: Json = {"Kind": "service-router", "Name": "web", "Routes": [{"Destination": {"Service": "api"}}]}


def splitter(v1: float) -> Json:
    splits = [{"Weight": v1, "ServiceSubset": "v1"}, {"Weight": 100 - v1, "ServiceSubset": "v2"}]
    return {"Kind": "service-splitter", "Name": "web", "Splits": splits}


@dataclass
class Mesh:
    """A server with registered instances, and an Envoy under load in each group."""

    server: ServerProcess
    ports: dict[str, int] = field(default_factory=dict)
    envoys: dict[str, EnvoyProcess] = field(default_factory=dict)
    loads: dict[str, HttpLoad] = field(default_factory=dict)

    def register(self, service: str, upstream: Upstream, **meta: str) -> None:
        document = {"Name": service, "Address": LOOPBACK, "Port": upstream.port, "Meta": meta}
        self.ask("PUT", f"/api/v1/registrations/{upstream.name}", json=document)

    def ask(self, method: str, path: str, **arguments: Any) -> Json:
        answer = self.server.request(method, path, **arguments)
        assert answer.is_success, answer.text
        found: Json = answer.json()
        return found

    def write(self, *entries: Json) -> Json:
        return self.ask("POST", ENTRIES, json=list(entries))

    def undo(self) -> None:
        plan = self.ask("GET", f"{ENTRIES}/undo")
        self.ask("POST", f"{ENTRIES}/rollback", json={"to": plan["to"]}, headers={"If-Match": f'"{plan["etag"]}"'})

    def delete(self, *keys: str) -> None:
        deleted = [dict(zip(("kind", "name"), key.split("/"), strict=True)) for key in keys]
        self.ask("POST", "/api/v1/transactions", json={"config_entries": {"delete": deleted}})

    def wait_answers(self, *names: str) -> None:
        """Wait until each Envoy is answered by exactly these upstreams."""
        for group, load in self.loads.items():
            counts = load.report.bodies

            def only(load: HttpLoad = load, counts: Counter[str] = counts) -> bool:
                before = counts.copy()
                load.wait_total(SETTLED)
                return set(counts - before) == set(names)

            wait_until(only, f"{names} in {group}", detail=load.report.bodies.copy)

    def lost(self) -> list[str]:
        return [f"{group}: {sample}" for group, load in self.loads.items() for sample in load.report.samples]

    def wait_synced(self) -> None:
        """Wait until the rollout of each group is done; what lingers counts as done."""
        for group in self.ports:

            def done(group: str = group) -> bool:
                found = self.server.get(f"/groups/{group}/rollout")
                return (found["synced"], found["pending"], found["nacked"]) == (1, 0, 0)

            wait_until(done, f"group {group} synced")


@pytest.fixture
def mesh(server: ServerProcess, upstream: Callable[[str], Upstream]) -> Mesh:
    """The instances of two services, and an upstream in each group."""
    made = Mesh(server)
    made.register("web", upstream("web-v1"), version="v1")
    made.register("web", upstream("web-v2"), version="v2")
    made.register("api", upstream("api-1"))
    made.write(HTTP, RESOLVER)
    for group in GROUPS:
        made.ports[group] = free_port()
        document = {"upstreams": [{"service": "web", "bind_port": made.ports[group]}]}
        made.ask("PUT", f"/api/v1/groups/{group}/upstreams", json=document)
    return made


@pytest.fixture
def loaded(mesh: Mesh, tmp_path: Path, running: ExitStack, background: Background) -> Iterator[Mesh]:
    """With Envoys, and load on each."""
    for group, variant in GROUPS.items():
        bootstrap = EnvoyBootstrap(mesh.server.grpc_port, variant, node_id=group, node_cluster="test")
        envoy = running.enter_context(EnvoyProcess(tmp_path, bootstrap, group, drain=DRAIN_BY_DEFAULT)).wait_live()
        mesh.envoys[group] = envoy
        mesh.loads[group] = running.enter_context(
            HttpLoad(background, mesh.ports[group], rps=150, per_connection=PER_CONNECTION)
        )
    mesh.wait_answers("web-v1")
    yield mesh
    assert mesh.server.nacks() == []
    assert [envoy.fetch_timeouts() for envoy in mesh.envoys.values()] == [{}, {}]


def test_entries_change_under_load_and_no_request_is_lost(loaded: Mesh) -> None:
    """Added, changed, deleted and undone, alone and several in one transaction."""
    loaded.write(splitter(50))
    loaded.wait_answers("web-v1", "web-v2")
    loaded.write(splitter(0))
    loaded.wait_answers("web-v2")
    loaded.write(ROUTER)
    loaded.wait_answers("api-1")
    loaded.undo()
    loaded.wait_answers("web-v2")
    loaded.delete("service-splitter/web")
    loaded.wait_answers("web-v1")
    loaded.write(REDIRECT)
    loaded.wait_answers("api-1")
    loaded.write({**RESOLVER, "DefaultSubset": "v2", "ConnectTimeout": "1s"}, splitter(50))
    loaded.wait_answers("web-v1", "web-v2")
    loaded.undo()
    loaded.wait_answers("api-1")
    loaded.delete("service-resolver/web")
    loaded.wait_answers("web-v1", "web-v2")
    loaded.undo()
    loaded.wait_answers("api-1")
    loaded.wait_synced()
    assert loaded.lost() == []


def test_a_service_that_is_new_here_gets_no_request_before_its_instances_are_known(
    loaded: Mesh, upstream: Callable[[str], Upstream]
) -> None:
    loaded.register("late", upstream("late-1"))
    loaded.write({**REDIRECT, "Redirect": {"Service": "late"}})
    loaded.wait_answers("late-1")
    assert loaded.lost() == []


def test_a_restart_changes_nothing_and_the_next_entry_arrives(loaded: Mesh) -> None:
    loaded.write(splitter(50))
    loaded.wait_answers("web-v1", "web-v2")
    loaded.wait_synced()
    before = {group: loaded.server.versions(group) for group in GROUPS}
    listeners = [envoy.stats(LISTENER_CHANGES) for envoy in loaded.envoys.values()]
    loaded.server.stop()
    loaded.server.start()
    assert {group: loaded.server.versions(group) for group in GROUPS} == before
    loaded.write(ROUTER)
    loaded.wait_answers("api-1")
    loaded.undo()
    loaded.wait_answers("web-v1", "web-v2")
    assert loaded.lost() == []
    assert [envoy.stats(LISTENER_CHANGES) for envoy in loaded.envoys.values()] == listeners


def test_a_split_sends_what_it_says(loaded: Mesh) -> None:
    loaded.write(splitter(90))
    loaded.wait_answers("web-v1", "web-v2")
    loaded.wait_synced()
    load = loaded.loads["delta"]
    load.rps = 0
    before = load.report.bodies.copy()
    load.wait_total(SPLIT_REQUESTS)
    counts = load.report.bodies - before
    total = sum(counts.values())
    deviation = sqrt(total * 0.9 * 0.1)
    assert abs(counts["web-v1"] - 0.9 * total) < 4 * deviation, counts
    assert loaded.lost() == []


def test_what_is_pushed_and_what_is_lowered_serve_side_by_side(loaded: Mesh) -> None:
    """A push under load leaves the routes of the mesh alone, and the other way round."""
    pushed: Json = {
        "@type": "type.googleapis.com/envoy.config.cluster.v3.Cluster",
        "name": "pushed",
        "type": "STATIC",
        "connect_timeout": "1s",
        "load_assignment": {"cluster_name": "pushed"},
    }
    for group in GROUPS:
        loaded.server.push(group, [pushed])
    loaded.wait_synced()
    loaded.write(splitter(0))
    loaded.wait_answers("web-v2")
    for group, envoy in loaded.envoys.items():
        assert "pushed" in envoy.cluster_names()
        loaded.server.push(group, [], allow_empty="true")
    loaded.undo()
    loaded.wait_answers("web-v1")
    loaded.wait_synced()
    assert loaded.lost() == []
