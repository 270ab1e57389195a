"""A changed cluster makes Envoy refuse the assignment that it had accepted, beside a new one that it refuses too."""

from __future__ import annotations

import time
from contextlib import ExitStack
from pathlib import Path

from tests.support import resources as r
from tests.support.bootstrap import EnvoyBootstrap, Variant, in_variants
from tests.support.envoy import EnvoyProcess
from tests.support.server import GROUP, NODE, ServerProcess

HEAVY = 3_000_000_000  # the weights of two such endpoints are too much for a hash ring
STEADY_S = 3.0  # in a loop of refusals, hundreds are recorded in this time
AT_MOST = 6


def heavy_assignment() -> r.Json:
    """Two endpoints of much weight in one locality."""
    heavy = [{**each, "load_balancing_weight": HEAVY} for each in r.zone_endpoints(1, 2)["lb_endpoints"]]
    return {**r.cluster_load_assignment("a"), "endpoints": [{**r.zone_endpoints(), "lb_endpoints": heavy}]}


@in_variants(Variant.ADS_SOTW)
def test_rejected_versions_are_not_sent_in_turn(
    server: ServerProcess, tmp_path: Path, running: ExitStack, variant: Variant
) -> None:
    """Neither of two assignments that Envoy refuses in turn is sent again, until a push repairs them."""
    source = variant.config_source
    web = r.listener("web", r.inline_routes("web", r.route("a")))
    server.push(GROUP, [web, r.eds_cluster("a", source), heavy_assignment()])
    envoy = running.enter_context(EnvoyProcess(tmp_path, EnvoyBootstrap(server.grpc_port, variant))).wait_live()
    server.wait_synced(GROUP, NODE)
    hashed = r.eds_cluster("a", source, lb_policy="RING_HASH")
    server.push(GROUP, [web, hashed, r.refused_load_assignment("a", 2)])
    server.wait_nack(NODE, "endpoints")
    time.sleep(STEADY_S)  # whether anything else is sent
    refused = server.nacks(node=NODE, type="endpoints")
    assert sum(each["count"] for each in refused) <= AT_MOST, refused
    server.push(GROUP, [web, hashed, r.cluster_load_assignment("a", 3)])
    server.wait_synced(GROUP, NODE)
    assert envoy.endpoint_ports("a") == {3}
