"""Three server processes on one PostgreSQL with real Envoys at each: any server answers for all."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.support.bootstrap import EnvoyBootstrap, Variant
from tests.support.commands import FinishedCommand, address, xds
from tests.support.envoy import EnvoyProcess
from tests.support.postgres import PostgresServer
from tests.support.process import LOOPBACK, wait_until
from tests.support.resources import static_cluster
from tests.support.server import GROUP, ServerProcess
from xds.cli.errors import Exit

NAMES = ("n1", "n2", "n10")  # a node at each server
KNOWN_S = 25.0

pytestmark = pytest.mark.soak


class Fleet:
    """Three servers, each with one Envoy."""

    def __init__(self, url: str, folder: Path, running: ExitStack) -> None:
        self.url = url
        self.servers: list[ServerProcess] = []
        self.envoys: list[EnvoyProcess] = []
        for node in NAMES:
            at = folder / node
            at.mkdir()
            server = running.enter_context(ServerProcess(at, ["--store", url]))
            self.servers.append(server)
        wait_until(lambda: all(len(each.get("/members")["items"]) == 3 for each in self.servers), "members", KNOWN_S)
        self.servers[0].push(GROUP, [static_cluster("c0", 80)])
        for node, server in zip(NAMES, self.servers, strict=True):
            variant = Variant.ADS_DELTA if node == "n2" else Variant.ADS_SOTW
            bootstrap = EnvoyBootstrap(server.grpc_port, variant, node, GROUP)
            self.envoys.append(running.enter_context(EnvoyProcess(folder / node, bootstrap, node)).wait_live())
        wait_until(lambda: [node["id"] for node in self.nodes(0)] == list(NAMES), "all nodes", KNOWN_S)

    def nodes(self, at: int) -> list[dict[str, Any]]:
        items: list[dict[str, Any]] = self.servers[at].get("/nodes")["items"]
        return items

    def command(self, at: int, *arguments: str) -> FinishedCommand:
        return xds(*arguments, environment=address(self.servers[at].http_port))

    def name(self, at: int) -> str:
        return f"{LOOPBACK}:{self.servers[at].http_port}"


@pytest.fixture
def fleet(database: PostgresServer, tmp_path: Path) -> Iterator[Fleet]:
    with ExitStack() as running:
        yield Fleet(database.make_database(), tmp_path, running)


def test_any_server_answers_for_all(fleet: Fleet) -> None:
    for at in range(3):
        assert [(node["id"], node["server"]) for node in fleet.nodes(at)] == [
            (node, fleet.name(number)) for number, node in enumerate(NAMES)
        ]
        for number, node in enumerate(NAMES):
            one = fleet.servers[at].get(f"/nodes/{node}")
            assert one["connected"] and one["server"] == fleet.name(number)
            held = fleet.servers[at].get(f"/nodes/{node}/resources")["items"]
            assert [each["name"] for each in held if each["type"] == "clusters"] == ["c0"]
    pushed = fleet.servers[1].request(
        "PUT",
        f"/api/v1/groups/{GROUP}/snapshot",
        json={"resources": [static_cluster("c1", 80)]},
        headers={"Prefer": "wait=30"},
    )
    progress = pushed.json()["progress"]
    assert (pushed.status_code, progress["verdict"], progress["synced"]) == (200, "done", 3), progress
    for at in range(3):
        rollout = fleet.servers[at].get(f"/groups/{GROUP}/rollout")
        assert (rollout["revision"], rollout["synced"], rollout["pending"]) == (2, 3, 0)
        page = fleet.servers[at].get("/nodes", order="trouble", counts="true", limit="1")
        assert (page["counts"]["total"], page["counts"]["by_state"]["synced"], len(page["items"])) == (3, 3, 1)
        told = fleet.servers[at].get(f"/nodes/{NAMES[0]}/timeline")["items"]
        assert [(each["kind"], each["revision"], each.get("server", "")) for each in told] == [
            ("sent", 2, ""),
            ("connected", 1, fleet.name(0)),
        ]
    for envoy in fleet.envoys:
        assert envoy.cluster_names() >= {"c1"}


def test_a_command_reaches_the_stream(fleet: Fleet) -> None:
    before = fleet.servers[0].get("/nodes/n10")["streams"][0]["opened"]
    assert fleet.servers[0].request("DELETE", "/api/v1/nodes/n10").status_code == 200
    wait_until(
        lambda: (streams := fleet.servers[1].get("/nodes/n10")["streams"]) and streams[0]["opened"] > before,
        "the node is back",
        KNOWN_S,
    )


def test_events_of_all_arrive_at_each(fleet: Fleet) -> None:
    found = fleet.command(1, "watch", "--since", "0", "--no-follow", "--kinds", "node", "-o", "jsonl")
    assert found.code == Exit.OK and {node for node in NAMES if f'"node": "{node}"' in found.out} == set(NAMES)


def has_all_nacks(server: ServerProcess) -> bool:
    return {nack["node"] for nack in server.get("/nacks", state="open")["items"]} == set(NAMES)


def test_a_rejection_at_one_server_is_seen_at_all(fleet: Fleet) -> None:
    """A listener on an address that no machine here has."""
    listener = {
        "@type": "type.googleapis.com/envoy.config.listener.v3.Listener",
        "name": "l",
        "address": {"socket_address": {"address": "203.0.113.1", "port_value": 1}},
        "filter_chains": [
            {
                "filters": [
                    {
                        "name": "tcp",
                        "typed_config": {
                            "@type": "type.googleapis.com/envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy",
                            "stat_prefix": "t",
                            "cluster": "c0",
                        },
                    }
                ]
            }
        ],
    }
    fleet.servers[2].push(GROUP, [static_cluster("c0", 80), listener])
    for server in fleet.servers:
        wait_until(partial(has_all_nacks, server), "the NACKs of all", 60.0)
        (one,) = server.get("/nacks", by="message", state="open")["items"]
        assert one["nodes_total"] == 3
    rows = {each["check"]: each for each in fleet.servers[0].get("/check")["items"]}
    assert rows["nacks"]["state"] == "warning"


def test_a_stopped_server_is_named_and_then_left_out(fleet: Fleet) -> None:
    stopped = fleet.servers[2]
    os.kill(stopped.process.pid, signal.SIGSTOP)
    going_on = threading.Timer(60, os.kill, (stopped.process.pid, signal.SIGCONT))
    going_on.start()
    try:
        page = fleet.servers[0].get("/nodes")
        assert page["partial"] == [fleet.name(2)] and [node["id"] for node in page["items"]] == ["n1", "n2"]
        told = fleet.command(1, "nodes")
        assert told.code == Exit.UNREACHABLE and f"server {fleet.name(2)} does not answer" in told.err
        wait_until(lambda: "partial" not in fleet.servers[0].get("/nodes"), "it is left out", 20.0)
    finally:
        going_on.cancel()
        os.kill(stopped.process.pid, signal.SIGCONT)
    wait_until(
        lambda: (
            [node["id"] for node in fleet.nodes(0)] == list(NAMES) and "partial" not in fleet.servers[0].get("/nodes")
        ),
        "the whole view again",
        KNOWN_S,
    )


def test_a_rotation_of_the_secret_interrupts_nothing(fleet: Fleet) -> None:
    rotated = xds("store", "rotate-secret", fleet.url)
    assert rotated.code == Exit.OK, rotated.err
    for _ in range(150):
        for at in range(3):
            page = fleet.servers[at].get("/nodes")
            assert "partial" not in page and len(page["items"]) == 3
