"""What config entries say is what requests do: written over the admin API, run by real Envoys and gRPC clients."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.mesh_site import GROUPS, HTTP, Json, Mesh
from tests.support.background import Background
from tests.support.bootstrap import Variant, grpc_bootstrap
from tests.support.envoy import get, wait_body
from tests.support.grpc_client import GrpcBackend, GrpcClient
from tests.support.load import HttpLoad
from tests.support.process import LOOPBACK, free_port, wait_until
from tests.support.server import ServerProcess
from tests.support.upstream import Upstream

USERS = 20  # that are spread over the instances of a service by a hash
# Connections that are older than a change of a listener keep its old routes, as long as Envoy drains them.
PER_CONNECTION = 50
GRPC_CALLS = 200


class PathUpstream(Upstream):
    """Its answers have the request's path in ``x-path``."""

    def answer(self, path: bytes, head: bytes) -> Any:
        answer, delay_s = super().answer(path, head)
        return replace(answer, head=f"x-path: {path.decode()}\r\n"), delay_s


@pytest.fixture
def paths(background: Background, running: ExitStack) -> Callable[[str], Upstream]:
    def start(name: str) -> Upstream:
        started = PathUpstream(background, name)
        running.callback(started.close)
        return started

    return start


def to_service(service: str, **more: Any) -> Json:
    return {"Service": service, **more}


ROUTES: list[Json] = [
    {"Match": {"HTTP": {"Header": [{"Name": "x-debug", "Exact": "1"}]}}, "Destination": to_service("debug")},
    {"Match": {"HTTP": {"QueryParam": [{"Name": "beta", "Present": True}]}}, "Destination": {"ServiceSubset": "v2"}},
    {
        "Match": {"HTTP": {"PathPrefix": "/api"}},
        "Destination": to_service("api", PrefixRewrite="/internal/api"),
    },
    {"Match": {"HTTP": {"PathExact": "/hashed"}}, "Destination": to_service("hashed")},
    {"Match": {"HTTP": {"PathPrefix": "/old"}}, "Destination": to_service("old", PrefixRewrite="/")},
    {
        "Match": {"HTTP": {"PathExact": "/retried"}},
        "Destination": to_service("shaky", NumRetries=8, RetryOnStatusCodes=[503]),
    },
]
HASHED: Json = {
    "Policy": "ring_hash",
    "RingHashConfig": {"MinimumRingSize": 512},
    "HashPolicies": [{"Field": "header", "FieldValue": "x-user"}],
}
EVERY_KIND: list[Json] = [
    HTTP,
    {"Kind": "service-router", "Name": "web", "Routes": ROUTES},
    {
        "Kind": "service-resolver",
        "Name": "web",
        "DefaultSubset": "v1",
        "Subsets": {each: {"Filter": f"Service.Meta.version == {each}"} for each in ("v1", "v2")},
    },
    {"Kind": "service-resolver", "Name": "hashed", "LoadBalancer": HASHED},
    {"Kind": "service-resolver", "Name": "old", "Redirect": {"Service": "api"}},
]
# Path, headers, who answers, and the path that it sees.
REQUESTS: list[tuple[str, dict[str, str], str, str]] = [
    ("/", {}, "web-v1", "/"),
    ("/", {"x-debug": "1"}, "debug", "/"),
    ("/", {"x-debug": "2"}, "web-v1", "/"),
    ("/api", {"x-debug": "1"}, "debug", "/api"),
    ("/page?beta", {}, "web-v2", "/page?beta"),
    ("/page?alpha", {}, "web-v1", "/page?alpha"),
    ("/api/users?id=1", {}, "api", "/internal/api/users?id=1"),
    ("/old/users", {}, "api", "/users"),
    ("/retried", {}, "good", "/retried"),
]


