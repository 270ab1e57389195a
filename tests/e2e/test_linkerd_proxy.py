"""A real linkerd2-proxy takes everything from this server, under load: no request may be lost.

In its normal mode it takes the address of a connection, which the kernel redirects to it; in ingress mode the name in a
header. `make linkerd` runs these tests, each in a network of its own (`tests.support.linkerd_binary` finds the proxy).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.support.background import Background
from tests.support.linkerd_binary import linkerd_proxy
from tests.support.linkerd_mesh import HTTP, LinkerdMesh, wait_bodies
from tests.support.load import HttpLoad
from tests.support.own_network import OWN_ADDRESS, own_network
from tests.support.process import REPOSITORY, wait_until
from tests.support.resources import (
    LISTENER_TYPE,
    cluster_load_assignment,
    eds_cluster,
    http_chain,
    rds,
    route,
    route_config,
)
from tests.support.upstream import Upstream

pytestmark = [pytest.mark.linkerd, pytest.mark.timeout(600)]

VIRTUAL = {"web": "10.96.0.10", "api": "10.96.0.11", "pushed": "10.96.0.12"}
NODE = "client-1.default"
HTTP_ROUTES = "outbound_http_route_request_statuses_total"  # a metric of the proxy
MODES = pytest.mark.parametrize("is_ingress", [False, True], ids=["sidecar", "ingress"])


@pytest.fixture(scope="module")
def binary() -> Path:
    return linkerd_proxy()


@pytest.fixture
def mesh(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[LinkerdMesh]:
    """Everything that a test starts is in its network. A parameter is what routes requests."""
    with own_network(), ExitStack() as running:
        routing = getattr(request, "param", "profiles")
        yield LinkerdMesh(tmp_path, running.enter_context(Background()), running, VIRTUAL, routing)


def lost_nothing(*loads: HttpLoad) -> None:
    for load in loads:
        report = load.stop()
        assert not report.failed, f"{report.failed} of {report.total}: {report.samples}"


@MODES
def test_requests_are_balanced_over_the_endpoints_and_stay_through_churn(
    mesh: LinkerdMesh, binary: Path, is_ingress: bool
) -> None:
    ups = [mesh.upstream(name) for name in "abcd"]
    mesh.put("web", ups[:2])
    mesh.proxy(binary, is_ingress=is_ingress)
    load = mesh.load("web", is_ingress=is_ingress)
    answered = wait_bodies(load, {"a", "b"}, 400)
    assert min(answered.values()) > 400 * 0.2, answered
    for held in (ups, ups[1:], ups[3:], ups[:3]):
        mesh.put("web", held)
        wait_bodies(load, {one.name for one in held})
    lost_nothing(load)


def test_the_environment_of_the_example_is_that_of_a_proxy(mesh: LinkerdMesh, binary: Path) -> None:
    """It is in ingress mode."""
    up = mesh.upstream("a")
    mesh.put("web", [up])
    mesh.proxy(binary, is_ingress=True, example=REPOSITORY / "examples/linkerd/proxy.env")
    load = mesh.load("web", is_ingress=True)
    wait_bodies(load, {"a"})
    lost_nothing(load)
    assert mesh.server.nodes()[NODE]["locality"]["zone"] == "a"


@MODES
@pytest.mark.parametrize("ends", ["stop", "kill"])
def test_requests_continue_while_the_server_is_away_and_follow_it_afterwards(
    mesh: LinkerdMesh, binary: Path, is_ingress: bool, ends: str
) -> None:
    ups = [mesh.upstream(name) for name in "abc"]
    mesh.put("web", ups[:2])
    mesh.proxy(binary, is_ingress=is_ingress)
    load = mesh.load("web", is_ingress=is_ingress)
    wait_bodies(load, {"a", "b"})
    getattr(mesh.server, ends)()
    wait_bodies(load, {"a", "b"}, 500)
    mesh.put("web", ups[1:])  # while nobody tells the proxy
    mesh.server.start()
    wait_bodies(load, {"b", "c"})
    lost_nothing(load)


@MODES
@pytest.mark.parametrize("mesh", ["profiles", "policies"], indirect=True)
def test_a_splitter_is_followed(mesh: LinkerdMesh, binary: Path, is_ingress: bool) -> None:
    old, new = mesh.upstream("old"), mesh.upstream("new")
    mesh.put("web", [old, new], {"old": {"version": "1"}, "new": {"version": "2"}})
    mesh.proxy(binary, is_ingress=is_ingress)
    load = mesh.load("web", is_ingress=is_ingress, per_connection=50)
    wait_bodies(load, {"old", "new"})
    mesh.write(HTTP, SUBSETS, _splitter(90, 10))
    wait_until(lambda: _share(load) < 0.2, "a tenth to the new version", detail=lambda: load.report)
    assert 0.06 < _share(load, 2_000) < 0.14
    mesh.write(_splitter(0, 100))
    wait_bodies(load, {"new"})
    mesh.write(_splitter(50, 50))
    wait_bodies(load, {"old", "new"})
    assert 0.4 < _share(load, 600) < 0.6
    lost_nothing(load)


def test_connections_to_an_opaque_port_are_balanced(mesh: LinkerdMesh, binary: Path) -> None:
    ups = [mesh.upstream(name) for name in "abc"]
    mesh.put("web", ups[:2], {name: {"linkerd-opaque-ports": "80"} for name in "abc"})
    proxy = mesh.proxy(binary, is_ingress=False)
    load = mesh.load("web", is_ingress=False, per_connection=5)
    wait_bodies(load, {"a", "b"})
    mesh.put("web", ups[1:], {name: {"linkerd-opaque-ports": "80"} for name in "abc"})
    wait_bodies(load, {"b", "c"})
    lost_nothing(load)
    assert not proxy.metrics(HTTP_ROUTES), "to the proxy it was not HTTP"


def test_a_service_that_comes_late_is_reached_then(mesh: LinkerdMesh, binary: Path) -> None:
    """Until then the proxy is told that it does not exist, and answers at once itself."""
    mesh.put("web", [mesh.upstream("a")])
    proxy = mesh.proxy(binary, is_ingress=True)
    load = mesh.load("api", is_ingress=True)
    wait_until(lambda: load.report.failed > 20, "answers of the proxy itself", detail=lambda: load.report)
    mesh.put("api", [mesh.upstream("late")])
    wait_bodies(load, {"late"}, 300)
    assert proxy.metrics(HTTP_ROUTES)


def test_an_address_moves_to_another_service(mesh: LinkerdMesh, binary: Path) -> None:
    """Both have it for a while. What is final to a proxy is not said then: it would never follow the address again."""
    old, new = mesh.upstream("old"), mesh.upstream("new")
    mesh.put("web", [old])
    mesh.proxy(binary, is_ingress=False)
    load = mesh.load("web", is_ingress=False)
    wait_bodies(load, {"old"})
    mesh.put("api", [new], virtual=VIRTUAL["web"])
    wait_bodies(load, {"old"}, 300)
    mesh.put("web", [old], virtual="")
    wait_bodies(load, {"new"})
    lost_nothing(load)


def test_pushed_snapshots_are_enough_and_followed_into_another_group(mesh: LinkerdMesh, binary: Path) -> None:
    """The cluster is behind a listener at a virtual address, and its name is of none of the grammars."""
    ups = [mesh.upstream(name) for name in "abc"]
    mesh.server.push("default", pushed(ups[:1]))
    mesh.proxy(binary, is_ingress=False)
    load = mesh.load("pushed", is_ingress=False)
    wait_bodies(load, {"a"})
    mesh.server.push("default", pushed(ups[:2]))
    wait_bodies(load, {"a", "b"})
    mesh.server.push(NODE, pushed(ups[2:]))
    wait_bodies(load, {"c"})
    assert mesh.server.request("DELETE", f"/api/v1/groups/{NODE}?allow_empty=true").is_success
    wait_bodies(load, {"a", "b"})
    lost_nothing(load)


def pushed(upstreams: list[Upstream]) -> list[dict[str, Any]]:
    """A listener, its routes, and a cluster with these endpoints."""
    place = {"socket_address": {"address": VIRTUAL["pushed"], "port_value": 80}}
    bound = {"@type": LISTENER_TYPE, "name": "l", "address": place, "filter_chains": [http_chain("c", rds("r"))]}
    ends = [
        {"endpoint": {"address": {"socket_address": {"address": OWN_ADDRESS, "port_value": one.port}}}}
        for one in upstreams
    ]
    assignment = {**cluster_load_assignment("pushed.example"), "endpoints": [{"lb_endpoints": ends}]}
    return [bound, route_config("r", route("pushed.example")), eds_cluster("pushed.example"), assignment]


ROUTES: list[dict[str, Any]] = [
    {"Match": {"HTTP": {"PathPrefix": "/api"}}, "Destination": {"Service": "api", "RequestTimeout": "5s"}},
    {"Match": {"HTTP": {"Header": [{"Name": "x-new", "Exact": "1"}]}}, "Destination": {"ServiceSubset": "v2"}},
]


@MODES
@pytest.mark.parametrize("mesh", ["policies"], indirect=True)
def test_a_router_is_followed_by_path_and_header(mesh: LinkerdMesh, binary: Path, is_ingress: bool) -> None:
    """The first route that matches wins, though the second one is more specific to the proxy."""
    old, new, api = (mesh.upstream(name) for name in ("old", "new", "api"))
    mesh.put("web", [old, new], {"old": {"version": "1"}, "new": {"version": "2"}})
    mesh.put("api", [api])
    mesh.write(HTTP, SUBSETS, {"Kind": "service-router", "Name": "web", "Routes": ROUTES})
    mesh.proxy(binary, is_ingress=is_ingress)
    plain, by_header, by_path, by_both = (
        mesh.load("web", is_ingress=is_ingress, connections=2, path=path, headers=headers)
        for path in ("/", "/api/1")
        for headers in ({}, {"x-new": "1"})
    )
    wait_bodies(plain, {"old", "new"}, 100)
    for load, name in ((by_path, "api"), (by_header, "new"), (by_both, "api")):
        wait_bodies(load, {name}, 100)
        assert set(load.report.bodies) == {name}
    mesh.write({"Kind": "service-router", "Name": "web", "Routes": ROUTES[1:]})
    wait_bodies(by_path, {"old", "new"}, 100)
    wait_bodies(by_both, {"new"}, 100)
    lost_nothing(plain, by_path, by_header, by_both)


SUBSETS: dict[str, Any] = {
    "Kind": "service-resolver",
    "Name": "web",
    "Subsets": {f"v{n}": {"Filter": f"Service.Meta.version == {n}"} for n in (1, 2)},
}


def _splitter(first: int, second: int) -> dict[str, Any]:
    legs = [{"Weight": first, "ServiceSubset": "v1"}, {"Weight": second, "ServiceSubset": "v2"}]
    return {"Kind": "service-splitter", "Name": "web", "Splits": legs}


def _share(load: HttpLoad, requests: int = 400) -> float:
    """The share of ``new`` among the next requests."""
    before = dict(load.report.bodies)
    load.wait_total(requests)
    found = {name: load.report.bodies[name] - before.get(name, 0) for name in ("old", "new")}
    return found["new"] / sum(found.values())
