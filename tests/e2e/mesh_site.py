"""A mesh: a server with registered instances, groups with upstreams, and Envoys of these groups under load."""

from __future__ import annotations

from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.support.bootstrap import EnvoyBootstrap, Variant
from tests.support.envoy import DRAIN_BY_DEFAULT, EnvoyProcess
from tests.support.load import HttpLoad
from tests.support.process import LOOPBACK, wait_until
from tests.support.server import ServerProcess
from tests.support.upstream import Upstream

Json = dict[str, Any]

GROUPS = {"delta": Variant.ADS_DELTA, "sotw": Variant.ADS_SOTW}
SETTLED = 60  # requests after each step
ENTRIES = "/api/v1/config-entries"

HTTP: Json = {"Kind": "proxy-defaults", "Name": "global", "Config": {"protocol": "http"}}


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

    def maintain(self, upstream: Upstream, *, out: bool) -> None:
        """Take an instance out of service, or put it back: its health is critical meanwhile."""
        method = "PUT" if out else "DELETE"
        self.ask(method, f"/api/v1/registrations/{upstream.name}/maintenance")

    def call(self, group: str, port: int, service: str = "web", **document: Any) -> None:
        """The proxies of a group call a service at a port; at port 0 they are gRPC clients without a proxy."""
        self.ports[group] = port
        own = {"bind_port": port} if port else {}
        path = f"/api/v1/groups/{group}/upstreams"
        self.ask("PUT", path, json={"upstreams": [{"service": service, **own}], **document})

    def envoy(self, group: str, variant: Variant, directory: Path, running: ExitStack) -> EnvoyProcess:
        """An Envoy of a group, with the drain flags that Envoy has by default."""
        bootstrap = EnvoyBootstrap(self.server.grpc_port, variant, node_id=group, node_cluster="test")
        made = running.enter_context(EnvoyProcess(directory, bootstrap, group, drain=DRAIN_BY_DEFAULT)).wait_live()
        self.envoys[group] = made
        return made

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
