"""Routes to clusters that a real Envoy has without endpoints: none is served before its endpoints are ACKed."""

from __future__ import annotations

import pytest

from tests.e2e import swap_kinds as kinds
from tests.e2e.swap_site import SwapSite, SwapSites
from tests.support import resources as r
from tests.support.bootstrap import Variant
from tests.support.process import wait_until
from tests.support.server import GROUP, NODE

LATE_S = 1.0  # until a late assignment is pushed
ON_ADS = pytest.mark.parametrize("variant", [Variant.ADS_SOTW, Variant.ADS_DELTA])


def next_turn(site: SwapSite, refused_at: str = "") -> list[r.Json]:
    """The snapshot of the next turn, beside the cluster in use; its assignment is refused if there is an address."""
    made = site.kind(site.scene, 1)
    if not refused_at:
        return made
    refused = r.refused_load_assignment(kinds.name(1), site.scene.upstream(1).port)
    for endpoint in refused["endpoints"][0]["lb_endpoints"]:
        endpoint["endpoint"]["address"]["socket_address"]["address"] = refused_at
    return [
        refused if one["@type"] == r.ENDPOINT_TYPE and one["cluster_name"] == kinds.name(1) else one for one in made
    ]


@ON_ADS
def test_assignment_is_refused_again_after_a_roll_back(sites: SwapSites, variant: Variant) -> None:
    """Bad push, roll back, repaired push, still bad: Envoy has the cluster from the first push, without endpoints."""
    site = sites.open(kinds.routes_move, variant)
    first = site.kind(site.scene, 0)
    site.server.push(GROUP, next_turn(site, "not-an-address"))
    site.server.wait_nack(NODE, "endpoints")
    site.settle()
    site.server.push(GROUP, first)
    site.settle()
    refused_n = len(site.server.nacks(node=NODE, type="endpoints"))
    site.server.push(GROUP, next_turn(site, "still-no-address"))
    wait_until(lambda: len(site.server.nacks(node=NODE, type="endpoints")) > refused_n, "it is refused again")
    site.settle()
    assert site.load.failed == 0, "\n".join(map(str, site.load.reports()))
    site.swap()
    site.wait_synced()
    site.end()


@ON_ADS
def test_assignment_is_pushed_after_the_route(sites: SwapSites, variant: Variant) -> None:
    site = sites.open(kinds.routes_move, variant)
    late = [one for one in next_turn(site) if one["@type"] != r.ENDPOINT_TYPE or one["cluster_name"] != kinds.name(1)]
    site.server.push(GROUP, late)
    site.settle(LATE_S)
    site.swap()
    site.wait_synced()
    site.end()
