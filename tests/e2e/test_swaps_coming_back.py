"""No request is lost if the connection or the server goes away while a new cluster warms.

Envoy then requests no clusters on the new stream, and routes must not be sent before the cluster is warm.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.e2e import swap_kinds as kinds
from tests.e2e.swap_kinds import Kind
from tests.e2e.swap_site import PlainLoad, SwapSite, SwapSites
from tests.support import resources as r
from tests.support.bootstrap import Variant
from tests.support.envoy import DRAIN_SOON
from tests.support.process import wait_until
from tests.support.server import GROUP, NODE, ServerProcess

# longer than the server waits for the first requests of a reconnected Envoy
WARM_AFTER_S, QUICK_WARM_AFTER_S = 8.0, 6.0
CHECK_TIMEOUT = "30s"
BETWEEN_CUTS_S = 1.0
LOST_AT_MOST = 200  # of 200 a second and more: some tens of them for the time of a few responses
LOST_ON_SEPARATE_STREAMS_AT_MOST = 2_000  # a new cluster is used 5 s (`offer_timeout_s`) after its ACKs

SPLIT = (Variant.SPLIT_SOTW, Variant.SPLIT_DELTA)
ads_variants = pytest.mark.parametrize("variant", [Variant.ADS_SOTW, Variant.ADS_DELTA])
soak = pytest.mark.soak
Ends = Callable[[ServerProcess], object]


def warming_site(sites: SwapSites, kind: Kind, variant: Variant, warm_after_s: float = WARM_AFTER_S) -> SwapSite:
    """A site whose next turn was pushed, and whose cluster Envoy warms."""
    site = slow_site(sites, kind, variant, warm_after_s)
    site.push()
    wait_warming(site)
    return site


def slow_site(sites: SwapSites, kind: Kind, variant: Variant, warm_after_s: float = WARM_AFTER_S) -> SwapSite:
    """A site where clusters of the odd turns take long to warm."""
    scene = sites.scene(variant, cluster_fields=r.http_health_check(timeout=CHECK_TIMEOUT))
    scene.upstreams[1].health_delay_s = warm_after_s
    return sites.open(kind, variant, scene=scene)


def wait_warming(site: SwapSite) -> None:
    """Wait until Envoy checks the endpoints of an odd turn."""
    wait_until(lambda: site.scene.upstreams[1].health_requests, "Envoy warms the new cluster")


def assert_swapped(site: SwapSite) -> None:
    """In the end the last push is served, and no request was lost."""
    site.wait_served()
    site.settle()
    site.wait_synced()
    site.end()


# The connection is cut


@pytest.mark.parametrize(
    ("variant", "cuts", "kind"),
    [
        (Variant.ADS_DELTA, 1, kinds.routes_move),
        *(
            pytest.param(variant, cuts, kind, marks=soak)
            for variant in (Variant.ADS_SOTW, Variant.ADS_DELTA)
            for cuts in (1, 2, 3)
            for kind in (kinds.routes_move, kinds.inline_routes_move)
            if (variant, cuts, kind) != (Variant.ADS_DELTA, 1, kinds.routes_move)
        ),
    ],
)
def test_cut_while_a_cluster_warms(sites: SwapSites, variant: Variant, cuts: int, kind: Kind) -> None:
    site = warming_site(sites, kind, variant, WARM_AFTER_S if cuts > 1 else QUICK_WARM_AFTER_S)
    for _ in range(cuts):
        site.cut()
        site.restore()
        site.settle(BETWEEN_CUTS_S)
    assert_swapped(site)


# Pushes before, during and after the absence


def pushed_before(site: SwapSite) -> None:
    """Pushes that Envoy does not see one by one, then a cut."""
    for _ in range(3):
        site.push()
    wait_warming(site)
    site.cut()
    site.restore()


def pushed_meanwhile(site: SwapSite) -> None:
    """A push, and others while Envoy is away."""
    site.push()
    wait_warming(site)
    site.cut()
    site.push()
    site.push()
    site.restore()


def pushed_after(site: SwapSite) -> None:
    """A push and a cut, and others while the cluster still warms."""
    site.push()
    wait_warming(site)
    site.cut()
    site.restore()
    site.push()
    site.push()


def pushed_at_the_same_time(site: SwapSite) -> None:
    """Repeated pushes at the moment when Envoy reconnects."""
    for _ in range(5):
        site.cut()
        site.proxy.restore()
        site.push()
        site.push()
    site.push()


@soak
@ads_variants
@pytest.mark.parametrize("disturb", [pushed_before, pushed_meanwhile, pushed_after, pushed_at_the_same_time])
@pytest.mark.parametrize("kind", [kinds.routes_move, kinds.route_config_is_renamed])
def test_pushes_around_a_cut(
    sites: SwapSites, variant: Variant, disturb: Callable[[SwapSite], None], kind: Kind
) -> None:
    site = slow_site(sites, kind, variant)
    disturb(site)
    assert_swapped(site)


# The server is killed


@pytest.mark.parametrize(
    ("variant", "end"),
    [
        (Variant.ADS_SOTW, ServerProcess.kill),
        *(
            pytest.param(variant, end, marks=soak)
            for variant, end in (
                (Variant.ADS_SOTW, ServerProcess.stop),
                (Variant.ADS_DELTA, ServerProcess.stop),
                (Variant.ADS_DELTA, ServerProcess.kill),
            )
        ),
    ],
)
def test_server_restarts_while_a_cluster_warms(sites: SwapSites, variant: Variant, end: Ends) -> None:
    site = warming_site(sites, kinds.routes_move, variant, QUICK_WARM_AFTER_S)
    end(site.server)
    site.server.start()
    wait_until(site.streams, "Envoy is back")
    assert_swapped(site)


@soak
@ads_variants
@pytest.mark.parametrize("end", [ServerProcess.stop, ServerProcess.kill])
def test_pushes_around_a_restart_of_the_server(sites: SwapSites, variant: Variant, end: Ends) -> None:
    site = warming_site(sites, kinds.inline_routes_move, variant)
    site.push()
    end(site.server)
    site.server.start()
    site.push()
    wait_until(site.streams, "Envoy is back")
    site.push()
    site.push()
    assert_swapped(site)


# What the server can know with separate streams


@soak
@pytest.mark.parametrize("variant", SPLIT)
def test_cuts_of_split_streams(sites: SwapSites, variant: Variant) -> None:
    site = sites.open(kinds.route_config_is_renamed, variant)
    for _ in range(3):
        site.push()
        site.cut()
        site.push()
        site.restore()
        site.push()
        site.wait_served()
    assert_swapped(site)


@soak
@pytest.mark.parametrize("variant", SPLIT)
def test_split_streams_wait_as_long_as_a_check_may_take(sites: SwapSites, variant: Variant) -> None:
    scene = sites.scene(variant, cluster_fields=r.http_health_check(timeout="3s"))
    for upstream in scene.upstreams:
        upstream.health_delay_s = 1.0
    site = sites.open(kinds.routes_move, variant, scene=scene)
    site.swap()
    site.swap()
    assert_swapped(site)


# What a reconnecting client shows


@pytest.mark.parametrize("variant", [pytest.param(Variant.ADS_SOTW, marks=soak), Variant.ADS_DELTA])
def test_refused_push_that_was_repaired(sites: SwapSites, variant: Variant) -> None:
    """Routes of the rejected push are not sent, although the repaired listener requests the same name."""
    site = sites.open(kinds.routes_come_by_rds_and_inline, variant)
    refused = [site.scene.listener(site.scene.rds("r")), kinds.route_config("r", kinds.to_cluster("x"))]
    site.server.push(GROUP, [*site.scene.clusters(), r.refused_cluster("x"), *refused])
    site.server.wait_nack(NODE, "clusters")
    site.push()
    assert_swapped(site)


@soak
@pytest.mark.parametrize("variant", [Variant.ADS_SOTW, Variant.SPLIT_SOTW])
def test_name_that_was_dropped_and_comes_back(sites: SwapSites, variant: Variant) -> None:
    """Routes that Envoy let go are not taken for what it holds: it would be answered with old ones."""
    site = sites.open(kinds.routes_come_by_rds_and_inline, variant, DRAIN_SOON, load=PlainLoad)
    site.swap()
    site.swap()
    wait_until(lambda: "r" not in str(site.server.types(NODE).get("routes", {}).get("subscribed")), "r is let go")
    site.cut()
    site.push()
    site.restore()
    assert_swapped(site)


@soak
@pytest.mark.parametrize("variant", [Variant.ADS_SOTW, Variant.ADS_DELTA, *SPLIT])
def test_label_of_another_history(sites: SwapSites, variant: Variant) -> None:
    """A server with a new history does not take old labels for its own, although both count from 1."""
    site = sites.open(kinds.routes_move, variant, flags=["--store", "memory"])
    site.swap()
    site.swap()
    strangers = sites.upstream("stranger"), sites.upstream("stranger")
    stranger = kinds.Scene(site.scene.source, site.scene.port, site.scene.authorizer, strangers)
    site.cut()
    site.server.kill()
    site.server.start()
    for turn in range(5):
        site.server.push(GROUP, kinds.routes_move(stranger, kinds.BESIDE + turn))
    site.push()
    site.restore()
    site.wait_served()
    site.settle()
    if variant in {Variant.ADS_DELTA, Variant.SPLIT_DELTA}:
        site.end()
    else:
        # A SotW set has no old side here: a missing cluster is deleted before the route configuration changes.
        site.load.stop()
        most = LOST_AT_MOST if variant.is_ads else LOST_ON_SEPARATE_STREAMS_AT_MOST
        assert site.load.failed < most, "\n".join(map(str, site.load.reports()))
    assert all("stranger" not in report.bodies for report in site.load.reports())
