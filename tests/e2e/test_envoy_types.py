"""A real Envoy follows the types beyond CDS, EDS, LDS and RDS."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support import resources as r
from tests.support.bootstrap import EnvoyBootstrap, Variant
from tests.support.envoy import EnvoyProcess, get, wait_body
from tests.support.pki import CertificateAuthority, served_serial
from tests.support.process import free_port, wait_until
from tests.support.server import ServerProcess
from tests.support.upstream import Upstream

# Longer than any request here waits: an answer before it was not its doing.
NEVER = "60s"

Connect = Callable[..., EnvoyProcess]
StartUpstream = Callable[[str], Upstream]


@pytest.fixture
def server(shared_server: ServerProcess) -> ServerProcess:
    """The server that modules like this one share."""
    shared_server.begin_anew()
    return shared_server


both_variants = pytest.mark.parametrize("variant", [Variant.ADS_SOTW, Variant.ADS_DELTA])


def inline_listener(*routes: r.Json, filters: tuple[r.Json, ...] = ()) -> r.Json:
    """Listener ``web`` with its routes inline."""
    return r.listener("web", r.inline_routes("web", *routes), filters=filters)


@both_variants
def test_secret_rotates_and_a_bad_one_is_refused(
    server: ServerProcess, connect: Connect, tmp_path: Path, variant: Variant
) -> None:
    ca = CertificateAuthority(tmp_path)
    first, second = ca.issue("first"), ca.issue("second")
    routes = r.inline_routes("web", r.direct_route("hi"))
    web = r.listener("web", routes, transport_socket=r.downstream_tls("s1"))
    server.push(server.group, [web, r.tls_secret("s1", first.pem, first.key_pem)])
    envoy = connect(variant).wait_live()
    port = envoy.wait_listener("web")
    assert served_serial(port, ca) == first.serial
    server.push(server.group, [web, r.tls_secret("s1", second.pem, second.key_pem)])
    wait_until(lambda: served_serial(port, ca) == second.serial, "the second certificate is served")
    server.push(server.group, [web, r.tls_secret("s1", r.CERTIFICATE_PEM, second.key_pem)])
    assert "Failed to load certificate chain" in str(server.wait_nack(server.node, "secrets"))
    assert served_serial(port, ca) == second.serial
    server.push(server.group, [web, r.tls_secret("s1", first.pem, first.key_pem)])
    wait_until(lambda: served_serial(port, ca) == first.serial, "the first certificate is back")
    assert envoy.stat("listener_manager.listener_modified") == 0
    assert envoy.fetch_timeouts() == {}


@both_variants
def test_cluster_trusts_by_sds(
    server: ServerProcess, connect: Connect, tmp_path: Path, secure_upstream: Callable[..., Upstream], variant: Variant
) -> None:
    ca, stranger = CertificateAuthority(tmp_path), CertificateAuthority(tmp_path, "stranger")
    port = secure_upstream("secure", ca.issue("web")).port
    cluster = r.static_cluster("c1", port, transport_socket=r.upstream_tls("trust", "localhost"))
    server.push(server.group, [cluster, inline_listener(r.route("c1")), r.trust_secret("trust", stranger.pem)])
    envoy = connect(variant).wait_live()
    web = envoy.wait_listener("web")
    assert get(web).status_code == 503
    server.push(server.group, [cluster, inline_listener(r.route("c1")), r.trust_secret("trust", ca.pem)])
    wait_body(web, "secure")
    assert envoy.fetch_timeouts() == {}


@both_variants
def test_filter_configuration_is_discovered(server: ServerProcess, connect: Connect, variant: Variant) -> None:
    web = inline_listener(r.direct_route("hi"), filters=(r.discovered_filter("ec1"),))
    server.push(server.group, [web, r.header_extension("ec1", "x-ecds", "one")])
    envoy = connect(variant).wait_live()
    port = envoy.wait_listener("web")
    wait_until(lambda: get(port).headers.get("x-ecds") == "one", "the filter's first configuration")
    server.push(server.group, [web, r.header_extension("ec1", "x-ecds", "two")])
    wait_until(lambda: get(port).headers.get("x-ecds") == "two", "the filter's second configuration")
    assert envoy.stat("listener_manager.listener_modified") == 0
    assert envoy.fetch_timeouts() == {}


@both_variants
def test_runtime_layer_is_followed(
    server: ServerProcess, connect: Connect, upstream: StartUpstream, variant: Variant
) -> None:
    clusters = [r.static_cluster("c1", upstream("a").port), r.static_cluster("c2", upstream("b").port)]
    base = [*clusters, inline_listener(r.runtime_route("c2", "use_c2", 0), r.route("c1"))]
    server.push(server.group, [*base, r.runtime("rt", use_c2=0)])
    envoy = connect(variant, runtime_layers=("rt",)).wait_live()
    port = envoy.wait_listener("web")
    wait_body(port, "a")
    server.push(server.group, [*base, r.runtime("rt", use_c2=100)])
    wait_body(port, "b")
    assert envoy.fetch_timeouts() == {}


@both_variants
def test_runtime_layer_that_does_not_exist_does_not_delay(
    server: ServerProcess, connect: Connect, variant: Variant
) -> None:
    server.push(server.group, [inline_listener(r.direct_route("hi"))])
    envoy = connect(variant, runtime_layers=("nowhere",))
    if variant is Variant.ADS_DELTA:  # SotW cannot say that a layer does not exist: Envoy's timer decides
        envoy.wait_live()
        assert envoy.fetch_timeouts() == {}
    wait_until(lambda: server.node in server.nodes(), "the node is known")


@both_variants
@pytest.mark.parametrize("on_demand", [False, True])
def test_scopes_choose_the_routes(
    server: ServerProcess, connect: Connect, upstream: StartUpstream, variant: Variant, on_demand: bool
) -> None:
    filters = [r.on_demand_filter()] if on_demand else []
    web = r.listener("web", r.scopes("x-scope"), filters=filters)
    clusters = [r.static_cluster("c1", upstream("a").port), r.static_cluster("c2", upstream("b").port)]
    tables = [r.route_config("rA", r.route("c1")), r.route_config("rB", r.route("c2"))]
    first, second = r.scoped_route("sA", "rA", "A"), r.scoped_route("sB", "rB", "B", on_demand)
    server.push(server.group, [*clusters, web, *tables, first, second])
    envoy = connect(variant).wait_live()
    port = envoy.wait_listener("web")
    wait_body(port, "a", x_scope="A")
    wait_body(port, "b", x_scope="B")
    server.push(server.group, [*clusters, web, *tables, r.scoped_route("sA", "rB", "A"), second])
    wait_body(port, "b", x_scope="A")
    server.push(server.group, [*clusters, web, *tables, second])
    wait_until(lambda: get(port, x_scope="A").status_code == 404, "the scope is gone")
    wait_body(port, "b", x_scope="B")
    assert envoy.fetch_timeouts() == {}


def test_virtual_hosts_on_demand(server: ServerProcess, connect: Connect, upstream: StartUpstream) -> None:
    clusters = [r.static_cluster("c1", upstream("a").port), r.static_cluster("c2", upstream("b").port)]
    web = r.listener("web", r.rds("table"), filters=[r.on_demand_filter()])
    base = [*clusters, web, r.vhds_route_config("table")]
    server.push(server.group, [*base, _served_host("foo.com", "c1"), _served_host("bar.com", "c2")])
    envoy = connect(Variant.ADS_DELTA).wait_live()
    port = envoy.wait_listener("web")
    wait_body(port, "a", "foo.com")
    wait_body(port, "b", "bar.com")
    # docs/internals/clients.md#vhds: removed_resources leaves the request hanging; a Resource with name and alias
    # gives 404.
    assert get(port, "unknown.com").status_code == 404
    server.push(server.group, [*base, _served_host("foo.com", "c2"), _served_host("bar.com", "c2")])
    wait_body(port, "b", "foo.com")
    server.push(server.group, [*base, _served_host("foo.com", "c2"), _served_host("unknown.com", "c1")])
    wait_body(port, "a", "unknown.com")
    wait_until(lambda: get(port, "bar.com").status_code == 404, "bar.com is gone")
    assert envoy.fetch_timeouts() == {}


def test_virtual_hosts_of_a_route_that_has_none_yet(
    server: ServerProcess, connect: Connect, upstream: StartUpstream
) -> None:
    """The listener serves at once, and the first host is taken when it comes."""
    web = r.listener("web", r.rds("table"), filters=[r.on_demand_filter()])
    base = [r.static_cluster("c1", upstream("a").port), web, r.vhds_route_config("table")]
    server.push(server.group, base)
    envoy = connect(Variant.ADS_DELTA).wait_live()
    port = envoy.wait_listener("web")
    assert get(port, "foo.com").status_code == 404
    server.push(server.group, [*base, _served_host("foo.com", "c1")])
    wait_body(port, "a", "foo.com")
    assert envoy.fetch_timeouts() == {}


def test_a_domain_inline_and_by_vhds_is_refused(server: ServerProcess) -> None:
    """Envoy rejects it (docs/internals/clients.md#vhds): the server refuses the push of the host alone, too."""
    table = {**r.vhds_route_config("table"), "virtual_hosts": [r.host("own", [r.route("c1")], ["foo.com"])]}
    base = [r.static_cluster("c1", 80), r.listener("web", r.rds("table"), filters=[r.on_demand_filter()]), table]
    server.push(server.group, [*base, _served_host("bar.com", "c1")])
    path = f"/api/v1/groups/{server.group}/resources"
    answer = server.request("PUT", f"{path}/virtual_hosts/table%2Ffoo.com", json=_served_host("foo.com", "c1"))
    assert answer.status_code == 422, answer.text
    (error,) = answer.json()["errors"]
    assert (error["code"], error["resource"]) == ("duplicate_domain", "virtual_hosts/table/foo.com")


@both_variants
def test_listeners_that_swap_ports_are_warned_of_and_swap_by_way_of_a_third(
    server: ServerProcess, connect: Connect, upstream: StartUpstream, variant: Variant
) -> None:
    clusters = [r.static_cluster(name, upstream(name).port) for name in "ab"]
    first, second, third = free_port(), free_port(), free_port()

    def at(**ports: int) -> list[r.Json]:
        pairs = ports.items()
        return [*clusters, *(r.listener(name, r.inline_routes(name, r.route(name)), port) for name, port in pairs)]

    server.push(server.group, at(a=first, b=second))
    envoy = connect(variant).wait_live()
    wait_body(first, "a")
    wait_body(second, "b")
    pushed = server.request("PUT", f"/api/v1/groups/{server.group}/snapshot", json={"resources": at(a=second, b=first)})
    assert {one["code"] for one in pushed.json()["warnings"]} == {"address_in_use"}
    envoy.wait_stat("listener_manager.lds.update_rejected", 1)
    server.push(server.group, at(a=first, b=second))
    wait_body(first, "a")
    wait_body(second, "b")
    for ports in ({"a": third, "b": second}, {"a": third, "b": first}, {"a": second, "b": first}):
        pushed = server.request("PUT", f"/api/v1/groups/{server.group}/snapshot", json={"resources": at(**ports)})
        assert pushed.json()["warnings"] == []
        for name, port in ports.items():
            wait_body(port, name)
    assert envoy.stat("listener_manager.lds.update_rejected") == 1


def _served_host(domain: str, cluster: str) -> r.Json:
    return r.virtual_host(f"table/{domain}", [r.route(cluster)], [domain])


@pytest.mark.parametrize("wildcard", [False, True])
def test_clusters_on_demand(server: ServerProcess, connect: Connect, upstream: StartUpstream, wildcard: bool) -> None:
    """Without CDS in the bootstrap a cluster comes on demand only; with it the wildcard must survive the demand."""
    filters = (r.on_demand_filter(r.ADS, timeout=NEVER),)
    web = inline_listener(r.header_route("x-cluster"), filters=filters)
    a, b = upstream("a"), upstream("b")
    server.push(server.group, [web, r.eds_cluster("od1"), r.cluster_load_assignment("od1", a.port)])
    dynamic = EnvoyBootstrap(0).document()["dynamic_resources"]
    if not wildcard:
        del dynamic["cds_config"]
    envoy = connect(Variant.ADS_DELTA, changes={"dynamic_resources": dynamic}).wait_live()
    port = envoy.wait_listener("web")
    assert get(port, x_cluster="od1").text == "a"
    assert get(port, x_cluster="missing").status_code == 503
    assert get(port, x_cluster="od1").text == "a"
    server.push(server.group, [web, r.eds_cluster("od1"), r.cluster_load_assignment("od1", b.port)])
    wait_body(port, "b", x_cluster="od1")
    assert envoy.fetch_timeouts() == {}
