"""A rejected resource stops no others, and a new rejected resource does not make Envoy go live empty."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.e2e import swap_kinds as kinds
from tests.e2e.swap_site import ReconnectingLoad, SwapSite, SwapSites
from tests.support import resources as r
from tests.support.bootstrap import EnvoyBootstrap, Variant
from tests.support.envoy import EnvoyProcess, get
from tests.support.process import wait_until
from tests.support.server import GROUP, NODE, ServerProcess

ASSIGNMENTS, GUILTY = 50, 13
SOON_S = 10.0  # it takes about one
FETCH_TIMEOUT = "1s"
STEADY_S = 2.0


# One among many


def many(variant: Variant, port: int, guilty: int | None = None) -> list[r.Json]:
    """Clusters whose assignments have one port, one of them refused."""
    clusters = [r.eds_cluster(f"e{number}", variant.config_source) for number in range(ASSIGNMENTS)]
    made = [
        r.refused_load_assignment if number == guilty else r.cluster_load_assignment for number in range(ASSIGNMENTS)
    ]
    web = r.listener("web", r.inline_routes("web", r.route("e0")))
    return [web, *clusters, *(make(f"e{number}", port) for number, make in enumerate(made))]


def wait_moved(envoy: EnvoyProcess, port: int, guilty: int | None = None) -> None:
    """Wait until all clusters but the rejected one have a port."""

    def moved() -> bool:
        found = {name: ports(item) for name, item in envoy.clusters().items() if name.startswith("e")}
        return all(found[f"e{number}"] == {port} for number in range(ASSIGNMENTS) if number != guilty)

    wait_until(moved, f"the assignments are at {port}", SOON_S)


def ports(cluster: r.Json) -> set[int]:
    """Ports of the hosts of one of Envoy's clusters."""
    return {item["address"]["socket_address"]["port_value"] for item in cluster.get("host_statuses", [])}


@pytest.mark.parametrize(
    "variant",
    [
        Variant.ADS_DELTA,
        Variant.SPLIT_SOTW,
        pytest.param(Variant.ADS_SOTW, marks=pytest.mark.soak),
        pytest.param(Variant.SPLIT_DELTA, marks=pytest.mark.soak),
    ],
)
def test_one_refused_assignment_among_many(
    server: ServerProcess, tmp_path: Path, running: ExitStack, variant: Variant
) -> None:
    server.push(GROUP, many(variant, 1))
    bootstrap = EnvoyBootstrap(server.grpc_port, variant)
    envoy = running.enter_context(EnvoyProcess(tmp_path, bootstrap)).wait_live()
    server.wait_synced(GROUP, NODE)
    server.push(GROUP, many(variant, 2, GUILTY))
    wait_moved(envoy, 2, GUILTY)
    wait_until(
        lambda: any(one.get("guilty") == [f"e{GUILTY}"] for one in server.nacks(node=NODE, type="endpoints")),
        "the guilty one is named",
        SOON_S,
        detail=lambda: server.nacks(node=NODE),
    )
    assert envoy.endpoint_ports(f"e{GUILTY}") == {1}
    server.push(GROUP, many(variant, 3, GUILTY))
    wait_moved(envoy, 3, GUILTY)
    server.push(GROUP, many(variant, 4))
    wait_moved(envoy, 4)
    server.wait_synced(GROUP, NODE)


# What is new


@pytest.mark.parametrize(
    "variant",
    [
        Variant.ADS_SOTW,
        pytest.param(Variant.ADS_DELTA, marks=pytest.mark.soak),
        pytest.param(Variant.SPLIT_SOTW, marks=pytest.mark.soak),
        pytest.param(Variant.SPLIT_DELTA, marks=pytest.mark.soak),
    ],
)
def test_new_assignment_is_refused(sites: SwapSites, variant: Variant) -> None:
    """Envoy takes the cluster for warm, without endpoints, and ACKs it: no route may refer to it."""
    site = sites.open(kinds.routes_move, variant)
    refused = r.refused_load_assignment(kinds.name(1), site.scene.upstream(1).port)
    site.server.push(GROUP, [refused if is_assignment(one) else one for one in site.kind(site.scene, 1)])
    site.server.wait_nack(NODE, "endpoints")
    site.settle()
    site.swap()
    site.wait_synced()
    site.end()


