"""A real Envoy rejects a push: its message is kept, nothing is sent twice, and the fix is applied."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.support import resources as r
from tests.support.bootstrap import Variant, in_variants
from tests.support.commands import xds
from tests.support.envoy import EnvoyProcess, get, wait_body
from tests.support.process import LOOPBACK, wait_until
from tests.support.server import ServerProcess
from tests.support.upstream import Upstream

REFUSAL = "Unknown address resolver: no-resolver"
ENDPOINT_PUSHES = 10

Connect = Callable[..., EnvoyProcess]
StartUpstream = Callable[[str], Upstream]


@pytest.fixture
def server(shared_server: ServerProcess) -> ServerProcess:
    """The server that modules like this one share."""
    shared_server.begin_anew()
    return shared_server


streamed_variants = in_variants(Variant.ADS_SOTW, Variant.SPLIT_DELTA)


@pytest.fixture
def envoy(
    server: ServerProcess, connect: Connect, upstream: StartUpstream, variant: Variant, a: Upstream
) -> EnvoyProcess:
    """An Envoy that serves upstream ``a`` through cluster ``c1``."""
    server.push(server.group, web(variant, "c1", a))
    started = connect(variant).wait_live()
    wait_body(started.wait_listener("web"), "a")
    return started


@pytest.fixture
def a(upstream: StartUpstream) -> Upstream:
    """The first upstream."""
    return upstream("a")


@pytest.fixture
def b(upstream: StartUpstream) -> Upstream:
    """The second upstream."""
    return upstream("b")


def web(variant: Variant, cluster: str, to: Upstream) -> list[r.Json]:
    """The usual resources for a variant."""
    return r.web_resources(cluster, to.port, source=variant.config_source)


@streamed_variants
def test_refused_cluster(
    server: ServerProcess, envoy: EnvoyProcess, variant: Variant, a: Upstream, b: Upstream
) -> None:
    port = envoy.wait_listener("web")
    bad = r.refused_cluster("bad")
    server.push(server.group, [*web(variant, "c1", a), bad])
    record = server.wait_nack(server.node, "clusters")
    assert REFUSAL in str(record)
    assert REFUSAL in str(server.types(server.node)["clusters"]["error"])
    refusals = envoy.stat("cluster_manager.cds.update_rejected")
    # Endpoints continue to change, and each such push would be an occasion to re-send the rejected clusters.
    for turn in range(ENDPOINT_PUSHES):
        server.push(server.group, [*web(variant, "c1", [b, a][turn % 2]), bad])
        wait_body(port, "ba"[turn % 2])
    assert envoy.stat("cluster_manager.cds.update_rejected") == refusals == 1
    assert envoy.cluster_names() == {"c1"}
    # Other content of the type is sent without the rejected resource, whose record stays open.
    server.push(server.group, [*web(variant, "c2", b), bad])
    wait_body(port, "b")
    assert envoy.stat("cluster_manager.cds.update_rejected") == 1
    (record,) = server.get("/nacks", node=server.node)["items"]
    assert (record["guilty"], record["state"], record["count"]) == (["bad"], "open", 1)
    assert server.types(server.node)["clusters"]["state"] == "nacked"
    rollout = server.get(f"/groups/{server.group}/rollout")
    assert (rollout["nacked"], [each["guilty"] for each in rollout["nacks"]]) == (1, [["bad"]])
    server.push(server.group, web(variant, "c2", b))
    server.wait_synced(server.group, server.node)
    assert server.get("/nacks", node=server.node)["items"][0]["state"] == "resolved"
    wait_until(lambda: released(server).get("clusters") == 1, "the cluster that went lingers")
    wait_until(lambda: envoy.cluster_names() == {"c2"}, "the fix replaced the clusters")


def released(server: ServerProcess) -> r.Json:
    """What the node lets go of now."""
    answer = server.request("POST", f"/api/v1/nodes/{server.node}/release").json()
    return dict(answer["released"])


@streamed_variants
def test_refused_listener(
    server: ServerProcess, envoy: EnvoyProcess, variant: Variant, a: Upstream, b: Upstream
) -> None:
    port = envoy.wait_listener("web")
    taken = r.listener("taken", r.inline_routes("taken", r.direct_route("hi")), port=b.port)
    server.push(server.group, [*web(variant, "c1", a), taken])
    assert "taken" in str(server.wait_nack(server.node, "listeners"))
    refusals = envoy.stat("listener_manager.lds.update_rejected")
    server.push(server.group, [*web(variant, "c2", b), taken])
    wait_body(port, "b")
    assert envoy.stat("listener_manager.lds.update_rejected") == refusals
    server.push(server.group, web(variant, "c2", b))
    server.wait_synced(server.group, server.node)
    assert set(envoy.listener_ports()) == {"web"}


@in_variants(Variant.ADS_SOTW, Variant.ADS_DELTA)
def test_routes_that_a_rejected_listener_holds_are_shown(
    server: ServerProcess, connect: Connect, variant: Variant, a: Upstream
) -> None:
    """In the state of the node, by `xds nodes` and by `xds explain`, until the listener is repaired."""
    routes = r.rds("r1", variant.config_source)
    server.push(server.group, [r.listener("web", routes), r.route_config("r1", r.direct_route("1"))])
    envoy = connect(variant).wait_live()
    port = envoy.wait_listener("web")
    wait_body(port, "1")
    second = r.route_config("r1", r.direct_route("2"))
    server.push(server.group, [r.listener("web", routes, port=a.port), second])
    assert "web" in str(server.wait_nack(server.node, "listeners"))
    (held,) = server.get(f"/nodes/{server.node}")["held"]
    assert held["resources"] == [{"type": "routes", "name": "r1"}]
    assert (held["waits_for"], held["waits_for_others"]) == ([], [{"type": "listeners", "name": "web"}])
    at = ("--server", f"http://{LOOPBACK}:{server.http_port}")
    assert "routes/r1 waits for listeners/web" in xds("describe", "node", server.node, *at).out
    told = xds("explain", server.node, "routes", "r1", *at).out
    assert "it is held until the node accepts listeners/web" in told
    wait_body(port, "1")
    server.push(server.group, [r.listener("web", routes), second])
    wait_body(envoy.wait_listener("web"), "2")
    assert server.get(f"/nodes/{server.node}")["held"] == []


@in_variants(Variant.ADS_SOTW, Variant.ADS_DELTA)
def test_refused_listener_does_not_hold_the_routes_of_another(
    server: ServerProcess, connect: Connect, variant: Variant, a: Upstream
) -> None:
    """The rejected listener serves them in its earlier version, which Envoy keeps."""

    def site(body: str, *listeners: r.Json) -> list[r.Json]:
        bodies = {"r1": body, "r2": f"new {body}"}
        return [*listeners, *(r.route_config(name, r.direct_route(each)) for name, each in bodies.items())]

    first, second = r.rds("r1", variant.config_source), r.rds("r2", variant.config_source)
    taken, other = r.listener("web", second, port=a.port), r.listener("other", first)
    server.push(server.group, site("1", r.listener("web", first)))
    envoy = connect(variant).wait_live()
    ports = [envoy.wait_listener("web")]
    wait_body(ports[0], "1")
    server.push(server.group, site("2", taken, other))
    assert "web" in str(server.wait_nack(server.node, "listeners"))
    ports.append(envoy.wait_listener("other"))
    for body in ("2", "3"):
        server.push(server.group, site(body, taken, other))
        for port in ports:
            wait_body(port, body)
    assert envoy.stat("listener_manager.lds.update_rejected") == 1
    server.push(server.group, site("4", r.listener("web", second), other))
    wait_body(envoy.wait_listener("web"), "new 4")
    wait_body(envoy.wait_listener("other"), "4")


@streamed_variants
def test_refused_endpoints(
    server: ServerProcess, envoy: EnvoyProcess, variant: Variant, a: Upstream, b: Upstream
) -> None:
    port = envoy.wait_listener("web")
    cluster, assignment, *rest = web(variant, "c1", a)
    refused = r.refused_load_assignment(assignment["cluster_name"], a.port)
    server.push(server.group, [cluster, refused, *rest])
    assert "no-resolver" in str(server.wait_nack(server.node, "endpoints"))
    assert get(port).text == "a"
    server.push(server.group, web(variant, "c1", b))
    wait_body(port, "b")
    server.wait_synced(server.group, server.node)


@streamed_variants
def test_return_to_the_last_good_content_ends_the_hold(
    server: ServerProcess, envoy: EnvoyProcess, variant: Variant, a: Upstream, b: Upstream
) -> None:
    server.push(server.group, [*web(variant, "c1", a), r.refused_cluster("bad")])
    server.wait_nack(server.node, "clusters")
    server.push(server.group, web(variant, "c1", a))
    server.wait_synced(server.group, server.node)
    server.push(server.group, web(variant, "c2", b))
    wait_body(envoy.wait_listener("web"), "b")


@streamed_variants
def test_cluster_that_never_warms_does_not_lock_out_the_fix(
    server: ServerProcess, envoy: EnvoyProcess, upstream: StartUpstream, variant: Variant, a: Upstream, b: Upstream
) -> None:
    port = envoy.wait_listener("web")
    server.remove_soon(server.group)
    silent = upstream("silent")
    silent.health_delay_s = 600.0
    check = r.http_health_check(timeout="600s")
    cluster, *rest = web(variant, "stuck", silent)
    server.push(server.group, [*web(variant, "c1", a)[:2], {**cluster, **check}, *rest])
    wait_until(lambda: silent.health_requests, "Envoy checks the silent upstream")
    if variant.is_ads:  # on split streams Envoy ACKs clusters and endpoints before they are warm
        assert get(port).text == "a"
    server.push(server.group, web(variant, "c2", b))
    wait_body(port, "b")
    server.wait_synced(server.group, server.node)
    wait_until(lambda: envoy.cluster_names("active") | envoy.cluster_names("warming") == {"c2"}, "only c2 is left")
