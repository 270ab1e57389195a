"""Routes never overtake a listener that gains an authorisation filter on which they rely.

The promise concerns new connections and the order: no new connection gets in before the listener has the filter, nor
after. A connection that was accepted before keeps its filters while Envoy drains it, and sees the routes that open a
moment later, because Envoy shares routes between both listeners.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from threading import Event, Thread
from time import monotonic
from typing import Self

import pytest

from tests.support import resources as r
from tests.support.bootstrap import EnvoyBootstrap, Variant
from tests.support.envoy import DRAIN_BY_DEFAULT, EnvoyProcess, get
from tests.support.process import LOOPBACK, free_port, wait_until
from tests.support.server import GROUP, NODE, ServerProcess
from tests.support.upstream import Upstream

ADMIN = "/admin"
PROBES, PROBES_RPS = 4, 200.0
WARM_AFTER_S = 3.0
BETWEEN_PUSHES_S = 1.0
LOOK_S = 0.002
WORKERS_S = 0.1  # Envoy's main thread reports the change of a listener before its workers apply it
ASKED_AFTERWARDS = 50
LISTENERS = "^listener_manager\\.(listener_modified|listener_in_place_updated|total_listeners_warming)$"

StartUpstream = Callable[[str], Upstream]


@dataclass(slots=True)
class World:
    """The pushed content: a listener with filters, and routes that may be open below ``/admin``."""

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
        """A filter that asks an authoriser that denies everything, and the authoriser's cluster, which warms slowly."""
        self.guard.status = 403
        self.guard.health_delay_s = WARM_AFTER_S
        cluster = r.static_cluster("guard", self.guard.port, **r.http_health_check(timeout="30s"))
        return [r.authorizing_filter(self.guard.port, "guard")], cluster


class Strangers:
    """Request a forbidden path, on one new connection after the other."""

    def __init__(self, port: int) -> None:
        self.let_in: list[tuple[float, float]] = []  # when each connected and was answered
        self.total = 0
        self._port = port
        self._over = Event()
        self._threads = [Thread(target=self._ask, daemon=True) for _ in range(PROBES)]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()

    def _ask(self) -> None:
        while not self._over.wait(PROBES / PROBES_RPS):
            with suppress(OSError, HTTPException):  # a listener that goes may close on them
                self._ask_once()

    def _ask_once(self) -> None:
        with closing(HTTPConnection(LOOPBACK, self._port, timeout=10)) as connection:
            connected_at = monotonic()
            connection.request("GET", ADMIN, headers={"host": "svc.test"})
            if connection.getresponse().status == 200:
                self.let_in.append((connected_at, monotonic()))
            self.total += 1


class Change:
    """When Envoy's listener got its filter: it was not there yet at ``before``, and was at ``after``."""

    def __init__(self, envoy: EnvoyProcess) -> None:
        self.before = self.after = 0.0
        self._envoy = envoy
        self._over = Event()
        self._thread = Thread(target=self._look, daemon=True)

    def __enter__(self) -> Self:
        assert not self._is_there()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _is_there(self) -> bool:
        found = self._envoy.stats(LISTENERS)
        changed = sum(count for name, count in found.items() if not name.endswith("warming"))
        return changed > 0 and found["listener_manager.total_listeners_warming"] == 0

    def _look(self) -> None:
        while not self.after and not self._over.wait(LOOK_S):
            asked_at = monotonic()
            if self._is_there():
                self.after = monotonic()
            else:
                self.before = asked_at


def denied_at_once(world: World) -> None:
    """A filter without dependencies, in the push that opens the routes."""
    world.push([r.deny_filter(ADMIN)], True)


def authorised_by_a_cold_cluster(world: World) -> None:
    """A filter that needs a new cluster, in the push that opens the routes."""
    filters, cluster = world.guarding()
    world.push(filters, True, cluster)


def opened_by_another_push(world: World) -> None:
    """The listener is still waiting when the push opens the routes."""
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
    running: ExitStack,
    variant: Variant,
    protect: Callable[[World], None],
) -> None:
    world = World(server, variant.config_source, free_port(), upstream("a"), upstream("guard"))
    world.push([], False)
    bootstrap = EnvoyBootstrap(server.grpc_port, variant)
    envoy = running.enter_context(EnvoyProcess(tmp_path, bootstrap, drain=DRAIN_BY_DEFAULT)).wait_live()
    wait_until(lambda: get(world.port, path="/app").status_code == 200, "the listener serves")
    server.wait_synced(GROUP, NODE)
    with Change(envoy) as change, Strangers(world.port) as strangers:
        wait_until(lambda: strangers.total >= PROBES, "strangers ask")
        protect(world)
        wait_until(lambda: get(world.port, path=ADMIN).status_code == 403, "the routes are open, and protected")
        wait_until(lambda: change.after, "the listener is seen to be there")
        goal = strangers.total + ASKED_AFTERWARDS
        wait_until(lambda: strangers.total >= goal, "strangers ask for longer")
    early = [at for at in strangers.let_in if at[1] < change.before]
    late = [at for at in strangers.let_in if at[0] > change.after + WORKERS_S]
    assert not early, f"{len(early)} got in before the listener had its filter"
    assert not late, f"{len(late)} got in on connections that were new"
