"""Load from reports of real clients (LRS) equals the counts of the upstreams, or of the clients themselves."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import grpc
import httpx
import pytest

from tests.e2e.test_grpc_clients import GROUP, TARGET, backend, service
from tests.server.load_client import V3, report, reporter, told
from tests.support import resources as r
from tests.support.background import Background
from tests.support.bootstrap import EnvoyBootstrap, Variant, grpc_bootstrap
from tests.support.envoy import EnvoyProcess, get
from tests.support.grpc_client import GrpcClient, old_grpc_python
from tests.support.process import LOOPBACK, wait_until
from tests.support.proxy import TcpProxy
from tests.support.server import ServerProcess
from tests.support.upstream import Upstream

Json = r.Json
StartUpstream = Callable[[str], Upstream]

WINDOW = "5m"
AWAY_S = 5.0
# Envoy reconnects to report after 5 s; a loaded machine needs more.
REPORTED_S = 60.0
BEFORE = 20  # requests that are reported before `Severable.between` is cut


class Severable(NamedTuple):
    """An Envoy, listening on ``port`` for the one upstream ``web``, that reaches the server through ``between``."""

    between: TcpProxy
    port: int
    web: Upstream


@pytest.fixture
def server(tmp_path: Path, running: ExitStack) -> ServerProcess:
    """A server that asks for a report a second, endpoint by endpoint."""
    return running.enter_context(
        ServerProcess(tmp_path, ["--lrs-interval", "1s"], {"XDS_LOAD__BY_ENDPOINT": "true"}),
    )


@pytest.fixture
def envoy(tmp_path: Path, server: ServerProcess, running: ExitStack) -> Callable[..., EnvoyProcess]:
    """Starts an Envoy that reports, by the name of its zone."""

    def start(zone: str, port: int | None = None, node_id: str = "", load_reports: bool = True) -> EnvoyProcess:
        name = node_id or f"envoy-{zone}"
        fields: Json = {"node_id": name, "locality": {"region": "r", "zone": zone}, "load_reports": load_reports}
        bootstrap = EnvoyBootstrap(port or server.grpc_port, Variant.ADS_DELTA, **fields)
        return running.enter_context(EnvoyProcess(tmp_path, bootstrap, name))

    return start


@pytest.fixture
def severable(
    server: ServerProcess,
    envoy: Callable[..., EnvoyProcess],
    upstream: StartUpstream,
    background: Background,
    running: ExitStack,
) -> Severable:
    """`BEFORE` requests through it are reported."""
    web = upstream("a")
    between = TcpProxy(background, server.grpc_port)
    running.callback(between.close)
    server.push(GROUP, zoned("c1", {"z1": [web.port]}))
    port = envoy("z1", between.port).wait_listener("web")
    wait_reporting(server, "c1", ["envoy-z1"])
    requests(port, BEFORE)
    wait_counts(server, "c1", successes=BEFORE)
    return Severable(between, port, web)


def zoned(cluster: str, zones: dict[str, list[int]], assignment: Json | None = None, **fields: Any) -> list[Json]:
    """Listener ``web`` in front of a cluster with endpoints in zones."""
    return [
        r.eds_cluster(cluster, **fields),
        r.zoned_load_assignment(cluster, zones, **(assignment or {})),
        r.listener("web", r.rds("web")),
        r.route_config("web", r.route(cluster)),
    ]


# What the server shows


def load(server: ServerProcess, cluster: str, by: str = "locality") -> Json:
    """A cluster's load; empty counters while nobody has reported it."""
    answer = server.request("GET", f"/api/v1/load/{cluster}", params={"window": WINDOW, "by": by})
    rows = {"locality": "localities", "node": "reporters", "endpoint": "endpoints"}[by]
    if answer.status_code == 404:
        return {"successes": 0, "errors": 0, "issued": 0, "dropped": 0, "nodes": 0, rows: []}
    assert answer.status_code == 200, answer.text
    found: Json = answer.json()
    return found


