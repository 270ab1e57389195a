"""Swaps where the server cannot read what leads where: no request is lost, and nothing waits without end."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from tests.e2e import swap_kinds as kinds
from tests.e2e.swap_kinds import Scene
from tests.e2e.swap_site import PlainLoad, SwapSites
from tests.support import resources as r
from tests.support.bootstrap import Variant
from tests.support.envoy import get
from tests.support.process import wait_until

SERVED_WITHIN_S = 10.0
NEVER_S = 600.0
GIVEN_UP_AFTER_S = 30.0  # what cannot be read waits for a cold cluster, but no longer
LUA = "function envoy_on_response(handle) handle:headers():add('x-lua', 'yes') end"
HEADER = "x-cluster"


def behind(filters: Callable[[int], list[r.Json]]) -> kinds.Kind:
    """Routes and a filter of the listener change together."""

    def snapshot(scene: Scene, turn: int) -> list[r.Json]:
        listener = r.listener("web", scene.rds("r"), scene.port, filters(turn))
        return [*scene.clusters(turn), listener, kinds.route_config("r", kinds.to_cluster(kinds.name(turn)))]

    return snapshot


def lua(turn: int) -> list[r.Json]:
    """A script, another one in each turn."""
    return [r.lua_filter(f"{LUA} -- {turn}")]


def opaque(turn: int) -> list[r.Json]:
    """A filter behind a TypedStruct."""
    return [r.opaque_filter("x-turn", str(turn))]


def chosen_by_header(scene: Scene, turn: int) -> list[r.Json]:
    """Some routes leave the cluster to a request header, the others move."""
    routes = r.route_config("r", r.header_route(HEADER, "/any"), r.route(kinds.name(turn)))
    return [*scene.clusters(turn), r.listener("web", scene.rds("r"), scene.port), routes]


KINDS = {"lua": behind(lua), "opaque": behind(opaque), "cluster_header": chosen_by_header}


# Old routes and old filters go with old connections: plain requests look nothing up late.
@pytest.mark.parametrize(
    ("kind", "variant"),
    [
        ("lua", Variant.ADS_DELTA),
        *(
            pytest.param(kind, variant, marks=pytest.mark.soak)
            for kind in KINDS
            for variant in (Variant.ADS_SOTW, Variant.ADS_DELTA, Variant.SPLIT_DELTA)
            if (kind, variant) != ("lua", Variant.ADS_DELTA)
        ),
    ],
)
def test_swaps_lose_no_request(sites: SwapSites, kind: str, variant: Variant) -> None:
    site = sites.open(KINDS[kind], variant, load=PlainLoad)
    for _ in range(2):
        pushed = time.monotonic()
        site.push()
        site.wait_served()
        assert time.monotonic() - pushed < SERVED_WITHIN_S
        site.settle()
    site.wait_synced()
    site.end()


@pytest.mark.soak
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("variant", [Variant.ADS_SOTW, Variant.ADS_DELTA])
def test_a_cluster_that_never_warms_holds_unreadable_references_for_a_limited_time(
    sites: SwapSites, kind: str, variant: Variant
) -> None:
    site = sites.open(KINDS[kind], variant, load=PlainLoad)
    silent = sites.upstream("silent")
    silent.health_delay_s = NEVER_S
    site.push([r.static_cluster("stuck", silent.port, **r.http_health_check(timeout=f"{NEVER_S:g}s"))])
    upstream = site.scene.upstream(site.turn).name
    wait_until(lambda: get(site.scene.port).text == upstream, "the routes are given up waiting", GIVEN_UP_AFTER_S * 2)
    site.settle()
    site.end()
