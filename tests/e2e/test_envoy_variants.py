"""A real Envoy in each transport variant: start, updates, removals."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.support import resources as r
from tests.support.bootstrap import Variant, in_variants
from tests.support.envoy import EnvoyProcess, get, wait_body
from tests.support.process import wait_until
from tests.support.server import ServerProcess
from tests.support.upstream import Upstream

ON_GRPCIO = {"XDS_SERVER__GRPC__TRANSPORT": "grpcio"}

Connect = Callable[..., EnvoyProcess]
StartUpstream = Callable[[str], Upstream]


@pytest.fixture
def server(tmp_path: Path, running: ExitStack, request: pytest.FixtureRequest) -> ServerProcess:
    """The server that modules like this one share; one of its own for a test with settings, the parameter."""
    environment = getattr(request, "param", None)
    if environment:
        return running.enter_context(ServerProcess(tmp_path, environment=environment))
    shared: ServerProcess = request.getfixturevalue("shared_server")
    shared.begin_anew()
    return shared


def wait_until_nothing_warms(envoy: EnvoyProcess) -> None:
    """Wait until no cluster waits for its first answers."""
    wait_until(lambda: envoy.stat("cluster_manager.warming_clusters") == 0, "no warming cluster")


@pytest.mark.parametrize("variant", Variant)
def test_live_at_start_without_a_timer(
    server: ServerProcess, connect: Connect, upstream: StartUpstream, variant: Variant
) -> None:
    server.push(server.group, r.web_resources("c1", upstream("a").port, source=variant.config_source))
    envoy = connect(variant).wait_live()
    wait_body(envoy.wait_listener("web"), "a")
    assert envoy.fetch_timeouts() == {}


def test_an_envoy_that_polls_is_a_node_with_its_versions(
    server: ServerProcess, connect: Connect, upstream: StartUpstream
) -> None:
    server.push(server.group, r.web_resources("c1", upstream("a").port, source=Variant.REST.config_source))
    envoy = connect(Variant.REST).wait_live()
    server.wait_synced(server.group, server.node)
    node = server.get(f"/nodes/{server.node}")
    assert (node["group"], node["connected"], node["streams"]) == (server.group, True, [])
    assert {type["revision"] for type in node["types"].values()} == {1} and node["polls"]["interval_s"] == 5
    web = r.web_resources("c2", upstream("b").port, source=Variant.REST.config_source)
    server.push(server.group, [*web, r.refused_cluster("broken")])
    wait_until(lambda: envoy.stat("cluster_manager.cds.update_rejected") > 0, "a rejection")
    assert server.types(server.node)["clusters"]["state"] == "pending", "it still names the version before"
    server.push(server.group, web)
    server.wait_synced(server.group, server.node)


@pytest.mark.soak
def test_an_envoy_that_polled_is_gone_after_three_missed_polls(server: ServerProcess, connect: Connect) -> None:
    server.push(server.group, [])
    envoy = connect(Variant.REST).wait_live()
    assert server.get(f"/nodes/{server.node}")["connected"]
    envoy.stop()
    wait_until(lambda: not server.get(f"/nodes/{server.node}")["connected"], "the node gone")


@in_variants(Variant.ADS_DELTA, Variant.SPLIT_SOTW, Variant.REST)
def test_live_when_the_group_is_empty(server: ServerProcess, connect: Connect, variant: Variant) -> None:
    # docs/internals/clients.md#requests: a wildcard request is answered even when there is nothing, else Envoy waits
    # 15 s.
    server.push(server.group, [])
    assert connect(variant).wait_live().fetch_timeouts() == {}


@in_variants(Variant.ADS_SOTW, Variant.SPLIT_DELTA)
def test_live_when_endpoints_are_missing(
    server: ServerProcess, connect: Connect, upstream: StartUpstream, variant: Variant
) -> None:
    web = r.web_resources("c1", upstream("a").port, source=variant.config_source)
    server.push(server.group, [*web, r.eds_cluster("lonely", variant.config_source)])
    envoy = connect(variant).wait_live()
    wait_body(envoy.wait_listener("web"), "a")
    assert envoy.fetch_timeouts() == {}


@pytest.mark.parametrize(
    ("server", "variant"),
    [
        *(({}, variant) for variant in Variant),
        *((ON_GRPCIO, variant) for variant in (Variant.ADS_SOTW, Variant.SPLIT_DELTA)),
    ],
    indirect=["server"],
)
def test_follows_updates_and_removals(
    server: ServerProcess, connect: Connect, upstream: StartUpstream, variant: Variant
) -> None:
    source = variant.config_source
    a, b, c = (upstream(name) for name in "abc")
    server.remove_soon(server.group)
    server.push(server.group, r.web_resources("c1", a.port, source=source))
    envoy = connect(variant).wait_live()
    port = envoy.wait_listener("web")
    wait_body(port, "a")
    server.push(server.group, r.web_resources("c1", b.port, source=source))
    wait_body(port, "b")
    server.push(server.group, r.web_resources("c2", c.port, source=source))
    wait_body(port, "c")
    wait_until(lambda: "c1" not in envoy.clusters(), "c1 removed")
    extra = r.listener("extra", r.rds("web", source))
    server.push(server.group, [*r.web_resources("c2", c.port, source=source), extra])
    wait_body(envoy.wait_listener("extra"), "c")
    server.push(server.group, r.web_resources("c2", c.port, source=source))
    wait_until(lambda: set(envoy.listener_ports()) == {"web"}, "listener removed")
    assert get(port).text == "c"
    assert envoy.fetch_timeouts() == {}


@in_variants(Variant.ADS_SOTW, Variant.ADS_DELTA, others=tuple(Variant))
def test_changed_cluster_is_warmed_by_its_endpoints(
    server: ServerProcess, connect: Connect, upstream: StartUpstream, variant: Variant
) -> None:
    # docs/internals/clients.md#warming: a changed EDS cluster waits for EDS again; unanswered it becomes active after
    # 15 s.
    source = variant.config_source
    a = upstream("a")
    _, *rest = r.web_resources("c1", a.port, source=source)
    server.push(server.group, [r.eds_cluster("c1", source), *rest])
    envoy = connect(variant).wait_live()
    wait_body(envoy.wait_listener("web"), "a")
    server.push(server.group, [r.eds_cluster("c1", source, per_connection_buffer_limit_bytes=50_000), *rest])
    wait_until(lambda: _buffer_limit(envoy, "c1") == 50_000, "the changed cluster is active")
    wait_until_nothing_warms(envoy)
    assert envoy.endpoint_ports("c1") == {a.port}
    assert envoy.fetch_timeouts() == {}


def _buffer_limit(envoy: EnvoyProcess, name: str) -> int:
    clusters = [entry["cluster"] for entry in envoy.config_dump(resource="dynamic_active_clusters")]
    return sum(
        int(cluster.get("per_connection_buffer_limit_bytes", 0)) for cluster in clusters if cluster["name"] == name
    )


@in_variants(Variant.ADS_SOTW, Variant.SPLIT_DELTA)
def test_node_is_shown_as_it_names_itself(
    server: ServerProcess, connect: Connect, upstream: StartUpstream, variant: Variant
) -> None:
    server.push(server.group, r.web_resources("c1", upstream("a").port, source=variant.config_source))
    connect(variant, locality={"region": "eu", "zone": "1a"}, metadata={"role": "edge"}).wait_live()
    server.wait_synced(server.group, server.node)
    node = server.nodes()[server.node]
    assert (node["cluster"], node["group"], node["locality"]["zone"]) == (server.group, server.group, "1a")
    assert "1.40" in str(node["user_agent"])
    assert {"clusters", "endpoints", "listeners", "routes"} <= set(node["types"])
    assert "c1" in str(node["types"]["endpoints"])


@in_variants(Variant.ADS_SOTW, others=[Variant.ADS_DELTA])
def test_node_in_every_message(
    server: ServerProcess, connect: Connect, upstream: StartUpstream, variant: Variant
) -> None:
    server.push(server.group, r.web_resources("c1", upstream("a").port))
    envoy = connect(variant, node_on_first_message_only=False).wait_live()
    port = envoy.wait_listener("web")
    server.push(server.group, r.web_resources("c2", upstream("b").port))
    wait_body(port, "b")
    server.wait_synced(server.group, server.node)


@in_variants(Variant.ADS_SOTW, others=[Variant.ADS_DELTA])
def test_group_that_appears_later_is_served(
    server: ServerProcess, connect: Connect, upstream: StartUpstream, variant: Variant
) -> None:
    envoy = connect(variant)
    wait_until(lambda: server.node in server.nodes(), "the node is known")
    server.push(server.group, r.web_resources("c1", upstream("a").port))
    wait_body(envoy.wait_live().wait_listener("web"), "a")


@in_variants(Variant.ADS_DELTA, others=[Variant.ADS_SOTW])
def test_group_named_like_the_node_wins(
    server: ServerProcess, connect: Connect, upstream: StartUpstream, variant: Variant
) -> None:
    server.push("default", r.web_resources("c1", upstream("default").port))
    envoy = connect(variant).wait_live()
    port = envoy.wait_listener("web")
    wait_body(port, "default")
    server.push(server.group, r.web_resources("c1", upstream("by-cluster").port))
    wait_body(port, "by-cluster")
    server.push(server.node, r.web_resources("c1", upstream("by-id").port))
    wait_body(port, "by-id")
