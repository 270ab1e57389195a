"""No request is lost in a swap of any kind, with Envoy's default drain flags and to the end of a drain.

Each swap is one push, which removes the cluster of the previous turn.
"""

from __future__ import annotations

import time

import pytest

from tests.e2e import swap_kinds as kinds
from tests.e2e.swap_kinds import KINDS, LISTENER_KINDS, Kind
from tests.e2e.swap_site import ReconnectingLoad, SwapLoad, SwapSite, SwapSites
from tests.support import resources as r
from tests.support.bootstrap import STREAMED, Variant
from tests.support.process import wait_until

SOAK_SWAPS, SWAPS_IN_A_ROW = 4, 30
BETWEEN_SWAPS_S = 0.5
MEMBERS_WARM_S = 0.3

DRAIN_S, REMOVAL_DELAY_S = 20, 5
DRAIN = ("--drain-time-s", str(DRAIN_S))
AS_ENVOY = {"XDS_ORDER__LISTENER_DRAIN_S": str(DRAIN_S), "XDS_ORDER__REMOVAL_DELAY_S": str(REMOVAL_DELAY_S)}
QUICK_PAUSE_S = (0.1, 0.5)  # Envoy itself ends requests in flight at the end of a drain
GONE_WITHIN_S = 120.0
# Envoy counts draining connections, and no longer counts those that it dropped.
DRAINING = r"^listener_manager\.total_(listeners|filter_chains)_draining$"

# One kind of each sort is tested briefly in one variant, and all kinds in all variants by the long tests.
QUICK = {
    kinds.members_move: Variant.ADS_DELTA,
    kinds.inline_routes_move: Variant.ADS_SOTW,
    kinds.routes_come_by_rds_and_inline: Variant.SPLIT_DELTA,
    kinds.listener_is_replaced: Variant.ADS_DELTA,
    kinds.bytes_move: Variant.SPLIT_SOTW,
    kinds.tunnel_is_replaced: Variant.ADS_SOTW,
}


@pytest.fixture
def site(sites: SwapSites, kind: Kind, variant: Variant) -> SwapSite:
    """The site of a kind. On ADS, new members of an aggregate cluster warm slowly."""
    slow = kind is kinds.members_move and variant.is_ads
    scene = sites.scene(variant, cluster_fields=r.http_health_check() if slow else {})
    for upstream in scene.upstreams:
        upstream.health_delay_s = MEMBERS_WARM_S
    return sites.open(kind, variant, scene=scene)


def kind_id(kind: object) -> str | None:
    """The name of a kind in a test's name."""
    return getattr(kind, "__name__", None)


@pytest.mark.parametrize(
    ("kind", "variant"),
    [pytest.param(kind, variant) for kind, variant in QUICK.items()],
    ids=kind_id,
)
def test_swaps_lose_no_request(site: SwapSite) -> None:
    there_and_back = site.kind is kinds.routes_come_by_rds_and_inline
    _swap(site, 2 if there_and_back else 1)


@pytest.mark.soak
@pytest.mark.parametrize("variant", STREAMED)
@pytest.mark.parametrize("kind", KINDS, ids=kind_id)
def test_swaps_of_all_kinds_lose_no_request(site: SwapSite) -> None:
    _swap(site, SOAK_SWAPS)


def _swap(site: SwapSite, swaps: int) -> None:
    for _ in range(swaps):
        site.swap()
        if site.kind is kinds.tunnel_leads_elsewhere:
            site.wait_synced()  # Envoy has the internal listener of the next turn
    site.wait_synced()
    site.end()


@pytest.mark.soak
@pytest.mark.parametrize("variant", [Variant.SPLIT_SOTW, Variant.SPLIT_DELTA])
def test_many_swaps_in_a_row_lose_no_request(sites: SwapSites, variant: Variant) -> None:
    site = sites.open(kinds.routes_come_by_rds_and_inline, variant)
    for _ in range(SWAPS_IN_A_ROW):
        site.push()
        site.wait_served()
        site.settle(BETWEEN_SWAPS_S)
    site.settle()
    site.wait_synced()
    site.end()


@pytest.mark.soak
@pytest.mark.timeout(240)
@pytest.mark.parametrize(
    ("kind", "variant"), [(kind, STREAMED[turn % len(STREAMED)]) for turn, kind in enumerate(KINDS)], ids=kind_id
)
def test_lingering_clusters_are_removed_at_the_end_of_the_drain(sites: SwapSites, kind: Kind, variant: Variant) -> None:
    load = ReconnectingLoad if kind is kinds.bytes_move else SwapLoad
    site = sites.open(kind, variant, DRAIN, load=load, environment=AS_ENVOY)
    site.scene.authorizer.pause_s = QUICK_PAUSE_S
    before = site.clusters()
    site.push()
    site.wait_served()
    if kind in LISTENER_KINDS:
        _assert_stay_while_envoy_drains(site, before)
    wait_until(
        lambda: site.clusters() == site.pushed_clusters(), "what lingers goes", GONE_WITHIN_S, site.clusters, 0.2
    )
    site.settle()
    site.wait_synced()
    site.end()


def _assert_stay_while_envoy_drains(site: SwapSite, clusters: set[str]) -> None:
    assert _draining(site)
    deadline = time.monotonic() + GONE_WITHIN_S
    draining = True
    while draining:
        gone = clusters - site.clusters()
        draining = _draining(site)
        assert not (gone and draining), f"{gone} are gone, and Envoy drains"
        assert time.monotonic() < deadline, "Envoy drains"
        time.sleep(0.2)


def _draining(site: SwapSite) -> bool:
    return sum(site.envoy.stats(DRAINING).values()) > 0
