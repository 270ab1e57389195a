"""What has nothing to do with a cluster that never warms, or is refused, does not wait for it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.support import resources as r
from tests.support.bootstrap import EnvoyBootstrap, Variant
from tests.support.envoy import DRAIN_BY_DEFAULT, EnvoyProcess, wait_body
from tests.support.process import free_port, wait_until
from tests.support.server import GROUP, NODE, ServerProcess
from tests.support.upstream import Upstream

SOON_S = 10.0  # at once, that is in less than a second
NEVER_S = 600.0

StartUpstream = Callable[[str], Upstream]


@dataclass(slots=True)
class World:
    """What is pushed, and who answers. ``stuck`` is what others must not wait for."""

    server: ServerProcess
    source: r.Json
    a: Upstream
    b: Upstream
    ports: list[int]
    stuck: list[r.Json] = field(default_factory=list)
    clusters: dict[str, Upstream] = field(default_factory=dict)
    routes: str = "c1"
    listeners: int = 1

    def push(self) -> None:
        """Push it all."""
        made = [self._listener(number) for number in range(self.listeners)]
        for name, upstream in self.clusters.items():
            made += [r.eds_cluster(name, self.source), r.cluster_load_assignment(name, upstream.port)]
        self.server.push(GROUP, [*self.stuck, *made, r.route_config("r", r.route(self.routes))])

    def _listener(self, number: int) -> r.Json:
        routes = r.rds("r", self.source) if number == 0 else r.inline_routes("i", r.route("c1"))
        return r.listener(f"web-{number}", routes, self.ports[number])


def never_warm(world: World, upstream: StartUpstream) -> None:
    """Envoy waits for the first health check of a cluster, without end."""
    silent = upstream("silent")
    silent.health_delay_s = NEVER_S
    world.stuck = [r.static_cluster("stuck", silent.port, **r.http_health_check(timeout=f"{NEVER_S:g}s"))]
    world.push()
    wait_until(lambda: silent.health_requests, "Envoy warms the cluster")


def refused(world: World, upstream: StartUpstream) -> None:
    """Envoy refuses a cluster."""
    world.stuck = [r.refused_cluster("stuck")]
    world.push()
    world.server.wait_nack(NODE, "clusters")


def among_others(world: World, upstream: StartUpstream) -> None:
    """A cluster never warms, and the same push has a new one, and routes to it."""
    silent = upstream("silent")
    silent.health_delay_s = NEVER_S
    world.stuck = [r.static_cluster("stuck", silent.port, **r.http_health_check(timeout=f"{NEVER_S:g}s"))]
    world.clusters["c0"] = world.a
    world.routes = "c0"
    world.push()


@pytest.mark.parametrize(
    "make_stuck", [never_warm, *(pytest.param(each, marks=pytest.mark.soak) for each in (refused, among_others))]
)
@pytest.mark.parametrize(
    "variant",
    [
        Variant.ADS_DELTA,
        pytest.param(Variant.ADS_SOTW, marks=pytest.mark.soak),
        pytest.param(Variant.SPLIT_DELTA, marks=pytest.mark.soak),
    ],
)
def test_unrelated_changes_do_not_wait(
    server: ServerProcess,
    tmp_path: Path,
    upstream: StartUpstream,
    running: ExitStack,
    variant: Variant,
    make_stuck: Callable[[World, StartUpstream], None],
) -> None:
    a, b = upstream("a"), upstream("b")
    world = World(server, variant.config_source, a, b, [free_port(), free_port()], clusters={"c1": a, "c2": b})
    world.push()
    bootstrap = EnvoyBootstrap(server.grpc_port, variant)
    envoy = running.enter_context(EnvoyProcess(tmp_path, bootstrap, drain=DRAIN_BY_DEFAULT)).wait_live()
    web, other = world.ports
    wait_body(web, "a")
    server.wait_synced(GROUP, NODE)
    make_stuck(world, upstream)
    world.routes = "c2"
    _arrives(world, "routes", lambda: wait_body(web, "b"))
    world.listeners = 2
    _arrives(world, "a listener", lambda: wait_body(other, "a"))
    world.clusters["c1"] = b
    _arrives(world, "endpoints", lambda: wait_body(other, "b"))
    world.clusters["c3"] = a
    world.routes = "c3"
    _arrives(world, "a cluster and routes to it", lambda: wait_body(web, "a"))
    if make_stuck is not refused:
        assert envoy.cluster_names("warming") == {"stuck"}
    world.stuck = []
    world.push()
    server.wait_synced(GROUP, NODE)


def _arrives(world: World, what: str, wait: Callable[[], None]) -> None:
    with _soon(what):
        world.push()
        wait()


@contextmanager
def _soon(what: str) -> Iterator[None]:
    started = time.monotonic()
    yield
    took_s = time.monotonic() - started
    assert took_s < SOON_S, f"{what} took {took_s:.1f} s"
