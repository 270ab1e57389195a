"""A listener that gains a filter that authorises is never overtaken by the routes that rely on it.

New connections count: those of before keep the filters that they began with.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support import resources as r
from tests.support.background import Background
from tests.support.bootstrap import EnvoyBootstrap, Variant
from tests.support.envoy import DRAIN_BY_DEFAULT, EnvoyProcess, get
from tests.support.load import HttpLoad
from tests.support.process import free_port, wait_until
from tests.support.server import GROUP, NODE, ServerProcess
from tests.support.upstream import Upstream

ADMIN = "/admin"
PROBES, PROBES_RPS = 4, 200.0
WARM_AFTER_S = 3.0
BETWEEN_PUSHES_S = 1.0

StartUpstream = Callable[[str], Upstream]


@dataclass(slots=True)
class World:
    """What is pushed: a listener with some filters and its routes, which may be open below ``/admin``."""

    server: ServerProcess
    source: r.Json
    port: int
    a: Upstream
    guard: Upstream

    def push(self, filters: list[r.Json], is_open: bool, *more: r.Json) -> None:
        """Push the listener, its routes, its cluster, and ``more``."""
        opened = [r.route("c1", ADMIN)] if is_open else []
        routes = r.route_config("r", r.route("c1", "/app"), *opened)
        cluster = [r.eds_cluster("c1", self.source), r.cluster_load_assignment("c1", self.a.port)]
        web = r.listener("web", r.rds("r", self.source), self.port, filters)
        self.server.push(GROUP, [*cluster, web, routes, *more])

    def guarding(self) -> tuple[list[r.Json], r.Json]:
        """A filter that asks somebody who says no, and the cluster of that one, which takes long to warm."""
        self.guard.status = 403
        self.guard.health_delay_s = WARM_AFTER_S
        cluster = r.static_cluster("guard", self.guard.port, **r.http_health_check(timeout="30s"))
        return [r.authorizing_filter(self.guard.port, "guard")], cluster


def denied_at_once(world: World) -> None:
    """A filter that needs nothing, in the push that opens the routes."""
    world.push([r.deny_filter(ADMIN)], True)


def authorised_by_a_cold_cluster(world: World) -> None:
    """A filter that needs a new cluster, in the push that opens the routes."""
    filters, cluster = world.guarding()
    world.push(filters, True, cluster)


def opened_by_another_push(world: World) -> None:
    """The push that opens the routes finds the listener still waiting."""
    filters, cluster = world.guarding()
    world.push(filters, False, cluster)
    wait_until(lambda: world.guard.health_requests, "Envoy warms the new cluster")
    world.push(filters, True, cluster)


def discovered_later(world: World) -> None:
    """The filter's configuration comes with another push than the listener, which Envoy warms until then."""
    filters = [r.discovered_filter("guard", r.RBAC_TYPE, world.source)]
    world.push(filters, True)
    time.sleep(BETWEEN_PUSHES_S)
    rules = {"@type": r.EXTENSION_TYPE, "name": "guard", "typed_config": r.deny_filter(ADMIN)["typed_config"]}
    world.push(filters, True, rules)


@pytest.mark.parametrize(
    "protect",
    [
        pytest.param(denied_at_once, marks=pytest.mark.soak),
        pytest.param(authorised_by_a_cold_cluster, marks=pytest.mark.soak),
        opened_by_another_push,
        discovered_later,
    ],
)
@pytest.mark.parametrize(
    "variant",
    [
        Variant.ADS_DELTA,
        pytest.param(Variant.ADS_SOTW, marks=pytest.mark.soak),
        pytest.param(Variant.SPLIT_DELTA, marks=pytest.mark.soak),
        pytest.param(Variant.SPLIT_SOTW, marks=pytest.mark.soak),
    ],
)
def test_routes_do_not_overtake_the_filter_of_their_listener(
    server: ServerProcess,
    tmp_path: Path,
    upstream: StartUpstream,
    background: Background,
    running: ExitStack,
    variant: Variant,
    protect: Callable[[World], None],
) -> None:
    world = World(server, variant.config_source, free_port(), upstream("a"), upstream("guard"))
    world.push([], False)
    bootstrap = EnvoyBootstrap(server.grpc_port, variant)
    running.enter_context(EnvoyProcess(tmp_path, bootstrap, drain=DRAIN_BY_DEFAULT)).wait_live()
    wait_until(lambda: get(world.port, path="/app").status_code == 200, "the listener serves")
    server.wait_synced(GROUP, NODE)
    strangers = HttpLoad(background, world.port, path=ADMIN, connections=PROBES, rps=PROBES_RPS, per_connection=1)
    running.enter_context(strangers)
    strangers.wait_total(PROBES)
    protect(world)
    wait_until(lambda: get(world.port, path=ADMIN).status_code == 403, "the routes are open, and protected")
    report = strangers.stop()
    assert not report.bodies, f"{report.bodies} got in unauthorised"
