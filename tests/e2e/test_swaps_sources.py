"""Swaps where not everything comes over one stream: endpoints by REST, virtual hosts of several listeners."""

from __future__ import annotations

import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.e2e import swap_kinds as kinds
from tests.e2e.swap_site import PlainLoad
from tests.support import resources as r
from tests.support.background import Background
from tests.support.bootstrap import EnvoyBootstrap, Variant
from tests.support.envoy import DRAIN_BY_DEFAULT, EnvoyProcess, wait_body
from tests.support.process import free_port
from tests.support.server import ServerProcess
from tests.support.upstream import Upstream

REST_CLUSTER = "rest"
PROMPT_S = 10.0  # it takes less than one, and took 30
INITIAL_FETCH_S = 15.0

StartUpstream = Any
ads_variants = pytest.mark.parametrize(
    "variant", [Variant.ADS_SOTW, pytest.param(Variant.ADS_DELTA, marks=pytest.mark.soak)]
)


def rest_source() -> r.Json:
    """Where endpoints come from by REST, from the same server."""
    source: r.Json = Variant.REST.config_source["api_config_source"]
    return {"api_config_source": {**source, "cluster_names": [REST_CLUSTER]}, "resource_api_version": "V3"}


@ads_variants
def test_endpoints_by_rest(
    server: ServerProcess,
    tmp_path: Path,
    upstream: StartUpstream,
    background: Background,
    running: ExitStack,
    variant: Variant,
) -> None:
    upstreams = [upstream("a"), upstream("b")]
    port = free_port()

    def snapshot(turn: int) -> list[r.Json]:
        cluster = r.eds_cluster(kinds.name(turn), rest_source())
        assignment = r.cluster_load_assignment(kinds.name(turn), upstreams[turn % 2].port)
        routes = r.route_config("r", r.route(kinds.name(turn)))
        return [cluster, assignment, r.listener("web", r.rds("r"), port), routes]

    server.push(server.group, snapshot(0))
    rest = r.static_cluster(REST_CLUSTER, server.http_port)
    bootstrap = EnvoyBootstrap(server.grpc_port, variant, static_clusters=(rest,))
    running.enter_context(EnvoyProcess(tmp_path, bootstrap, drain=DRAIN_BY_DEFAULT)).wait_live()
    wait_body(port, "a")
    load = running.enter_context(PlainLoad(background, port))
    for turn in (1, 2, 3):
        pushed = time.monotonic()
        server.push(server.group, snapshot(turn))
        wait_body(port, upstreams[turn % 2].name)
        assert time.monotonic() - pushed < PROMPT_S
    load.stop()
    assert load.failed == 0, load.reports()


def test_virtual_hosts_of_inline_and_of_discovered_routes(
    server: ServerProcess, tmp_path: Path, upstream: StartUpstream, running: ExitStack
) -> None:
    inline = {"route_config": {"name": "inline", "vhds": {"config_source": r.ADS}}}
    ports = {"inline": free_port(), "table": free_port()}
    a: Upstream = upstream("a")
    server.push(
        server.group,
        [
            r.static_cluster("c1", a.port),
            r.listener("inline", inline, ports["inline"], filters=[r.on_demand_filter()]),
            r.listener("table", r.rds("table"), ports["table"], filters=[r.on_demand_filter()]),
            r.vhds_route_config("table"),
            *(r.virtual_host(f"{table}/foo.com", [r.route("c1")], ["foo.com"]) for table in ports),
        ],
    )
    started = time.monotonic()
    bootstrap = EnvoyBootstrap(server.grpc_port, Variant.ADS_DELTA)
    envoy = running.enter_context(EnvoyProcess(tmp_path, bootstrap)).wait_live()
    for port in ports.values():
        wait_body(port, "a", "foo.com")
    assert time.monotonic() - started < INITIAL_FETCH_S
    assert envoy.fetch_timeouts() == {}