@pytest.mark.parametrize("group", ["delta", pytest.param("sotw", marks=pytest.mark.soak)])
def test_requests_go_where_routes_of_every_kind_say(
    server: ServerProcess, paths: Callable[[str], Upstream], tmp_path: Path, running: ExitStack, group: str
) -> None:
    """By header, path and query; prefix rewrite; subset by metadata; redirect; retry on 503; hash stickiness."""
    mesh = Mesh(server)
    mesh.register("web", paths("web-v1"), version="v1")
    mesh.register("web", paths("web-v2"), version="v2")
    for service in ("debug", "api"):
        mesh.register(service, paths(service))
    hashed = {f"hashed-{n}" for n in range(3)}
    for name in hashed:
        mesh.register("hashed", paths(name))
    good, bad = paths("good"), paths("bad")
    bad.status = 503
    mesh.register("shaky", good)
    mesh.register("shaky", bad)
    mesh.write(*EVERY_KIND)
    port = free_port()
    mesh.call(group, port)
    envoy = mesh.envoy(group, GROUPS[group], tmp_path, running)
    wait_body(port, "web-v1")
    for path, headers, name, seen in REQUESTS:
        answer = get(port, path=path, **headers)
        assert (answer.text, answer.headers.get("x-path")) == (name, seen), (path, headers)
    assert {get(port, path="/retried").text for _ in range(20)} == {"good"}
    assert bad.failures > 0
    by_user = {str(user): {get(port, path="/hashed", x_user=str(user)).text for _ in range(8)} for user in range(USERS)}
    assert all(len(names) == 1 for names in by_user.values()), by_user
    assert {name for names in by_user.values() for name in names} == hashed
    assert server.nacks() == []
    assert envoy.fetch_timeouts() == {}


# Failover


@pytest.fixture
def far(background: Background, running: ExitStack) -> Upstream:
    """The instance in the other datacenter."""
    made = Upstream(background, "far")
    running.callback(made.close)
    return made


@pytest.fixture
def two_datacenters(tmp_path: Path, running: ExitStack, far: Upstream) -> Iterator[ServerProcess]:
    """A server that reads the instances of the other datacenter from a file."""
    instance = {"address": LOOPBACK, "port": far.port, "datacenter": "dc2"}
    (tmp_path / "far.json").write_text(json.dumps({"services": {"web": [instance]}}))
    settings = {"sources": {"far": {"kind": "files", "paths": [str(tmp_path / "far.json")]}}}
    (tmp_path / "xds.yaml").write_text(json.dumps(settings))
    with ServerProcess(tmp_path, ["--config", str(tmp_path / "xds.yaml")]) as server:
        yield server


FAILOVER: Json = {"Targets": [{"Datacenter": "dc2"}, {"Service": "backup"}]}


@pytest.mark.parametrize(
    ("failover", "group"), [("aggregate", "delta"), pytest.param("priority", "sotw", marks=pytest.mark.soak)]
)
def test_an_unhealthy_service_fails_over_and_back_under_load(
    two_datacenters: ServerProcess,
    far: Upstream,
    upstream: Callable[[str], Upstream],
    background: Background,
    tmp_path: Path,
    running: ExitStack,
    failover: str,
    group: str,
) -> None:
    """To another datacenter, and to another service once the entry says so; no request is lost."""
    mesh = Mesh(two_datacenters)
    near, backup = upstream("near"), upstream("backup")
    mesh.register("web", near)
    mesh.register("backup", backup)
    mesh.write(HTTP, {"Kind": "service-resolver", "Name": "web", "Failover": {"*": FAILOVER}})
    port = free_port()
    mesh.call(group, port, failover=failover)
    mesh.envoy(group, GROUPS[group], tmp_path, running)
    wait_body(port, "near")
    mesh.loads[group] = running.enter_context(HttpLoad(background, port, rps=150, per_connection=PER_CONNECTION))
    mesh.wait_answers("near")
    for _ in range(2):
        mesh.maintain(near, out=True)
        mesh.wait_answers("far")
        mesh.maintain(near, out=False)
        mesh.wait_answers("near")
    mesh.maintain(near, out=True)
    mesh.write({"Kind": "service-resolver", "Name": "web", "Failover": {"*": {"Service": "backup"}}})
    mesh.wait_answers("backup")
    mesh.undo()
    mesh.wait_answers("far")
    mesh.maintain(near, out=False)
    mesh.wait_answers("near")
    mesh.wait_synced()
    assert mesh.lost() == []
    assert two_datacenters.nacks() == []