def reports(server: ServerProcess, node: str) -> int:
    """The number of reports on the open streams of the node."""
    streams = server.nodes().get(node, {"streams": []})["streams"]
    return sum(stream["load"]["reports"] for stream in streams if stream["service"] == "LRS")


def wait_reporting(server: ServerProcess, cluster: str, nodes: Iterable[str], more: int = 2) -> None:
    """Wait until all nodes have reported the cluster, and ``more`` times since. First reports may be incomplete."""
    names = set(nodes)
    wait_until(
        lambda: {row["node"] for row in load(server, cluster, "node")["reporters"]} >= names,
        f"{cluster} reported by {names}",
        detail=server.process.log_tail,
    )
    wait_more(server, names, more)


def wait_more(server: ServerProcess, nodes: Iterable[str], more: int = 2) -> None:
    """Wait for further reports of each node."""
    goals = {node: reports(server, node) + more for node in nodes}
    wait_until(lambda: all(reports(server, node) >= goal for node, goal in goals.items()), f"reports {goals}")


def wait_counts(server: ServerProcess, cluster: str, **counts: int) -> Json:
    """Wait until the cluster's counts are these."""

    def shown() -> Json:
        return {name: load(server, cluster)[name] for name in counts}

    wait_until(lambda: shown() == counts, f"{cluster}: {counts}", REPORTED_S, detail=shown)
    return load(server, cluster)


def by_zone(found: Json, side: str, count: str) -> dict[str, float]:
    """A count by the zone of who asks (``source``) or answers (``locality``)."""
    sums: dict[str, float] = {}
    for row in found["localities"]:
        zone = row[side]["zone"]
        sums[zone] = round(sums.get(zone, 0) + row[count], 3)
    return sums


def requests(port: int, number: int) -> list[int]:
    """The statuses of some GETs, one after the other."""
    return [get(port).status_code for _ in range(number)]


# Envoy


def test_reports_of_two_envoys_in_two_zones_equal_the_counts_of_the_upstreams(
    server: ServerProcess, envoy: Callable[..., EnvoyProcess], upstream: StartUpstream
) -> None:
    near, far = upstream("near"), upstream("far")
    server.push(GROUP, zoned("c1", {"z1": [near.port], "z2": [far.port]}))
    envoys = {zone: envoy(zone) for zone in ("z1", "z2")}
    ports = {zone: each.wait_listener("web") for zone, each in envoys.items()}
    wait_reporting(server, "c1", ["envoy-z1", "envoy-z2"])
    sent = {"z1": 60, "z2": 25}
    for zone, number in sent.items():
        assert set(requests(ports[zone], number)) == {200}
    far.status = 503
    failed = [status for zone in sent for status in requests(ports[zone], 10)]
    sent = {zone: number + 10 for zone, number in sent.items()}
    errors = far.failures
    assert (errors, failed.count(503)) == (errors, errors) and errors > 0
    found = wait_counts(server, "c1", successes=sum(sent.values()) - errors, errors=errors, issued=sum(sent.values()))
    assert by_zone(found, "source", "issued") == sent
    assert by_zone(found, "locality", "issued") == {"z1": near.requests, "z2": far.requests}
    assert by_zone(found, "locality", "errors") == {"z1": 0, "z2": errors}
    assert sum(row["share"] for row in found["localities"]) == pytest.approx(1.0, abs=1e-4)

    endpoints = load(server, "c1", "endpoint")["endpoints"]
    issued = {upstream.port: 0.0 for upstream in (near, far)}
    for row in endpoints:
        issued[int(row["endpoint"].removeprefix(f"{LOOPBACK}:"))] += row["issued"]
    assert issued == {near.port: near.requests, far.port: far.requests}

    totals = {row["node"]: row["totals"] for row in load(server, "c1", "node")["reporters"]}
    assert {node: total["issued"] for node, total in totals.items()} == {f"envoy-{zone}": n for zone, n in sent.items()}
    samples = server.metrics()
    by_outcome = [
        samples[f'xds_lrs_requests_total{{cluster="c1",locality="r/z2",outcome="{outcome}"}}']
        for outcome in ("success", "error")
    ]
    assert by_outcome == [far.requests - errors, errors]
    assert samples["xds_server_lrs_streams"] == 2
    points = server.get("/load/c1/series", window="120", step="5")["items"][0]["points"]
    assert round(sum(point["issued"] for point in points), 3) == sum(sent.values())


