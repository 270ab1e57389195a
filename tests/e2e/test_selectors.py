"""Selectors move a real Envoy under load between two groups: no request is lost."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from tests.support import resources as r
from tests.support.background import Background
from tests.support.bootstrap import EnvoyBootstrap, Variant, in_variants
from tests.support.envoy import EnvoyProcess
from tests.support.load import HttpLoad
from tests.support.process import wait_until
from tests.support.proxy import TcpProxy
from tests.support.server import Json, ServerProcess
from tests.support.upstream import Upstream

NODE = "envoy-1"
WEB = "node.metadata.role == web and node.locality.region == eu"
MOVES_AND_BACK = 2
REQUESTS_AFTER_MOVE = 50


def configure(server: ServerProcess, group: str, **settings: object) -> None:
    answer = server.request("PUT", f"/api/v1/groups/{group}", json=settings)
    assert answer.is_success, answer.text


def explain(server: ServerProcess, **query: str) -> Json:
    found: Json = server.get(f"/nodes/{NODE}/explain", **query)
    return found


@in_variants(Variant.ADS_SOTW, others=[Variant.ADS_DELTA])
def test_moves_between_groups_lose_no_request(
    tmp_path: Path,
    server: ServerProcess,
    upstream: Callable[[str], Upstream],
    background: Background,
    running: ExitStack,
    variant: Variant,
) -> None:
    for group, cluster in (("blue", "c1"), ("green", "c2")):
        server.push(group, r.web_resources(cluster, upstream(group).port, source=variant.config_source))
    configure(server, "blue", selector=WEB)
    proxy = TcpProxy(background, server.grpc_port)
    running.callback(proxy.close)
    node = EnvoyBootstrap(proxy.port, variant, metadata={"role": "web"}, locality={"region": "eu"})
    envoy = running.enter_context(EnvoyProcess(tmp_path, node)).wait_live()
    load = running.enter_context(HttpLoad(background, envoy.wait_listener("web")))
    load.wait_body("blue", REQUESTS_AFTER_MOVE)

    def moved(group: str) -> None:
        load.wait_body(group, REQUESTS_AFTER_MOVE)
        server.wait_synced(group, NODE)
        assert server.nodes()[NODE]["group"] == group

    for _ in range(MOVES_AND_BACK):
        configure(server, "green", selector=WEB, priority=1)
        moved("green")
        configure(server, "green", selector="")
        moved("blue")
    proxy.cut()
    wait_until(lambda: not server.nodes()[NODE]["streams"], "the server has lost sight of Envoy")
    configure(server, "green", selector=WEB, priority=1)
    proxy.restore()
    moved("green")

    found = explain(server, type="clusters")
    assert (found["group"], found["rule"]) == ("green", "selector")
    assert [(each["name"], each["answer"]) for each in found["resources"]] == [("c2", "sent"), ("c1", "lingering")]
    report = load.stop()
    assert (report.failed, report.samples) == (0, []), report


def test_selectors_survive_a_restart(server: ServerProcess) -> None:
    """An acknowledged setting is durable, and applies before the first stream is answered."""
    server.push("blue", [r.static_cluster("a", 80)])
    configure(server, "blue", selector=WEB, priority=7, on_nack="proceed")
    server.kill()
    server.start()
    group = server.get("/groups/blue")
    assert (group["selector"], group["priority"], group["on_nack"]) == (WEB, 7, "proceed")
    node = {"id": "n", "metadata": {"role": "web"}, "locality": {"region": "eu"}}
    answer = server.request("POST", "/api/v1/explain", json=node, params={"type": "clusters", "name": "a"})
    assert (answer.json()["group"], answer.json()["resources"][0]["answer"]) == ("blue", "served")