# TCP


def test_a_tcp_chain_is_redirected_under_load(
    server: ServerProcess,
    upstream: Callable[[str], Upstream],
    background: Background,
    tmp_path: Path,
    running: ExitStack,
) -> None:
    """New connections go where the entry says; those that are open stay where they are, as TCP does."""
    mesh = Mesh(server)
    mesh.register("db", upstream("one"))
    mesh.register("other", upstream("two"))
    for group, variant in GROUPS.items():
        port = free_port()
        mesh.call(group, port, "db")
        envoy = mesh.envoy(group, variant, tmp_path, running)
        wait_body(port, "one")
        assert envoy.stat("tcp.upstream.db.default.default.dc1.downstream_cx_total") >= 1
        mesh.loads[group] = running.enter_context(HttpLoad(background, port, rps=100, per_connection=10))
    mesh.wait_answers("one")
    mesh.write({"Kind": "service-resolver", "Name": "db", "Redirect": {"Service": "other"}})
    mesh.wait_answers("two")
    mesh.delete("service-resolver/db")
    mesh.wait_answers("one")
    mesh.wait_synced()
    assert mesh.lost() == []
    assert server.nacks() == []


# gRPC


def test_grpc_through_envoy_and_without_a_proxy(server: ServerProcess, tmp_path: Path, running: ExitStack) -> None:
    """One service, its canary, and a router on the method; every call that is made meanwhile succeeds."""
    backends = {name: running.enter_context(GrpcBackend(name)) for name in ("v1", "v2", "admin")}
    mesh = Mesh(server)
    for service, name in (("web", "v1"), ("web", "v2"), ("admin", "admin")):
        document = {"Name": service, "Address": LOOPBACK, "Port": backends[name].port, "Meta": {"version": name}}
        mesh.ask("PUT", f"/api/v1/registrations/{name}", json=document)
    subsets = {each: {"Filter": f"Service.Meta.version == {each}"} for each in ("v1", "v2")}
    resolver = {"Kind": "service-resolver", "Name": "web", "DefaultSubset": "v1", "Subsets": subsets}
    mesh.write({**HTTP, "Config": {"protocol": "grpc"}}, resolver)
    port = free_port()
    mesh.call("proxied", port)
    mesh.call("proxyless", 0)
    mesh.envoy("proxied", Variant.ADS_DELTA, tmp_path, running)
    bootstrap = grpc_bootstrap(server.grpc_port, node_id="proxyless", node_cluster="test")
    client = running.enter_context(GrpcClient(tmp_path, bootstrap))
    targets = (f"{LOOPBACK}:{port}", "xds:///web")

    def goes_to(*names: str) -> None:
        """Both ways; the calls until then succeed as well."""
        for target in targets:

            def called(target: str = target) -> bool:
                outcomes = [client.call(target) for _ in range(GRPC_CALLS // 10)]
                assert {one.status for one in outcomes} == {"OK"}, outcomes
                return {one.body for one in outcomes} == set(names)

            wait_until(called, f"{target} answered by {names}")

    for target in targets:
        client.wait_body(target, "v1")
    goes_to("v1")
    splits = [{"Weight": 50, "ServiceSubset": "v1"}, {"Weight": 50, "ServiceSubset": "v2"}]
    mesh.write({"Kind": "service-splitter", "Name": "web", "Splits": splits})
    goes_to("v1", "v2")
    match = {"HTTP": {"PathExact": "/test.Name/Get"}}
    mesh.write(
        {"Kind": "service-router", "Name": "web", "Routes": [{"Match": match, "Destination": to_service("admin")}]}
    )
    goes_to("admin")
    mesh.undo()
    goes_to("v1", "v2")
    mesh.delete("service-splitter/web")
    goes_to("v1")
    assert server.nacks() == []