def test_drops_are_reported_by_category_and_without(
    server: ServerProcess, envoy: Callable[..., EnvoyProcess], upstream: StartUpstream
) -> None:
    """Drop overload of the assignment, then a circuit breaker that lets one request at a time through."""
    slow = upstream("slow")
    half = {"category": "half", "drop_percentage": {"numerator": 50, "denominator": "HUNDRED"}}
    server.push(GROUP, zoned("c1", {"z1": [slow.port]}, {"policy": {"drop_overloads": [half]}}))
    port = envoy("z1").wait_listener("web")
    wait_reporting(server, "c1", ["envoy-z1"])
    dropped = requests(port, 40).count(503)
    assert (dropped, slow.requests) == (40 - slow.requests, 40 - dropped)
    found = wait_counts(server, "c1", dropped=dropped, issued=slow.requests)
    assert found["drops"] == {"half": dropped}

    narrow = {"thresholds": [{"max_requests": 1, "max_pending_requests": 1, "max_connections": 1}]}
    server.push(GROUP, zoned("c2", {"z1": [slow.port]}, circuit_breakers=narrow))
    wait_reporting(server, "c2", ["envoy-z1"])
    before, slow.delay_s = slow.requests, 0.3
    with ThreadPoolExecutor(8) as pool:
        statuses = list(pool.map(lambda _: get(port).status_code, range(8)))
    passed = slow.requests - before
    assert (passed, statuses.count(503)) == (statuses.count(200), 8 - passed)
    assert statuses.count(503) > 0
    found = wait_counts(server, "c2", dropped=statuses.count(503), successes=passed)
    assert found["drops"] == {"uncategorised": statuses.count(503)}


def test_requests_in_progress_are_those_of_now(
    server: ServerProcess, envoy: Callable[..., EnvoyProcess], upstream: StartUpstream
) -> None:
    slow = upstream("slow")
    server.push(GROUP, zoned("c1", {"z1": [slow.port]}))
    proxy = envoy("z1")
    port = proxy.wait_listener("web")
    wait_reporting(server, "c1", ["envoy-z1"])
    slow.delay_s = 600.0

    def held() -> None:
        with pytest.raises(httpx.TransportError):
            get(port)

    with ThreadPoolExecutor(3) as pool:
        waiting = [pool.submit(held) for _ in range(3)]
        wait_until(lambda: load(server, "c1").get("in_progress") == 3, "3 in progress", REPORTED_S)
        proxy.stop()
        for each in waiting:
            each.result()
    wait_until(lambda: load(server, "c1")["in_progress"] == 0, "none in progress: the stream is gone")


def test_an_envoy_that_lost_the_server_reports_counts_of_the_meantime_once(
    server: ServerProcess, severable: Severable
) -> None:
    between, port, web = severable
    between.cut()
    wait_until(lambda: server.metrics()["xds_server_lrs_streams"] == 0, "the stream is gone")
    came_back_at = time.monotonic() + AWAY_S
    sent = 0
    while time.monotonic() < came_back_at:
        sent += len(requests(port, 3))
        time.sleep(0.2)
    between.restore()
    wait_counts(server, "c1", successes=BEFORE + sent, issued=BEFORE + sent)
    wait_more(server, ["envoy-z1"], 3)
    assert load(server, "c1")["successes"] == BEFORE + sent == web.requests


def test_a_restarted_server_invents_nothing(server: ServerProcess, severable: Severable) -> None:
    """The server knows what was reported to it.

    Connections are held meanwhile, because counts of a failed attempt are lost.
    """
    between, port, _ = severable
    between.cut()
    server.kill()
    requests(port, 15)
    server.start()
    between.restore()
    wait_counts(server, "c1", successes=15)
    wait_more(server, ["envoy-z1"])
    requests(port, 5)
    wait_counts(server, "c1", successes=20)


