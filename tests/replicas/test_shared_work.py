"""Server processes on one PostgreSQL share instances that register, and what one of them decides for all."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest

from tests.replicas.test_holder import TAKES_OVER_S, all_know, split
from tests.server.load_client import V3, report, told
from tests.support.grpc_stream import GrpcStream
from tests.support.postgres import PostgresServer
from tests.support.process import wait_until
from tests.support.resources import steered_cluster, zoned_load_assignment
from tests.support.server import ServerProcess
from xds.lrs.report_stream import SEND_ALL_CLUSTERS
from xds.model.resource_type import ENDPOINT
from xds.proto import wire_pb2

pytestmark = pytest.mark.soak

TTL_S = 3


@pytest.fixture
def servers(database: PostgresServer, tmp_path: Path) -> Iterator[list[ServerProcess]]:
    url = database.make_database()
    with ExitStack() as running:
        made = []
        for name in "abc":
            (tmp_path / name).mkdir()
            made.append(running.enter_context(ServerProcess(tmp_path / name, ["--store", url])))
        wait_until(lambda: all_know(*made), "all know each other", TAKES_OVER_S)
        yield made


def health(server: ServerProcess) -> str:
    answer = server.request("GET", "/api/v1/registrations/web-1")
    return str(answer.json()["health"]) if answer.status_code == 200 else ""


def test_an_instance_registers_at_one_server_and_is_heard_of_at_another(servers: list[ServerProcess]) -> None:
    body: dict[str, Any] = {"Name": "web", "Address": "10.0.0.1", "Port": 80, "Check": {"TTL": f"{TTL_S}s"}}
    holder, (second, third) = split(servers)
    answer = second.request("PUT", "/api/v1/registrations/web-1", json=body)
    assert answer.is_success, answer.text
    wait_until(lambda: all(health(each) for each in servers), "all have it")

    def beat(server: ServerProcess) -> None:
        answer = server.request("PUT", "/v1/agent/check/pass/service:web-1")
        assert answer.is_success, answer.text

    beat(third)
    wait_until(lambda: all(health(each) == "passing" for each in servers), "it passes everywhere")
    ends_s = time.monotonic() + 4 * TTL_S
    while time.monotonic() < ends_s:  # the holder hears nothing itself
        beat(third)
        assert {health(each) for each in servers} == {"passing"}
        time.sleep(0.5)
    wait_until(lambda: all(health(each) == "critical" for each in servers), "it is critical everywhere", 10 * TTL_S)
    beat(second)
    wait_until(lambda: all(health(each) == "passing" for each in servers), "it passes again")
    holder.kill()
    wait_until(lambda: all(health(each) == "critical" for each in (second, third)), "the next holder judges", 60.0)


class Load:
    """A proxy of zone ``za`` on one server that sends requests as it is told, and reports them each second."""

    def __init__(self, server: ServerProcess, node_id: str, rps: int) -> None:
        place = wire_pb2.Locality(region="r", zone="za")
        features = (SEND_ALL_CLUSTERS,)
        node = wire_pb2.Node(id=node_id, cluster="edge", locality=place, client_features=features)
        self._server, self._rps = server, rps
        self._ads = GrpcStream(server.grpc_port)
        request = wire_pb2.DiscoveryRequest(type_url=ENDPOINT, resource_names=["web"], node=node.SerializeToString())
        self._ads.send(request.SerializeToString())
        self._reports = GrpcStream(server.grpc_port, V3)
        self._reports.send(report(node=node.SerializeToString()))
        self._ended = Event()
        self._thread = Thread(target=self._report, daemon=True)
        self._thread.start()

    def _report(self) -> None:
        while not self._ended.wait(1.0):
            away = round(self._rps * spilled(self._server))
            stats = told("web", 1.0)
            for zone, requests in (("za", self._rps - away), ("zb", away)):
                stats.upstream_locality_stats.add(
                    locality=wire_pb2.Locality(region="r", zone=zone),
                    total_issued_requests=requests,
                    total_successful_requests=requests,
                )
            self._reports.send(report(stats))

    def end(self) -> None:
        self._ended.set()
        self._thread.join()
        for stream in (self._ads, self._reports):
            stream.close()


POLICY = {
    "capacity": {"rates": [{"per_locality_rps": 100.0}]},
    "interval_s": 1,
    "dwell_s": 0,
    "stale_after_s": 30,
    "fallback_after_s": 300,
    "maximum_step": 1.0,
}


def spilled(server: ServerProcess) -> float:
    """The share of requests of zone ``za`` that its proxies are to send to ``zb``."""
    found = server.get("/groups/edge/assignments/web")["sources"]
    sources = [each for each in found if each["source"]["zone"] == "za"]
    allotments = (each for source in sources for each in source["allotments"])
    return sum(float(each["share"]) for each in allotments if each["locality"]["zone"] == "zb")


def is_decided(server: ServerProcess) -> bool:
    """The zone serves 100 of 180 requests a second."""
    found = server.get("/groups/edge/assignments/web")["sources"]
    return any(each["demand_rps"] > 170 for each in found) and abs(spilled(server) - 80 / 180) < 0.03


def test_the_load_of_all_servers_is_decided_over_and_a_killed_holder_moves_no_traffic(
    servers: list[ServerProcess],
) -> None:
    holder, others = split(servers)
    holder.push("edge", [steered_cluster("web"), zoned_load_assignment("web", {"za": (1,), "zb": (2,)})])
    wait_until(lambda: others[0].request("GET", "/api/v1/groups/edge").status_code == 200, "the other has the group")
    answer = others[0].request("PUT", "/api/v1/groups/edge/assignments/web", json=POLICY)
    assert answer.is_success, answer.text
    loads = [Load(server, f"n{number}", 90) for number, server in enumerate(others)]
    # The 180 requests a second of both are more than the zone takes, the 90 of each are not.
    wait_until(lambda: is_decided(holder), "requests spill to the other zone", 60.0)
    before = spilled(holder)
    time.sleep(2.0)  # all have it
    holder.kill()
    seen = []
    ends_s = time.monotonic() + 30.0
    while time.monotonic() < ends_s:
        seen += [spilled(each) for each in others]
        time.sleep(0.5)
    assert max(abs(each - before) for each in seen) < 0.03, " ".join(f"{each:.3f}" for each in seen)
    wait_until(lambda: all(map(is_decided, others)), "the next holder decides", 30.0)
    for load in loads:
        load.end()
