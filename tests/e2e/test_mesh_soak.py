"""Random changes of a mesh under load, for a long time: no request is lost, and each step is what requests do."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from random import Random

import pytest

from tests.e2e.mesh_site import ENTRIES, GROUPS, HTTP, Json, Mesh
from tests.support.background import Background
from tests.support.load import CONNECTIONS, HttpLoad
from tests.support.process import free_port, wait_until
from tests.support.server import ServerProcess
from tests.support.upstream import Upstream

STEPS = 60
PER_CONNECTION = 50
REQUESTS_BETWEEN = 60
# A new process knows ten pushes (docs/protocol.md#what-is-not-promised), and lets what lingers stay for minutes.
STEPS_PER_RESTART = 10
NO_CLUSTER = r"\.(no_cluster|no_route|downstream_rq_5xx)$"
# What an upstreams document may say besides, of the upstream and of all proxies.
OF_UPSTREAM: list[Json] = [
    {},
    {"connect_timeout": "3s"},
    {"limits": {"max_connections": 500}},
    {"passive_health_check": {"interval": "9s", "max_failures": 9}},
]
OF_PROXIES: list[Json] = [{}, {"failover": "priority"}, {"locality_aware": True}, {"validate_clusters": True}]
VERSIONS = ("v1", "v2")
SPARE = "web-spare"  # an instance that comes, changes its version, and goes
# Who answers for a target, by the beginning of its name.
ANSWERS = {
    "v1.web.": {"web-v1"},
    "v2.web.": {"web-v2"},
    "web.": {"web-v1", "web-v2"},
    "api.": {"api"},
    "late.": {"late"},
}

SUBSETS: Json = {each: {"Filter": f"Service.Meta.version == {each}"} for each in VERSIONS}
RING: Json = {"Policy": "ring_hash", "HashPolicies": [{"Field": "header", "FieldValue": "host"}]}
RESOLVERS: list[Json] = [
    {"Subsets": SUBSETS, "DefaultSubset": "v1"},
    {"Subsets": SUBSETS, "DefaultSubset": "v2", "ConnectTimeout": "2s"},
    {"Subsets": SUBSETS, "Failover": {"*": {"Service": "api"}}},
    {"Subsets": SUBSETS, "LoadBalancer": RING},
    {"Redirect": {"Service": "api"}},
    {"Redirect": {"Service": "late"}},
]
SPLITTERS: list[Json] = [
    {"Splits": [{"Weight": 50, "ServiceSubset": "v1"}, {"Weight": 50, "ServiceSubset": "v2"}]},
    {"Splits": [{"Weight": 100, "ServiceSubset": "v2"}, {"Weight": 0, "ServiceSubset": "v1"}]},
    {"Splits": [{"Weight": 70}, {"Weight": 30, "Service": "api"}]},
    {"Splits": [{"Weight": 100, "Service": "late"}]},
]
ROUTERS: list[Json] = [
    {"Routes": [{"Destination": {"Service": "api"}}]},
    {"Routes": [{"Match": {"HTTP": {"PathExact": "/"}}, "Destination": {"Service": "late", "PrefixRewrite": "/x"}}]},
    {"Routes": [{"Match": {"HTTP": {"PathPrefix": "/none"}}, "Destination": {"Service": "late"}}]},
    {"Routes": [{"Destination": {"NumRetries": 2, "RetryOnConnectFailure": True, "RequestTimeout": "9s"}}]},
]
KINDS = {"service-resolver": RESOLVERS, "service-splitter": SPLITTERS, "service-router": ROUTERS}
OF_HTTP = ("service-splitter", "service-router")  # not of tcp
WRONG: Json = {"Kind": "service-splitter", "Name": "api", "Splits": [{"Weight": 100, "ServiceSubset": "none"}]}


@dataclass
class Changes:
    """Random changes. What the server refuses changes nothing."""

    mesh: Mesh
    random: Random
    spare: Upstream
    version: str = ""  # of the spare instance; empty while it is away

    def entries(self) -> Json:
        """Some kinds get another entry, some are deleted, in one transaction."""
        chosen = self.random.sample([*KINDS], self.random.randint(1, len(KINDS)))
        put = [{"Kind": kind, "Name": "web", **self.random.choice(KINDS[kind])} for kind in chosen]
        held = self._held() - set(chosen)
        return self._transaction(put, [kind for kind in KINDS if kind in held and self.random.random() < 0.5])

    def protocol(self) -> Json:
        """The service speaks another protocol; routes and splits go with tcp, in one transaction."""
        protocol = self.random.choice(["tcp", "http"])
        put: Json = {"Kind": "service-defaults", "Name": "web", "Protocol": protocol}
        return self._transaction([put], [kind for kind in OF_HTTP if protocol == "tcp" and kind in self._held()])

    def _held(self) -> set[str]:
        return {one["kind"] for one in self.mesh.ask("GET", ENTRIES)["items"] if one["name"] == "web"}

    def _transaction(self, put: list[Json], gone: list[str]) -> Json:
        return {"put": put, **({"delete": [{"kind": kind, "name": "web"} for kind in gone]} if gone else {})}

    def apply(self) -> str:
        """One change; what it was."""
        acts = ["one", "many", "many", "undo", "upstreams", "pushed", "protocol", "instance", "wrong"]
        act = self.random.choice(acts)
        if act == "undo":
            if self.mesh.server.request("GET", f"{ENTRIES}/undo").is_success:  # there may be nothing to go back to
                self.mesh.undo()
            return act
        if act == "upstreams":
            return self.call()
        if act == "instance":
            return self.move()
        if act == "one":
            kind = self.random.choice([*KINDS])
            return self._told("POST", ENTRIES, [{"Kind": kind, "Name": "web", **self.random.choice(KINDS[kind])}])
        if act == "wrong":
            return self.refused()
        pushed = [{"group": group, "put": [self._cluster()]} for group in GROUPS] if act == "pushed" else []
        entries = self.protocol() if act == "protocol" else self.entries()
        return self._told("POST", "/api/v1/transactions", {"changes": pushed, "config_entries": entries})

    def call(self) -> str:
        """Another document for the same upstream."""
        upstream, proxies = self.random.choice(OF_UPSTREAM), self.random.choice(OF_PROXIES)
        for group, port in self.mesh.ports.items():
            document = {"upstreams": [{"service": "web", "bind_port": port, **upstream}], **proxies}
            self.mesh.ask("PUT", f"/api/v1/groups/{group}/upstreams", json=document)
        return f"upstreams with {upstream} and {proxies}"

    def move(self) -> str:
        """The spare instance comes, goes, or joins another subset."""
        self.version = self.random.choice([one for one in ("", *VERSIONS) if one != self.version])
        if self.version:
            self.mesh.register("web", self.spare, version=self.version)
        else:
            self.mesh.ask("DELETE", f"/api/v1/registrations/{self.spare.name}")
        return f"{self.spare.name} is {self.version or 'away'}"

    def refused(self) -> str:
        """Several entries with one that is wrong: nothing changes."""
        before = self.mesh.ask("GET", ENTRIES)
        body = {"config_entries": {"put": [*self.entries()["put"], WRONG]}}
        answer = self.mesh.server.request("POST", "/api/v1/transactions", json=body)
        assert answer.status_code == 422, answer.text
        assert self.mesh.ask("GET", ENTRIES) == before
        return f"refused {body}"

    def answers(self) -> set[str]:
        """Who may answer now, as the walk through the chain has it."""
        ways = self.mesh.ask("GET", "/api/v1/discovery-chains/web/walk")["ways"]
        targets = [one["target"] for one in ways if one["weight"]]
        found = {begin for target in targets for begin in ANSWERS if target.startswith(begin)}
        names = {name for begin in found for name in ANSWERS[begin]}
        return names | {SPARE} if self.version and found & {f"{self.version}.web.", "web."} else names

    def _cluster(self) -> Json:
        return {
            "@type": "type.googleapis.com/envoy.config.cluster.v3.Cluster",
            "name": "pushed",
            "type": "STATIC",
            "connect_timeout": f"{self.random.randint(1, 9)}s",
        }

    def _told(self, method: str, path: str, body: object) -> str:
        answer = self.mesh.server.request(method, path, json=body)
        assert answer.is_success or answer.status_code == 422, answer.text
        return f"{answer.status_code} {body}"


def wait_only(mesh: Mesh, allowed: set[str], told: str) -> None:
    """Wait until nobody else answers."""
    for group, load in mesh.loads.items():

        def only(load: HttpLoad = load) -> bool:
            before = load.report.bodies.copy()
            load.wait_total(REQUESTS_BETWEEN)
            return set(load.report.bodies - before) <= allowed

        wait_until(only, f"{allowed} in {group} after {told}", detail=load.report.bodies.copy)


def end_lingering(mesh: Mesh) -> None:
    """When all connections are new, nothing uses what was removed before."""
    mesh.wait_synced()
    for load in mesh.loads.values():
        load.wait_total(2 * CONNECTIONS * PER_CONNECTION)
    for node in mesh.loads:
        mesh.ask("POST", f"/api/v1/nodes/{node}/release")


@pytest.mark.soak
@pytest.mark.timeout(1_800)
@pytest.mark.parametrize("seed", range(3))
def test_random_changes_lose_no_request(
    server: ServerProcess,
    upstream: Callable[[str], Upstream],
    background: Background,
    tmp_path: Path,
    running: ExitStack,
    seed: int,
) -> None:
    mesh = Mesh(server)
    for version in VERSIONS:
        mesh.register("web", upstream(f"web-{version}"), version=version)
    for service in ("api", "late"):
        mesh.register(service, upstream(service))
    mesh.write(HTTP, {"Kind": "service-resolver", "Name": "web", **RESOLVERS[0]})
    for group, variant in GROUPS.items():
        mesh.call(group, free_port())
        mesh.envoy(group, variant, tmp_path, running)
        mesh.loads[group] = running.enter_context(
            HttpLoad(background, mesh.ports[group], rps=150, per_connection=PER_CONNECTION)
        )
    wait_only(mesh, {"web-v1"}, "the start")
    changes = Changes(mesh, Random(seed), upstream(SPARE))
    for step in range(STEPS):
        told = f"step {step}: {changes.apply()}"
        print(told, flush=True)
        if step % STEPS_PER_RESTART == 5:  # in the middle of the swap
            (server.stop if step % (2 * STEPS_PER_RESTART) == 5 else server.kill)()
            server.start()
        wait_only(mesh, changes.answers(), told)
        if step % STEPS_PER_RESTART == 7:
            end_lingering(mesh)
        assert mesh.lost() == [], f"{told}; {[envoy.stats(NO_CLUSTER) for envoy in mesh.envoys.values()]}"
    mesh.wait_synced()
    assert server.nacks() == []
    assert [envoy.fetch_timeouts() for envoy in mesh.envoys.values()] == [{}, {}]
