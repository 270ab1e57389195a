"""Every kind of client is served its line of a group: inside of the wave the head, outside the base.

No Envoy loses a request over its kept connections meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.e2e.test_grpc_clients import TARGET, backend, service
from tests.support import resources as r
from tests.support.background import Background
from tests.support.bootstrap import EnvoyBootstrap, Variant, grpc_bootstrap
from tests.support.envoy import DRAIN_BY_DEFAULT, EnvoyProcess, wait_body
from tests.support.grpc_client import GrpcClient, old_grpc_python
from tests.support.load import HttpLoad
from tests.support.process import wait_until
from tests.support.server import ServerProcess
from tests.support.upstream import Upstream
from xds.rollouts.wave import rank

RPS = 20.0  # of each Envoy
GROUP, ELSEWHERE = "edge", "elsewhere"
BASE, HEAD = "base", "head"
ADS = {"sotw": Variant.ADS_SOTW, "twin": Variant.ADS_DELTA}
SEPARATE = {"rest": Variant.REST, "twin": Variant.SPLIT_DELTA}  # these reject the clusters of a gRPC client


class Fleet:
    """A server, clients of each kind of which half are named by the plan, and what each of them answers."""

    def __init__(
        self,
        directory: Path,
        running: ExitStack,
        server: ServerProcess,
        upstream: Callable[[str], Upstream],
        has_grpc: bool,
    ) -> None:
        self.server = server
        self._directory = directory
        self._running = running
        self.upstreams = {name: upstream(name) for name in (BASE, HEAD, ELSEWHERE)}
        self.backends = {name: backend(running, name) for name in (BASE, HEAD)} if has_grpc else {}
        self.ports: dict[str, int] = {}

    def content(self, name: str) -> list[r.Json]:
        """What an Envoy and a gRPC client need to reach the upstream or backend of this name."""
        web = r.listener("web", r.inline_routes("local", r.route("web")))
        envoys = [r.static_cluster("web", self.upstreams[name].port), web]
        return [*envoys, *(service(name, self.backends[name].port) if name in self.backends else [])]

    def envoy(self, name: str, variant: Variant, node: str = "", group: str = GROUP) -> None:
        """Start an Envoy."""
        port = self.server.http_port if variant is Variant.REST else self.server.grpc_port
        bootstrap = EnvoyBootstrap(port, variant, node_id=node or name, node_cluster=group)
        envoy = EnvoyProcess(self._directory, bootstrap, name, drain=DRAIN_BY_DEFAULT)
        self.ports[name] = self._running.enter_context(envoy).wait_live().wait_listener("web")

    def grpc(self, name: str, is_old: bool = False) -> GrpcClient:
        """Start a gRPC client; an old one speaks the v2 transport."""
        features = () if is_old else ("xds_v3",)
        bootstrap = grpc_bootstrap(self.server.grpc_port, name, GROUP, features)
        python = old_grpc_python() if is_old else None
        return self._running.enter_context(GrpcClient(self._directory, bootstrap, name, python))

    def wait(self, envoys: dict[str, str], clients: dict[GrpcClient, str]) -> None:
        """Wait until each answers from the upstream of its line."""
        for name, body in envoys.items():
            wait_body(self.ports[name], body)
        for client, body in clients.items():
            client.wait_body(TARGET, body, fresh=True)

    def act(self, action: str) -> None:
        """Act on the rollout."""
        path = f"/api/v1/groups/{GROUP}/rollout"
        answer = self.server.request("POST", path, json={"action": action})
        assert answer.is_success, answer.text


@pytest.mark.parametrize(
    ("envoys", "grpc"),
    [
        (ADS, ["grpc"]),
        pytest.param(ADS, ["grpc", "old"], marks=pytest.mark.soak),
        (SEPARATE, []),
    ],
    ids=["ads", "v2", "separate"],
)
def test_every_kind_of_client_gets_its_line(
    tmp_path: Path,
    running: ExitStack,
    server: ServerProcess,
    upstream: Callable[[str], Upstream],
    background: Background,
    envoys: dict[str, Variant],
    grpc: list[str],
) -> None:
    fleet = Fleet(tmp_path, running, server, upstream, bool(grpc))
    server.push(GROUP, fleet.content(BASE))
    server.push(ELSEWHERE, fleet.content(ELSEWHERE))
    for side in ("in", "out"):
        for kind, variant in envoys.items():
            fleet.envoy(f"{side}-{kind}", variant)
        fleet.envoy(f"{side}-mover", envoys["twin"], group=ELSEWHERE)
    fleet.envoy("in-twin-2", envoys["twin"], node="in-twin")
    clients = {f"{side}-{kind}": fleet.grpc(f"{side}-{kind}", kind == "old") for side in ("in", "out") for kind in grpc}
    fleet.wait(dict.fromkeys(fleet.ports, BASE) | dict.fromkeys(("in-mover", "out-mover"), ELSEWHERE), {})
    fleet.wait({}, dict.fromkeys(clients.values(), BASE))
    loads = {name: HttpLoad(background, port, connections=2, rps=RPS) for name, port in fleet.ports.items()}
    for load in loads.values():
        load.wait_total(2)
    inside = [name for name in (*fleet.ports, *clients) if name.startswith("in")]
    plan = {"waves": [], "nodes": inside, "hold_s": 86_400, "timeout_s": 86_400}
    body = {"resources": fleet.content(HEAD), "rollout": plan}
    assert server.request("PUT", f"/api/v1/groups/{GROUP}/snapshot", json=body).status_code == 200

    # The movers join the group while it is rolled out.
    selector = {"selector": 'node.id contains "mover"'}
    assert server.request("PUT", f"/api/v1/groups/{GROUP}", json=selector).is_success
    fleet.wait(
        {name: HEAD if name.startswith("in") else BASE for name in fleet.ports},
        {client: HEAD if name.startswith("in") else BASE for name, client in clients.items()},
    )
    for name in {*clients, *fleet.ports} - {"in-twin-2"}:
        wait_in_step(server, name)
    fleet.act("promote")
    fleet.wait(dict.fromkeys(fleet.ports, HEAD), dict.fromkeys(clients.values(), HEAD))
    wait_until(lambda: server.get(f"/groups/{GROUP}/rollout")["state"] == "promoted", "promoted")
    for load in loads.values():
        load.wait_body(HEAD, 10)
    lost = {name: report for name, load in loads.items() if (report := load.stop()).failed}
    assert not lost, lost


def test_a_first_node_that_cannot_see_the_change_is_passed_over(
    tmp_path: Path, running: ExitStack, server: ServerProcess, upstream: Callable[[str], Upstream]
) -> None:
    """The gRPC client comes first; the push changes a listener that only the Envoy takes."""
    fleet = Fleet(tmp_path, running, server, upstream, has_grpc=True)
    first, second = sorted(("edge-1", "edge-2"), key=lambda name: rank(GROUP, name))
    of_client = service(BASE, fleet.backends[BASE].port)
    of_envoy = [r.static_cluster(f"web-{name}", fleet.upstreams[name].port) for name in (BASE, HEAD)]

    def listener(name: str) -> r.Json:
        return r.listener("web", r.inline_routes("local", r.route(f"web-{name}")))

    server.push(GROUP, [*of_client, *of_envoy, listener(BASE)])
    client = fleet.grpc(first)
    fleet.envoy(second, Variant.ADS_SOTW)
    fleet.wait({second: BASE}, {client: BASE})
    wait_in_step(server, first)
    body = {"resources": [*of_client, *of_envoy, listener(HEAD)], "rollout": {"waves": ["1"], "hold_s": 1}}
    pushed = server.request("PUT", f"/api/v1/groups/{GROUP}/snapshot", json=body)
    assert pushed.status_code == 200, pushed.text

    def ended() -> bool:
        return bool(server.get(f"/groups/{GROUP}/rollout")["state"] == "promoted")

    wait_until(ended, "promoted", detail=lambda: server.get(f"/groups/{GROUP}/rollout"))
    assert server.get(f"/groups/{GROUP}/rollout")["reason"] == "all 1 nodes that it concerns have ACKed"
    fleet.wait({second: HEAD}, {client: BASE})


def wait_in_step(server: ServerProcess, node: str) -> None:
    """Wait until a node is shown as synced: with its line, be that the base."""

    def is_synced() -> bool:
        states = {each["state"] for each in server.types(node).values()}
        return states - {"not_subscribed"} == {"synced"}

    wait_until(is_synced, f"{node} is synced", detail=lambda: server.types(node))