@pytest.mark.parametrize(
    "variant",
    [
        Variant.ADS_DELTA,
        pytest.param(Variant.ADS_SOTW, marks=pytest.mark.soak),
        pytest.param(Variant.SPLIT_SOTW, marks=pytest.mark.soak),
        pytest.param(Variant.SPLIT_DELTA, marks=pytest.mark.soak),
    ],
)
def test_assignment_that_a_cluster_in_use_is_to_get_is_refused(sites: SwapSites, variant: Variant) -> None:
    """Envoy would take the cluster for warm after its fetch timeout, without endpoints: it stays as it was."""
    site = sites.open(kinds.routes_move, variant)
    before, port = site.kind(site.scene, 0), site.scene.upstream(0).port
    refused = [r.eds_cluster("other", site.scene.source, "shared"), r.refused_load_assignment("shared", port)]
    site.server.push(GROUP, [*before, *refused])
    site.server.wait_nack(NODE, "endpoints")
    source = {**site.scene.source, "initial_fetch_timeout": FETCH_TIMEOUT}
    changed = r.eds_cluster(kinds.name(0), source, "shared", **kinds.MANY_RETRIES)
    site.server.push(GROUP, [changed if one.get("name") == kinds.name(0) else one for one in before] + refused)
    site.settle()
    site.swap()
    site.wait_synced()
    site.end()


def is_assignment(resource: r.Json) -> bool:
    """Whether a resource has endpoints."""
    return bool(resource["@type"] == r.ENDPOINT_TYPE)


def refused_routes(site: SwapSite) -> tuple[str, list[r.Json]]:
    """A listener whose new route configuration Envoy refuses: it asks for a check that finds a cluster missing."""
    refused = {**kinds.route_config("r1", kinds.to_cluster("nowhere")), "validate_clusters": True}
    return "routes", [*site.scene.clusters(1), site.scene.listener(site.scene.rds("r1")), refused]


def refused_extension(site: SwapSite) -> tuple[str, list[r.Json]]:
    """A listener with a new filter whose discovered configuration is of another type than it says."""
    guard = r.discovered_filter("guard", r.HEADER_MUTATION_TYPE, site.scene.source)
    wrong = {"@type": r.EXTENSION_TYPE, "name": "guard", "typed_config": r.deny_filter()["typed_config"]}
    listener = r.listener("web", site.scene.rds("r0"), site.scene.port, [guard])
    others = [one for one in site.kind(site.scene, 0) if one["@type"] != r.LISTENER_TYPE]
    return "extension_configs", [*others, listener, wrong]


Refused = Callable[[SwapSite], tuple[str, list[r.Json]]]


@pytest.mark.parametrize(
    ("variant", "push_refused"),
    [
        (Variant.ADS_DELTA, refused_routes),
        pytest.param(Variant.ADS_SOTW, refused_extension, marks=pytest.mark.soak),
        pytest.param(Variant.ADS_SOTW, refused_routes, marks=pytest.mark.soak),
        pytest.param(Variant.ADS_DELTA, refused_extension, marks=pytest.mark.soak),
        pytest.param(Variant.SPLIT_DELTA, refused_routes, marks=pytest.mark.soak),
        pytest.param(Variant.SPLIT_DELTA, refused_extension, marks=pytest.mark.soak),
        pytest.param(Variant.SPLIT_SOTW, refused_extension, marks=pytest.mark.soak),
    ],
)
def test_a_listener_goes_back_when_a_resource_that_it_newly_names_is_rejected(
    sites: SwapSites, variant: Variant, push_refused: Refused
) -> None:
    site = sites.open(kinds.route_config_is_renamed, variant, load=ReconnectingLoad)
    alias, resources = push_refused(site)
    site.server.push(GROUP, resources)
    site.server.wait_nack(NODE, alias)
    deadline = time.monotonic() + SOON_S
    steady_since = time.monotonic()
    while time.monotonic() - steady_since < STEADY_S:
        if not served(site, "a"):
            steady_since = time.monotonic()
        assert time.monotonic() < deadline, "new connections are not served as before"
    site.swap()
    site.wait_synced()


def served(site: SwapSite, body: str) -> bool:
    """Whether a new connection is answered by an upstream."""
    answer = get(site.scene.port)
    return (answer.status_code, answer.text) == (200, body)


@pytest.mark.soak
@pytest.mark.parametrize("variant", [Variant.ADS_SOTW, Variant.ADS_DELTA])
def test_one_refused_cluster_among_many(sites: SwapSites, variant: Variant) -> None:
    """The others of the push are swapped as if it were not there."""
    site = sites.open(kinds.routes_move, variant)
    site.push([r.refused_cluster("bad")])
    site.wait_served()
    site.settle()
    assert [one for one in site.server.nacks(node=NODE) if "bad" in str(one)]
    site.swap()
    site.wait_synced()
    site.end()