def test_a_flood_of_impossible_reports_affects_no_other_client(
    server: ServerProcess, envoy: Callable[..., EnvoyProcess], upstream: StartUpstream
) -> None:
    web = upstream("a")
    server.push(GROUP, zoned("c1", {"z1": [web.port]}))
    port = envoy("z1").wait_listener("web")
    wait_reporting(server, "c1", ["envoy-z1"])
    wrong = (
        told("overflowing", total_error_requests=1 << 63),
        told("negative", total_successful_requests=(1 << 64) - 5),
        told("instant", interval_s=0.0, total_successful_requests=5),
        told("c1", interval_s=0.0, total_successful_requests=1_000),
    )
    messages = [report(node=reporter("flooding")), *[report(*wrong, told("nobody-pushed-it"))] * 3_000]
    with grpc.insecure_channel(f"{LOOPBACK}:{server.grpc_port}") as channel:
        flood = channel.stream_stream(V3)(iter(messages))
        assert set(requests(port, 40)) == {200}
        wait_until(
            lambda: any(
                server.metrics().get(f'xds_server_limit_hits_total{{limit="{limit}"}}')
                for limit in ("requests_per_second", "load_work")
            ),
            "the flood is held back",
            detail=server.process.log_tail,
        )
        server.push(GROUP, [*zoned("c1", {"z1": [web.port]}), r.static_cluster("c2", 80)])
        server.wait_synced(GROUP, "envoy-z1")
        wait_counts(server, "c1", successes=40, errors=0)
        flood.cancel()
    assert server.metrics()["xds_server_lrs_refused_total"] >= 4
    known = {item["cluster"] for item in server.get("/load")["items"]}
    assert known - {"c2"} == {"c1", "xds_cluster", "nobody-pushed-it"}


# gRPC


@pytest.mark.parametrize("api", ["v3", "v2"])
def test_a_grpc_client_reports_over_the_channel_of_its_configuration(
    api: str, tmp_path: Path, server: ServerProcess, running: ExitStack
) -> None:
    """``lrs_server: {self: {}}``; 1.49.1 reports over the v2 service where it speaks the v2 transport."""
    python = old_grpc_python() if api == "v2" else None
    features = () if api == "v2" else ("xds_v3",)
    client = running.enter_context(
        GrpcClient(tmp_path, grpc_bootstrap(server.grpc_port, features=features), python=python)
    )
    a = backend(running, "a")
    server.push(GROUP, service("c1", a.port, lrs_server={"self": {}}))
    client.wait_body(TARGET, "a")
    for _ in range(30):
        assert client.call(TARGET).status == "OK"
    calls = a.calls()
    found = wait_counts(server, "c1", successes=calls, issued=calls, errors=0)
    (row,) = found["localities"]
    assert (row["source"], row["locality"]) == ({"region": "r", "zone": "z", "sub_zone": ""},) * 2
    streams = [stream for stream in server.nodes()["grpc-1"]["streams"] if stream["service"] == "LRS"]
    assert [stream["api"] for stream in streams] == [api]


def test_clusters_that_do_not_say_so_are_not_reported_by_grpc(
    tmp_path: Path, server: ServerProcess, running: ExitStack
) -> None:
    client = running.enter_context(GrpcClient(tmp_path, grpc_bootstrap(server.grpc_port)))
    a = backend(running, "a")
    server.push(GROUP, service("c1", a.port))
    client.wait_body(TARGET, "a")
    assert reports(server, "grpc-1") == 0
    server.push(GROUP, service("c2", a.port, lrs_server={"self": {}}))
    wait_until(lambda: client.call(TARGET).status == "OK" and load(server, "c2")["nodes"] > 0, "c2 reported")
    assert load(server, "c1")["nodes"] == 0
