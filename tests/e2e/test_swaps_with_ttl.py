"""What has a time to live does not die because something else is refused or warms slowly, or the server restarts."""

from __future__ import annotations

import math
import time

import pytest

from tests.e2e import swap_kinds as kinds
from tests.e2e.swap_kinds import Scene
from tests.e2e.swap_site import SwapSite, SwapSites
from tests.support import resources as r
from tests.support.bootstrap import Variant
from tests.support.process import wait_until
from tests.support.server import NODE

TTL_S, QUICK_TTL_S = 10, 3
AWAY_S = 1.0
OUTAGES_PER_TTL = 4
LEAST_LEFT = 2 / 3  # of a TTL, at any moment: heartbeats come every third of it
ENDS_AT_ONCE = {"XDS_SERVER__DRAIN_S": "0"}
WARM_AFTER_S = 25.0  # until after the TTL, and one more


def mortal(ttl_s: int) -> kinds.Kind:
    """Routes move, and all resources have a time to live."""

    def snapshot(scene: Scene, turn: int) -> list[r.Json]:
        moved = kinds.routes_move(scene, turn)
        return [r.with_ttl(one.get("name") or one["cluster_name"], f"{ttl_s}s", one) for one in moved]

    return snapshot


def assert_alive(site: SwapSite, seconds: float) -> None:
    """Nothing is lost for a while, nor in the swap after it."""
    site.settle(seconds)
    site.swap()
    site.end()


@pytest.mark.parametrize("ttl_s", [QUICK_TTL_S, pytest.param(TTL_S, marks=pytest.mark.soak)])
def test_a_ttl_is_renewed_while_another_cluster_is_rejected(sites: SwapSites, ttl_s: int) -> None:
    site = sites.open(mortal(ttl_s), Variant.ADS_DELTA)
    site.push([r.refused_cluster("bad")])
    site.server.wait_nack(NODE, "clusters")
    assert_alive(site, ttl_s * 1.5)


def test_a_ttl_is_renewed_while_a_third_cluster_withholds_the_nack(sites: SwapSites) -> None:
    """Its heartbeats are refused; those of the clusters that serve are in messages of their own."""
    site = sites.open(mortal(QUICK_TTL_S), Variant.ADS_DELTA)
    slow = sites.upstream("slow")
    slow.health_delay_s = 2.0 * QUICK_TTL_S
    warming = r.static_cluster("slow", slow.port, **r.http_health_check(timeout="60s"))
    site.push([r.with_ttl(one["name"], f"{QUICK_TTL_S}s", one) for one in (r.refused_cluster("bad"), warming)])
    wait_until(lambda: slow.health_requests, "Envoy warms the slow cluster")
    assert_alive(site, QUICK_TTL_S * 3.0)


@pytest.mark.soak
def test_a_ttl_is_renewed_while_another_cluster_withholds_the_ack(sites: SwapSites) -> None:
    site = sites.open(mortal(TTL_S), Variant.ADS_DELTA)
    slow = sites.upstream("slow")
    slow.health_delay_s = WARM_AFTER_S
    site.push([r.static_cluster("slow", slow.port, **r.http_health_check(timeout="60s"))])
    wait_until(lambda: slow.health_requests, "Envoy warms the slow cluster")
    assert_alive(site, TTL_S * 1.5)


def restart(site: SwapSite, kill: bool) -> float:
    """Restart the server after `AWAY_S`; returns the seconds for which Envoy had none."""
    began_s = time.monotonic()
    (site.server.kill if kill else site.server.stop)()
    time.sleep(AWAY_S)
    site.server.start()
    wait_until(site.streams, "Envoy is back")
    return time.monotonic() - began_s


@pytest.mark.soak
@pytest.mark.parametrize("kill", [False, True])
def test_the_server_restarts(sites: SwapSites, kill: bool) -> None:
    """On a slow machine a restart takes many seconds, so it is measured first, without TTLs."""
    site = sites.open(kinds.routes_move, Variant.ADS_DELTA, environment=ENDS_AT_ONCE)
    measured_s = max(restart(site, kill) for _ in range(2))
    ttl_s = max(TTL_S, math.ceil(measured_s * OUTAGES_PER_TTL))
    site.kind = mortal(ttl_s)
    site.swap()
    site.wait_synced()
    site.settle(ttl_s / 2)
    away_s = restart(site, kill)
    assert away_s < ttl_s * LEAST_LEFT, f"this restart took {away_s:.1f} s, earlier ones {measured_s:.1f} s"
    assert_alive(site, ttl_s * 1.5)
    assert not site.server.nacks(node=NODE), "a heartbeat came too late"
